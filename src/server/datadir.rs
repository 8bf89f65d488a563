//! The data directory around the partitions: lock, identity, clean marker, checkpoints, names.
//!
//! Owns: every file directly in it but the topic file, and the order in which they change (D9).
//! Never does: look into a partition (`log` does). Left: `format`, `io`. Right: `control`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::format::checkpoint::{OffsetRow, parse_offsets, render_offsets};
use crate::format::identity::{
    MetaProperties, parse_partition_metadata, render_clean_shutdown, render_uuid,
};
use crate::format::name::{DirState, PartitionDir, check_topic, dir_name, marked_dir_name};
use crate::io::blocking::Blocking;
use crate::io::{Errno, Io};
use crate::log::METADATA_NAME;
use crate::types::Offset;

const META: &str = "meta.properties";
const CLEAN: &str = ".kafka_cleanshutdown";
const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
const REMOTE_CACHE: &str = "remote-log-index-cache";
const CLUSTER_METADATA: &str = "__cluster_metadata";

/// Largest small file that is read whole.
const FILE_BYTES_MAX: usize = 64 << 20;

/// What could not be done, where, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirError {
    #[error("{what} {path}: {errno}")]
    Io { what: &'static str, path: String, errno: Errno },
    #[error("{path}: {why}")]
    Content { path: String, why: String },
    #[error("two directories hold {topic}-{partition}: {path}; move one away")]
    Twice { topic: String, partition: u32, path: String },
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(Errno) -> DirError {
    let path = path.display().to_string();
    move |errno| DirError::Io { what, path, errno }
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

type Offsets = HashMap<(String, u32), Offset>;

#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    meta: MetaProperties,
    was_clean: bool,
    partitions: Vec<FoundPartition>,
    recovery_points: Offsets,
    log_starts: Offsets,
}

impl DataDir {
    /// Reads a locked directory, making it what a first start needs. The clean marker is gone, and
    /// its removal synced, when this returns (D9).
    pub fn open<I: Io>(b: &mut Blocking<'_, I>, path: &Path) -> Result<DataDir, DirError> {
        let meta = read_meta(b, path)?;
        let partitions = scan(b, path)?;
        let marker = path.join(CLEAN);
        let was_clean = match b.unlink(&marker) {
            Ok(()) => {
                b.sync_dir(path).map_err(io("syncing", path))?;
                true
            }
            Err(Errno::ENOENT) => false,
            Err(errno) => return Err(io("removing", &marker)(errno)),
        };
        Ok(DataDir {
            path: path.to_path_buf(),
            meta,
            was_clean,
            partitions,
            recovery_points: read_offsets(b, &path.join(RECOVERY_POINTS))?,
            log_starts: read_offsets(b, &path.join(LOG_STARTS))?,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
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
        self.recovery_points.get(&(topic.to_string(), index)).copied()
    }

    pub fn log_start(&self, topic: &str, index: u32) -> Option<Offset> {
        self.log_starts.get(&(topic.to_string(), index)).copied()
    }

    /// Makes the partition directories of a topic; all of it is on the disk when this returns.
    pub fn create_topic<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        topic: &str,
        partitions: u32,
        id: Uuid,
    ) -> Result<(), crate::log::CreateError> {
        for index in 0..partitions {
            let dir = self.path.join(dir_name(topic, index as i32));
            crate::log::create(b, &dir, id, 0)?;
        }
        Ok(())
    }

    /// Renames the partition directories of a topic away, synced, then removes them. What a crash
    /// leaves is removed at the next start.
    pub fn delete_topic<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        topic: &str,
        partitions: u32,
    ) -> Result<(), DirError> {
        let mut gone = Vec::new();
        for index in 0..partitions {
            let from = self.path.join(dir_name(topic, index as i32));
            let id = Uuid::new_v4().as_u128();
            let to = self.path.join(marked_dir_name(topic, index as i32, id, DirState::Delete));
            match b.rename(&from, &to) {
                Ok(()) => gone.push(to),
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(io("renaming", &from)(errno)),
            }
            self.recovery_points.remove(&(topic.to_string(), index));
            self.log_starts.remove(&(topic.to_string(), index));
        }
        b.sync_dir(&self.path).map_err(io("syncing", &self.path))?;
        gone.iter().try_for_each(|dir| remove_all(b, dir))
    }

    /// Replaces the three checkpoint files. Partitions that `points` do not name keep their rows.
    pub fn write_checkpoints<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        points: &[Point],
    ) -> Result<(), DirError> {
        let mut high = Offsets::new();
        for point in points {
            let key = (point.topic.clone(), point.index);
            self.recovery_points.insert(key.clone(), point.recovery_point);
            if point.log_start > Offset::ZERO {
                self.log_starts.insert(key.clone(), point.log_start);
            }
            high.insert(key, point.high_watermark);
        }
        let files =
            [(RECOVERY_POINTS, &self.recovery_points), (LOG_STARTS, &self.log_starts)];
        for (name, offsets) in files.into_iter().chain([(HIGH_WATERMARKS, &high)]) {
            let path = self.path.join(name);
            b.replace_file(&path, render(offsets).as_bytes()).map_err(io("replacing", &path))?;
        }
        Ok(())
    }

    /// The very last thing of a clean stop (D9).
    pub fn write_clean_marker<I: Io>(&self, b: &mut Blocking<'_, I>) -> Result<(), DirError> {
        let path = self.path.join(CLEAN);
        b.replace_file(&path, render_clean_shutdown(-1).as_bytes())
            .map_err(io("writing", &path))
    }
}

