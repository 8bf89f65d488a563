//! All data directories of this server: which are usable, and which holds which partition.
//!
//! Owns: that no partition lies in two of them, where a new one goes, and which of them are offline
//! and why. Never does: the inside of one directory (`datadir`), the start (`assembly`). Left:
//! `datadir`, `topics`. Right: `assembly`, `control`.
//!
//! A directory whose storage fails takes only its partitions offline, at the start and later.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::datadir::{FoundPartition, Home, LogStart, Point};
use super::topics::{Topic, TopicFile};
use crate::io::blocking::Blocking;
use crate::io::lock::DirLock;
use crate::io::{Errno, Io};
use crate::log::datadir::{DataDirError, io};

#[derive(Debug)]
pub struct Dir {
    pub path: PathBuf,
    /// Its number in the topic file; none for one that failed before it was ever used.
    pub(super) number: Option<u16>,
    /// None: it could not be read at the start.
    pub(super) home: Option<Home>,
    pub(super) failed: Option<String>,
    /// Partitions that lie here.
    pub(super) held: usize,
    /// Let go with this.
    pub(super) _lock: Option<DirLock>,
}

impl Dir {
    /// Why it is offline.
    pub fn failure(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// How many partitions lie here.
    pub fn partitions(&self) -> usize {
        self.held
    }

    pub fn id(&self) -> Option<Uuid> {
        self.home.as_ref().map(Home::id)
    }

    pub(super) fn online(&mut self) -> Option<&mut Home> {
        match self.failed {
            None => self.home.as_mut(),
            Some(_) => None,
        }
    }
}

#[derive(Debug)]
pub struct Homes {
    pub(super) dirs: Vec<Dir>,
    pub(super) cluster_id: String,
    pub(super) node_id: i32,
    /// Topic -> partition -> directory, as an index into `dirs`.
    pub(super) lies: HashMap<String, BTreeMap<u32, usize>>,
}

impl Homes {
    pub fn dirs(&self) -> &[Dir] {
        &self.dirs
    }

    /// Where the topic file is.
    pub fn first(&self) -> &Path {
        &self.dirs[0].path
    }

    pub fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    pub fn node_id(&self) -> i32 {
        self.node_id
    }

    /// What the start found in the directories that are online.
    pub fn found(&self) -> impl Iterator<Item = (usize, &FoundPartition)> {
        let online = |(at, dir): (usize, &'_ Dir)| match (&dir.failed, &dir.home) {
            (None, Some(_)) => Some(at),
            _ => None,
        };
        let places: Vec<usize> = self.dirs.iter().enumerate().filter_map(online).collect();
        places.into_iter().flat_map(move |at| {
            let home = self.dirs[at].home.as_ref().expect("it is online");
            home.partitions().iter().map(move |found| (at, found))
        })
    }

    pub fn is_online(&self, at: usize) -> bool {
        self.dirs[at].failed.is_none() && self.dirs[at].home.is_some()
    }

    /// The directory that holds a partition, online or not.
    pub fn place(&self, topic: &str, index: u32) -> Option<usize> {
        self.lies.get(topic)?.get(&index).copied()
    }

    /// What there is to know of a directory that was ever read.
    pub fn home(&self, at: usize) -> Option<&Home> {
        self.dirs[at].home.as_ref()
    }

    /// The topic file's number of a directory.
    pub fn number(&self, at: usize) -> Option<u16> {
        self.dirs[at].number
    }

    /// Where a partition can be made that the topic file places there.
    pub fn online_by_number(&self, number: u16) -> Option<usize> {
        self.dirs.iter().position(|dir| dir.number == Some(number) && dir.failed.is_none())
    }

    /// Why a partition that lies in no directory cannot be served, and what to do.
    pub fn why_missing(&self, file: &TopicFile, topic: &Topic, index: u32) -> String {
        let Some(known) = file.place_of(topic, index) else {
            return "no data directory holds it".to_string();
        };
        let path = known.path.display();
        match self.dirs.iter().find(|dir| dir.number == Some(known.number)) {
            Some(Dir { failed: Some(why), .. }) => {
                format!("its data directory {path} is offline: {why}")
            }
            Some(dir) => format!(
                "it was in {}, which does not hold it any more: put its directory back and start \
                 again, or delete the topic",
                dir.path.display()
            ),
            None => format!("its data directory {path} is not named by --data-dir"),
        }
    }

    /// Directories for `count` new partitions, one after the other to the one with the fewest, as
    /// Kafka places them; none when all are offline.
    pub fn choose(&self, count: u32) -> Option<Vec<usize>> {
        let mut loads: Vec<(usize, usize)> = (0..self.dirs.len())
            .filter(|&at| self.dirs[at].failed.is_none())
            .map(|at| (self.dirs[at].held, at))
            .collect();
        let mut chosen = Vec::new();
        for _ in 0..count {
            let least = loads.iter_mut().min()?;
            least.0 += 1;
            chosen.push(least.1);
        }
        Some(chosen)
    }

