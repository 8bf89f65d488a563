//! `ringlog dump`: what is in a log directory's files, as `kafka-dump-log` prints it.
//!
//! Owns: the flags, which file is of which kind, the closing remarks. Never does: change a file,
//! know a format (`format` does), need a server.
//! Left: [`super::dump_log`], [`super::dump_index`], [`super::dump_small`]. Right: `cli`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::dump_index::{self, IndexRemarks};
use super::dump_log::{LogDump, Shown};
use super::dump_small;
use super::output::Output;
use super::{Failure, dump_json};
use crate::format::dump;
use crate::format::name::{FileKind, SegmentFile};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog dump d/events-0/00000000000000000000.log
  ringlog dump d/events-0/*.log --records
  ringlog dump d/events-0/*.log --records --json | jq .records
  ringlog dump d/events-0/00000000000000000000.index
  ringlog dump big.log --offset-range 500000.. --max-bytes 1048576

Reads .log, .index, .timeindex, .txnindex, .snapshot and the checkpoint files, of a running server
too, and changes none. kafka-dump-log's own flag names are taken as well (--files a,b,
--print-data-log, --deep-iteration). An index is compared with the .log beside it.

With --json a line is an object; \"type\" says of what. Bytes that are not UTF-8 are
{\"base64\": \"..\"}; null is null, which is not the empty string. A batch can be rebuilt from its
line.

Exit code 1: damage was found; what and where is said, and the dump goes on behind it.")]
pub struct Dump {
    /// Files of a partition or of a data directory.
    #[arg(required_unless_present = "list", value_name = "FILE")]
    files: Vec<PathBuf>,
    #[arg(long = "files", value_delimiter = ',', hide = true, value_name = "FILES")]
    list: Vec<PathBuf>,
    /// A line a record too, with its key and value.
    #[arg(long, alias = "print-data-log")]
    pub records: bool,
    /// A line a record too, without its key and value.
    #[arg(long, alias = "deep-iteration")]
    pub deep: bool,
    /// With --records: only keys and values.
    #[arg(long)]
    pub skip_record_metadata: bool,
    /// Of an index: only check what a broker checks.
    #[arg(long)]
    pub index_sanity_check: bool,
    /// Of an index: compare it with its log, print no entries.
    #[arg(long)]
    pub verify_index_only: bool,
    /// Of a .log, no more than this many bytes: whole batches only.
    #[arg(long, value_name = "N")]
    pub max_bytes: Option<u64>,
    /// Of a .log, the batches that hold offsets from A up to, not including, B. Begins where the
    /// index beside it says. A.. has no end, ..B begins at the first.
    #[arg(long, value_name = "A..B", value_parser = offset_range)]
    pub offset_range: Option<OffsetRange>,
    /// A JSON object a line.
    #[arg(long)]
    pub json: bool,
}

/// From the first offset up to, not including, the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OffsetRange(pub i64, pub i64);

fn offset_range(text: &str) -> Result<OffsetRange, String> {
    let wrong = || "give it as A..B, A.. or ..B, with offsets".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str, none: i64| match text {
        "" => Ok(none),
        text => text.parse().ok().filter(|offset| *offset >= 0).ok_or_else(wrong),
    };
    let range = OffsetRange(number(from, 0)?, number(to, i64::MAX)?);
    match text == ".." || range.0 >= range.1 {
        true => Err(format!("{}; A below B", wrong())),
        false => Ok(range),
    }
}

pub fn run(args: &Dump) -> Result<(), Failure> {
    let out = Output::stdout()?;
    let mut dumper = Dumper { args, out, remarks: Vec::new(), failed: 0, shown: Shown::default() };
    for path in args.files.iter().chain(&args.list) {
        if dumper.out.is_closed() {
            break;
        }
        dumper.file(path);
    }
    dumper.finish()
}

struct Dumper<'a> {
    args: &'a Dump,
    out: Output,
    /// For standard error, behind all files.
    remarks: Vec<String>,
    /// Files with damage, or unreadable.
    failed: u64,
    shown: Shown,
}

/// What is said of a file when all are printed.
#[derive(Debug, Default)]
pub struct Findings {
    /// What is wrong in it, in words; none: sound.
    pub faults: Vec<String>,
    /// What else there is to say.
    pub notes: Vec<String>,
    /// As `kafka-dump-log` says it.
    pub kafkas: Vec<String>,
}

impl Dumper<'_> {
    fn file(&mut self, path: &Path) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let file = SegmentFile::parse(name);
        if file.is_none() && !name.ends_with("-checkpoint") {
            self.remarks
                .push(format!("{}: no file of a log by its name, left out", path.display()));
            return;
        }
        self.title(path, name, file);
        let mut findings = Findings::default();
        match file {
            Some(file) if file.kind == FileKind::Log => {
                let mut dump = LogDump::new(self.args, &mut self.out, &mut self.shown);
                dump.run(path, file.offset, &mut findings);
            }
            Some(file @ SegmentFile { kind: FileKind::OffsetIndex | FileKind::TimeIndex, .. }) => {
                let mut remarks = IndexRemarks::default();
                let read = dump_index::print(path, file, self.args, &mut self.out, &mut remarks);
                findings.faults.extend(read.err().map(|error| error.to_string()));
                remarks.into_findings(path, &mut findings);
            }
            file => {
                let kind = file.map(|file| file.kind);
                let faults = dump_small::print(path, name, kind, self.args.json, &mut self.out);
                findings.faults = faults;
            }
        }
        self.failed += u64::from(!findings.faults.is_empty());
        self.remarks.extend(findings.kafkas);
        for said in findings.faults.into_iter().chain(findings.notes) {
            self.remarks.push(format!("{}: {said}", path.display()));
        }
    }

    fn title(&mut self, path: &Path, name: &str, file: Option<SegmentFile>) {
        let shown = path.display().to_string();
        if self.args.json {
            dump_json::file(&mut self.out, &shown, name, file.map(|file| file.offset));
            return;
        }
        self.out.line(dump::title_line(&shown).as_bytes());
        if let Some(SegmentFile { kind: FileKind::Log, offset, .. }) = file {
            self.out.line(dump::start_line(offset).as_bytes());
        }
    }

    fn finish(self) -> Result<(), Failure> {
        self.out.finish()?;
        for remark in self.remarks {
            eprintln!("{remark}");
        }
        if self.shown.logs > 0 {
            eprintln!("{}", self.shown);
        }
        match self.failed {
            0 => Ok(()),
            1 => Err(Failure("one file is damaged or cannot be read: see above".to_owned())),
            failed => {
                Err(Failure(format!("{failed} files are damaged or cannot be read: see above")))
            }
        }
    }
}
