//! One data directory as this server holds it: what was found at the start, and how it changes.
//!
//! Owns: the state around a directory's partitions (identity, clean marker, checkpoint rows) and
//! making and removing partitions' directories. Never does: the files' formats and their
//! replacement (`log::datadir`), know of other directories, or look into a partition. Left:
//! `log::datadir`, `log::create`. Right: `homes`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::format::identity::{
    MetaProperties, parse_partition_metadata, render_partition_metadata, render_uuid,
};
use crate::format::name::{DirState, FileKind, SegmentFile, check_topic};
use crate::io::blocking::Blocking;
use crate::io::{Errno, Io};
use crate::log::METADATA_NAME;
use crate::log::datadir::{Checkpoint, DataDir, DataDirError, LogDir, Offsets, io};
use crate::types::Offset;

/// Largest small file that is read whole.
const FILE_BYTES_MAX: usize = 1 << 20;

/// A partition directory found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPartition {
    pub topic: String,
    pub index: u32,
    /// None where there is no `partition.metadata`; an error says why it cannot be read.
    pub topic_id: Result<Option<Uuid>, String>,
    /// A creation that a crash cut short: nothing was ever stored here.
    is_unfinished: bool,
}

/// A partition's offsets as the checkpoint files carry them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub topic: String,
    pub index: u32,
    pub recovery_point: Offset,
    pub log_start: Offset,
    /// The first segment's base offset: a log start at or below it says nothing.
    pub first_base: Offset,
    pub high_watermark: Offset,
}

/// Where a partition's log begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStart {
    pub topic: String,
    pub index: u32,
    pub offset: Offset,
}

/// A checkpoint's rows, and whether its file says the same.
#[derive(Debug, Default)]
struct Rows {
    offsets: Offsets,
    is_written: bool,
}

impl Rows {
    fn set(&mut self, key: (String, i32), offset: Offset) {
        self.is_written &= self.offsets.insert(key, offset) == Some(offset);
    }

    fn remove(&mut self, key: &(String, i32)) {
        self.is_written &= self.offsets.remove(key).is_none();
    }
}

/// A locked data directory.
#[derive(Debug)]
pub struct Home {
    dir: DataDir,
    id: Uuid,
    was_clean: bool,
    partitions: Vec<FoundPartition>,
    /// Directories that a deletion left behind.
    leftovers: Vec<PathBuf>,
    /// As [`Checkpoint::ALL`] lists them.
    rows: [Rows; 4],
}

impl Home {
    /// Reads a locked directory that is known as `id`, changing nothing.
    pub fn read<I: Io>(
        b: &mut Blocking<'_, I>,
        path: &Path,
        id: Uuid,
    ) -> Result<Home, DataDirError> {
        let dir = DataDir::new(path);
        let mut rows: [Rows; 4] = Default::default();
        for (rows, which) in rows.iter_mut().zip(Checkpoint::ALL) {
            *rows = Rows { offsets: dir.read_checkpoint(b, which)?, is_written: true };
        }
        let mut home =
            Home { dir, id, was_clean: false, partitions: Vec::new(), leftovers: Vec::new(), rows };
        home.find(b)?;
        Ok(home)
    }

    /// What is there to serve. What a deletion left behind is to be removed; what a broker set
    /// aside, or was moving here, is left alone.
    fn find<I: Io>(&mut self, b: &mut Blocking<'_, I>) -> Result<(), DataDirError> {
        for LogDir { topic, partition, path, state } in self.dir.scan(b)? {
            match state {
                DirState::Delete => self.leftovers.push(path),
                DirState::Future => {
                    tracing::warn!(
                        "{} is kept and not served: a broker was moving a partition here",
                        path.display()
                    );
                }
                DirState::Stray => {
                    tracing::warn!(
                        "{} is kept and not served: a broker set it aside as stray",
                        path.display()
                    );
                }
                DirState::Current if check_topic(&topic).is_err() => {
                    tracing::warn!("{} is not served: no topic has such a name", path.display());
                }
                DirState::Current => {
                    let topic_id = read_topic_id(b, &path.join(METADATA_NAME));
                    let is_unfinished = topic_id == Ok(None) && !has_log(b, &path)?;
                    let index = partition as u32;
                    self.partitions.push(FoundPartition { topic, index, topic_id, is_unfinished });
                }
            }
        }
        Ok(())
    }