    /// Makes a partition; all of it is on the disk when this returns.
    pub fn create<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        at: usize,
        (topic, index): (&str, u32),
        id: Uuid,
    ) -> Result<(), DataDirError> {
        let dir = &mut self.dirs[at];
        let path = dir.path.clone();
        let Some(home) = dir.online() else { return Err(io("using", &path)(Errno::EIO)) };
        let created = home.create(b, topic, index, id);
        // What was begun is there, too: whoever gives up deletes it.
        if !matches!(created, Err(DataDirError::Exists { .. })) {
            let was_known = set_place(&mut self.lies, topic, index, at).is_some();
            self.dirs[at].held += usize::from(!was_known);
        }
        created
    }

    /// Renames away what the directories that are online hold of a topic; it is on the disk when
    /// this returns. The new names, and what went wrong where.
    pub fn delete<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        topic: &str,
    ) -> (Vec<PathBuf>, Vec<(usize, DataDirError)>) {
        let places = self.lies.remove(topic).unwrap_or_default();
        let (mut gone, mut failed) = (Vec::new(), Vec::new());
        for at in 0..self.dirs.len() {
            let here = |(index, place): (&u32, &usize)| (*place == at).then_some(*index);
            let indexes: Vec<u32> = places.iter().filter_map(here).collect();
            self.dirs[at].held -= indexes.len();
            let Some(home) = self.dirs[at].online().filter(|_| !indexes.is_empty()) else {
                continue;
            };
            match home.delete(b, topic, &indexes) {
                Ok(mut paths) => gone.append(&mut paths),
                Err(error) => failed.push((at, error)),
            }
        }
        (gone, failed)
    }

    /// Writes the topic's id beside a partition that has none.
    pub fn write_topic_id<I: Io>(
        &self,
        b: &mut Blocking<'_, I>,
        at: usize,
        (topic, index): (&str, u32),
        id: Uuid,
    ) -> Result<(), DataDirError> {
        match &self.dirs[at].home {
            Some(home) => home.write_topic_id(b, topic, index, id),
            None => Ok(()),
        }
    }

    /// Replaces the checkpoints of every directory that is online; what failed where.
    pub fn write_checkpoints<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        points: Vec<Point>,
    ) -> Vec<(usize, DataDirError)> {
        let mut by_dir: Vec<Vec<Point>> = self.dirs.iter().map(|_| Vec::new()).collect();
        for point in points {
            if let Some(at) = self.place(&point.topic, point.index) {
                by_dir[at].push(point);
            }
        }
        self.each_online(|at, home| home.write_checkpoints(b, &by_dir[at]))
    }

    /// Replaces the checkpoints of log starts where one of these lies; what failed where.
    pub fn write_log_starts<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        starts: &[LogStart],
    ) -> Vec<(usize, DataDirError)> {
        let mut by_dir: Vec<Vec<LogStart>> = self.dirs.iter().map(|_| Vec::new()).collect();
        for start in starts {
            if let Some(at) = self.place(&start.topic, start.index) {
                by_dir[at].push(start.clone());
            }
        }
        self.each_online(|at, home| match by_dir[at].is_empty() {
            true => Ok(()),
            false => home.write_log_starts(b, &by_dir[at]),
        })
    }

    /// The last thing of a stop: each directory that `is_clean` says yes to gets its marker (D9).
    pub fn write_clean_markers<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        is_clean: impl Fn(usize) -> bool,
    ) -> Vec<(usize, DataDirError)> {
        self.each_online(|at, home| match is_clean(at) {
            true => home.write_clean_marker(b),
            false => Ok(()),
        })
    }

    fn each_online(
        &mut self,
        mut act: impl FnMut(usize, &mut Home) -> Result<(), DataDirError>,
    ) -> Vec<(usize, DataDirError)> {
        let mut failed = Vec::new();
        for (at, dir) in self.dirs.iter_mut().enumerate() {
            if let Some(home) = dir.online()
                && let Err(error) = act(at, home)
            {
                failed.push((at, error));
            }
        }
        failed
    }

    /// Whether a directory still takes a file; what is wrong if not.
    pub fn try_out<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        at: usize,
    ) -> Result<(), DataDirError> {
        match self.dirs[at].online() {
            Some(home) => home.try_out(b),
            None => Ok(()),
        }
    }

    /// A directory is offline from here on, until a restart finds it well.
    pub fn fail(&mut self, at: usize, why: String) {
        tracing::error!("data directory {} is offline: {why}", self.dirs[at].path.display());
        self.dirs[at].failed = Some(why);
    }

    pub fn all_failed(&self) -> bool {
        self.dirs.iter().all(|dir| dir.failed.is_some())
    }

    /// Directories to be removed, as the start found them, each with its place.
    pub fn take_leftovers(&mut self) -> Vec<PathBuf> {
        self.dirs.iter_mut().filter_map(Dir::online).flat_map(Home::take_leftovers).collect()
    }
}

/// Gives where it was before.
pub(super) fn set_place(
    lies: &mut HashMap<String, BTreeMap<u32, usize>>,
    topic: &str,
    index: u32,
    at: usize,
) -> Option<usize> {
    match lies.get_mut(topic) {
        Some(places) => places.insert(index, at),
        None => {
            lies.insert(topic.to_string(), BTreeMap::from([(index, at)]));
            None
        }
    }
}