/// Makes the directory and what is missing above it, every new name synced.
pub fn make<I: Io>(b: &mut Blocking<'_, I>, path: &Path) -> Result<(), DirError> {
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

fn read_meta<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<MetaProperties, DirError> {
    let path = dir.join(META);
    if let Some(bytes) = b.read_file(&path, FILE_BYTES_MAX).map_err(io("reading", &path))? {
        return MetaProperties::parse(&bytes).map_err(|error| DirError::Content {
            path: path.display().to_string(),
            why: error.to_string(),
        });
    }
    let meta = MetaProperties {
        version: 1,
        node_id: Some(1),
        cluster_id: Some(render_uuid(random_id())),
        directory_id: Some(random_id()),
    };
    let text = meta.render("written by ringlog");
    b.replace_file(&path, text.as_bytes()).map_err(io("writing", &path))?;
    Ok(meta)
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

/// Partition directories by spec 1.1. What a deletion left behind is removed; what is neither a
/// partition nor known is left alone with a warning (a broker would refuse to start).
fn scan<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<Vec<FoundPartition>, DirError> {
    let mut found: Vec<FoundPartition> = Vec::new();
    for entry in b.list(dir).map_err(io("listing", dir))? {
        if !entry.is_dir || entry.name == REMOTE_CACHE {
            continue;
        }
        let path = dir.join(&entry.name);
        let parsed = match PartitionDir::parse(&entry.name) {
            Ok(parsed) if parsed.topic == CLUSTER_METADATA => continue,
            Ok(parsed) if check_topic(parsed.topic).is_ok() => parsed,
            _ => {
                tracing::warn!("{} is no partition: left alone", path.display());
                continue;
            }
        };
        match parsed.state {
            DirState::Delete => remove_all(b, &path)?,
            DirState::Future | DirState::Stray => {
                tracing::warn!("{} is not served: its name says so", path.display());
            }
            DirState::Current => {
                let (topic, index) = (parsed.topic.to_string(), parsed.partition as u32);
                if found.iter().any(|one| one.topic == topic && one.index == index) {
                    let path = path.display().to_string();
                    return Err(DirError::Twice { topic, partition: index, path });
                }
                let topic_id = read_topic_id(b, &path.join(METADATA_NAME));
                found.push(FoundPartition { topic, index, topic_id });
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

/// A checkpoint that cannot be read is an empty one: everything is scanned then.
fn read_offsets<I: Io>(b: &mut Blocking<'_, I>, path: &Path) -> Result<Offsets, DirError> {
    let Some(bytes) = b.read_file(path, FILE_BYTES_MAX).map_err(io("reading", path))? else {
        return Ok(Offsets::new());
    };
    match parse_offsets(&bytes) {
        Ok(rows) => Ok(rows.into_iter().filter_map(row).collect()),
        Err(error) => {
            tracing::error!("{}: {error}; taken as empty: every log is scanned", path.display());
            Ok(Offsets::new())
        }
    }
}

fn row(row: OffsetRow) -> Option<((String, u32), Offset)> {
    let index = u32::try_from(row.partition).ok()?;
    Some(((row.topic, index), Offset::new(row.offset)?))
}

fn render(offsets: &Offsets) -> String {
    let mut rows: Vec<OffsetRow> = offsets
        .iter()
        .map(|((topic, index), offset)| OffsetRow {
            topic: topic.clone(),
            partition: *index as i32,
            offset: offset.get(),
        })
        .collect();
    rows.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
    render_offsets(&rows)
}

fn remove_all<I: Io>(b: &mut Blocking<'_, I>, dir: &Path) -> Result<(), DirError> {
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
                let dir = DataDir::open(b, Path::new(DIR)).unwrap();
                assert!(!dir.was_clean(), "nothing stopped here before");
                dir.write_clean_marker(b).unwrap();
                DataDir::open(b, Path::new(DIR)).unwrap()
            });
            assert!(opened.was_clean());
            world.power_cut();
            let again = with(&world, |b| DataDir::open(b, Path::new(DIR)).unwrap());
            assert!(!again.was_clean(), "seed {seed}: a removed marker came back");
            assert_eq!(again.cluster_id(), opened.cluster_id(), "seed {seed}");
        }
    }

    #[test]
    fn checkpoints_come_back_and_a_garbled_one_is_empty() {
        let world = World::new(1);
        with(&world, |b| {
            make(b, Path::new(DIR)).unwrap();
            let mut dir = DataDir::open(b, Path::new(DIR)).unwrap();
            let five = Offset::new(5).unwrap();
            let point = Point {
                topic: "t".into(),
                index: 3,
                recovery_point: five,
                log_start: Offset::ZERO,
                high_watermark: five,
            };
            dir.write_checkpoints(b, &[point]).unwrap();
            let dir = DataDir::open(b, Path::new(DIR)).unwrap();
            assert_eq!(dir.recovery_point("t", 3), Some(five));
            assert_eq!(dir.log_start("t", 3), None);
            let path = Path::new(DIR).join(RECOVERY_POINTS);
            b.replace_file(&path, b"0\n2\nt 3 5\n").unwrap();
            assert_eq!(DataDir::open(b, Path::new(DIR)).unwrap().recovery_point("t", 3), None);
        });
    }

    #[test]
    fn a_deleted_topic_does_not_come_back_after_a_power_cut() {
        for seed in 0..40 {
            let world = World::new(seed);
            with(&world, |b| {
                make(b, Path::new(DIR)).unwrap();
                let mut dir = DataDir::open(b, Path::new(DIR)).unwrap();
                dir.create_topic(b, "t", 2, random_id()).unwrap();
                dir.delete_topic(b, "t", 2).unwrap();
            });
            world.power_cut();
            let dir = with(&world, |b| DataDir::open(b, Path::new(DIR)).unwrap());
            assert_eq!(dir.partitions(), [], "seed {seed}");
        }
    }

    #[test]
    fn a_created_topic_is_found_with_its_id_after_a_power_cut() {
        for seed in 0..40 {
            let (world, id) = (World::new(seed), random_id());
            with(&world, |b| {
                make(b, Path::new(DIR)).unwrap();
                DataDir::open(b, Path::new(DIR)).unwrap().create_topic(b, "a-b", 1, id).unwrap();
                b.create_dir(&Path::new(DIR).join("lost+found")).unwrap();
            });
            world.power_cut();
            let dir = with(&world, |b| DataDir::open(b, Path::new(DIR)).unwrap());
            let one = FoundPartition { topic: "a-b".into(), index: 0, topic_id: Some(id) };
            assert_eq!(dir.partitions(), [one], "seed {seed}");
        }
    }
}
