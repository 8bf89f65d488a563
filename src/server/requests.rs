//! What control requests do: create, delete, describe, alter topics; stats.
//!
//! Owns: the order of each change on disk (nothing is answered before it would survive a power
//! cut), and waiting for the shards' part. Never does: the data path. Left: `topics`,
//! `topic_config`, `protocol::topics`. Right: `control`, whose messages lead here.
//!
//! Create: into the topic file as being made, directories and files synced, the new catalogue, the
//! shards open, then the answer; after a crash the next start makes what is missing. Delete: out of
//! the topic file, its id noted there, out of the catalogue, the shards close, the directories are
//! renamed, then the answer; after a crash the next start renames what has the id. What was renamed
//! is removed later.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::control::{Asker, Control, Waiting, legal, topic_id};
use super::datadir::random_id;
use super::topic_config::{Defaults, Resolved, Row, canonical, known_name};
use super::topics::{Deleted, Topic};
use super::window;
use crate::errors::ErrorCode;
use crate::format::identity::render_uuid;
use crate::io::Io;
use crate::io::blocking::Blocking;
use crate::protocol::api::{Api, Message};
use crate::protocol::stats::{Counter, Histogram, StatsRequest, StatsResponse, flags};
use crate::protocol::topics::{
    AlterRequest, AlterResponse, ConfigEntry, CreateRequest, CreateResponse, DeleteRequest,
    DeleteResponse, DescribeRequest, DescribeResponse, Notices, PartitionInfo, Placed,
};
use crate::shard::catalogue::{Catalogue, PartitionEntry, STATE_NAMES, TopicEntry, handle_index};
use crate::shard::histograms::{Counters, Stages};
use crate::shard::mailbox::ToShard;
use crate::types::Handle;

pub(super) type Refused = (ErrorCode, String);

pub(super) fn invalid(why: impl std::fmt::Display) -> Refused {
    (ErrorCode::InvalidRequest, why.to_string())
}

fn wrong(why: String) -> Refused {
    (ErrorCode::InvalidConfig, why)
}

pub(super) fn body<'a, M: Message<'a>>(message: &M) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    message
        .encode(&mut bytes)
        .map_err(|e| (ErrorCode::UnknownServerError, format!("the answer is too long: {e}")))?;
    Ok(bytes)
}

impl<I: Io> Control<I> {
    pub(super) fn request(&mut self, asker: Asker, api: u8, bytes: &[u8]) {
        let done = match Api::from_wire(api) {
            Some(Api::CreateTopic) => self.create(asker, bytes),
            Some(Api::DeleteTopic) => self.delete(asker, bytes),
            Some(Api::DescribeTopic) => self.describe(bytes).map(Some),
            Some(Api::AlterTopic) => self.alter(bytes).map(Some),
            Some(Api::InitProducer) => self.init_producer(bytes).map(Some),
            Some(Api::LogDirs) => self.log_dirs(bytes).map(Some),
            Some(Api::Stats) => self.stats(asker, bytes),
            _ => Err(invalid(format!("api {api} is not the control thread's"))),
        };
        match done {
            Ok(Some(body)) => self.answer(asker, ErrorCode::None, body),
            Ok(None) => {}
            Err((code, why)) => self.refuse(asker, code, why),
        }
    }

    fn create(&mut self, asker: Asker, bytes: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
        let request = CreateRequest::parse(bytes).map_err(invalid)?;
        let name = request.name.to_string();
        legal(&name)?;
        let exists = self.topics.find(&name).is_some()
            || self
                .waiting
                .iter()
                .any(|w| matches!(w, Waiting::Delete { entry, .. } if entry.name == name));
        if exists {
            return Err((ErrorCode::TopicAlreadyExists, format!("topic {name:?} exists")));
        }
        let held: usize = self.topics.topics.iter().map(|t| t.partitions as usize).sum();
        let room = self.config.partitions_max.saturating_sub(held);
        if request.partitions == 0 || request.partitions as usize > room {
            let why = format!(
                "{} partitions: this server takes 1 to {room} more (--partitions-max)",
                request.partitions
            );
            return Err((ErrorCode::InvalidPartitions, why));
        }
        let mut configs = BTreeMap::new();
        for (key, value) in &request.configs {
            let value = canonical(key, value).map_err(wrong)?;
            configs.insert(key.to_string(), value);
        }
        let Resolved { settings, notices, .. } = self.defaults.resolve(&configs).map_err(wrong)?;
        let places = self.homes.choose(request.partitions).ok_or_else(|| {
            (ErrorCode::KafkaStorageError, "every data directory is offline".to_string())
        })?;
        let topic = Topic {
            name,
            id: render_uuid(random_id()),
            partitions: request.partitions,
            making: true,
            dirs: self.topics.numbers_of(places.iter().filter_map(|&at| self.homes.number(at))),
            configs,
            unflushed_bytes: window::of(&settings.log),
        };
        self.make_topic(topic.clone(), &places)?;
        let (entry, orders) = self.entry(&topic, true);
        let left = entry.partitions.iter().map(|p| p.handle).collect();
        let name = topic.name;
        self.waiting.push(Waiting::Create { asker, name, left, failed: None, notices });
        let mut entries = self.catalogue.topics().to_vec();
        entries.push(entry);
        self.catalogue = Arc::new(Catalogue::new(entries));
        self.broadcast_catalogue();
        for (shard, order) in orders {
            self.send(shard, order);
        }
        Ok(None)
    }