    /// Makes the directory ready: deletions that a crash cut short go on, rows of partitions that
    /// are not there go away, missing checkpoints are made. Last the clean marker goes, and is gone
    /// durably when this returns (D9).
    pub fn prepare<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        deleted: &HashSet<Uuid>,
    ) -> Result<(), DataDirError> {
        let doomed = |found: &FoundPartition| match &found.topic_id {
            Ok(Some(id)) => deleted.contains(id),
            _ => found.is_unfinished,
        };
        let (gone, stay): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.partitions).into_iter().partition(doomed);
        self.partitions = stay;
        for found in &gone {
            let aside = self.set_aside(b, &found.topic, found.index)?;
            self.leftovers.extend(aside);
        }
        if !gone.is_empty() {
            self.dir.sync(b)?;
        }
        let known: HashSet<(&str, i32)> =
            self.partitions.iter().map(|one| (one.topic.as_str(), one.index as i32)).collect();
        for rows in &mut self.rows {
            let before = rows.offsets.len();
            rows.offsets.retain(|(topic, index), _| known.contains(&(topic.as_str(), *index)));
            rows.is_written &= rows.offsets.len() == before;
        }
        // A full disk does not keep a server from starting (R21).
        let made = self.dir.make_checkpoints(b).and_then(|()| self.write_changed(b));
        self.unless_full(made)?;
        self.was_clean = self.dir.take_clean_marker(b)?;
        Ok(())
    }

    fn unless_full(&self, done: Result<(), DataDirError>) -> Result<(), DataDirError> {
        match done {
            Err(error) if error.is_no_space() => {
                tracing::error!("{error}; going on without");
                Ok(())
            }
            done => done,
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Where a partition's files are.
    pub fn log_dir(&self, topic: &str, index: u32) -> PathBuf {
        self.dir.log_dir(topic, index as i32)
    }

    pub fn partitions(&self) -> &[FoundPartition] {
        &self.partitions
    }

    /// What a deletion left behind, to be removed; handed out once.
    pub fn take_leftovers(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.leftovers)
    }

    /// The last stop wrote the clean marker.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    fn rows(&self, which: Checkpoint) -> &Offsets {
        &self.rows[which as usize].offsets
    }

    pub fn recovery_point(&self, topic: &str, index: u32) -> Option<Offset> {
        self.rows(Checkpoint::RecoveryPoint).get(&key(topic, index)).copied()
    }

    pub fn log_start(&self, topic: &str, index: u32) -> Option<Offset> {
        self.rows(Checkpoint::LogStart).get(&key(topic, index)).copied()
    }

    /// Makes a partition's directory; all of it is on the disk when this returns.
    pub fn create<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        topic: &str,
        index: u32,
        id: Uuid,
    ) -> Result<(), DataDirError> {
        // A namesake's rows are gone from the disk, or they would be taken for the new one's.
        self.write_changed(b)?;
        Ok(crate::log::create(b, &self.log_dir(topic, index), id, 0)?)
    }

    /// Gives a partition that was found without one its topic's id. A broker does the same when it
    /// learns the id.
    pub fn write_topic_id<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
        topic: &str,
        index: u32,
        id: Uuid,
    ) -> Result<(), DataDirError> {
        let path = self.log_dir(topic, index).join(METADATA_NAME);
        let text = render_partition_metadata(id);
        self.unless_full(b.replace_file(&path, text.as_bytes()).map_err(io("writing", &path)))
    }

    /// Renames a partition's directory away, not synced yet, and forgets its offsets; where it is
    /// now, or none if it was not there.
    fn set_aside<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        topic: &str,
        index: u32,
    ) -> Result<Option<PathBuf>, DataDirError> {
        let from = self.log_dir(topic, index);
        let aside = match self.dir.set_aside(b, topic, index as i32, &from) {
            Ok(to) => Some(to),
            Err(DataDirError::Io { errno: Errno::ENOENT, .. }) => None,
            Err(error) => return Err(error),
        };
        let key = key(topic, index);
        self.rows.iter_mut().for_each(|rows| rows.remove(&key));
        Ok(aside)
    }

    /// Renames partitions' directories away; the renames, and checkpoints without them, are on the
    /// disk when this returns: a successor of the same name must not find a stale row. Where the
    /// directories are now, for whoever removes them.
    pub fn delete<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        topic: &str,
        indexes: &[u32],
    ) -> Result<Vec<PathBuf>, DataDirError> {
        let mut gone = Vec::new();
        for &index in indexes {
            gone.extend(self.set_aside(b, topic, index)?);
        }
        self.dir.sync(b)?;
        let written = self.write_changed(b);
        self.unless_full(written)?;
        Ok(gone)
    }

    /// Takes the partitions' offsets over and replaces the checkpoint files that change. Partitions
    /// that `points` does not name keep their rows.
    pub fn write_checkpoints<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        points: &[Point],
    ) -> Result<(), DataDirError> {
        let [recovery_points, log_starts, high_watermarks, _] = &mut self.rows;
        for point in points {
            let key = key(&point.topic, point.index);
            recovery_points.set(key.clone(), point.recovery_point);
            match point.log_start > point.first_base {
                true => log_starts.set(key.clone(), point.log_start),
                false => log_starts.remove(&key),
            }
            high_watermarks.set(key, point.high_watermark);
        }
        self.write_changed(b)
    }

    fn write_changed<I: Io>(&mut self, b: &mut Blocking<'_, I>) -> Result<(), DataDirError> {
        for (rows, which) in self.rows.iter_mut().zip(Checkpoint::ALL) {
            if !rows.is_written {
                self.dir.replace_checkpoint(b, which, &rows.offsets)?;
                rows.is_written = true;
            }
        }
        Ok(())
    }

    /// Whether the directory still takes a file: replaces a checkpoint by itself.
    pub fn try_out<I: Io>(&mut self, b: &mut Blocking<'_, I>) -> Result<(), DataDirError> {
        self.rows[Checkpoint::RecoveryPoint as usize].is_written = false;
        let written = self.write_changed(b);
        self.unless_full(written)
    }

    /// Takes log starts over and replaces their checkpoint.
    pub fn write_log_starts<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        starts: &[LogStart],
    ) -> Result<(), DataDirError> {
        let rows = &mut self.rows[Checkpoint::LogStart as usize];
        for start in starts {
            rows.set(key(&start.topic, start.index), start.offset);
        }
        if !rows.is_written {
            self.dir.replace_checkpoint(b, Checkpoint::LogStart, &rows.offsets)?;
            rows.is_written = true;
        }
        Ok(())
    }

    /// The very last thing of a clean stop (D9).
    pub fn write_clean_marker<I: Io>(&self, b: &mut Blocking<'_, I>) -> Result<(), DataDirError> {
        self.dir.write_clean_marker(b)
    }
}

