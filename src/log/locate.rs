//! An offset to bytes: which segment, which position, how many bytes a reader may have.
//!
//! Owns: the search (segment floor, tail ring or sparse index, short scan of headers). Never does:
//! reading past the high watermark's position; waiting. Left: `segments`, `tail`. Right: `shard`.

use std::path::PathBuf;

use super::held::HeldFile;
use super::isolation::View;
use super::partition::Partition;
use super::segment::Damage;
use super::step::{Access, Reader, Step};
use crate::format::batch::{BatchError, BatchHeader, HEADER_LEN};
use crate::format::cut_name::CutReason;
use crate::format::stored;
use crate::io::{Errno, FileId};
use crate::types::Offset;

/// What a scan reads at once: an index interval and its headers.
pub(super) const SCAN_BYTES: u32 = 8 << 10;

/// Adjacent batches in a file. The last one may be cut, the first one never is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRange {
    /// Stays open while this range is kept.
    pub file: HeldFile,
    pub pos: u64,
    pub len: u64,
    pub first_batch_len: u32,
    /// It ends at the high watermark: waiting could bring more, asking again now could not.
    pub at_end: bool,
    /// Base offset of the segment.
    pub segment: Offset,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    Range(FileRange),
    /// Nothing there yet: between the high watermark and the end of the log.
    AtEnd,
    /// The first batch is longer than allowed, and it was not to be returned anyway.
    NoRoom,
    OutOfRange {
        start: Offset,
        end: Offset,
    },
    /// These offsets are damaged on the disk; what lies behind them can be read.
    Corrupt {
        path: PathBuf,
        pos: u64,
        first: Offset,
        next: Offset,
    },
}

/// Where a scan of batch headers goes on.
#[derive(Debug)]
pub(super) enum Scanned {
    /// The batch that holds the offset, or follows it.
    Found(u64, BatchHeader),
    /// Read on from here.
    More(u64),
    Bad(u64),
}

/// Walks the headers in `bytes`, which lie at `pos`, to the first that `wanted` accepts, before
/// `end`.
pub(super) fn scan_headers(
    bytes: &[u8],
    pos: u64,
    end: u64,
    wanted: impl Fn(&BatchHeader) -> bool,
) -> Scanned {
    let mut at = pos;
    while at < end {
        let Ok(skip) = usize::try_from(at - pos) else { break };
        let Some(rest) = bytes.get(skip..) else { break };
        match stored::parse_header(rest) {
            Ok(header) if wanted(&header) => return Scanned::Found(at, header),
            Ok(header) => at += header.total_len() as u64,
            Err(BatchError::NeedMore { .. }) => break,
            Err(_) => return Scanned::Bad(at),
        }
    }
    Scanned::More(at)
}

/// Fewer bytes than this are not enough to scan, where `left` lie before the end: the messages of
/// old formats may be shorter than a batch's header.
pub(super) fn short_of(left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(HEADER_LEN)
}

#[derive(Debug)]
enum State {
    Start,
    Segment(u32),
    /// The read at this position was asked for.
    Scan(u32, FileId, u64),
}

/// Finds the bytes at an offset; driven by whoever can read and open files.
#[derive(Debug)]
pub struct OffsetLookup {
    /// What was asked for.
    wanted: Offset,
    /// What is looked for now: `wanted`, or first where this reader's view ends.
    offset: Offset,
    view: View,
    bytes_max: u32,
    min_one: bool,
    state: State,
    reader: Reader,
    /// A header here is none: the search goes on at the next indexed batch, to say what is lost.
    bad: Option<u64>,
}

impl OffsetLookup {
    /// At most `bytes_max` bytes from the batch that holds `offset` on; with `min_one` that first
    /// batch is given whole even if it is longer.
    pub fn new(offset: Offset, bytes_max: u32, min_one: bool) -> OffsetLookup {
        OffsetLookup {
            wanted: offset,
            offset,
            view: View::Uncommitted,
            bytes_max,
            min_one,
            state: State::Start,
            reader: Reader::default(),
            bad: None,
        }
    }

