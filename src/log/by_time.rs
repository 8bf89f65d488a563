//! A timestamp to an offset: the first record, in offset order, that is not older.
//!
//! Owns: the search (segment by largest timestamp, time index, scan, records of a batch). Never
//! does: answering past the high watermark; decompressing past a bound. Left: `segments`,
//! `format`. Right: `shard`.

use super::isolation::View;
use super::locate::{SCAN_BYTES, Scanned, scan_headers, short_of};
use super::partition::Partition;
use super::step::{Access, Reader, Step};
use crate::format::batch::BatchHeader;
use crate::format::stored;
use crate::format::unpack::{UnpackError, Unpacker};
use crate::io::{Errno, FileId};
use crate::types::{Offset, WallMs};

/// What a batch may expand to while a record of it is looked for (R88); a window of it is held.
const DECODED_BYTES_MAX: u64 = 64 << 20;

/// What is looked for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// The first record with this timestamp or a later one.
    AtOrAfter(WallMs),
    /// The first of the records with the greatest timestamp.
    Max,
}

/// A record found by its time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    pub offset: Offset,
    pub timestamp: WallMs,
    /// Of its batch; -1 where that has none.
    pub leader_epoch: i32,
}

#[derive(Debug)]
enum State {
    Start,
    Segment(u32),
    Scan(u32, FileId, u64),
    /// A batch is being collected.
    Batch(u32, FileId, u64, usize),
}

/// Finds a record by time; driven by whoever can read and open files.
#[derive(Debug)]
pub struct TimeLookup {
    when: When,
    view: View,
    target: WallMs,
    state: State,
    reader: Reader,
    batch: Vec<u8>,
    unpacker: Unpacker,
}

impl TimeLookup {
    /// Finds nothing beyond what a reader with this view may see.
    pub fn new(when: When, view: View) -> TimeLookup {
        TimeLookup {
            when,
            view,
            target: 0,
            state: State::Start,
            reader: Reader::default(),
            batch: Vec::new(),
            unpacker: Unpacker::new(DECODED_BYTES_MAX),
        }
    }

    /// Takes the result of the open that the last step asked for.
    pub fn opened(&mut self, partition: &mut Partition, result: Result<FileId, Errno>) {
        let State::Segment(number) = self.state else { unreachable!("no open was asked for") };
        self.reader.opened(partition, number, result);
    }

    /// Goes on; `bytes` answer the last step's read.
    pub fn step(&mut self, partition: &mut Partition, bytes: Option<&[u8]>) -> Step<Option<Timed>> {
        let mut bytes = bytes;
        loop {
            match self.state {
                State::Segment(number) | State::Scan(number, ..) | State::Batch(number, ..)
                    if partition.segments.get(number).is_none() =>
                {
                    // Retention took it meanwhile.
                    (self.state, self.reader, bytes) = (State::Start, Reader::default(), None);
                    self.batch.clear();
                }
                State::Start => {
                    let Some(first) = self.choose(partition) else { return Step::Ready(None) };
                    self.state = State::Segment(first);
                }
                State::Segment(number) => match self.reader.step(partition, number, bytes.take()) {
                    Access::Read { file, pos, max } => return Step::Read { file, pos, max },
                    Access::Open(path, how) => return Step::Open { path, how },
                    Access::Failed { path, errno } => return Step::Failed { path, errno },
                    Access::Ready(file) => {
                        self.state = State::Scan(number, file, self.floor(partition, number));
                    }
                },
                State::Scan(number, file, pos) => {
                    if let Some(step) = self.scan(partition, number, file, pos, bytes.take()) {
                        return step;
                    }
                }
                State::Batch(number, file, pos, len) => {
                    let path =
                        || partition.log_path(partition.segments.get(number).expect("there").base);
                    match bytes.take() {
                        Some([]) => return Step::Failed { path: path(), errno: Errno::EIO },
                        Some(more) => self.batch.extend_from_slice(more),
                        None => {}
                    }
                    if self.batch.len() < len {
                        let at = pos + self.batch.len() as u64;
                        let max = u32::try_from(len - self.batch.len()).expect("an i32 at most");
                        return Step::Read { file, pos: at, max };
                    }
                    self.batch.truncate(len);
                    if let Some(found) = self.search(partition) {
                        return Step::Ready(found);
                    }
                    self.batch.clear();
                    self.state = State::Scan(number, file, pos + len as u64);
                }
            }
        }
    }

