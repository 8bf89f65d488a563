//! How the control thread begins: the topic file against what lies in the directories, then every
//! partition to its shard.
//!
//! Owns: finishing what a crash left unfinished, adopting what a broker wrote, telling why a
//! partition cannot be served. Never does: read a directory (`assembly` did). Left: `homes`,
//! `topics`, `topic_config`. Right: `control`, `requests` (which makes entries for new topics).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::control::{Control, ControlError, Phase, fault, topic_id};
use super::datadir::{FoundPartition, Home, random_id};
use super::topics::{self, Directory, NOWHERE, Topic};
use crate::format::identity::render_uuid;
use crate::io::Io;
use crate::io::blocking::Blocking;
use crate::log::datadir::DataDirError;
use crate::policy::place::shard_of;
use crate::shard::catalogue::{
    self, Catalogue, HANDLE_INDEX_BITS, MarksNow, PartitionEntry, STATE_NOT_OPEN, TopicEntry,
};
use crate::shard::mailbox::{PartitionSpec, Settings, ToShard};
use crate::types::ShardId;

/// Partitions that handles can tell apart.
const PARTITIONS_MAX: u64 = 1 << HANDLE_INDEX_BITS;

impl<I: Io> Control<I> {
    fn topic_file(&self) -> PathBuf {
        self.homes.first().join(topics::FILE_NAME)
    }

    pub(super) fn save_topics(&mut self) -> Result<(), ControlError> {
        let (path, text) = (self.topic_file(), self.topics.render());
        let replaced = self.blocking().replace_file(&path, text.as_bytes());
        replaced.map_err(|e| fault(&path, e))?;
        self.topics_changed = false;
        Ok(())
    }

    /// Brings the topic file and the directories into agreement, and writes the file down.
    pub(super) fn settle_topics(&mut self) -> Result<(), ControlError> {
        self.adopt();
        let total: u64 = self.topics.topics.iter().map(|t| u64::from(t.partitions)).sum();
        if total > PARTITIONS_MAX {
            let why = format!("{total} partitions; this server can have {PARTITIONS_MAX}");
            return Err(fault(&self.topic_file(), why));
        }
        self.make_missing();
        self.note_places();
        // With every directory in sight nothing of a deleted topic is left.
        if self.all_in_sight() {
            self.topics.deleted.clear();
        }
        let due = self.removal_time(self.defaults.settings().log.file_delete_delay_ms);
        for path in self.homes.take_leftovers() {
            self.removals.add(path, due);
        }
        self.topics.generation = self.topics.generation.wrapping_add(1);
        let path = self.topic_file();
        let text = self.topics.render();
        match self.blocking().replace_file(&path, text.as_bytes()) {
            // R21: what is there can be read without this file. The next change of a topic writes
            // it; until then a start gives the same topics the same handles.
            Err(errno) if errno.is_no_space() => {
                tracing::error!("{}: {errno}; starting without writing it", path.display());
                self.topics_changed = true;
                Ok(())
            }
            saved => saved.map_err(|errno| fault(&path, errno)),
        }
    }

    /// Topics for all partitions that were found; ids for those that have none; who has another
    /// topic's id is not served.
    fn adopt(&mut self) {
        let found: Vec<(usize, FoundPartition)> =
            self.homes.found().map(|(at, found)| (at, found.clone())).collect();
        let names = self.topics.topics.iter().enumerate();
        let mut by_name: HashMap<String, usize> =
            names.map(|(at, topic)| (topic.name.clone(), at)).collect();
        for (at, FoundPartition { topic: name, index, topic_id: own, .. }) in found {
            let place = *by_name.entry(name.clone()).or_insert_with(|| {
                tracing::info!("adopting topic {name:?}, found on disk");
                self.topics.topics.push(Topic {
                    name: name.clone(),
                    id: render_uuid(own.clone().ok().flatten().unwrap_or_else(random_id)),
                    partitions: 0,
                    making: false,
                    dirs: Vec::new(),
                    configs: Default::default(),
                    unflushed_bytes: None,
                });
                self.topics.topics.len() - 1
            });
            let topic = &mut self.topics.topics[place];
            topic.partitions = topic.partitions.max(index.saturating_add(1));
            let id = topic_id(&topic.id);
            match own {
                Ok(Some(own)) if own == id => {}
                Ok(Some(own)) => {
                    let why = format!(
                        "its partition.metadata has topic id {}, the topic has {}: it is of \
                         another topic of this name; move its directory away",
                        render_uuid(own),
                        topic.id
                    );
                    self.unfit.insert((name, index), why);
                }
                Err(why) => {
                    self.unfit.insert((name, index), why);
                }
                Ok(None) => {
                    let mut b = Blocking::new(&mut self.io, self.pool.clone());
                    if let Err(error) = self.homes.write_topic_id(&mut b, at, (&name, index), id) {
                        self.storage_failed(vec![(at, error)]);
                    }
                }
            }
        }
    }

    /// Makes the partitions of topics whose creation a crash cut short.
    fn make_missing(&mut self) {
        for at in 0..self.topics.topics.len() {
            let topic = &self.topics.topics[at];
            if !topic.making {
                continue;
            }
            let (name, id, partitions) =
                (topic.name.clone(), topic_id(&topic.id), topic.partitions);
            let mut whole = true;
            for index in 0..partitions {
                let place = self.homes.place(&name, index).or_else(|| {
                    let topic = &self.topics.topics[at];
                    let number = self.topics.place_of(topic, index)?.number;
                    self.homes.online_by_number(number)
                });
                let made = match place {
                    Some(dir) => self.make_partition(dir, &name, index, id),
                    None => false,
                };
                whole &= made;
            }
            self.topics.topics[at].making = !whole;
        }
    }

