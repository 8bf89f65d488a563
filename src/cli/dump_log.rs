//! A `.log` through the dump, a window at a time, while a server may be writing it.
//!
//! Owns: the window, where it ends, the closing remarks. Never does: hold more than a window.
//! Left: `format::dump`, [`super::output`]. Right: [`super::dump`].

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::output::Output;
use crate::format::dump::{LogDump, Options, Summary};

/// Bytes a read, at least.
const WINDOW_BYTES: usize = 1 << 20;
/// What a window may grow to: a batch that declares more is taken for damage.
const BATCH_BYTES_MAX: usize = 128 << 20;
/// What one batch may decompress to before its records are given up.
const DECOMPRESSED_BYTES_MAX: u64 = 256 << 20;

/// All logs of one run together.
#[derive(Default, Debug)]
pub struct Shown {
    pub logs: u64,
    pub batches: u64,
    pub corrupt_batches: u64,
    /// Only counted when records are shown.
    pub records: Option<u64>,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown { logs, batches, corrupt_batches, records } = self;
        write!(f, "logs: {logs}, batches: {batches}")?;
        if let Some(records) = records {
            write!(f, ", records: {records}")?;
        }
        write!(f, ", corrupt batches: {corrupt_batches}")
    }
}

/// Prints the batches of a log; what is wrong with it.
pub fn print(
    path: &Path,
    records: bool,
    max_bytes: Option<u64>,
    out: &mut Output,
    shown: &mut Shown,
) -> Vec<String> {
    let options = Options {
        records,
        data: records,
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
        batch_bytes_max: BATCH_BYTES_MAX,
    };
    let mut dump = LogDump::new(options);
    let walked = walk(path, max_bytes.unwrap_or(u64::MAX), &mut dump, out);
    let lost_from = dump.lost_from();
    let summary = dump.finish();
    shown.logs += 1;
    shown.batches += summary.batches;
    shown.corrupt_batches += summary.corrupt_batches;
    if records {
        *shown.records.get_or_insert(0) += summary.records;
    }
    let shown_path = path.display();
    if !summary.gaps.is_empty() {
        out.line(format!("Non-consecutive offsets in {shown_path}").as_bytes());
    }
    for (offset, next) in &summary.gaps {
        out.line(format!("  {offset} is followed by {next}").as_bytes());
    }
    let mut findings = findings(&summary);
    match walked {
        Ok(Ended::AtLimit(pos)) => {
            out.flush();
            eprintln!("{shown_path}: stopped at position {pos}, as --max-bytes asks");
            if let Some(from) = lost_from {
                findings.push(format!("invalid bytes from position {from} up to there"));
            }
        }
        Ok(Ended::AtEnd) => {}
        Err(error) => findings.push(error.to_string()),
    }
    findings
}

fn findings(summary: &Summary) -> Vec<String> {
    let mut findings = Vec::new();
    if summary.corrupt_batches > 0 {
        let corrupt = summary.corrupt_batches;
        findings.push(format!("batches whose checksum does not hold (isvalid: false): {corrupt}"));
    }
    if summary.skipped_bytes > 0 {
        findings.push(format!("bytes between batches that are none: {}", summary.skipped_bytes));
    }
    if summary.invalid_tail_bytes > 0 {
        let bytes = summary.invalid_tail_bytes;
        findings.push(format!("bytes at the end that are no whole batch: {bytes}"));
    }
    findings
}

enum Ended {
    AtEnd,
    /// Here, at a batch's boundary.
    AtLimit(u64),
}

/// Feeds the file as it is when its end is reached: a server may append meanwhile, and the batch
/// that it is writing is waited for only as far as the file has grown by then.
fn walk(path: &Path, limit: u64, dump: &mut LogDump, out: &mut Output) -> io::Result<Ended> {
    let file = File::open(path)?;
    let mut end = file.metadata()?.len();
    let mut window = Vec::new();
    let (mut pos, mut want) = (0u64, WINDOW_BYTES);
    loop {
        let stop = end.min(limit);
        let left = usize::try_from(stop - pos).unwrap_or(usize::MAX);
        window.resize(want.max(WINDOW_BYTES).min(left), 0);
        let len = read_at(&file, &mut window, pos)?;
        let bytes = window.get(..len).unwrap_or_default();
        let last = len < window.len() || pos + len as u64 == stop;
        let mut line = |line: &str| out.line(line.as_bytes());
        let fed = dump.feed(bytes, false, &mut line);
        pos += fed.consumed as u64;
        want = fed.want;
        if out.is_closed() || (pos == end && last) {
            return Ok(Ended::AtEnd);
        }
        if !last || fed.consumed > 0 {
            continue;
        }
        if stop == limit && limit < end {
            return Ok(Ended::AtLimit(pos));
        }
        let now = file.metadata()?.len();
        if now > end {
            end = now.min(pos.saturating_add(want as u64));
            continue;
        }
        let mut line = |line: &str| out.line(line.as_bytes());
        dump.feed(bytes.get(fed.consumed..).unwrap_or_default(), true, &mut line);
        return Ok(Ended::AtEnd);
    }
}

/// As many bytes as there are, up to the window's length.
fn read_at(file: &File, window: &mut [u8], pos: u64) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = window.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, pos + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