fn key(topic: &str, index: u32) -> (String, i32) {
    (topic.to_string(), index as i32)
}

/// Makes the directory and what is missing above it, every new name synced.
pub fn make<I: Io>(b: &mut Blocking<'_, I>, path: &Path) -> Result<(), DataDirError> {
    match b.stat(path) {
        Ok(stat) if stat.is_dir => return Ok(()),
        Ok(_) => return Err(io("using", path)(Errno::ENOTDIR)),
        Err(Errno::ENOENT) => {}
        Err(errno) => return Err(io("looking at", path)(errno)),
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    make(b, parent)?;
    b.create_dir(path).map_err(io("creating", path))?;
    b.sync_dir(parent).map_err(io("syncing", parent))
}

/// What a directory's `meta.properties` says, completed as a broker of today writes it: version 1
/// with an id of its own. `None` for a directory that nobody has used.
pub fn read_meta<I: Io>(
    b: &mut Blocking<'_, I>,
    path: &Path,
) -> Result<Option<MetaProperties>, DataDirError> {
    DataDir::new(path).read_meta(b)
}

/// Whose a directory is, written down where that is new or incomplete; its id.
pub fn settle_meta<I: Io>(
    b: &mut Blocking<'_, I>,
    path: &Path,
    found: Option<&MetaProperties>,
    cluster_id: &str,
    node_id: i32,
) -> Result<Uuid, DataDirError> {
    let id = found.and_then(|meta| meta.directory_id);
    let complete = found.is_some_and(|meta| meta.version == 1);
    if let (Some(id), true) = (id, complete) {
        return Ok(id);
    }
    let id = id.unwrap_or_else(random_id);
    let meta = MetaProperties {
        version: 1,
        node_id: Some(node_id),
        cluster_id: Some(cluster_id.to_string()),
        directory_id: Some(id),
    };
    DataDir::new(path).write_meta(b, &meta, "written by ringlog")?;
    Ok(id)
}

/// A new id; Kafka's never print with a dash in front.
pub fn random_id() -> Uuid {
    loop {
        let id = Uuid::new_v4();
        if !render_uuid(id).starts_with('-') {
            return id;
        }
    }
}

fn read_topic_id<I: Io>(b: &mut Blocking<'_, I>, path: &Path) -> Result<Option<Uuid>, String> {
    let fault = |why: &dyn std::fmt::Display| {
        format!("{}: {why}; put a sound copy in its place, or remove it", path.display())
    };
    match b.read_file(path, FILE_BYTES_MAX) {
        Ok(None) => Ok(None),
        Ok(Some(bytes)) => parse_partition_metadata(&bytes).map(Some).map_err(|e| fault(&e)),
        Err(errno) => Err(fault(&errno)),
    }
}

fn has_log<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<bool, DataDirError> {
    let is_log = |name: &str| SegmentFile::parse(name).is_some_and(|f| f.kind == FileKind::Log);
    let entries = b.list(dir).map_err(io("listing", dir))?;
    Ok(entries.iter().any(|entry| is_log(&entry.name)))
}