    /// The topic and all its partitions are on the disk when this returns; on an error they are on
    /// their way out.
    fn make_topic(&mut self, topic: Topic, places: &[usize]) -> Result<(), Refused> {
        let (name, id) = (topic.name.clone(), topic_id(&topic.id));
        self.topics.topics.push(topic);
        if let Err(error) = self.save_topics() {
            self.topics.topics.pop();
            self.topics_changed = true;
            return Err((ErrorCode::KafkaStorageError, error.to_string()));
        }
        for (index, &at) in (0..).zip(places) {
            let mut b = Blocking::new(&mut self.io, self.pool.clone());
            if let Err(error) = self.homes.create(&mut b, at, (&name, index), id) {
                let why = format!("creating {name:?}: {error}");
                self.unmake_topic(&name);
                self.storage_failed(vec![(at, error)]);
                return Err((ErrorCode::KafkaStorageError, why));
            }
        }
        // Said with the next change or checkpoint: until then a start only looks again.
        if let Some(made) = self.topics.topics.last_mut() {
            made.making = false;
        }
        self.topics_changed = true;
        Ok(())
    }

    /// Takes back what there is of a topic whose creation failed.
    fn unmake_topic(&mut self, name: &str) {
        let Some(topic) = self.topics.topics.pop() else { return };
        let id = topic.id.clone();
        self.topics.deleted.push(Deleted { name: topic.name, id: topic.id });
        if let Err(error) = self.save_topics() {
            self.topics_changed = true;
            tracing::error!("{error}; a restart before it can be written may bring {name:?} back");
        }
        self.set_aside(name, &id, 0);
    }

    /// Renames a topic's directories and has them removed later. Its deletion is through, and
    /// forgotten, once no directory can hold any of it.
    fn set_aside(&mut self, name: &str, id: &str, delay_ms: i64) {
        let mut b = Blocking::new(&mut self.io, self.pool.clone());
        let (gone, failed) = self.homes.delete(&mut b, name);
        let due = self.removal_time(delay_ms);
        for path in gone {
            self.removals.add(path, due);
        }
        if failed.is_empty() && self.all_in_sight() {
            self.topics.deleted.retain(|one| one.id != id);
        }
        self.topics_changed = true;
        self.storage_failed(failed);
    }

    /// A shard opened a partition (or could not): a creation may be complete.
    pub(super) fn created(&mut self, handle: Handle, error: Option<String>) {
        let at = self
            .waiting
            .iter()
            .position(|w| matches!(w, Waiting::Create { left, .. } if left.contains(&handle)));
        let Some(at) = at else { return };
        let Waiting::Create { asker, name, left, failed, notices } = &mut self.waiting[at] else {
            return;
        };
        left.retain(|one| *one != handle);
        *failed = failed.take().or(error);
        if !left.is_empty() {
            return;
        }
        let (asker, name, failed) = (*asker, name.clone(), failed.take());
        let notices = std::mem::take(notices);
        self.waiting.remove(at);
        match (failed, self.catalogue.topic(&name)) {
            (None, Some(entry)) => {
                let placed = |p: &crate::shard::catalogue::PartitionEntry| Placed {
                    handle: p.handle,
                    shard: p.shard,
                };
                let partitions = entry.partitions.iter().map(placed).collect();
                let notices = notices.iter().map(String::as_str).collect();
                match body(&CreateResponse { id: entry.id, partitions, notices }) {
                    Ok(body) => self.answer(asker, ErrorCode::None, body),
                    Err((code, why)) => self.refuse(asker, code, why),
                }
            }
            (Some(why), _) => self.refuse(asker, ErrorCode::KafkaStorageError, why),
            (None, None) => {
                let why = format!("topic {name:?} was deleted while it was made");
                self.refuse(asker, ErrorCode::UnknownTopicOrPartition, why);
            }
        }
    }

