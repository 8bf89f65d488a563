//! One segment from its first byte on: which batches count (D5), where a tail is torn, what is
//! damage (D6); its indexes on the way.
//!
//! Owns: the judgement of one file. Never does: changing it. Left: `cursor`, `resync`. Right:
//! `open`.

use super::aborted::aborted_by;
use super::cursor::FileCursor;
use super::resync::{chain_len, first_offset, next_batch};
use super::snapshots::Replay;
use super::{Fault, OpenParams};
use crate::format::batch::BatchHeader;
use crate::format::index;
use crate::format::txn_index::AbortedTxn;
use crate::io::blocking::Blocking;
use crate::io::{Errno, Io};
use crate::log::segment::{Damage, SegmentIndex};
use crate::log::watermarks::Mark;
use crate::types::{Offset, WallMs};

/// What a segment holds.
#[derive(Debug)]
pub(super) struct Scanned {
    /// Behind the last batch that counts.
    pub end: Mark,
    /// What lies behind `end` is a torn tail.
    pub torn: Option<Fault>,
    pub damage: Vec<(Damage, Fault)>,
    /// Damaged bytes were kept in place: nothing may be appended behind them.
    pub keep_closed: bool,
    pub index: SegmentIndex,
    pub first_timestamp: Option<WallMs>,
    /// Transactions that markers in it aborted.
    pub aborted: Vec<AbortedTxn>,
    /// Leader epochs and the offsets they began at.
    pub epochs: Vec<(i32, i64)>,
}

pub(super) fn scan<I: Io>(
    b: &mut Blocking<'_, I>,
    cursor: &mut FileCursor,
    base: Offset,
    next_base: Option<Offset>,
    params: &OpenParams,
    producers: &mut Replay,
) -> Result<Scanned, Errno> {
    let mut scanned = Scanned {
        end: Mark { end: base, pos: 0 },
        torn: None,
        damage: Vec::new(),
        keep_closed: false,
        index: SegmentIndex::empty(base, &params.config),
        first_timestamp: None,
        aborted: Vec::new(),
        epochs: Vec::new(),
    };
    while scanned.end.pos < cursor.len {
        let verified = cursor.verify(b, scanned.end.pos)?;
        let expected = scanned.end.end;
        match verified.and_then(|header| counts(&header, base, expected, next_base)) {
            Ok(header) => {
                let aborted = aborted_by(b, cursor, scanned.end.pos, &header, producers)?;
                scanned.aborted.extend(aborted);
                producers.take(b, cursor, scanned.end.pos, &header)?;
                scanned.take(&header);
            }
            Err(fault) => {
                if !scanned.on_bad(b, cursor, fault, params)? {
                    break;
                }
            }
        }
    }
    Ok(scanned)
}

/// D5: not below what is expected, and inside what a segment can index. Brokers once compacted
/// sparse segments into one that goes beyond that (KAFKA-6264, R05): where the next segment leaves
/// room for it, it is served, only not indexed.
fn counts(
    header: &BatchHeader,
    base: Offset,
    expected: Offset,
    next_base: Option<Offset>,
) -> Result<BatchHeader, Fault> {
    if header.base_offset < expected.get() {
        return Err(Fault::OffsetBack { expected, found: header.base_offset });
    }
    match index::relative_offset(base.get(), header.last_offset()) {
        Some(_) => Ok(*header),
        None if next_base.is_some_and(|next| header.next_offset() <= next.get()) => Ok(*header),
        None => Err(Fault::OffsetRange { base, found: header.last_offset() }),
    }
}

impl Scanned {
    fn take(&mut self, header: &BatchHeader) {
        let last = Offset::new(header.last_offset()).expect("checked against the expected one");
        if self.end.pos == 0 && header.max_timestamp >= 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        self.index.on_batch(self.end.pos, last, header.max_timestamp);
        if self.epochs.last().is_none_or(|(epoch, _)| header.leader_epoch > *epoch) {
            self.epochs.push((header.leader_epoch, header.base_offset));
        }
        self.end = Mark { end: last.next(), pos: self.end.pos + header.total_len() as u64 };
    }

    /// Whether the scan goes on behind what does not count.
    fn on_bad<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        cursor: &mut FileCursor,
        fault: Fault,
        params: &OpenParams,
    ) -> Result<bool, Errno> {
        let (next, pos) = (self.end.end, self.end.pos);
        let point = params.recovery_point.unwrap_or(Offset::ZERO);
        let was_flushed = next < point;
        let window = params.unflushed_max.filter(|max| cursor.len - pos > *max);
        if !was_flushed && window.is_none() {
            self.torn = Some(fault);
            return Ok(false);
        }
        let found = next_batch(b, cursor, pos, next)?;
        match (found, window) {
            (Some((at, header)), Some(window)) if !was_flushed => {
                let from = first_offset(b, cursor, at, &header, next)?;
                if chain_len(b, cursor, at, from, window)? <= window {
                    self.torn = Some(fault);
                    return Ok(false);
                }
                self.skip(at, from, fault);
                self.keep_closed = true;
                Ok(true)
            }
            (Some((at, header)), _) => {
                let from = first_offset(b, cursor, at, &header, next)?;
                self.skip(at, from, fault);
                self.keep_closed = true;
                Ok(true)
            }
            // It ends in its last batch: nothing behind it to keep, so it is cut to whole batches.
            (None, _) if !was_flushed || matches!(fault, Fault::CutShort { .. }) => {
                self.torn = Some(fault);
                Ok(false)
            }
            (None, _) => {
                self.skip(cursor.len, point.max(next), fault);
                self.keep_closed = true;
                Ok(false)
            }
        }
    }

    fn skip(&mut self, end_pos: u64, next: Offset, fault: Fault) {
        let (pos, first, reason) = (self.end.pos, self.end.end, fault.reason());
        let damage = Damage { pos, end_pos, first, next, reason };
        self.damage.push((damage, fault));
        self.end = Mark { end: next, pos: end_pos };
    }
}