    /// For a reader that may not see all.
    #[must_use]
    pub fn with_view(self, view: View) -> OffsetLookup {
        OffsetLookup { view, ..self }
    }

    /// Takes the result of the open that the last step asked for.
    pub fn opened(&mut self, partition: &mut Partition, result: Result<FileId, Errno>) {
        let State::Segment(number) = self.state else { unreachable!("no open was asked for") };
        self.reader.opened(partition, number, result);
    }

    /// Goes on; `bytes` answer the last step's read.
    pub fn step(&mut self, partition: &mut Partition, bytes: Option<&[u8]>) -> Step<Located> {
        let mut bytes = bytes;
        loop {
            match self.state {
                State::Segment(number) | State::Scan(number, ..)
                    if partition.segments.get(number).is_none() =>
                {
                    // Retention took it meanwhile.
                    (self.state, self.reader, bytes) = (State::Start, Reader::default(), None);
                }
                State::Start => match partition.range_check(self.wanted, self.view) {
                    Some(answer) => return Step::Ready(answer),
                    None => {
                        self.offset = partition.bound_to_find(self.view).unwrap_or(self.wanted);
                        self.state = State::Segment(partition.segments.floor(self.offset));
                    }
                },
                State::Segment(number) => {
                    if let Some(found) = self.in_tail(partition) {
                        return found;
                    }
                    match self.reader.step(partition, number, bytes.take()) {
                        Access::Read { file, pos, max } => return Step::Read { file, pos, max },
                        Access::Open(path, how) => return Step::Open { path, how },
                        Access::Failed { path, errno } => return Step::Failed { path, errno },
                        Access::Ready(file) => {
                            let segment = partition.segments.get(number).expect("stepped above");
                            let floor = segment.index.floor(segment.base, self.offset);
                            let pos = floor.expect("a readable segment's index is in memory");
                            self.state = State::Scan(number, file, pos);
                        }
                    }
                }
                State::Scan(number, file, pos) => {
                    if let Some(step) = self.scan(partition, number, file, pos, bytes.take()) {
                        return step;
                    }
                }
            }
        }
    }

    /// The newest batches are found without a read.
    fn in_tail(&self, partition: &Partition) -> Option<Step<Located>> {
        let found = partition.tail.find(self.offset).filter(|_| self.offset == self.wanted)?;
        let segment = partition.segments.get(found.segment)?;
        let file = segment.held_file().filter(|_| segment.damage.is_empty())?;
        Some(self.range(partition, found.segment, file, found.pos, found.len))
    }

