//! A data directory: which logs it holds, whose it is, how it was left, and its checkpoints.
//!
//! Owns: the marker of a clean stop (D9), `meta.properties`, the offset checkpoints, the scan, and
//! the rename that sets a log aside. Never does: opening logs, the directory's lock (the server
//! holds it). Left: `format`, `io::blocking`. Right: `server`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::create::CreateError;
use crate::format::checkpoint::{OffsetRow, TextError, parse_offsets, render_offsets};
use crate::format::identity::{MetaProperties, render_clean_shutdown};
use crate::format::name::{DirError, DirState, PartitionDir, marked_dir_name};
use crate::io::blocking::Blocking;
use crate::io::op::OpenHow;
use crate::io::{Errno, Io};
use crate::types::Offset;

const MARKER: &str = ".kafka_cleanshutdown";
const META: &str = "meta.properties";
/// A broker's directory that holds no log.
const NO_LOG: &str = "remote-log-index-cache";
/// A broker's own topic: its directories are a broker's business alone.
const METADATA_TOPIC: &str = "__cluster_metadata";
const TEXT_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataDirError {
    #[error("{what} {}: {errno}", path.display())]
    Io { what: &'static str, path: PathBuf, errno: Errno },
    #[error(
        "{}: {error}; a data directory holds nothing else: move it away, or use a directory below",
        path.display()
    )]
    Foreign { path: PathBuf, error: DirError },
    #[error(
        "{} and {} hold the same partition: move the one that is out of date away",
        path.display(), other.display()
    )]
    Twice { path: PathBuf, other: PathBuf },
    #[error("{} holds a log already", path.display())]
    Exists { path: PathBuf },
    #[error("{}: {error}; {remedy}", path.display())]
    Text { path: PathBuf, error: TextError, remedy: &'static str },
}

impl DataDirError {
    /// The storage failed, or what it holds is garbled: this directory cannot be used, others can.
    /// The rest is a state of affairs that nobody may guess about.
    pub fn is_of_storage(&self) -> bool {
        matches!(self, DataDirError::Io { .. } | DataDirError::Text { .. }) && !self.is_no_space()
    }

    /// A full disk: it passes (D12).
    pub fn is_no_space(&self) -> bool {
        matches!(self, DataDirError::Io { errno, .. } if errno.is_no_space())
    }
}

impl From<CreateError> for DataDirError {
    fn from(error: CreateError) -> DataDirError {
        match error {
            CreateError::Exists { path } => DataDirError::Exists { path },
            CreateError::Io { what, path, errno } => DataDirError::Io { what, path, errno },
        }
    }
}

/// The checkpoints of offsets by partition.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    RecoveryPoint,
    LogStart,
    /// High watermarks.
    Replication,
    /// First offsets that compaction has not seen; a broker's, kept for it.
    Cleaner,
}

impl Checkpoint {
    pub const ALL: [Checkpoint; 4] = [
        Checkpoint::RecoveryPoint,
        Checkpoint::LogStart,
        Checkpoint::Replication,
        Checkpoint::Cleaner,
    ];

    pub fn file_name(self) -> &'static str {
        match self {
            Checkpoint::RecoveryPoint => "recovery-point-offset-checkpoint",
            Checkpoint::LogStart => "log-start-offset-checkpoint",
            Checkpoint::Replication => "replication-offset-checkpoint",
            Checkpoint::Cleaner => "cleaner-offset-checkpoint",
        }
    }

    /// What to do about a garbled one, and what that costs.
    const fn remedy(self) -> &'static str {
        match self {
            Checkpoint::RecoveryPoint => {
                "put a sound copy in its place, or remove it: the next start then reads every log \
                 of the directory whole"
            }
            Checkpoint::LogStart => {
                "put a sound copy in its place, or remove it: records deleted by request that \
                 still lie in a first segment then show again"
            }
            Checkpoint::Replication => {
                "remove it: high watermarks are then taken from the logs themselves"
            }
            Checkpoint::Cleaner => {
                "remove it: a broker then compacts the directory's topics from their start"
            }
        }
    }
}

/// Offsets by topic and partition.
pub type Offsets = BTreeMap<(String, i32), Offset>;

/// A directory that holds, or held, a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDir {
    pub topic: String,
    pub partition: i32,
    pub path: PathBuf,
    /// Only current ones are served.
    pub state: DirState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir {
    path: PathBuf,
}

