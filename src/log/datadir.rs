//! A data directory: which logs it holds, whose it is, how it was left, and its checkpoints.
//!
//! Owns: the marker of a clean stop (D9), `meta.properties`, the offset checkpoints, the scan. Never
//! does: opening logs, the directory's lock (the server holds it). Left: `format`, `io::blocking`.
//! Right: `server`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::format::checkpoint::{OffsetRow, TextError, parse_offsets, render_offsets};
use crate::format::identity::{MetaProperties, render_clean_shutdown};
use crate::format::name::{DirError, DirState, PartitionDir};
use crate::io::blocking::Blocking;
use crate::io::op::OpenHow;
use crate::io::{Errno, Io};
use crate::types::Offset;

const MARKER: &str = ".kafka_cleanshutdown";
const META: &str = "meta.properties";
/// Directories that belong to a broker and hold no log.
const NOT_LOGS: [&str; 2] = ["remote-log-index-cache", "__cluster_metadata-0"];
const TEXT_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataDirError {
    #[error("{what} {}: {errno}", path.display())]
    Io { what: &'static str, path: PathBuf, errno: Errno },
    #[error("{}: {error}", path.display())]
    Foreign { path: PathBuf, error: DirError },
    #[error("{} and another directory hold the same partition", path.display())]
    Twice { path: PathBuf },
    #[error("{}: {error}", path.display())]
    Text { path: PathBuf, error: TextError },
}

/// The checkpoints of offsets by partition.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    RecoveryPoint,
    LogStart,
    /// High watermarks.
    Replication,
}

impl Checkpoint {
    pub fn file_name(self) -> &'static str {
        match self {
            Checkpoint::RecoveryPoint => "recovery-point-offset-checkpoint",
            Checkpoint::LogStart => "log-start-offset-checkpoint",
            Checkpoint::Replication => "replication-offset-checkpoint",
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
        for entry in entries {
            if !entry.is_dir || NOT_LOGS.contains(&entry.name.as_str()) {
                continue;
            }
            let path = self.path.join(&entry.name);
            let dir = PartitionDir::parse(&entry.name)
                .map_err(|error| DataDirError::Foreign { path: path.clone(), error })?;
            let same = |other: &LogDir| {
                other.topic == dir.topic
                    && other.partition == dir.partition
                    && other.state == DirState::Current
            };
            if dir.state == DirState::Current && found.iter().any(same) {
                return Err(DataDirError::Twice { path });
            }
            let topic = dir.topic.to_string();
            found.push(LogDir { topic, partition: dir.partition, path, state: dir.state });
        }
        Ok(found)
    }

    /// Whether the last stop was clean. The marker is gone, and durably so, when this returns:
    /// only then may anything be appended (D9).
    pub fn take_clean_marker<I: Io>(&self, b: &mut Blocking<'_, I>) -> Result<bool, DataDirError> {
        let path = self.path.join(MARKER);
        match b.unlink(&path) {
            Err(Errno::ENOENT) => return Ok(false),
            gone => gone.map_err(io("removing", &path))?,
        }
        b.sync_dir(&self.path).map_err(io("syncing", &self.path))?;
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
        b.sync_dir(&self.path).map_err(io("syncing", &self.path))
    }

    /// A checkpoint that is missing is empty; so is one that cannot be read, with a warning, for
    /// what it says only spares work.
    pub fn read_checkpoint<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
        which: Checkpoint,
    ) -> Result<Offsets, DataDirError> {
        let path = self.path.join(which.file_name());
        let bytes = b.read_file(&path, TEXT_BYTES_MAX).map_err(io("reading", &path))?;
        let rows = parse_offsets(&bytes.unwrap_or_default()).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "checkpoint ignored");
            Vec::new()
        });
        let row = |row: OffsetRow| Some(((row.topic, row.partition), Offset::new(row.offset)?));
        Ok(rows.into_iter().filter_map(row).collect())
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
        bytes
            .map(|bytes| MetaProperties::parse(&bytes))
            .transpose()
            .map_err(|error| DataDirError::Text { path, error })
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

fn io(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> DataDirError {
    let path = path.to_path_buf();
    move |errno| DataDirError::Io { what, path, errno }
}
