//! `ringlog dump`: what is in a log directory's files, as `kafka-dump-log` prints it.
//!
//! Owns: opening the files, by their names; how much of them is in memory; what is told of damage.
//! Never does: change a file, know a format (`format` does), need a server.
//! Left: `format`, [`super::dump_log`], [`super::output`]. Right: `cli`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use super::dump_log::{self, Shown};
use super::output::Output;
use crate::format::checkpoint::{EpochCache, parse_offsets};
use crate::format::dump;
use crate::format::index::{self, IndexFault};
use crate::format::name::{FileKind, SegmentFile};
use crate::format::{snapshot, txn_index};

/// Every file but a `.log` is read as a whole; none of them is larger than this.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog dump d/events-0/00000000000000000000.log
  ringlog dump d/events-0/*.log --records
  ringlog dump d/events-0/00000000000000000000.index
  ringlog dump big.log --max-bytes 1048576

Reads .log, .index, .timeindex, .txnindex, .snapshot and the checkpoint files, of a running server
too, and changes none. Exit code 1: damage was found; what and where is said, and the dump goes on
behind it.")]
pub struct Dump {
    /// Files of a partition or of a data directory.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A line a record too, with its key and value.
    #[arg(long)]
    records: bool,
    /// Of a .log, no more than this many bytes: whole batches only.
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
}

pub fn run(args: &Dump) -> Result<(), Failure> {
    let mut dumper = Dumper { out: Output::stdout()?, failed: 0, shown: Shown::default() };
    for path in &args.files {
        if dumper.out.is_closed() {
            break;
        }
        dumper.file(path, args);
    }
    let Dumper { out, failed, shown } = dumper;
    out.finish()?;
    if shown.logs > 0 {
        eprintln!("{shown}");
    }
    match failed {
        0 => Ok(()),
        1 => Err(Failure("one file is damaged or cannot be read: see above".to_owned())),
        failed => Err(Failure(format!("{failed} files are damaged or cannot be read: see above"))),
    }
}

struct Dumper {
    out: Output,
    /// Files with damage, or unreadable.
    failed: u64,
    shown: Shown,
}

/// What was found wrong in a file, in words; none: sound.
type Findings = Vec<String>;

impl Dumper {
    /// One file. What is wrong with it goes to standard error, behind the lines it has.
    fn file(&mut self, path: &Path, args: &Dump) {
        let shown = path.display().to_string();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let findings = match SegmentFile::parse(name) {
            Some(SegmentFile { kind: FileKind::Log, offset, .. }) => {
                self.out.line(dump::title_line(&shown).as_bytes());
                self.out.line(dump::start_line(offset).as_bytes());
                dump_log::print(path, args.records, args.max_bytes, &mut self.out, &mut self.shown)
            }
            Some(file) => self.small(path, |out, bytes| segment_file(out, path, file, bytes)),
            None if name == "leader-epoch-checkpoint" => self.small(path, epochs),
            None if name.ends_with("-checkpoint") => self.small(path, offsets),
            None => {
                self.out.flush();
                eprintln!("{shown}: no file of a log by its name, left out");
                return;
            }
        };
        self.out.flush();
        self.failed += u64::from(!findings.is_empty());
        for finding in findings {
            eprintln!("{shown}: {finding}");
        }
    }

    fn small(
        &mut self,
        path: &Path,
        print: impl FnOnce(&mut Output, &[u8]) -> Findings,
    ) -> Findings {
        self.out.line(dump::title_line(&path.display().to_string()).as_bytes());
        match read_small(path) {
            Ok(bytes) => print(&mut self.out, &bytes),
            Err(finding) => vec![finding],
        }
    }
}

fn read_small(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(SMALL_FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > SMALL_FILE_BYTES_MAX {
        return Err(format!("longer than {SMALL_FILE_BYTES_MAX} bytes, as no such file is"));
    }
    Ok(bytes)
}

fn segment_file(out: &mut Output, path: &Path, file: SegmentFile, bytes: &[u8]) -> Findings {
    match file.kind {
        FileKind::OffsetIndex if bytes.is_empty() => {
            out.line(dump::empty_line(&path.display().to_string()).as_bytes());
            Findings::new()
        }
        FileKind::OffsetIndex => {
            let used = print_all(out, dump::index_lines(file.offset, bytes));
            let log = path.with_file_name(SegmentFile { kind: FileKind::Log, ..file }.to_string());
            let log_len = std::fs::metadata(log).map_or(u64::MAX, |log| log.len());
            let check = |used: &[u8]| index::check_offset_index(used, log_len);
            index_findings(bytes, used, index::OFFSET_ENTRY_LEN, check)
        }
        FileKind::TimeIndex => {
            let used = print_all(out, dump::time_index_lines(file.offset, bytes));
            index_findings(bytes, used, index::TIME_ENTRY_LEN, index::check_time_index)
        }
        FileKind::TxnIndex => aborted_transactions(out, bytes),
        FileKind::Snapshot => match snapshot::parse(bytes) {
            Ok(entries) => {
                print_all(out, entries.iter().map(dump::snapshot_line));
                Findings::new()
            }
            Err(error) => vec![error.to_string()],
        },
        FileKind::Log => unreachable!("printed by dump_log, a window at a time"),
    }
}

/// How many lines there were.
fn print_all(out: &mut Output, lines: impl Iterator<Item = String>) -> usize {
    lines.map(|line| out.line(line.as_bytes())).count()
}

/// The entries in use are checked, and that what follows them is unused space: a live index is as
/// long as it may become.
fn index_findings(
    bytes: &[u8],
    used: usize,
    entry_len: usize,
    check: impl Fn(&[u8]) -> Result<(), IndexFault>,
) -> Findings {
    let (used, unused) = bytes.split_at_checked(used * entry_len).unwrap_or((bytes, &[]));
    // A live index that has no entry yet shows its first unused slot, as Kafka's tool does.
    let unwritten = bytes.iter().all(|byte| *byte == 0);
    let mut findings = Findings::new();
    if !unwritten && let Err(fault) = check(used) {
        findings.push(fault.to_string());
    }
    if let Some(at) = unused.iter().position(|byte| *byte != 0) {
        let pos = used.len() + at;
        findings.push(format!("bytes at position {pos}, behind its last entry"));
    } else if !bytes.len().is_multiple_of(entry_len) {
        findings.push(IndexFault::Length { len: bytes.len(), entry_len }.to_string());
    }
    findings
}

fn aborted_transactions(out: &mut Output, bytes: &[u8]) -> Findings {
    let mut findings = Findings::new();
    for (entry, txn) in txn_index::entries(bytes).enumerate() {
        match txn {
            Ok(txn) => out.line(dump::txn_line(&txn).as_bytes()),
            Err(error) => findings.push(format!("entry {entry}: {error}")),
        }
    }
    if !bytes.len().is_multiple_of(txn_index::TXN_ENTRY_LEN) {
        let (len, entry_len) = (bytes.len(), txn_index::TXN_ENTRY_LEN);
        findings.push(IndexFault::Length { len, entry_len }.to_string());
    }
    findings
}

fn offsets(out: &mut Output, bytes: &[u8]) -> Findings {
    match parse_offsets(bytes) {
        Ok(rows) => {
            print_all(
                out,
                rows.iter().map(|row| {
                    let (topic, partition, offset) = (&row.topic, row.partition, row.offset);
                    format!("topic: {topic} partition: {partition} offset: {offset}")
                }),
            );
            Findings::new()
        }
        Err(error) => vec![error.to_string()],
    }
}

fn epochs(out: &mut Output, bytes: &[u8]) -> Findings {
    match EpochCache::parse(bytes) {
        Ok(cache) => {
            print_all(
                out,
                cache.entries().iter().map(|entry| {
                    format!("epoch: {} startOffset: {}", entry.epoch, entry.start_offset)
                }),
            );
            Findings::new()
        }
        Err(error) => vec![error.to_string()],
    }
}
