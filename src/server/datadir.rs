//! The data directory as this server holds it: what was found at the start, and how it changes.
//!
//! Owns: the state around the partitions (identity, clean marker, checkpoint rows) and making and
//! removing topics' directories. Never does: the files' formats and their replacement
//! (`log::datadir`), or look into a partition. Left: `log::datadir`, `log::create`. Right:
//! `control`.

use std::path::Path;

use uuid::Uuid;

use crate::format::identity::{MetaProperties, parse_partition_metadata, render_uuid};
use crate::format::name::{DirState, check_topic, marked_dir_name};
use crate::io::blocking::Blocking;
use crate::io::{Errno, Io};
use crate::log::METADATA_NAME;
use crate::log::datadir::{Checkpoint, DataDir, DataDirError, LogDir, Offsets};
use crate::types::Offset;

/// Largest small file that is read whole.
const FILE_BYTES_MAX: usize = 1 << 20;

fn io(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> DataDirError {
    let path = path.to_path_buf();
    move |errno| DataDirError::Io { what, path, errno }
}

/// A partition directory found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPartition {
    pub topic: String,
    pub index: u32,
    pub topic_id: Option<Uuid>,
}

/// A partition's offsets as the checkpoint files carry them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub topic: String,
    pub index: u32,
    pub recovery_point: Offset,
    pub log_start: Offset,
    pub high_watermark: Offset,
}

/// A locked data directory.
#[derive(Debug)]
pub struct Home {
    dir: DataDir,
    meta: MetaProperties,
    was_clean: bool,
    partitions: Vec<FoundPartition>,
    recovery_points: Offsets,
    log_starts: Offsets,
}

impl Home {
    /// Reads a locked directory, making it what a first start needs. The clean marker is gone, and
    /// its removal synced, when this returns (D9).
    pub fn open<I: Io>(b: &mut Blocking<'_, I>, path: &Path) -> Result<Home, DataDirError> {
        let dir = DataDir::new(path);
        let meta = match dir.read_meta(b)? {
            Some(meta) => meta,
            None => {
                let meta = new_meta();
                dir.write_meta(b, &meta, "written by ringlog")?;
                meta
            }
        };
        let partitions = find(b, &dir)?;
        let was_clean = dir.take_clean_marker(b)?;
        let recovery_points = dir.read_checkpoint(b, Checkpoint::RecoveryPoint)?;
        let log_starts = dir.read_checkpoint(b, Checkpoint::LogStart)?;
        Ok(Home { dir, meta, was_clean, partitions, recovery_points, log_starts })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Where a partition's files are.
    pub fn log_dir(&self, topic: &str, index: u32) -> std::path::PathBuf {
        self.dir.log_dir(topic, index as i32)
    }

    pub fn partitions(&self) -> &[FoundPartition] {
        &self.partitions
    }

    /// The last stop wrote the clean marker.
    pub fn was_clean(&self) -> bool {
        self.was_clean
    }

    pub fn cluster_id(&self) -> &str {
        self.meta.cluster_id.as_deref().unwrap_or_default()
    }

    pub fn node_id(&self) -> i32 {
        self.meta.node_id.unwrap_or(0)
    }

    pub fn recovery_point(&self, topic: &str, index: u32) -> Option<Offset> {
        self.recovery_points.get(&key(topic, index)).copied()
    }

    pub fn log_start(&self, topic: &str, index: u32) -> Option<Offset> {
        self.log_starts.get(&key(topic, index)).copied()
    }

    /// Makes the partition directories of a topic; all of it is on the disk when this returns.
    pub fn create_topic<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        topic: &str,
        partitions: u32,
        id: Uuid,
    ) -> Result<(), crate::log::CreateError> {
        (0..partitions)
            .try_for_each(|index| crate::log::create(b, &self.log_dir(topic, index), id, 0))
    }

