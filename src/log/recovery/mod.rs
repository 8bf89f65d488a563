//! A directory to a log that can be trusted: what counts, what is cut, what is damage.
//!
//! Owns: the order of recovery (D4 to D9). Never does: serving; deciding about other partitions.
//! Left: `io::blocking`, `format`. Right: `partition` (made from what is found), `server`.
//!
//! `files` reads the directory, `swap` ends interrupted compactions, `cursor` and `scan` judge
//! bytes, `resync` looks behind a bad batch, `load` brings what is trusted, `cut` takes away what
//! is not, `damage` remembers what was found broken, `epochs` keeps the leader epochs, `snapshots`
//! the producers, `aborted` the index of their aborted transactions, `report` says it all.

mod aborted;
mod cursor;
mod cut;
mod damage;
pub(super) mod epochs;
mod files;
mod load;
mod open;
mod report;
mod resync;
mod scan;
mod snapshots;
mod swap;

use std::path::PathBuf;

use super::config::LogConfig;
use super::segment::Damage;
use crate::format::batch::BatchError;
use crate::format::cut_name::CutReason;
use crate::io::Errno;
use crate::types::{Micros, Offset};

pub use open::open;

/// What the directory around the partition knows of it.
#[derive(Clone, Debug)]
pub struct OpenParams {
    pub config: LogConfig,
    /// The directory's clean marker was there (D9).
    pub clean: bool,
    /// Checkpointed: everything before it is on the disk. `None` is 0.
    pub recovery_point: Option<Offset>,
    /// Checkpointed: readers see nothing before it. `None`: the first segment's base.
    pub log_start: Option<Offset>,
    /// The most bytes that were ever written and not flushed, if that was bounded
    /// (`FlushPolicy::unflushed_max`): more than that behind a bad batch is no torn tail (D6).
    pub unflushed_max: Option<u64>,
}

impl OpenParams {
    /// For a log of which nothing is known: scan everything.
    pub fn unknown(config: LogConfig) -> OpenParams {
        OpenParams {
            config,
            clean: false,
            recovery_point: None,
            log_start: None,
            unflushed_max: None,
        }
    }
}

/// Why bytes do not count (D5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("{0}")]
    Batch(#[from] BatchError),
    #[error("the file ends inside a batch: {have} of {need} bytes")]
    CutShort { have: u64, need: u64 },
    #[error("base offset {found} where at least {expected} was due")]
    OffsetBack { expected: Offset, found: i64 },
    #[error("offset {found} does not fit a segment that begins at {base}")]
    OffsetRange { base: Offset, found: i64 },
    #[error("the segment before ends at {end}: what lay between was never on the disk")]
    Gap { end: Offset },
    #[error("the segment before was cut")]
    Behind,
    #[error("the log ends before its start {log_start}")]
    BeforeStart { log_start: Offset },
    #[error("an empty file before the first segment")]
    Stray,
    #[error("found by an earlier start: {0}")]
    Recorded(CutReason),
}

impl Fault {
    /// The fault in a word, for names and lists.
    pub(super) fn reason(self) -> CutReason {
        match self {
            Fault::Batch(BatchError::Crc { .. }) => CutReason::Checksum,
            Fault::Batch(_) => CutReason::Header,
            Fault::CutShort { .. } => CutReason::Short,
            Fault::OffsetBack { .. } => CutReason::Order,
            Fault::OffsetRange { .. } => CutReason::Range,
            Fault::Gap { .. } => CutReason::Gap,
            Fault::Behind => CutReason::Behind,
            Fault::BeforeStart { .. } => CutReason::Start,
            Fault::Stray => CutReason::Stray,
            Fault::Recorded(reason) => reason,
        }
    }
}

/// Bytes taken out of the log, and where they are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub path: PathBuf,
    pub pos: u64,
    pub bytes: u64,
    pub fault: Fault,
    /// `None`: there was no space to keep them aside, and they are still in place.
    pub side_file: Option<PathBuf>,
}

/// Damage of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    pub path: PathBuf,
    pub damage: Damage,
    pub fault: Fault,
}

/// What opening a log found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    pub segments: usize,
    /// Bytes read to check batches.
    pub scanned_bytes: u64,
    /// Bytes of all `.log` files.
    pub log_bytes: u64,
    pub cuts: Vec<Cut>,
    pub damage: Vec<Damaged>,
    /// The leader epoch rose to this (D4).
    pub epoch_rose: Option<i32>,
    /// Names of the indexes that were made anew.
    pub rebuilt: usize,
    /// What had to be cut does not fit below `cut_bytes_max` any more: nothing was cut.
    pub aside_full: bool,
    /// The disk is full, or the room for cuts: what was found is served, nothing is taken in (D12).
    pub read_only: bool,
    pub took: Micros,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("{what} {}: {errno}", path.display())]
    Io { what: &'static str, path: PathBuf, errno: Errno },
    #[error(
        "{}, position {pos}: {fault}; it was to replace other segments, none of which was touched: \
         move it away to keep those",
        path.display()
    )]
    Swap { path: PathBuf, pos: u64, fault: Fault },
}

impl OpenError {
    fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(Errno) -> OpenError {
        let path = path.into();
        move |errno| OpenError::Io { what, path, errno }
    }

    fn is_no_space(&self) -> bool {
        matches!(self, OpenError::Io { errno, .. } if errno.is_no_space())
    }
}