    /// One window of headers. `None` when the state moved on.
    fn scan(
        &mut self,
        partition: &mut Partition,
        number: u32,
        file: FileId,
        pos: u64,
        bytes: Option<&[u8]>,
    ) -> Option<Step<Located>> {
        let segment = partition.segments.get(number).expect("a lookup's segment is there");
        let end = segment.visible.pos;
        if let Some(damage) = segment.damage.iter().find(|d| (d.pos..d.end_pos).contains(&pos)) {
            if self.offset < damage.next && self.offset != self.wanted {
                return self.found_bound(partition, number, pos);
            }
            if self.offset < damage.next {
                return Some(self.corrupt(partition, segment.base, damage));
            }
            self.state = State::Scan(number, file, damage.end_pos);
            return None;
        }
        if pos >= end {
            if number == partition.segments.active_number() {
                return Some(Step::Ready(Located::AtEnd));
            }
            self.state = State::Segment(number + 1);
            return None;
        }
        let Some(bytes) = bytes else {
            let max = u32::try_from(end - pos).unwrap_or(u32::MAX).min(SCAN_BYTES);
            return Some(Step::Read { file, pos, max });
        };
        if bytes.is_empty() {
            let path = partition.log_path(segment.base);
            return Some(Step::Failed { path, errno: Errno::EIO });
        }
        if bytes.len() < short_of(end - pos) {
            return None; // a short read: once more
        }
        let stop = segment.damage.iter().map(|d| d.pos).find(|p| *p > pos).unwrap_or(end).min(end);
        match scan_headers(bytes, pos, stop, |h| h.last_offset() >= self.offset.get()) {
            Scanned::Found(pos, _) if self.offset != self.wanted => {
                self.found_bound(partition, number, pos)
            }
            Scanned::Found(pos, header) => {
                if let Some(damage) = self.lost_before(pos, &header) {
                    return Some(self.corrupt(partition, segment.base, &damage));
                }
                let len = u32::try_from(header.total_len()).expect("a length is an i32");
                Some(self.range(partition, number, self.reader.held(), pos, len))
            }
            Scanned::More(at) if at > pos => {
                self.state = State::Scan(number, file, at);
                None
            }
            Scanned::More(at) | Scanned::Bad(at) => {
                let bad = *self.bad.get_or_insert(at);
                if let Some(next) = segment.index.next_indexed(at).filter(|next| *next < end) {
                    self.state = State::Scan(number, file, next);
                    return None;
                }
                let next = partition.segments.next_base(number).unwrap_or(partition.marks.high());
                let (first, reason) = (self.offset, CutReason::Header);
                let damage = Damage { pos: bad, end_pos: end, first, next, reason };
                Some(self.corrupt(partition, segment.base, &damage))
            }
        }
    }

    /// What a bad header found on the way here costs, if the batch found behind it begins too late.
    fn lost_before(&self, end_pos: u64, found: &BatchHeader) -> Option<Damage> {
        let (pos, next) = (self.bad?, Offset::new(found.base_offset)?);
        let (first, reason) = (self.offset, CutReason::Header);
        (next > first).then_some(Damage { pos, end_pos, first, next, reason })
    }

    /// Where the view ends is known now: on to what was asked for.
    fn found_bound<T>(&mut self, partition: &mut Partition, number: u32, pos: u64) -> Option<T> {
        partition.bound_found(self.offset, number, pos);
        self.state = State::Start;
        self.bad = None;
        None
    }

    fn corrupt(&self, partition: &Partition, base: Offset, damage: &Damage) -> Step<Located> {
        Step::Ready(Located::Corrupt {
            path: partition.log_path(base),
            pos: damage.pos,
            first: damage.first,
            next: damage.next,
        })
    }

    fn range(
        &self,
        partition: &Partition,
        number: u32,
        file: HeldFile,
        pos: u64,
        first: u32,
    ) -> Step<Located> {
        let segment = partition.segments.get(number).expect("a lookup's segment is there");
        let end = partition.bound_in(self.view, number).unwrap_or(u64::MAX);
        let end = end.min(segment.visible.pos);
        let stop = segment.damage.iter().map(|d| d.pos).find(|p| *p > pos).unwrap_or(end).min(end);
        if pos >= stop {
            return Step::Ready(Located::AtEnd);
        }
        let mut len = (stop - pos).min(u64::from(self.bytes_max));
        if self.min_one {
            len = len.max(u64::from(first)).min(stop - pos);
        }
        if len < u64::from(first) {
            return Step::Ready(Located::NoRoom);
        }
        Step::Ready(Located::Range(FileRange {
            file,
            pos,
            len,
            first_batch_len: first,
            at_end: pos + len == end
                && (end < segment.visible.pos || !partition.segments.shows_more_behind(number)),
            segment: segment.base,
        }))
    }
}

impl Partition {
    /// Answers that need no bytes (R28).
    fn range_check(&self, offset: Offset, view: View) -> Option<Located> {
        let (start, end) = (self.log_start(), self.staged_end());
        if offset < start || offset > end {
            return Some(Located::OutOfRange { start, end });
        }
        (offset >= self.end_for(view)).then_some(Located::AtEnd)
    }
}