    /// Renames the partition directories of a topic away, synced, then removes them. What a crash
    /// leaves is removed at the next start.
    pub fn delete_topic<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        topic: &str,
        partitions: u32,
    ) -> Result<(), DataDirError> {
        let mut gone = Vec::new();
        for index in 0..partitions {
            let from = self.log_dir(topic, index);
            let id = Uuid::new_v4().as_u128();
            let name = marked_dir_name(topic, index as i32, id, DirState::Delete);
            let to = self.path().join(name);
            match b.rename(&from, &to) {
                Ok(()) => gone.push(to),
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(io("renaming", &from)(errno)),
            }
            self.recovery_points.remove(&key(topic, index));
            self.log_starts.remove(&key(topic, index));
        }
        b.sync_dir(self.path()).map_err(io("syncing", self.path()))?;
        gone.iter().try_for_each(|dir| remove_all(b, dir))
    }

    /// Replaces the three checkpoint files. Partitions that `points` do not name keep their rows.
    pub fn write_checkpoints<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        points: &[Point],
    ) -> Result<(), DataDirError> {
        let mut high = Offsets::new();
        for point in points {
            let key = key(&point.topic, point.index);
            self.recovery_points.insert(key.clone(), point.recovery_point);
            if point.log_start > Offset::ZERO {
                self.log_starts.insert(key.clone(), point.log_start);
            }
            high.insert(key, point.high_watermark);
        }
        self.dir.replace_checkpoint(b, Checkpoint::RecoveryPoint, &self.recovery_points)?;
        self.dir.replace_checkpoint(b, Checkpoint::LogStart, &self.log_starts)?;
        self.dir.replace_checkpoint(b, Checkpoint::Replication, &high)
    }

    /// Replaces the checkpoint of log starts, these rows moved up.
    pub fn write_log_starts<'p, I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        starts: impl Iterator<Item = (&'p str, u32, Offset)>,
    ) -> Result<(), DataDirError> {
        for (topic, index, start) in starts {
            let row = self.log_starts.entry(key(topic, index)).or_insert(start);
            *row = start.max(*row);
        }
        self.dir.replace_checkpoint(b, Checkpoint::LogStart, &self.log_starts)
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

fn new_meta() -> MetaProperties {
    MetaProperties {
        version: 1,
        node_id: Some(1),
        cluster_id: Some(render_uuid(random_id())),
        directory_id: Some(random_id()),
    }
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

/// The partitions to serve. What a deletion left behind is removed; what a broker set aside is
/// left alone.
fn find<I: Io>(
    b: &mut Blocking<'_, I>,
    dir: &DataDir,
) -> Result<Vec<FoundPartition>, DataDirError> {
    let mut found = Vec::new();
    for LogDir { topic, partition, path, state } in dir.scan(b)? {
        match state {
            DirState::Delete => remove_all(b, &path)?,
            DirState::Future | DirState::Stray => {
                tracing::warn!("{} is not served: its name says so", path.display());
            }
            DirState::Current if check_topic(&topic).is_err() => {
                tracing::warn!("{} is not served: no topic has such a name", path.display());
            }
            DirState::Current => {
                let topic_id = read_topic_id(b, &path.join(METADATA_NAME));
                found.push(FoundPartition { topic, index: partition as u32, topic_id });
            }
        }
    }
    Ok(found)
}

fn read_topic_id<I: Io>(b: &mut Blocking<'_, I>, path: &Path) -> Option<Uuid> {
    let bytes = b.read_file(path, FILE_BYTES_MAX).ok().flatten()?;
    match parse_partition_metadata(&bytes) {
        Ok(id) => Some(id),
        Err(error) => {
            tracing::warn!("{}: {error}", path.display());
            None
        }
    }
}

fn remove_all<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<(), DataDirError> {
    for entry in b.list(dir).map_err(io("listing", dir))? {
        let path = dir.join(&entry.name);
        match entry.is_dir {
            true => remove_all(b, &path)?,
            false => b.unlink(&path).map_err(io("removing", &path))?,
        }
    }
    b.remove_dir(dir).map_err(io("removing", dir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::buffers::Pool;
    use crate::io::sim::World;

    const DIR: &str = "/a/data";

    fn with<T>(
        world: &World,
        act: impl FnOnce(&mut Blocking<'_, crate::io::sim::SimIo>) -> T,
    ) -> T {
        let mut io = world.engine();
        act(&mut Blocking::new(&mut io, Pool::new(16 << 20)))
    }

    #[test]
    fn d9_the_marker_is_gone_before_anything_is_appended_and_comes_back_last() {
        for seed in 0..40 {
            let world = World::new(seed);
            let opened = with(&world, |b| {
                make(b, Path::new(DIR)).unwrap();
                let dir = Home::open(b, Path::new(DIR)).unwrap();
                assert!(!dir.was_clean(), "nothing stopped here before");
                dir.write_clean_marker(b).unwrap();
                Home::open(b, Path::new(DIR)).unwrap()
            });
            assert!(opened.was_clean());
            world.power_cut();
            let again = with(&world, |b| Home::open(b, Path::new(DIR)).unwrap());
            assert!(!again.was_clean(), "seed {seed}: a removed marker came back");
            assert_eq!(again.cluster_id(), opened.cluster_id(), "seed {seed}");
        }
    }

    #[test]
    fn checkpoints_come_back_and_a_garbled_one_is_empty() {
        let world = World::new(1);
        with(&world, |b| {
            make(b, Path::new(DIR)).unwrap();
            let mut dir = Home::open(b, Path::new(DIR)).unwrap();
            let five = Offset::new(5).unwrap();
            let point = Point {
                topic: "t".into(),
                index: 3,
                recovery_point: five,
                log_start: Offset::ZERO,
                high_watermark: five,
            };
            dir.write_checkpoints(b, &[point]).unwrap();
            let dir = Home::open(b, Path::new(DIR)).unwrap();
            assert_eq!(dir.recovery_point("t", 3), Some(five));
            assert_eq!(dir.log_start("t", 3), None);
            let path = Path::new(DIR).join(Checkpoint::RecoveryPoint.file_name());
            b.replace_file(&path, b"0\n2\nt 3 5\n").unwrap();
            assert_eq!(Home::open(b, Path::new(DIR)).unwrap().recovery_point("t", 3), None);
        });
    }

    #[test]
    fn a_deleted_topic_does_not_come_back_after_a_power_cut() {
        for seed in 0..40 {
            let world = World::new(seed);
            with(&world, |b| {
                make(b, Path::new(DIR)).unwrap();
                let mut dir = Home::open(b, Path::new(DIR)).unwrap();
                dir.create_topic(b, "t", 2, random_id()).unwrap();
                dir.delete_topic(b, "t", 2).unwrap();
            });
            world.power_cut();
            let dir = with(&world, |b| Home::open(b, Path::new(DIR)).unwrap());
            assert_eq!(dir.partitions(), [], "seed {seed}");
        }
    }

    #[test]
    fn a_created_topic_is_found_with_its_id_after_a_power_cut() {
        for seed in 0..40 {
            let (world, id) = (World::new(seed), random_id());
            with(&world, |b| {
                make(b, Path::new(DIR)).unwrap();
                Home::open(b, Path::new(DIR)).unwrap().create_topic(b, "a-b", 1, id).unwrap();
            });
            world.power_cut();
            let dir = with(&world, |b| Home::open(b, Path::new(DIR)).unwrap());
            let one = FoundPartition { topic: "a-b".into(), index: 0, topic_id: Some(id) };
            assert_eq!(dir.partitions(), [one], "seed {seed}");
        }
    }
}
