//! The entries of a segment's indexes against its batches, both in one pass.
//!
//! Owns: what each entry promises, and whether the batches keep it. Never does: hold an index in
//! memory. Left: `index_file`, `format::txn_index`. Right: `segment`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::format::batch::BatchHeader;
use crate::format::index::{IndexFault, OffsetEntry, TimeEntry};
use crate::format::record::records;
use crate::format::txn_index::{self, AbortedTxn, TXN_ENTRY_LEN};
use crate::tools::findings::{Finding, Kind, Watch};
use crate::tools::index_file::{Entries, Entry};
use crate::tools::partition::read_small;
use crate::tools::walk::Batch;

/// One index: the next entry that the batches have not reached, and what was wrong.
struct Side<E> {
    path: PathBuf,
    entries: Entries<File, E>,
    next: Option<E>,
    /// The first thing wrong, where, and how many entries are.
    fault: Option<(String, Option<i64>)>,
    wrong: u64,
}

impl<E: Entry> Side<E> {
    /// None if there is no such file.
    fn open(path: &Path) -> io::Result<Option<Side<E>>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut entries = Entries::new(file)?;
        let next = entries.next_entry()?.filter(|entry: &E| !entry.is_blank());
        let path = path.to_path_buf();
        Ok(Some(Side { path, entries, next, fault: None, wrong: 0 }))
    }

    fn advance(&mut self) -> io::Result<()> {
        self.next = self.entries.next_entry()?;
        Ok(())
    }

    fn wrong(&mut self, fault: impl FnOnce(usize) -> String, offset: i64) {
        self.wrong += 1;
        let number = self.entries.number().saturating_sub(1);
        self.fault.get_or_insert_with(|| (fault(number), Some(offset)));
    }

    /// Entries that no batch met, then the numbers and what lies behind them.
    fn close(
        mut self,
        kind: Kind,
        trimmed: bool,
        left: impl Fn(&E) -> (String, i64),
        watch: &mut dyn Watch,
    ) -> io::Result<()> {
        while let Some(entry) = self.next {
            let (fault, offset) = left(&entry);
            self.wrong(|number| format!("entry {number} {fault}"), offset);
            self.advance()?;
        }
        let (unused, written) = self.entries.unused()?;
        if let Some(fault) = self.entries.fault() {
            self.wrong += 1;
            self.fault = Some((fault.to_string(), None));
        } else if let Some(pos) = written.filter(|_| unused >= E::LEN as u64) {
            self.fault.get_or_insert((format!("bytes at position {pos}, behind its end"), None));
        } else if !self.entries.file_len().is_multiple_of(E::LEN as u64) {
            let len = usize::try_from(self.entries.file_len()).unwrap_or(usize::MAX);
            let fault = IndexFault::Length { len, entry_len: E::LEN }.to_string();
            self.fault.get_or_insert((fault, None));
        } else if trimmed && unused > 0 {
            let fault = format!("{unused} unused bytes, which a broker takes for entries");
            self.fault.get_or_insert((fault, None));
        }
        if let Some((fault, offset)) = self.fault {
            let fault = match self.wrong {
                0 | 1 => fault,
                wrong => format!("{fault}; {wrong} entries are wrong"),
            };
            let finding = Finding::new(kind, self.path, fault);
            watch.finding(match offset {
                Some(offset) => finding.offsets(offset, None),
                None => finding,
            });
        }
        Ok(())
    }
}

/// All derived files of one segment.
pub(super) struct Indexes {
    base_offset: i64,
    offsets: Option<Side<OffsetEntry>>,
    times: Option<Side<TimeEntry>>,
    aborted: Option<Aborted>,
    /// The greatest time of the batches so far.
    max_timestamp: i64,
    last_time: Option<i64>,
    /// Some batches could not be seen: what they held may be what an entry speaks of.
    gap: bool,
}

impl Indexes {
    pub fn open(base_offset: i64, path: impl Fn(&str) -> PathBuf) -> io::Result<Indexes> {
        Ok(Indexes {
            base_offset,
            offsets: Side::open(&path("index"))?,
            times: Side::open(&path("timeindex"))?,
            aborted: Aborted::open(&path("txnindex"))?,
            max_timestamp: -1,
            last_time: None,
            gap: false,
        })
    }

    pub fn has_offsets(&self) -> bool {
        self.offsets.is_some()
    }

    pub fn see(&mut self, batch: &Batch<'_>) -> io::Result<()> {
        let header = &batch.header;
        self.see_pos(batch.pos, header)?;
        self.see_time(header)?;
        if let Some(aborted) = &mut self.aborted {
            aborted.see(batch, self.gap);
        }
        Ok(())
    }

    fn see_pos(&mut self, pos: u64, header: &BatchHeader) -> io::Result<()> {
        let base_offset = self.base_offset;
        let Some(side) = &mut self.offsets else { return Ok(()) };
        while let Some(entry) = side.next.filter(|entry| u64::from(entry.pos) <= pos) {
            let offset = base_offset.saturating_add(i64::from(entry.relative_offset.cast_signed()));
            let at = entry.pos;
            if u64::from(at) < pos {
                let fault = |n| format!("entry {n} points at position {at}, where no batch begins");
                side.wrong(fault, offset);
            } else if offset < header.base_offset {
                // One above the batch's last offset is sound: the entry of an append of several.
                let first = header.base_offset;
                let fault = |n| {
                    format!(
                        "entry {n} sends offset {offset} to position {at}, behind it: \
                             {first} begins there"
                    )
                };
                side.wrong(fault, offset);
            }
            side.advance()?;
        }
        Ok(())
    }