impl DataDir {
    pub fn new(path: impl Into<PathBuf>) -> DataDir {
        DataDir { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn log_dir(&self, topic: &str, partition: i32) -> PathBuf {
        self.path.join(crate::format::name::dir_name(topic, partition))
    }

    /// Every log of the directory. A directory whose name is no partition's stops the start, as it
    /// stops a broker: nobody knows whose data that is.
    pub fn scan<I: Io>(&self, b: &mut Blocking<'_, I>) -> Result<Vec<LogDir>, DataDirError> {
        let entries = b.list(&self.path).map_err(io("listing", &self.path))?;
        let mut found: Vec<LogDir> = Vec::new();
        // Where each current partition lies in `found`: `t-1` and `t-01` are the same.
        let mut current: BTreeMap<(String, i32), usize> = BTreeMap::new();
        for entry in entries {
            if !entry.is_dir || entry.name == NO_LOG {
                continue;
            }
            let path = self.path.join(&entry.name);
            let dir = PartitionDir::parse(&entry.name)
                .map_err(|error| DataDirError::Foreign { path: path.clone(), error })?;
            if dir.topic == METADATA_TOPIC {
                continue;
            }
            let topic = dir.topic.to_string();
            if dir.state == DirState::Current
                && let Some(at) = current.insert((topic.clone(), dir.partition), found.len())
            {
                return Err(DataDirError::Twice { path, other: found[at].path.clone() });
            }
            found.push(LogDir { topic, partition: dir.partition, path, state: dir.state });
        }
        Ok(found)
    }

    /// Renames a log to be deleted, under an id of its own, as Kafka does. The new name lasts once
    /// the directory is synced ([`DataDir::sync`]).
    pub fn set_aside<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
        topic: &str,
        partition: i32,
        from: &Path,
    ) -> Result<PathBuf, DataDirError> {
        let name = marked_dir_name(topic, partition, Uuid::new_v4().as_u128(), DirState::Delete);
        let to = self.path.join(name);
        b.rename(from, &to).map_err(io("renaming", from))?;
        Ok(to)
    }

    /// Makes the names in the directory last.
    pub fn sync<I: Io>(&self, b: &mut Blocking<'_, I>) -> Result<(), DataDirError> {
        b.sync_dir(&self.path).map_err(io("syncing", &self.path))
    }

    /// Whether the last stop was clean. The marker is gone, and durably so, when this returns:
    /// only then may anything be appended (D9).
    pub fn take_clean_marker<I: Io>(&self, b: &mut Blocking<'_, I>) -> Result<bool, DataDirError> {
        let path = self.path.join(MARKER);
        match b.unlink(&path) {
            Err(Errno::ENOENT) => return Ok(false),
            gone => gone.map_err(io("removing", &path))?,
        }
        self.sync(b)?;
        Ok(true)
    }

    /// The last thing at a stop, and only if every log of the directory closed clean.
    pub fn write_clean_marker<I: Io>(&self, b: &mut Blocking<'_, I>) -> Result<(), DataDirError> {
        let path = self.path.join(MARKER);
        let how = OpenHow { write: true, create: true, truncate: true, ..OpenHow::default() };
        let file = b.open(&path, how).map_err(io("creating", &path))?;
        let written = b
            .write_at(file, 0, render_clean_shutdown(-1).as_bytes())
            .and_then(|()| b.fdatasync(file));
        b.close(file).map_err(io("closing", &path))?;
        written.map_err(io("writing", &path))?;
        self.sync(b)
    }

    /// A checkpoint that is missing is empty; one that is garbled is an error: a crash never leaves
    /// one (it is replaced whole), so the directory is not to be trusted, as a broker holds.
    pub fn read_checkpoint<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
        which: Checkpoint,
    ) -> Result<Offsets, DataDirError> {
        let path = self.path.join(which.file_name());
        let bytes = b.read_file(&path, TEXT_BYTES_MAX).map_err(io("reading", &path))?;
        let rows = parse_offsets(&bytes.unwrap_or_default())
            .map_err(|error| DataDirError::Text { path, error, remedy: which.remedy() })?;
        let row = |row: OffsetRow| Some(((row.topic, row.partition), Offset::new(row.offset)?));
        Ok(rows.into_iter().filter_map(row).collect())
    }

    /// Makes the checkpoints that are missing, empty, as a broker does at its start.
    pub fn make_checkpoints<I: Io>(&self, b: &mut Blocking<'_, I>) -> Result<(), DataDirError> {
        for which in Checkpoint::ALL {
            let path = self.path.join(which.file_name());
            match b.stat(&path) {
                Err(Errno::ENOENT) => {}
                known => {
                    known.map_err(io("looking at", &path))?;
                    continue;
                }
            }
            let how = OpenHow { write: true, create: true, ..OpenHow::default() };
            let made = b.open(&path, how).and_then(|file| b.close(file));
            made.map_err(io("creating", &path))?;
        }
        Ok(())
    }

    pub fn replace_checkpoint<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
        which: Checkpoint,
        offsets: &Offsets,
    ) -> Result<(), DataDirError> {
        let rows: Vec<OffsetRow> = offsets
            .iter()
            .map(|((topic, partition), offset)| OffsetRow {
                topic: topic.clone(),
                partition: *partition,
                offset: offset.get(),
            })
            .collect();
        let path = self.path.join(which.file_name());
        b.replace_file(&path, render_offsets(&rows).as_bytes()).map_err(io("writing", &path))
    }

    /// Whose directory this is; `None` for a new one.
    pub fn read_meta<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
    ) -> Result<Option<MetaProperties>, DataDirError> {
        let path = self.path.join(META);
        let bytes = b.read_file(&path, TEXT_BYTES_MAX).map_err(io("reading", &path))?;
        bytes.map(|bytes| MetaProperties::parse(&bytes)).transpose().map_err(|error| {
            let remedy = "put a sound copy in its place";
            DataDirError::Text { path, error, remedy }
        })
    }

    pub fn write_meta<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
        meta: &MetaProperties,
        comment: &str,
    ) -> Result<(), DataDirError> {
        let path = self.path.join(META);
        b.replace_file(&path, meta.render(comment).as_bytes()).map_err(io("writing", &path))
    }
}

/// An errno that says where it happened.
pub fn io(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> DataDirError {
    let path = path.to_path_buf();
    move |errno| DataDirError::Io { what, path, errno }
}
