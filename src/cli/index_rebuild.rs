//! `ringlog index-rebuild`: a partition's derived files, made anew from its log.
//!
//! Owns: the lock that keeps a server away meanwhile, whose settings count, and telling what
//! changes. Never does: the work (`tools::rebuild` does); run beside a server.
//! Left: `tools::rebuild`, `io::lock`, `server::topics`. Right: `cli`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;

use super::Failure;
use super::output::print_line;
use super::render::progress;
use super::verify::directory;
use crate::format::index::IndexLimits;
use crate::format::name::PartitionDir;
use crate::io::lock::{DirLock, WithoutLocks};
use crate::server::topics::{self, TopicFile};
use crate::tools::findings::{Finding, Watch};
use crate::tools::partition::{is_data_dir, read_small};
use crate::tools::rebuild::{self, Change, Options};
use crate::tools::verify;

/// What a topic has that says nothing else.
const INTERVAL_BYTES: u32 = 4096;
const INDEX_BYTES: u32 = 10 << 20;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog index-rebuild d/events-0 --dry-run
  ringlog index-rebuild d/events-0
  ringlog index-rebuild d/events-0 --all --index-interval-bytes 512

Makes .index, .timeindex, .txnindex and .snapshot anew by the rule of a broker's recovery: of what
`ringlog verify` finds wrong, or of everything with --all. Logs are never changed. The server must
be stopped; it would do the same by itself after an unclean stop, for what that may have touched.")]
pub struct IndexRebuild {
    /// The directory of a partition.
    #[arg(value_name = "PARTITION_DIR", value_parser = directory)]
    dir: PathBuf,
    /// Also what is sound.
    #[arg(long)]
    all: bool,
    /// Only say what would change.
    #[arg(long)]
    dry_run: bool,
    /// Instead of the topic's own, or 4096 where that is not known.
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    index_interval_bytes: Option<u32>,
    /// Instead of the topic's own, or 10485760 where that is not known.
    #[arg(long, value_name = "N",
        value_parser = clap::value_parser!(u32).range(4..=i64::from(i32::MAX)))]
    segment_index_bytes: Option<u32>,
}

pub fn run(args: &IndexRebuild) -> Result<(), Failure> {
    let dir = std::fs::canonicalize(&args.dir)?;
    let _lock = if args.dry_run { None } else { lock(&dir)? };
    let known = settings(&dir)?;
    let own = |name: &str| known.get(name).and_then(|value| value.parse().ok());
    let interval = args.index_interval_bytes.or_else(|| own("index.interval.bytes"));
    let index_bytes = args.segment_index_bytes.or_else(|| own("segment.index.bytes"));
    let limits = IndexLimits {
        interval_bytes: interval.unwrap_or(INTERVAL_BYTES),
        index_bytes_max: index_bytes.unwrap_or(INDEX_BYTES) as usize,
    };
    let options = Options { limits, all: args.all, dry_run: args.dry_run };
    let mut bar = Bar(progress(verify::log_bytes(&args.dir)?));
    let changes = rebuild::run(&args.dir, &options, &mut bar)?;
    bar.0.finish_and_clear();
    for change in &changes {
        print_line(&tell(change))?;
    }
    let done = if args.dry_run { "would change" } else { "changed" };
    print_line(&format!("{}: files {done}: {}", args.dir.display(), changes.len()))
}

/// The settings of the partition's topic that differ from the defaults, where the topic file lies
/// beside it.
fn settings(dir: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let root = dir.parent().unwrap_or(dir);
    let path = root.join(topics::FILE_NAME);
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let topic = PartitionDir::parse(&name).map(|partition| partition.topic.to_owned());
    let (Ok(topic), Some(bytes)) = (topic, read_small(&path)?) else {
        return Ok(BTreeMap::new());
    };
    let wrong = |error| Failure(format!("{}: {error}", path.display()));
    let file = TopicFile::parse(&bytes).map_err(wrong)?;
    Ok(file.find(&topic).map(|topic| topic.configs.clone()).unwrap_or_default())
}

/// The lock of the data directory around the partition; a partition that stands alone has none.
fn lock(dir: &Path) -> Result<Option<DirLock>, Failure> {
    let Some(root) = dir.parent().filter(|root| is_data_dir(root)) else { return Ok(None) };
    match DirLock::acquire(root, WithoutLocks::Refuse) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) => Err(Failure(format!("{error}; stop the server first"))),
    }
}

fn tell(change: &Change) -> String {
    let path = change.path.display();
    match (change.bytes_before, change.bytes) {
        (None, Some(bytes)) => format!("{path}: new, {bytes} bytes"),
        (Some(before), Some(bytes)) => format!("{path}: {before} bytes before, {bytes} now"),
        (_, None) => format!("{path}: removed"),
    }
}

struct Bar(ProgressBar);

impl Watch for Bar {
    fn finding(&mut self, _: Finding) {}

    fn note(&mut self, _: &Path, _: String) {}

    fn progress(&mut self, bytes: u64) {
        self.0.inc(bytes);
    }
}
