//! A `.log` through the dump, a batch at a time, while a server may be writing it.
//!
//! Owns: where it begins and ends, what is counted, the closing remarks. Never does: find its way
//! (`tools::walk` does). Left: `tools`, `format::dump`, [`super::dump_json`]. Right:
//! [`super::dump`].

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use super::dump::{Dump, Findings, OffsetRange};
use super::dump_json;
use super::output::Output;
use crate::format::dump;
use crate::format::index::OffsetEntry;
use crate::format::name::{FileKind, file_name};
use crate::format::record::Record;
use crate::tools::index_check::header_at;
use crate::tools::index_file::floor;
use crate::tools::records::RecordReader;
use crate::tools::walk::{Bad, Batch, Item, Walk};

/// Gaps of one file that are listed; a compacted log may have one a record.
const GAPS_LISTED_MAX: usize = 10_000;

/// All logs of one run together.
#[derive(Default, Debug)]
pub struct Shown {
    pub logs: u64,
    pub batches: u64,
    pub corrupt_batches: u64,
    /// As their batches declare them.
    pub records: u64,
    /// Only counted when records are shown.
    pub shown: Option<u64>,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown { logs, batches, corrupt_batches, records, shown } = self;
        write!(f, "logs: {logs}, batches: {batches}, records: {records}")?;
        if let Some(shown) = shown.filter(|shown| shown != records) {
            write!(f, " (shown: {shown})")?;
        }
        write!(f, ", corrupt batches: {corrupt_batches}")
    }
}

/// What the dump of one log found.
#[derive(Default)]
struct Tally {
    corrupt_batches: u64,
    broken_batches: u64,
    skipped_bytes: u64,
    tail_bytes: u64,
    /// Where record offsets are not consecutive: (offset, the next one).
    gaps: Vec<(i64, i64)>,
    gaps_unlisted: u64,
    last_record_offset: Option<i64>,
}

pub struct LogDump<'a> {
    args: &'a Dump,
    out: &'a mut Output,
    shown: &'a mut Shown,
    reader: RecordReader,
    tally: Tally,
}

impl<'a> LogDump<'a> {
    pub fn new(args: &'a Dump, out: &'a mut Output, shown: &'a mut Shown) -> LogDump<'a> {
        let (reader, tally) = (RecordReader::default(), Tally::default());
        LogDump { args, out, shown, reader, tally }
    }

    pub fn run(&mut self, path: &Path, base_offset: i64, findings: &mut Findings) {
        self.shown.logs += 1;
        if let Err(error) = self.walk(path, base_offset, findings) {
            findings.faults.push(error.to_string());
        }
        let tally = std::mem::take(&mut self.tally);
        tally.into_findings(path, findings);
    }

    fn walk(&mut self, path: &Path, base_offset: i64, findings: &mut Findings) -> io::Result<()> {
        let file = File::open(path)?;
        let range = self.args.offset_range.unwrap_or(OffsetRange(0, i64::MAX));
        let from = self.begin(path, &file, base_offset, range.0, findings)?;
        let limit = self.args.max_bytes.map_or(u64::MAX, |bytes| from.saturating_add(bytes));
        let mut walk = Walk::part(file, from, limit)?;
        let mut stopped = None;
        while !self.out.is_closed() {
            let pos = walk.pos();
            match walk.next_item()? {
                None => {
                    stopped = walk.is_at_limit().then_some((pos, "--max-bytes"));
                    break;
                }
                Some(Item::Bad(bad)) => self.bad(path, &bad),
                Some(Item::Batch(batch)) if batch.header.base_offset >= range.1 => {
                    stopped = Some((pos, "--offset-range"));
                    break;
                }
                Some(Item::Batch(batch)) if batch.header.last_offset() < range.0 => {}
                Some(Item::Batch(batch)) => self.batch(&batch),
            }
        }
        if let Some((pos, flag)) = stopped {
            let read = walk.read_bytes();
            let note = format!("stopped at position {pos}, as {flag} asks; {read} bytes were read");
            findings.notes.push(note);
        }
        Ok(())
    }

    /// Where a batch begins at or before the first offset that is asked for (R56).
    fn begin(
        &mut self,
        path: &Path,
        log: &File,
        base_offset: i64,
        first: i64,
        findings: &mut Findings,
    ) -> io::Result<u64> {
        let Some(relative) = first.checked_sub(base_offset).filter(|relative| *relative > 0) else {
            return Ok(0);
        };
        let index = path.with_file_name(file_name(base_offset, FileKind::OffsetIndex));
        let entry = match File::open(&index) {
            Ok(index) => floor(&index, |e: &OffsetEntry| i64::from(e.relative_offset) <= relative)?,
            Err(error) => {
                let note = format!("{}: {error}: begun at the first byte", index.display());
                findings.notes.push(note);
                return Ok(0);
            }
        };
        let pos = entry.entry.map_or(0, |entry| u64::from(entry.pos));
        match header_at(log, pos)? {
            Some(header) if header.base_offset <= first => Ok(pos),
            _ if pos == 0 => Ok(0),
            _ => {
                let index = index.display();
                let fault = format!("{index} points at position {pos}, where no such batch begins");
                findings.faults.push(fault);
                Ok(0)
            }
        }
    }

    fn bad(&mut self, path: &Path, bad: &Bad) {
        if !bad.at_end {
            self.tally.skipped_bytes += bad.len;
        } else if !bad.zeros {
            self.tally.tail_bytes += bad.len;
        }
        if self.args.json {
            return dump_json::bad(self.out, bad);
        }
        let (pos, len, why) = (bad.pos, bad.len, bad.why);
        let line = match bad.at_end {
            // Kafka's tool says so only when nobody asked for a part.
            true if self.args.max_bytes.is_some() => return,
            true => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                format!("Found {len} invalid bytes at the end of {name}")
            }
            false => format!("Skipped {len} invalid bytes at position: {pos} ({why})"),
        };
        self.out.line(line.as_bytes());
    }