    /// True when the partition is there.
    fn make_partition(&mut self, dir: usize, name: &str, index: u32, id: Uuid) -> bool {
        let mut b = Blocking::new(&mut self.io, self.pool.clone());
        match self.homes.create(&mut b, dir, (name, index), id) {
            Ok(()) | Err(DataDirError::Exists { .. }) => true,
            Err(error) => {
                self.storage_failed(vec![(dir, error)]);
                false
            }
        }
    }

    /// Writes down where every partition is, once there is more than one place for them.
    fn note_places(&mut self) {
        if self.topics.directories.len() < 2 {
            return;
        }
        let first = self.topics.directories[0].number;
        for topic in &mut self.topics.topics {
            let was_alone = topic.dirs.is_empty();
            let known = std::mem::take(&mut topic.dirs);
            let number = |index: u32| {
                let place = self.homes.place(&topic.name, index);
                let here = place.and_then(|at| self.homes.number(at));
                let before = known.get(index as usize).copied();
                here.or(before).unwrap_or(if was_alone { first } else { NOWHERE })
            };
            topic.dirs = (0..topic.partitions).map(number).collect();
        }
    }

    /// Every directory that was ever used is online.
    pub(super) fn all_in_sight(&self) -> bool {
        let in_sight = |dir: &Directory| self.homes.online_by_number(dir.number).is_some();
        self.topics.directories.iter().all(in_sight)
    }

    /// Sends every partition to its shard; `Serving` begins when all have answered.
    pub fn open_all(&mut self) {
        let topics = self.topics.topics.clone();
        let mut entries = Vec::new();
        let mut orders = Vec::new();
        for topic in &topics {
            let (entry, mut new) = self.entry(topic, false);
            entries.push(entry);
            orders.append(&mut new);
        }
        self.catalogue = Arc::new(Catalogue::new(entries));
        self.broadcast_catalogue();
        for (shard, order) in orders {
            self.send(shard, order);
        }
        self.phase = Phase::Opening { shards_left: self.shards.len() };
        for shard in &self.shards {
            shard.send(ToShard::OpenedAll);
        }
    }

    /// What holds for a topic; what of it does not is logged.
    pub(super) fn settings_of(&self, topic: &Topic) -> Settings {
        let resolved = self.defaults.resolve(&topic.configs).unwrap_or_else(|why| {
            let name = &topic.name;
            tracing::error!("topic {name:?}: {why}; serving it with the settings that hold");
            self.defaults.what_holds(&topic.configs)
        });
        for notice in &resolved.notices {
            tracing::warn!("topic {:?}: {notice}", topic.name);
        }
        resolved.settings
    }

    /// A topic's catalogue entry with fresh handles, and what its shards are told. A topic that
    /// `is_new` is as a clean stop leaves one.
    pub(super) fn entry(
        &mut self,
        topic: &Topic,
        is_new: bool,
    ) -> (Arc<TopicEntry>, Vec<(ShardId, ToShard)>) {
        let settings = self.settings_of(topic);
        let mut partitions = Vec::new();
        let mut orders = Vec::new();
        for index in 0..topic.partitions {
            let at = self.free.pop().unwrap_or_else(|| {
                self.next_index += 1;
                self.next_index - 1
            });
            let handle = catalogue::handle(at, self.topics.generation);
            let shard = shard_of(&topic.name, index, self.shards.len() as u16);
            let entry = PartitionEntry { index, handle, shard, marks: Arc::default() };
            orders.push((shard, self.order(topic, &entry, &settings, is_new)));
            partitions.push(entry);
        }
        let entry = TopicEntry {
            name: topic.name.clone(),
            id: topic_id(&topic.id).into_bytes(),
            configs: topic.configs.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            partitions,
        };
        (Arc::new(entry), orders)
    }

    /// Open this partition, or say why not.
    fn order(
        &mut self,
        topic: &Topic,
        entry: &PartitionEntry,
        settings: &Settings,
        is_new: bool,
    ) -> ToShard {
        let PartitionEntry { index, handle, marks, .. } = entry;
        match self.open_spec(topic, *index) {
            Ok((dir, home)) => ToShard::Open(Box::new(PartitionSpec {
                handle: *handle,
                dir,
                topic: topic.name.clone(),
                index: *index,
                settings: settings.clone(),
                clean: is_new || home.was_clean(),
                unflushed_max: topic.unflushed_bytes,
                recovery_point: home.recovery_point(&topic.name, *index),
                log_start: home.log_start(&topic.name, *index),
                marks: Arc::clone(marks),
            })),
            Err(why) => {
                tracing::error!("{}-{index} stays offline: {why}", topic.name);
                marks.publish(MarksNow { state: STATE_NOT_OPEN, ..MarksNow::default() });
                self.offline.insert(*handle, why.clone());
                ToShard::Offline { handle: *handle, why: why.into() }
            }
        }
    }

    /// Where a partition is to be opened, or why it cannot be.
    fn open_spec(&self, topic: &Topic, index: u32) -> Result<(PathBuf, &Home), String> {
        if let Some(why) = self.unfit.get(&(topic.name.clone(), index)) {
            return Err(why.clone());
        }
        let missing = || self.homes.why_missing(&self.topics, topic, index);
        let at = self.homes.place(&topic.name, index).ok_or_else(missing)?;
        let dir = &self.homes.dirs()[at];
        match (dir.failure(), self.homes.home(at)) {
            (None, Some(home)) => Ok((home.log_dir(&topic.name, index), home)),
            (why, _) => {
                let why = why.unwrap_or("it was not read");
                Err(format!("its data directory {} is offline: {why}", dir.path.display()))
            }
        }
    }
}
