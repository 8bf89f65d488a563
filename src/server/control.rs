//! The control thread: the catalogue, topic changes, checkpoints, the clean marker.
//!
//! Owns: everything of the data directory that is not one partition, and the answers to control
//! requests. Never does: the data path. It may wait: it has its own engine and uses it one op at a
//! time. Left: `log::datadir`, `topics`, `topic_config`. Right: `run`, which feeds it messages.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::config::Config;
use super::datadir::{Home, Point, random_id};
use super::topic_config::Defaults;
use super::topics::{self, Topic, TopicFile};
use crate::errors::ErrorCode;
use uuid::Uuid;

use crate::format::identity::{parse_uuid, render_uuid};
use crate::format::name::check_topic;
use crate::io::Io;
use crate::io::blocking::Blocking;
use crate::io::buffers::Pool;
use crate::policy::place::shard_of;
use crate::shard::catalogue::{self, Catalogue, Marks, PartitionEntry, TopicEntry};
use crate::shard::histograms::{Counters, Stages};
use crate::shard::mailbox::{
    Closed, FromShard, PartitionSpec, Settings, ShardBox, ToShard, Waiter,
};
use crate::types::{Handle, Offset, ShardId};

/// Why the control thread cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct ControlError {
    pub path: String,
    pub why: String,
}

pub fn fault(path: &Path, why: impl std::fmt::Display) -> ControlError {
    ControlError { path: path.display().to_string(), why: why.to_string() }
}

/// Who asked, to answer once the shards have done their part.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    pub shard: ShardId,
    pub waiter: Waiter,
}

/// A change or question that waits for shards.
pub(super) enum Waiting {
    Create {
        asker: Asker,
        name: String,
        left: Vec<Handle>,
        failed: Option<String>,
        notices: Vec<String>,
    },
    Delete {
        asker: Asker,
        entry: Arc<TopicEntry>,
        left: Vec<Handle>,
    },
    Stats {
        asker: Asker,
        left: Vec<usize>,
        flags: u32,
        stages: Box<Stages>,
        counters: Box<Counters>,
    },
}

/// Where the server is between its start and its end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Opening { shards_left: usize },
    Serving,
    Stopping { shards_left: usize },
    Ended,
}

pub struct Control<I: Io> {
    pub(super) io: I,
    pub(super) pool: Pool,
    pub(super) config: Config,
    pub(super) dir: Home,
    pub(super) defaults: Defaults,
    pub(super) topics: TopicFile,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) shards: Vec<ShardBox>,
    pub(super) waiting: Vec<Waiting>,
    /// Handle indexes that no partition has.
    pub(super) free: Vec<u32>,
    pub(super) next_index: u32,
    pub(super) phase: Phase,
    pub(super) closed: Vec<Closed>,
    pub(super) offline: HashMap<Handle, String>,
    pub(super) started: Instant,
    failed: Option<String>,
}

impl<I: Io> Control<I> {
    /// Reads the topic file and adopts partitions that it does not know (a broker wrote them).
    /// `dir` is locked and scanned.
    pub fn new(
        io: I,
        config: Config,
        dir: Home,
        shards: Vec<ShardBox>,
    ) -> Result<Control<I>, ControlError> {
        let defaults = Defaults::new(Settings::default(), &config.topic_defaults)
            .map_err(|why| fault(dir.path(), format!("--topic-default: {why}")))?;
        for notice in defaults.notices() {
            tracing::warn!("--topic-default {notice}");
        }
        let mut control = Control {
            io,
            pool: Pool::new(64 << 20),
            config,
            dir,
            defaults,
            topics: TopicFile::default(),
            catalogue: Arc::default(),
            shards,
            waiting: Vec::new(),
            free: Vec::new(),
            next_index: 0,
            phase: Phase::Opening { shards_left: 0 },
            closed: Vec::new(),
            offline: HashMap::new(),
            started: Instant::now(),
            failed: None,
        };
        control.read_topics()?;
        Ok(control)
    }