    fn batch(&mut self, batch: &Batch<'_>) {
        let header = &batch.header;
        self.shown.batches += 1;
        self.shown.records += u64::try_from(header.records_count).unwrap_or(0);
        self.shown.corrupt_batches += u64::from(batch.fault.is_some());
        self.tally.corrupt_batches += u64::from(batch.fault.is_some());
        let deep = self.args.records || self.args.deep;
        if self.args.json {
            let LogDump { out, reader, tally, shown, .. } = self;
            let mut seen = |record: &Record<'_>| tally.see(record, shown);
            let read = dump_json::batch(out, batch, deep.then_some(reader), &mut seen);
            tally.broken_batches += u64::from(read.is_err() && batch.fault.is_none());
            return;
        }
        self.out.line(dump::batch_line(header, batch.pos, batch.crc_ok()).as_bytes());
        if deep {
            self.records(batch);
        }
    }

    fn records(&mut self, batch: &Batch<'_>) {
        let LogDump { args, out, reader, tally, shown } = self;
        let (data, metadata) = (args.records, !args.skip_record_metadata);
        let read = reader.each(batch, &mut |unpacked| {
            tally.see(&unpacked.record, shown);
            let line = match metadata {
                true => dump::record_line(unpacked, &batch.header, data),
                false => dump::data_line(&unpacked.record, &batch.header, data),
            };
            out.line(line.as_bytes());
        });
        if let Err(error) = read {
            tally.broken_batches += u64::from(batch.fault.is_none());
            out.line(format!("| {error}").as_bytes());
        }
    }
}

impl Tally {
    fn see(&mut self, record: &Record<'_>, shown: &mut Shown) {
        *shown.shown.get_or_insert(0) += 1;
        let last = self.last_record_offset.replace(record.offset);
        if let Some(last) = last.filter(|last| record.offset != last.saturating_add(1)) {
            match self.gaps.len() < GAPS_LISTED_MAX {
                true => self.gaps.push((last, record.offset)),
                false => self.gaps_unlisted += 1,
            }
        }
    }

    fn into_findings(self, path: &Path, findings: &mut Findings) {
        let mut fault = |count: u64, what: &str| {
            if count > 0 {
                findings.faults.push(format!("{what}: {count}"));
            }
        };
        fault(self.corrupt_batches, "batches whose checksum or counts do not hold");
        fault(self.broken_batches, "batches whose records cannot be read to their end");
        fault(self.skipped_bytes, "bytes between batches that are none");
        fault(self.tail_bytes, "bytes at the end that are no whole batch");
        if self.gaps.is_empty() {
            return;
        }
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        findings.kafkas.push(format!("Non-consecutive offsets in {}", path.display()));
        let pair = |(offset, next)| format!("  {offset} is followed by {next}");
        findings.kafkas.extend(self.gaps.into_iter().map(pair));
        if self.gaps_unlisted > 0 {
            findings.kafkas.push(format!("  and {} more", self.gaps_unlisted));
        }
    }
}
