//! Whether a data directory or a partition is sound: every checksum, the order of offsets, every
//! derived file against the log.
//!
//! Owns: the way through the directory, and what stands in it beside partitions. Never does:
//! change anything; hold more than a batch of a log.
//! Left: `walk`, `partition`, `findings`. Right: the CLI's verify.
//!
//! `partition` looks at one directory, `segment` walks one log, `indexes` holds the index entries
//! against the batches as they pass.

mod indexes;
mod partition;
mod segment;

use std::io;
use std::path::Path;

use super::findings::{Finding, Kind, Watch};
use super::partition::{CHECKPOINTS, CLEAN_MARKER, is_data_dir, partition_dirs, read_small};
use crate::format::checkpoint::parse_offsets;
use crate::format::identity::MetaProperties;
use crate::format::name::PartitionDir;

/// Files of a data directory that are nobody's business here.
const KNOWN_FILES: [&str; 3] = [".lock", CLEAN_MARKER, META];
/// What the server keeps for itself: its topics, the producer ids it has given out.
const OURS: &str = "ringlog-";
const META: &str = "meta.properties";
/// A broker's cache of tiered segments' indexes.
const KNOWN_DIR: &str = "remote-log-index-cache";

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub partitions: u64,
    pub segments: u64,
    pub batches: u64,
    pub records: u64,
    /// Of logs.
    pub bytes: u64,
}

/// Bytes of logs below `dir`: what `run` will read.
pub fn log_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for dir in partition_dirs(dir)? {
        let listing = super::partition::Listing::read(&dir)?;
        bytes += listing.segments.values().filter_map(|segment| segment.log_bytes).sum::<u64>();
    }
    Ok(bytes)
}

/// Looks through a data directory or the directory of one partition.
pub fn run(dir: &Path, watch: &mut dyn Watch) -> io::Result<Totals> {
    let mut totals = Totals::default();
    if is_data_dir(dir) {
        data_dir(dir, watch)?;
    }
    for dir in partition_dirs(dir)? {
        totals.partitions += 1;
        if let Err(error) = partition::check(&dir, watch, &mut totals) {
            watch.finding(Finding::new(Kind::Unreadable, dir, error));
        }
    }
    Ok(totals)
}

/// Looks through the directory of one partition.
pub fn partition(dir: &Path, watch: &mut dyn Watch) -> io::Result<Totals> {
    let mut totals = Totals { partitions: 1, ..Totals::default() };
    partition::check(dir, watch, &mut totals)?;
    Ok(totals)
}

/// Names in the data directory, and its text files.
fn data_dir(dir: &Path, watch: &mut dyn Watch) -> io::Result<()> {
    let mut entries = std::fs::read_dir(dir)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir {
            match PartitionDir::parse(&name) {
                Err(error) if name != KNOWN_DIR => {
                    watch.finding(Finding::new(Kind::Foreign, path, error));
                }
                _ => {}
            }
            continue;
        }
        let plain = name.strip_suffix(".tmp").unwrap_or(&name);
        if CHECKPOINTS.contains(&&*name) {
            text(&path, Kind::Checkpoint, watch, |bytes| {
                parse_offsets(bytes).map(drop).map_err(|error| error.to_string())
            });
        } else if name == META {
            text(&path, Kind::Checkpoint, watch, |bytes| {
                MetaProperties::parse(bytes).map(drop).map_err(|error| error.to_string())
            });
        } else if !KNOWN_FILES.contains(&plain)
            && !CHECKPOINTS.contains(&plain)
            && !plain.starts_with(OURS)
        {
            let fault = "not of a data directory by its name";
            watch.finding(Finding::new(Kind::Foreign, path, fault));
        }
    }
    Ok(())
}

/// A small file that some parser must take.
fn text(
    path: &Path,
    kind: Kind,
    watch: &mut dyn Watch,
    parse: impl FnOnce(&[u8]) -> Result<(), String>,
) {
    match read_small(path) {
        Ok(Some(bytes)) => {
            if let Err(fault) = parse(&bytes) {
                watch.finding(Finding::new(kind, path, fault));
            }
        }
        Ok(None) => {}
        Err(error) => watch.finding(Finding::new(Kind::Unreadable, path, error)),
    }
}