    pub(super) fn blocking(&mut self) -> Blocking<'_, I> {
        Blocking::new(&mut self.io, self.pool.clone())
    }

    fn topic_file(&self) -> PathBuf {
        self.dir.path().join(topics::FILE_NAME)
    }

    fn read_topics(&mut self) -> Result<(), ControlError> {
        let path = self.topic_file();
        let read = self.blocking().read_file(&path, topics::FILE_BYTES_MAX);
        if let Some(bytes) = read.map_err(|e| fault(&path, e))? {
            self.topics = TopicFile::parse(&bytes).map_err(|why| {
                fault(&path, format!("{why}; restore it or move it away to adopt what is there"))
            })?;
        }
        for found in self.dir.partitions() {
            match self.topics.topics.iter_mut().find(|topic| topic.name == found.topic) {
                Some(topic) => topic.partitions = topic.partitions.max(found.index + 1),
                None => {
                    tracing::info!("adopting topic {:?}, found on disk", found.topic);
                    self.topics.topics.push(Topic {
                        name: found.topic.clone(),
                        id: render_uuid(found.topic_id.unwrap_or_else(random_id)),
                        partitions: found.index + 1,
                        configs: Default::default(),
                    });
                }
            }
        }
        self.topics.generation = self.topics.generation.wrapping_add(1);
        let text = self.topics.render();
        match self.blocking().replace_file(&path, text.as_bytes()) {
            // R21: what is there can be read without this file. The next change of a topic writes
            // it; until then a start gives the same topics the same handles.
            Err(errno) if errno.is_no_space() => {
                tracing::error!("{}: {errno}; starting without writing it", path.display());
                Ok(())
            }
            saved => saved.map_err(|errno| fault(&path, errno)),
        }
    }

    pub(super) fn save_topics(&mut self) -> Result<(), ControlError> {
        let (path, text) = (self.topic_file(), self.topics.render());
        let replaced = self.blocking().replace_file(&path, text.as_bytes());
        replaced.map_err(|e| fault(&path, e))
    }

    /// Sends every partition to its shard; `Serving` begins when all have answered.
    pub fn open_all(&mut self) {
        let topics = self.topics.topics.clone();
        let clean = self.dir.was_clean();
        let mut entries = Vec::new();
        let mut specs = Vec::new();
        for topic in &topics {
            let (entry, mut new) = self.entry(topic, clean);
            entries.push(entry);
            specs.append(&mut new);
        }
        self.catalogue = Arc::new(Catalogue::new(entries));
        self.broadcast_catalogue();
        for (shard, spec) in specs {
            self.send(shard, ToShard::Open(Box::new(spec)));
        }
        self.phase = Phase::Opening { shards_left: self.shards.len() };
        for shard in &self.shards {
            shard.send(ToShard::OpenedAll);
        }
    }

    /// A topic's catalogue entry with fresh handles, and what its shards need to open it.
    pub(super) fn entry(
        &mut self,
        topic: &Topic,
        clean: bool,
    ) -> (Arc<TopicEntry>, Vec<(ShardId, PartitionSpec)>) {
        let settings = self.settings_of(topic);
        let mut partitions = Vec::new();
        let mut specs = Vec::new();
        for index in 0..topic.partitions {
            let at = self.free.pop().unwrap_or_else(|| {
                self.next_index += 1;
                self.next_index - 1
            });
            let handle = catalogue::handle(at, self.topics.generation);
            let shard = shard_of(&topic.name, index, self.shards.len() as u16);
            let marks: Arc<Marks> = Arc::default();
            specs.push((
                shard,
                PartitionSpec {
                    handle,
                    dir: self.dir.log_dir(&topic.name, index),
                    topic: topic.name.clone(),
                    index,
                    settings: settings.clone(),
                    clean,
                    recovery_point: self.dir.recovery_point(&topic.name, index),
                    log_start: self.dir.log_start(&topic.name, index),
                    marks: Arc::clone(&marks),
                },
            ));
            partitions.push(PartitionEntry { index, handle, shard, marks });
        }
        let entry = TopicEntry {
            name: topic.name.clone(),
            id: topic_id(&topic.id).into_bytes(),
            configs: topic.configs.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            partitions,
        };
        (Arc::new(entry), specs)
    }

    /// What holds for a topic; what of it does not is logged.
    fn settings_of(&self, topic: &Topic) -> Settings {
        let resolved = self.defaults.resolve(&topic.configs).unwrap_or_else(|why| {
            tracing::error!(
                "topic {:?}: {why}; serving it with the settings that hold",
                topic.name
            );
            self.defaults.what_holds(&topic.configs)
        });
        for notice in &resolved.notices {
            tracing::warn!("topic {:?}: {notice}", topic.name);
        }
        resolved.settings
    }

    pub(super) fn send(&self, shard: ShardId, message: ToShard) {
        self.shards[usize::from(shard.0)].send(message);
    }

    pub(super) fn broadcast_catalogue(&self) {
        for shard in &self.shards {
            shard.send(ToShard::Catalogue(Arc::clone(&self.catalogue)));
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// One message. What fails is answered and logged; the control thread goes on.
    pub fn handle(&mut self, message: FromShard) {
        match message {
            FromShard::Opened { shard, handle, result } => self.opened(shard, handle, result),
            FromShard::OpenedAll { .. } => self.opened_all(),
            FromShard::Dropped { handle, .. } => self.dropped(handle),
            FromShard::Request { shard, waiter, api, body } => {
                self.request(Asker { shard, waiter }, api, &body);
            }
            FromShard::Snapshot { shard, stages, counters } => {
                self.snapshot(usize::from(shard.0), &stages, &counters);
            }
            FromShard::Stopped { closed, .. } => self.stopped(closed),
            FromShard::Failed { shard, why } => {
                tracing::error!("shard {shard} failed: {why}; stopping");
                self.failed = Some(format!("shard {shard}: {why}"));
                self.stop();
                self.stopped(Vec::new());
            }
            FromShard::StopAsked => self.stop(),
        }
    }

    fn opened(&mut self, _shard: ShardId, handle: Handle, result: Result<(), String>) {
        if let Err(why) = &result {
            self.offline.insert(handle, why.clone());
        }
        self.created(handle, result.err());
    }

    fn opened_all(&mut self) {
        let Phase::Opening { shards_left } = self.phase else { return };
        self.phase = match shards_left {
            1 => Phase::Serving,
            more => Phase::Opening { shards_left: more - 1 },
        };
        if self.phase == Phase::Serving {
            for shard in &self.shards {
                shard.send(ToShard::Serve);
            }
        }
    }

    pub(super) fn answer(&self, asker: Asker, error: ErrorCode, body: Vec<u8>) {
        self.send(asker.shard, ToShard::Reply { to: asker.waiter, error, body });
    }

    pub(super) fn refuse(&self, asker: Asker, code: ErrorCode, why: impl std::fmt::Display) {
        self.answer(asker, code, why.to_string().into_bytes());
    }

    /// Writes the recovery points down, so that a scan after a crash starts there (R19).
    pub fn checkpoint(&mut self) {
        let catalogue = Arc::clone(&self.catalogue);
        let mut points = Vec::new();
        for topic in catalogue.topics() {
            for partition in &topic.partitions {
                let marks = partition.marks.now();
                if marks.state == 5 {
                    // Not open here: what the files say of it stays.
                    continue;
                }
                let offset = |raw| Offset::new(raw).unwrap_or(Offset::ZERO);
                points.push(Point {
                    topic: topic.name.clone(),
                    index: partition.index,
                    recovery_point: offset(marks.recovery_point),
                    log_start: offset(marks.start),
                    high_watermark: offset(marks.high_watermark),
                });
            }
        }
        let mut blocking = Blocking::new(&mut self.io, self.pool.clone());
        if let Err(error) = self.dir.write_checkpoints(&mut blocking, &points) {
            tracing::error!("checkpoints of {}: {error}", self.dir.path().display());
        }
    }

    fn stop(&mut self) {
        if matches!(self.phase, Phase::Stopping { .. } | Phase::Ended) {
            return;
        }
        self.phase = Phase::Stopping { shards_left: self.shards.len() };
        for shard in &self.shards {
            shard.send(ToShard::Stop);
        }
    }

    /// Why the server ended by itself, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failed.clone()
    }

    fn stopped(&mut self, mut closed: Vec<Closed>) {
        self.closed.append(&mut closed);
        let Phase::Stopping { shards_left } = self.phase else { return };
        if shards_left > 1 {
            self.phase = Phase::Stopping { shards_left: shards_left - 1 };
            return;
        }
        self.phase = Phase::Ended;
        self.checkpoint();
        let expected: usize = self.catalogue.topics().iter().map(|t| t.partitions.len()).sum();
        let clean = self.closed.iter().filter(|one| one.clean).count();
        if clean < expected {
            // D9: the marker would claim what is not so.
            let unclean = expected - clean;
            tracing::warn!(
                "{unclean} of {expected} partitions did not close cleanly: no clean marker, the \
                 next start recovers them"
            );
            return;
        }
        let mut blocking = Blocking::new(&mut self.io, self.pool.clone());
        if let Err(error) = self.dir.write_clean_marker(&mut blocking) {
            tracing::error!("clean marker of {}: {error}", self.dir.path().display());
        }
    }
}