    fn delete(&mut self, asker: Asker, bytes: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
        let request = DeleteRequest::parse(bytes).map_err(invalid)?;
        let entry = self.known(request.name)?;
        let before = self.topics.clone();
        let delay_ms = self.delete_delay_ms(&entry.name);
        let id = self.topics.find(&entry.name).map(|topic| topic.id.clone()).unwrap_or_default();
        self.topics.topics.retain(|topic| topic.name != entry.name);
        self.topics.deleted.push(Deleted { name: entry.name.clone(), id });
        self.topics.generation = self.topics.generation.wrapping_add(1);
        if let Err(error) = self.save_topics() {
            self.topics = before;
            return Err((ErrorCode::KafkaStorageError, error.to_string()));
        }
        let entries =
            self.catalogue.topics().iter().filter(|t| t.name != entry.name).cloned().collect();
        self.catalogue = Arc::new(Catalogue::new(entries));
        self.broadcast_catalogue();
        let left = entry.partitions.iter().map(|p| p.handle).collect();
        for partition in &entry.partitions {
            self.send(partition.shard, ToShard::Drop(partition.handle));
        }
        self.waiting.push(Waiting::Delete { asker, entry, left, delay_ms });
        Ok(None)
    }

    fn delete_delay_ms(&self, name: &str) -> i64 {
        self.resolved(name).settings.log.file_delete_delay_ms
    }

    /// A shard let a partition go: when all have, the directories go, too. The deletion stands in
    /// the topic file: a directory that fails now is cleared when it is back.
    pub(super) fn dropped(&mut self, handle: Handle) {
        let at = self
            .waiting
            .iter()
            .position(|w| matches!(w, Waiting::Delete { left, .. } if left.contains(&handle)));
        let Some(at) = at else { return };
        let Waiting::Delete { asker, entry, left, delay_ms } = &mut self.waiting[at] else {
            return;
        };
        left.retain(|one| *one != handle);
        if !left.is_empty() {
            return;
        }
        let (asker, entry, delay_ms) = (*asker, Arc::clone(entry), *delay_ms);
        self.waiting.remove(at);
        for partition in &entry.partitions {
            self.free.push(handle_index(partition.handle) as u32);
            self.offline.remove(&partition.handle);
            self.unfit.remove(&(entry.name.clone(), partition.index));
        }
        let id = render_uuid(Uuid::from_bytes(entry.id));
        self.set_aside(&entry.name, &id, delay_ms);
        match body(&DeleteResponse) {
            Ok(body) => self.answer(asker, ErrorCode::None, body),
            Err((code, why)) => self.refuse(asker, code, why),
        }
    }

    fn known(&self, name: &str) -> Result<Arc<TopicEntry>, Refused> {
        legal(name)?;
        self.catalogue.topic(name).cloned().ok_or_else(|| {
            let why = format!("no topic {name:?}; `ringlog topic list` shows what there is");
            (ErrorCode::UnknownTopicOrPartition, why)
        })
    }

    /// A topic's settings as they stand, those included that no longer hold.
    fn resolved(&self, name: &str) -> Resolved {
        let none = BTreeMap::new();
        let overrides = self.topics.find(name).map_or(&none, |topic| &topic.configs);
        in_force(&self.defaults, overrides)
    }