    /// The first segment that can hold an answer, and the timestamp to look for.
    fn choose(&mut self, partition: &Partition) -> Option<u32> {
        match self.when {
            When::AtOrAfter(target) => {
                self.target = target;
                self.next_with(partition, partition.segments.floor(partition.log_start()))
            }
            When::Max => {
                let newest =
                    |n: &u32| partition.segments.get(*n).map(|s| s.index.max_timestamp().0);
                // Of equal ones the first: max_by_key gives the last, so look from behind.
                let first = partition.segments.floor(partition.log_start());
                let last = partition.segments.active_number();
                let number = (first..=last).rev().max_by_key(newest)?;
                self.target = newest(&number).filter(|time| *time >= 0)?;
                Some(number)
            }
        }
    }

    fn next_with(&self, partition: &Partition, from: u32) -> Option<u32> {
        (from..=partition.segments.active_number()).find(|number| {
            partition
                .segments
                .get(*number)
                .is_some_and(|s| s.index.max_timestamp().0 >= self.target)
        })
    }

    /// Nothing before this position can be the answer.
    fn floor(&self, partition: &Partition, number: u32) -> u64 {
        let segment = partition.segments.get(number).expect("a lookup's segment is there");
        let timed = segment.index.time_floor(segment.base, self.target).unwrap_or(segment.base);
        let from = timed.max(partition.log_start());
        segment.index.floor(segment.base, from).unwrap_or(0)
    }

    fn scan(
        &mut self,
        partition: &Partition,
        number: u32,
        file: FileId,
        pos: u64,
        bytes: Option<&[u8]>,
    ) -> Option<Step<Option<Timed>>> {
        let segment = partition.segments.get(number).expect("a lookup's segment is there");
        let (start, target) = (partition.log_start().get(), self.target);
        let end = segment.visible.pos;
        if let Some(damage) = segment.damage.iter().find(|d| (d.pos..d.end_pos).contains(&pos)) {
            self.state = State::Scan(number, file, damage.end_pos);
            return None;
        }
        if pos >= end {
            match self.next_with(partition, number + 1) {
                Some(next) => self.state = State::Segment(next),
                None => return Some(Step::Ready(None)),
            }
            return None;
        }
        let Some(bytes) = bytes else {
            let max = u32::try_from(end - pos).unwrap_or(u32::MAX).min(SCAN_BYTES);
            return Some(Step::Read { file, pos, max });
        };
        let failed = || Step::Failed { path: partition.log_path(segment.base), errno: Errno::EIO };
        if bytes.is_empty() {
            return Some(failed());
        }
        if bytes.len() < short_of(end - pos) {
            return None; // a short read: once more
        }
        let stop = segment.damage.iter().map(|d| d.pos).find(|p| *p > pos).unwrap_or(end).min(end);
        let wanted = |h: &BatchHeader| h.max_timestamp >= target && h.last_offset() >= start;
        self.state = match scan_headers(bytes, pos, stop, wanted) {
            Scanned::Found(pos, header) => State::Batch(number, file, pos, header.total_len()),
            Scanned::More(at) if at > pos => State::Scan(number, file, at),
            Scanned::More(_) | Scanned::Bad(_) => return Some(failed()),
        };
        None
    }

    /// The record in the collected batch: `None` to look further, `Some(None)` when it lies past
    /// what readers may see.
    fn search(&mut self, partition: &Partition) -> Option<Option<Timed>> {
        let start = partition.log_start().get();
        match self.first_of_batch(start) {
            Ok(found) => {
                let found = found?;
                Some((found.offset < partition.end_for(self.view)).then_some(found))
            }
            Err(error) => {
                let (dir, target) = (partition.dir().display(), self.target);
                tracing::warn!(%dir, target, %error, "unreadable batch: looking behind it");
                None
            }
        }
    }

    /// The first record from `start` on that is not older than the target.
    fn first_of_batch(&mut self, start: i64) -> Result<Option<Timed>, UnpackError> {
        let Ok(header) = stored::parse_header(&self.batch) else { return Ok(None) };
        let mut records = self.unpacker.open_bytes(&self.batch, &header)?;
        while let Some(unpacked) = records.next() {
            let record = unpacked?.record;
            if record.timestamp >= self.target && record.offset >= start {
                let (timestamp, leader_epoch) = (record.timestamp, header.leader_epoch);
                let offset = Offset::new(record.offset);
                return Ok(offset.map(|offset| Timed { offset, timestamp, leader_epoch }));
            }
        }
        Ok(None)
    }
}
