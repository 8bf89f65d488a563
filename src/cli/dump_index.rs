//! Indexes through the dump: their entries, and how they agree with the log beside them.
//!
//! Owns: the lines, and the remarks that `kafka-dump-log` makes. Never does: judge whether lookups
//! still work (`verify` does). Left: `tools::index_file`, `tools::index_check`. Right:
//! [`super::dump`].

use std::fs::File;
use std::io;
use std::path::Path;

use super::dump::{Dump, Findings};
use super::dump_json;
use super::output::Output;
use crate::format::dump;
use crate::format::index::{IndexFault, OffsetEntry, TimeEntry};
use crate::format::name::{FileKind, SegmentFile};
use crate::tools::index_check::{Beside, TimeMismatch};
use crate::tools::index_file::{Entries, Entry};

/// Remarks of one kind that are listed; the rest is counted.
const LISTED_MAX: usize = 10_000;

/// What is wrong with one index, as Kafka's tool lists it.
#[derive(Default)]
pub struct IndexRemarks {
    /// (offset in the index, in the log)
    mismatches: Vec<(i64, i64)>,
    /// (time in the index, in the log)
    times: Vec<(i64, i64)>,
    /// (time in the index, the one before it)
    out_of_order: Vec<(i64, i64)>,
    /// (offset in the index, in the log)
    not_found: Vec<(i64, i64)>,
    unlisted: u64,
    faults: Vec<String>,
    alone: bool,
}

impl IndexRemarks {
    fn put(&mut self, list: fn(&mut Self) -> &mut Vec<(i64, i64)>, pair: (i64, i64)) {
        match list(self).len() < LISTED_MAX {
            true => list(self).push(pair),
            false => self.unlisted += 1,
        }
    }

    pub fn into_findings(mut self, path: &Path, findings: &mut Findings) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let path = path.display();
        self.mismatches.reverse(); // as Kafka lists them
        let mut say = |title: String, pairs: &[(i64, i64)], pair: &dyn Fn(i64, i64) -> String| {
            if !pairs.is_empty() {
                findings.kafkas.push(title);
                findings.kafkas.extend(pairs.iter().map(|(a, b)| pair(*a, *b)));
                findings
                    .faults
                    .push(format!("entries that disagree with the log: {}", pairs.len()));
            }
        };
        say(format!("Mismatches in :{path}"), &self.mismatches, &|a, b| {
            format!("  Index offset: {a}, log offset: {b}")
        });
        say(format!("Found timestamp mismatch in :{path}"), &self.times, &|a, b| {
            format!("  Index timestamp: {a}, log timestamp: {b}")
        });
        say(format!("Found out of order timestamp in :{path}"), &self.out_of_order, &|a, b| {
            format!("  Index timestamp: {a}, Previously indexed timestamp: {b}")
        });
        let title = "The following indexed offsets are not found in the log.".to_owned();
        say(title, &self.not_found, &|a, b| format!("Indexed offset: {a}, found log offset: {b}"));
        if self.unlisted > 0 {
            findings.faults.push(format!("remarks that are not listed: {}", self.unlisted));
        }
        if self.alone {
            findings.notes.push("no .log beside it: its entries are not compared".to_owned());
        }
        findings.faults.append(&mut self.faults);
    }
}

pub fn print(
    path: &Path,
    file: SegmentFile,
    args: &Dump,
    out: &mut Output,
    remarks: &mut IndexRemarks,
) -> io::Result<()> {
    let source = File::open(path)?;
    let mut dump = IndexDump { path, file, args, out, remarks, beside: Beside::open(path, file) };
    match file.kind {
        FileKind::OffsetIndex if source.metadata()?.len() == 0 => {
            if !args.json {
                dump.out.line(dump::empty_line(&path.display().to_string()).as_bytes());
            }
            Ok(())
        }
        FileKind::OffsetIndex => dump.offsets(source),
        _ => dump.times(source),
    }
}

struct IndexDump<'a> {
    path: &'a Path,
    file: SegmentFile,
    args: &'a Dump,
    out: &'a mut Output,
    remarks: &'a mut IndexRemarks,
    beside: Option<Beside>,
}