    fn describe(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Refused> {
        let request = DescribeRequest::parse(bytes).map_err(invalid)?;
        let entry = self.known(request.name)?;
        let resolved = self.resolved(&entry.name);
        let states: Vec<String> = entry.partitions.iter().map(|one| self.state(one)).collect();
        let partitions = entry
            .partitions
            .iter()
            .zip(&states)
            .map(|(partition, state)| {
                let marks = partition.marks.now();
                PartitionInfo {
                    index: partition.index,
                    handle: partition.handle,
                    shard: partition.shard,
                    start: marks.start,
                    high_watermark: marks.high_watermark,
                    staged: marks.staged,
                    written: marks.written,
                    durable: marks.durable,
                    leader_epoch: marks.epoch as i32,
                    bytes: marks.bytes as u64,
                    segments: marks.segments as u32,
                    state,
                }
            })
            .collect();
        let (configs, notices) = config_entries(&resolved);
        body(&DescribeResponse { name: &entry.name, id: entry.id, configs, partitions, notices })
    }

    /// What is wrong with a partition, in words.
    fn state(&self, partition: &PartitionEntry) -> String {
        if let Some(why) = self.offline.get(&partition.handle) {
            return why.clone();
        }
        let marks = partition.marks.now();
        let state = STATE_NAMES.get(marks.state as usize).copied().unwrap_or("unknown");
        match (marks.damaged, marks.damaged_from) {
            (0, _) => state.to_string(),
            (ranges, from) => format!("{state}; damaged: {ranges}, first at offset {from}"),
        }
    }

    fn alter(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Refused> {
        let request = AlterRequest::parse(bytes).map_err(invalid)?;
        let entry = self.known(request.name)?;
        let before = self.topics.clone();
        let Some(topic) = self.topics.topics.iter_mut().find(|t| t.name == entry.name) else {
            return Err((ErrorCode::UnknownTopicOrPartition, entry.name.clone()));
        };
        let altered = changed(&self.defaults, &topic.configs, &request.changes).map_err(wrong)?;
        let resolved = in_force(&self.defaults, &altered);
        // On the disk before any shard hears of the policy (D6).
        let window = window::of(&resolved.settings.log);
        topic.unflushed_bytes = window::larger(topic.unflushed_bytes, window);
        topic.configs = altered;
        if let Err(error) = self.save_topics() {
            self.topics = before;
            return Err((ErrorCode::KafkaStorageError, error.to_string()));
        }
        for partition in &entry.partitions {
            let settings = Box::new(resolved.settings.clone());
            self.send(partition.shard, ToShard::Alter(partition.handle, settings));
        }
        let (configs, notices) = config_entries(&resolved);
        body(&AlterResponse { configs, notices })
    }

    fn stats(&mut self, asker: Asker, bytes: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
        let request = StatsRequest::parse(bytes).map_err(invalid)?;
        let asked: Vec<_> = match request.flags & flags::THIS_SHARD {
            0 => (0..self.shards.len()).collect(),
            _ => vec![usize::from(asker.shard.0)],
        };
        // Answers are counted, not named: two askers at once each get a whole set.
        for &shard in &asked {
            self.shards[shard].send(ToShard::Snapshot);
        }
        self.waiting.push(Waiting::Stats {
            asker,
            left: asked,
            flags: request.flags,
            stages: Box::default(),
            counters: Box::default(),
        });
        Ok(None)
    }

    pub(super) fn snapshot(&mut self, shard: usize, stages: &Stages, counters: &Counters) {
        let at = self
            .waiting
            .iter()
            .position(|w| matches!(w, Waiting::Stats { left, .. } if left.contains(&shard)));
        let Some(at) = at else { return };
        let Waiting::Stats { left, stages: sum, counters: total, .. } = &mut self.waiting[at]
        else {
            return;
        };
        left.retain(|one| *one != shard);
        sum.merge(stages);
        total.add(counters);
        if !left.is_empty() {
            return;
        }
        if let Waiting::Stats { asker, flags, stages, counters, .. } = self.waiting.remove(at) {
            self.answer_stats(asker, flags, &stages, &counters);
        }
    }

    fn answer_stats(&self, asker: Asker, asked: u32, stages: &Stages, counters: &Counters) {
        let named = if asked & flags::COUNTERS != 0 { counters.named() } else { Vec::new() };
        let exported = if asked & flags::HISTOGRAMS != 0 { stages.export() } else { Vec::new() };
        let response = StatsResponse {
            uptime_ms: self.started.elapsed().as_millis() as u64,
            shards: self.shards.len() as u16,
            counters: named.iter().map(|&(name, value)| Counter { name, value }).collect(),
            histograms: exported
                .iter()
                .map(|(name, data)| Histogram { name, unit: "us", data })
                .collect(),
        };
        match body(&response) {
            Ok(body) => self.answer(asker, ErrorCode::None, body),
            Err((code, why)) => self.refuse(asker, code, why),
        }
    }
}

/// The settings of a topic after a change.
fn changed(
    defaults: &Defaults,
    before: &BTreeMap<String, String>,
    changes: &[(&str, Option<&str>)],
) -> Result<BTreeMap<String, String>, String> {
    let mut after = before.clone();
    for (key, value) in changes {
        match value {
            Some(value) => after.insert(key.to_string(), canonical(key, value)?),
            None if before.contains_key(*key) => after.remove(*key),
            // Nothing to take away; but a mistyped name must not pass for done.
            None => known_name(key).map(|()| None)?,
        };
    }
    match defaults.resolve(&after) {
        // What did not hold before (an edited file) does not stand in the way of a change.
        Err(why) if defaults.resolve(before).is_ok() => Err(why),
        _ => Ok(after),
    }
}

/// What these overrides come to; of those that do not hold together, what does.
fn in_force(defaults: &Defaults, overrides: &BTreeMap<String, String>) -> Resolved {
    defaults.resolve(overrides).unwrap_or_else(|_| defaults.what_holds(overrides))
}

fn config_entries(resolved: &Resolved) -> (Vec<ConfigEntry<'_>>, Notices<'_>) {
    let rows = resolved.rows.iter();
    let configs = rows.map(|Row { name, value, source, default }| ConfigEntry {
        key: name,
        value,
        source: *source,
        default,
    });
    (configs.collect(), resolved.notices.iter().map(String::as_str).collect())
}