    fn see_time(&mut self, header: &BatchHeader) -> io::Result<()> {
        let before = self.max_timestamp;
        self.max_timestamp = before.max(header.max_timestamp);
        let (after, base_offset, gap) = (self.max_timestamp, self.base_offset, self.gap);
        let Some(side) = &mut self.times else { return Ok(()) };
        let offset_of = |entry: &TimeEntry| {
            base_offset.saturating_add(i64::from(entry.relative_offset.cast_signed()))
        };
        while let Some(entry) = side.next.filter(|e| offset_of(e) <= header.last_offset()) {
            let (time, offset) = (entry.timestamp, offset_of(&entry));
            let max = if offset < header.base_offset { before } else { after };
            if time < max || (time > max && !gap) {
                let fault = |n| {
                    format!(
                        "entry {n} says that up to offset {offset} no time is above {time}; \
                             the greatest is {max}"
                    )
                };
                side.wrong(fault, offset);
            }
            self.last_time = Some(time);
            side.advance()?;
        }
        Ok(())
    }

    /// Bytes that are no batch: entries that point there are wrong for no fault of their own.
    pub fn skip(&mut self, end_pos: u64) -> io::Result<()> {
        self.gap = true;
        if let Some(side) = &mut self.offsets {
            while side.next.is_some_and(|entry| u64::from(entry.pos) < end_pos) {
                side.advance()?;
            }
        }
        Ok(())
    }

    /// `closed`: the segment is sealed, or its log was closed cleanly.
    pub fn close(mut self, log_bytes: u64, closed: bool, watch: &mut dyn Watch) -> io::Result<()> {
        let (max, last_time) = (self.max_timestamp, self.last_time);
        let base_offset = self.base_offset;
        let offset_of =
            |relative: u32| base_offset.saturating_add(i64::from(relative.cast_signed()));
        if let Some(side) = self.offsets.take() {
            let left = |entry: &OffsetEntry| {
                let (pos, offset) = (entry.pos, offset_of(entry.relative_offset));
                (format!("points at position {pos} of a log of {log_bytes} bytes"), offset)
            };
            side.close(Kind::Index, closed, left, watch)?;
        }
        if let Some(mut side) = self.times.take() {
            while self.gap && side.next.is_some() {
                side.advance()?;
            }
            if closed && side.next.is_none() && max > last_time.unwrap_or(-1) {
                let ends = last_time.map_or("no entry".to_owned(), |time| format!("time {time}"));
                let fault = format!("ends with {ends}; the log's greatest time is {max}");
                side.fault.get_or_insert((fault, None));
            }
            let left = |entry: &TimeEntry| {
                let offset = offset_of(entry.relative_offset);
                (format!("names offset {offset}, behind the end of the log"), offset)
            };
            side.close(Kind::TimeIndex, closed, left, watch)?;
        }
        if let Some(aborted) = self.aborted.take() {
            aborted.close(self.gap, watch);
        }
        Ok(())
    }
}

/// `.txnindex`: each entry names the marker that aborted a transaction.
struct Aborted {
    path: PathBuf,
    entries: std::vec::IntoIter<AbortedTxn>,
    next: Option<AbortedTxn>,
    faults: Vec<String>,
}

impl Aborted {
    fn open(path: &Path) -> io::Result<Option<Aborted>> {
        let Some(bytes) = read_small(path)? else { return Ok(None) };
        let mut faults = Vec::new();
        let mut entries: Vec<AbortedTxn> = Vec::new();
        for (number, entry) in txn_index::entries(&bytes).enumerate() {
            match entry {
                Ok(entry) if entries.last().is_some_and(|l| l.last_offset >= entry.last_offset) => {
                    faults.push(format!("entry {number} does not lie behind the one before it"));
                }
                Ok(entry) => entries.push(entry),
                Err(error) => faults.push(format!("entry {number}: {error}")),
            }
        }
        if !bytes.len().is_multiple_of(TXN_ENTRY_LEN) {
            let (len, entry_len) = (bytes.len(), TXN_ENTRY_LEN);
            faults.push(IndexFault::Length { len, entry_len }.to_string());
        }
        let mut entries = entries.into_iter();
        let next = entries.next();
        Ok(Some(Aborted { path: path.to_path_buf(), entries, next, faults }))
    }

    fn see(&mut self, batch: &Batch<'_>, gap: bool) {
        let header = &batch.header;
        while let Some(txn) = self.next.filter(|txn| txn.last_offset <= header.last_offset()) {
            let is_marker = txn.last_offset >= header.base_offset
                && txn.producer_id == header.producer_id
                && is_abort(batch);
            if !is_marker && !gap {
                self.no_marker(&txn);
            }
            self.next = self.entries.next();
        }
    }

    fn no_marker(&mut self, txn: &AbortedTxn) {
        let AbortedTxn { producer_id, last_offset, .. } = txn;
        self.faults.push(format!("no marker of producer {producer_id} at offset {last_offset}"));
    }

    fn close(mut self, gap: bool, watch: &mut dyn Watch) {
        while let Some(txn) = self.next.filter(|_| !gap) {
            self.no_marker(&txn);
            self.next = self.entries.next();
        }
        if let Some(first) = self.faults.first() {
            let fault = match self.faults.len() {
                1 => first.clone(),
                faults => format!("{first}; {faults} entries are wrong"),
            };
            watch.finding(Finding::new(Kind::TxnIndex, self.path, fault));
        }
    }
}

/// Whether a batch is the marker that aborts a transaction.
pub fn is_abort(batch: &Batch<'_>) -> bool {
    const ABORT: [u8; 2] = [0, 0];
    if !batch.header.is_control() {
        return false;
    }
    let Some(Ok(record)) = records(batch.payload(), &batch.header).next() else { return false };
    record.key.and_then(|key| key.get(2..4)) == Some(&ABORT)
}
