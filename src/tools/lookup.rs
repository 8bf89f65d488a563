//! A lookup by offset or by time, step by step, with what each step read.
//!
//! Owns: the steps that a server goes too, over the files as they are. Never does: use what a
//! server has in memory. Left: `index_file`, `walk`, `records`. Right: `explore`.

use std::fs::File;
use std::io;

use serde::Serialize;

use super::index_check::header_at;
use super::index_file::{Entry, Floor, floor};
use super::partition::Listing;
use super::records::RecordReader;
use super::source::Source;
use super::walk::{Item, Walk};
use crate::format::batch::HEADER_LEN;
use crate::format::index::{OFFSET_ENTRY_LEN, OffsetEntry, TIME_ENTRY_LEN, TimeEntry};
use crate::format::name::FileKind;

/// One step, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub what: String,
    pub file: Option<String>,
    pub read_bytes: u64,
}

/// Where a lookup ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Lookup {
    pub steps: Vec<Step>,
    pub found: Option<Hit>,
}

/// A batch, and the record if one was looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    pub segment: i64,
    pub position: u64,
    pub base_offset: i64,
    pub last_offset: i64,
    /// The record's, or the batch's greatest.
    pub timestamp: i64,
    /// Of the record; None when only the batch was looked for.
    pub offset: Option<i64>,
}

impl Lookup {
    fn step(&mut self, what: String, file: Option<String>, read_bytes: u64) {
        self.steps.push(Step { what, file, read_bytes });
    }
}