/// A topic id's bytes; a text that is none (an edited file) counts as zero.
pub(super) fn topic_id(text: &str) -> Uuid {
    parse_uuid(text).unwrap_or_default()
}

/// Names that no topic may have, with Kafka's error for them.
pub(super) fn legal(name: &str) -> Result<(), (ErrorCode, String)> {
    check_topic(name).map_err(|e| (ErrorCode::InvalidTopicException, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::sim::World;
    use crate::server::config::Flags;
    use crate::server::datadir::make;

    const DIR: &str = "/data";

    fn control(world: &World) -> Result<Control<crate::io::sim::SimIo>, ControlError> {
        let mut io = world.engine();
        let mut b = Blocking::new(&mut io, Pool::new(16 << 20));
        make(&mut b, Path::new(DIR)).unwrap();
        let dir = Home::open(&mut b, Path::new(DIR)).unwrap();
        let flags = Flags { data_dir: Some(DIR.into()), ..Flags::default() };
        Control::new(io, Config::resolve(flags, &[0]).unwrap(), dir, Vec::new())
    }

    #[test]
    fn r21_a_full_disk_does_not_keep_the_server_from_starting() {
        let world = World::new(9);
        let mut first = control(&world).unwrap();
        let topic = Topic {
            name: "t".into(),
            id: render_uuid(random_id()),
            partitions: 1,
            configs: Default::default(),
        };
        first.topics.topics.push(topic);
        first.save_topics().unwrap();
        drop(first);
        world.kill();
        world.faults(|faults| faults.space_bytes = Some(0));
        let full = control(&world).expect("a full disk can be read");
        assert!(full.topics.find("t").is_some());
        drop(full);
        world.kill();
        world.faults(|faults| faults.space_bytes = None);
        assert!(control(&world).unwrap().topics.find("t").is_some());
    }
}