impl IndexDump<'_> {
    fn offsets(&mut self, source: File) -> io::Result<()> {
        let mut entries = Entries::<_, OffsetEntry>::new(source)?;
        let shows = self.shows();
        while let Some(entry) = entries.next_entry()? {
            if !self.args.index_sanity_check {
                self.compare_offset(entry)?;
            }
            let offset = self.offset(entry.relative_offset);
            match (shows, self.args.json) {
                (false, _) => {}
                (true, false) => self.out.line(dump::index_line(offset, entry.pos).as_bytes()),
                (true, true) => dump_json::offset_entry(self.out, offset, entry.pos),
            }
        }
        self.close(&mut entries)
    }

    fn times(&mut self, source: File) -> io::Result<()> {
        let mut entries = Entries::<_, TimeEntry>::new(source)?;
        let shows = self.shows();
        let mut last = -1;
        while let Some(entry) = entries.next_entry()? {
            if !self.args.index_sanity_check {
                self.compare_time(entry, last)?;
            }
            last = entry.timestamp;
            let offset = self.offset(entry.relative_offset);
            match (shows, self.args.json) {
                (false, _) => {}
                (true, false) => {
                    self.out.line(dump::time_index_line(entry.timestamp, offset).as_bytes());
                }
                (true, true) => dump_json::time_entry(self.out, entry.timestamp, offset),
            }
        }
        self.close(&mut entries)
    }

    fn shows(&self) -> bool {
        !self.args.index_sanity_check && !self.args.verify_index_only
    }

    /// Relative offsets are signed there, if no sound one is negative.
    fn offset(&self, relative: u32) -> i64 {
        self.file.offset.saturating_add(i64::from(relative.cast_signed()))
    }

    fn compare_offset(&mut self, entry: OffsetEntry) -> io::Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        // A live index that has no entry yet shows its first unused slot, as Kafka's tool does.
        let Some(log) = beside.offset_mismatch(entry)?.filter(|_| !entry.is_blank()) else {
            return Ok(());
        };
        let offset = self.offset(entry.relative_offset);
        self.remarks.put(|remarks| &mut remarks.mismatches, (offset, log));
        Ok(())
    }

    fn compare_time(&mut self, entry: TimeEntry, last: i64) -> io::Result<()> {
        let Some(beside) = self.beside.as_mut().filter(|_| !entry.is_blank()) else {
            return Ok(());
        };
        let found = beside.time_mismatch(entry)?;
        let offset = self.offset(entry.relative_offset);
        match found {
            Some(TimeMismatch::Offset { log }) => {
                self.remarks.put(|remarks| &mut remarks.not_found, (offset, log));
                return Ok(());
            }
            Some(TimeMismatch::Timestamp { log }) => {
                self.remarks.put(|remarks| &mut remarks.times, (entry.timestamp, log));
            }
            None => {}
        }
        if last >= entry.timestamp {
            self.remarks.put(|remarks| &mut remarks.out_of_order, (entry.timestamp, last));
        }
        Ok(())
    }

    /// Behind the last entry: whether the numbers were sound, and what else the file holds.
    fn close<E: Entry>(&mut self, entries: &mut Entries<File, E>) -> io::Result<()> {
        let (unused, written) = entries.unused()?;
        let faults = &mut self.remarks.faults;
        faults.extend(entries.fault().map(|fault| fault.to_string()));
        if let Some(pos) = written.filter(|_| unused >= E::LEN as u64) {
            faults.push(format!("bytes at position {pos}, behind its last entry"));
        } else if !entries.file_len().is_multiple_of(E::LEN as u64) {
            let len = usize::try_from(entries.file_len()).unwrap_or(usize::MAX);
            faults.push(IndexFault::Length { len, entry_len: E::LEN }.to_string());
        }
        if self.args.index_sanity_check && faults.is_empty() && !self.args.json {
            let line = format!("{} passed sanity check.", self.path.display());
            self.out.line(line.as_bytes());
        }
        self.remarks.alone = self.beside.is_none() && !self.args.index_sanity_check;
        Ok(())
    }
}