fn open(listing: &Listing, base: i64, kind: FileKind) -> io::Result<(Option<File>, String)> {
    let path = listing.path(base, kind);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match File::open(path) {
        Ok(file) => Ok((Some(file), name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((None, name)),
        Err(error) => Err(error),
    }
}

fn bases(listing: &Listing) -> Vec<i64> {
    let with_log = listing.segments.values().filter(|segment| segment.log_bytes.is_some());
    with_log.map(|segment| segment.base_offset).collect()
}

/// The batch that holds `target`, or the first one behind it.
pub fn by_offset(listing: &Listing, target: i64) -> io::Result<Lookup> {
    let mut lookup = Lookup::default();
    let bases = bases(listing);
    let Some(at) = bases.partition_point(|base| *base <= target).checked_sub(1) else {
        lookup.step(format!("no segment of {} begins at or below {target}", bases.len()), None, 0);
        return Ok(lookup);
    };
    let count = bases.len();
    lookup.step(format!("segment {} is the floor of {target} among {count}", bases[at]), None, 0);
    let mut from = floor_pos(listing, bases[at], target, &mut lookup)?;
    for base in &bases[at..] {
        let (Some(log), name) = open(listing, *base, FileKind::Log)? else { continue };
        if let Some(hit) = scan_headers(&log, *base, from, target, &name, &mut lookup)? {
            lookup.found = Some(hit);
            break;
        }
        from = 0;
    }
    Ok(lookup)
}

/// Where the offset index says that a scan for `target` begins.
fn floor_pos(listing: &Listing, base: i64, target: i64, lookup: &mut Lookup) -> io::Result<u64> {
    let (index, name) = open(listing, base, FileKind::OffsetIndex)?;
    let Some(index) = index else {
        lookup.step("no offset index: the scan begins at position 0".to_owned(), Some(name), 0);
        return Ok(0);
    };
    let relative = target.saturating_sub(base);
    let found: Floor<OffsetEntry> =
        floor(&index, |entry: &OffsetEntry| i64::from(entry.relative_offset) <= relative)?;
    let (probes, read) = (found.probes, u64::from(found.probes) * OFFSET_ENTRY_LEN as u64);
    let entry = found.entry.filter(|entry| !entry.is_blank());
    let what = match entry {
        Some(entry) => {
            let offset = base.saturating_add(i64::from(entry.relative_offset));
            format!("offset index: {probes} entries read, floor is {offset} at {}", entry.pos)
        }
        None => format!("offset index: {probes} entries read, none at or below {target}"),
    };
    lookup.step(what, Some(name), read);
    Ok(entry.map_or(0, |entry| u64::from(entry.pos)))
}

fn scan_headers(
    log: &File,
    base: i64,
    from: u64,
    target: i64,
    name: &str,
    lookup: &mut Lookup,
) -> io::Result<Option<Hit>> {
    let (mut pos, mut headers, mut hit) = (from, 0u64, None);
    let mut end = "the end of the log";
    while pos < log.size()? {
        headers += 1;
        let Some(header) = header_at(log, pos)? else {
            end = "bytes that are no batch";
            break;
        };
        if header.last_offset() >= target {
            hit = Some(Hit {
                segment: base,
                position: pos,
                base_offset: header.base_offset,
                last_offset: header.last_offset(),
                timestamp: header.max_timestamp,
                offset: None,
            });
            break;
        }
        pos += header.total_len() as u64;
    }
    let (read, over) = (headers * HEADER_LEN as u64, pos - from);
    let to = match &hit {
        Some(hit) => {
            let Hit { position, base_offset, last_offset, .. } = hit;
            format!("batch at {position} holds {base_offset} to {last_offset}")
        }
        None => format!("{end} at {pos}"),
    };
    let what = format!("log: {headers} headers from {from}, over {over} bytes; {to}");
    lookup.step(what, Some(name.to_owned()), read);
    Ok(hit)
}

/// The first record, in the order of offsets, that is at or behind a time.
pub fn by_time(listing: &Listing, time: i64) -> io::Result<Lookup> {
    let mut lookup = Lookup::default();
    let bases = bases(listing);
    for (i, base) in bases.iter().enumerate() {
        let is_last = i + 1 == bases.len();
        if !may_hold(listing, *base, time, is_last, &mut lookup)? {
            continue;
        }
        let offset = floor_time(listing, *base, time, &mut lookup)?;
        let from = floor_pos(listing, *base, offset, &mut lookup)?;
        let (Some(log), name) = open(listing, *base, FileKind::Log)? else { continue };
        if let Some(hit) = scan_records(log, *base, from, time, &name, &mut lookup)? {
            lookup.found = Some(hit);
            break;
        }
    }
    Ok(lookup)
}

/// By the last entry of its time index; of the last segment that need not be written yet.
fn may_hold(
    listing: &Listing,
    base: i64,
    time: i64,
    is_last: bool,
    lookup: &mut Lookup,
) -> io::Result<bool> {
    let (index, name) = open(listing, base, FileKind::TimeIndex)?;
    let Some(index) = index else {
        lookup.step(format!("segment {base} has no time index: looked into"), Some(name), 0);
        return Ok(true);
    };
    let last: Floor<TimeEntry> = floor(&index, |_| true)?;
    let read = u64::from(last.probes) * TIME_ENTRY_LEN as u64;
    let greatest = last.entry.filter(|entry| !entry.is_blank()).map(|entry| entry.timestamp);
    let holds = greatest.is_some_and(|greatest| greatest >= time) || is_last;
    let shown = greatest.map_or("none".to_owned(), |greatest| greatest.to_string());
    let verdict = match (holds, is_last) {
        (true, true) => "the last one: looked into",
        (true, false) => "looked into",
        (false, _) => "passed over",
    };
    let what = format!("segment {base}: greatest indexed time {shown}, {verdict}");
    lookup.step(what, Some(name), read);
    Ok(holds)
}

/// The offset behind which records may be as new as `time`.
fn floor_time(listing: &Listing, base: i64, time: i64, lookup: &mut Lookup) -> io::Result<i64> {
    let (Some(index), name) = open(listing, base, FileKind::TimeIndex)? else { return Ok(base) };
    let found = floor(&index, |entry: &TimeEntry| entry.timestamp <= time)?;
    let (probes, read) = (found.probes, u64::from(found.probes) * TIME_ENTRY_LEN as u64);
    let entry = found.entry.filter(|entry| !entry.is_blank());
    let offset = entry.map_or(base, |e| base.saturating_add(i64::from(e.relative_offset)));
    let what = match entry {
        Some(e) => {
            format!("time index: {probes} entries read, floor is {} up to {offset}", e.timestamp)
        }
        None => format!("time index: {probes} entries read, none at or before {time}"),
    };
    lookup.step(what, Some(name), read);
    Ok(offset)
}

fn scan_records(
    log: File,
    base: i64,
    from: u64,
    time: i64,
    name: &str,
    lookup: &mut Lookup,
) -> io::Result<Option<Hit>> {
    let mut walk = Walk::part(log, from, u64::MAX)?;
    let mut reader = RecordReader::default();
    let (mut batches, mut opened, mut hit) = (0u64, 0u64, None);
    while let Some(item) = walk.next_item()? {
        let Item::Batch(batch) = item else { continue };
        batches += 1;
        if batch.fault.is_some() || batch.header.max_timestamp < time {
            continue;
        }
        opened += 1;
        // What cannot be read to its end is passed over: `verify` tells of it.
        let _ = reader.each(&batch, &mut |unpacked| {
            let record = &unpacked.record;
            if record.timestamp >= time && hit.is_none() {
                hit = Some(Hit {
                    segment: base,
                    position: batch.pos,
                    base_offset: batch.header.base_offset,
                    last_offset: batch.header.last_offset(),
                    timestamp: record.timestamp,
                    offset: Some(record.offset),
                });
            }
        });
        if hit.is_some() {
            break;
        }
    }
    let to = match &hit {
        Some(Hit { offset: Some(offset), timestamp, .. }) => {
            format!("record {offset} has time {timestamp}")
        }
        _ => "no record is as new".to_owned(),
    };
    let what = format!("log: {batches} batches from {from}, {opened} opened; {to}");
    lookup.step(what, Some(name.to_owned()), walk.read_bytes());
    Ok(hit)
}
