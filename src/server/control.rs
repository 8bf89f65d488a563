//! The control thread: the catalogue, topic changes, checkpoints, the clean markers.
//!
//! Owns: everything of the data directories that is not one partition, and the answers to control
//! requests (`requests`); how it begins is in `opening`, what it does unasked in `keeping`. Never
//! does: the data path. It may wait: it has its own engine and uses it one op at a time. Left:
//! `homes`, `topics`, `topic_config`. Right: `run`, which feeds it messages.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::config::Config;
use super::homes::Homes;
use super::producer_ids::ProducerIds;
use super::removal::Removals;
use super::topic_config::Defaults;
use super::topics::TopicFile;
use crate::errors::ErrorCode;
use uuid::Uuid;

use crate::format::identity::parse_uuid;
use crate::format::name::check_topic;
use crate::io::Io;
use crate::io::blocking::Blocking;
use crate::io::buffers::Pool;
use crate::log::LogConfig;
use crate::shard::catalogue::{Catalogue, TopicEntry};
use crate::shard::histograms::{Counters, Stages};
use crate::shard::mailbox::{Closed, FromShard, Recovered, ShardBox, ToShard, Waiter};
use crate::types::{Handle, ShardId};

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
        /// `file.delete.delay.ms`
        delay_ms: i64,
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
    pub(super) homes: Homes,
    pub(super) defaults: Defaults,
    pub(super) topics: TopicFile,
    pub(super) producer_ids: ProducerIds,
    /// The topic file on disk says less than `topics`, and nobody waits for it.
    pub(super) topics_changed: bool,
    pub(super) removals: Removals,
    /// Partitions on disk that may not be served as what their name says, and why.
    pub(super) unfit: HashMap<(String, u32), String>,
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
    /// Partitions whose log start is to be written down, and who asked.
    pub(super) starts_asked: Vec<(ShardId, Handle)>,
    /// What opening came to, summed over the shards.
    recovered: Recovered,
    pub(super) failed: Option<String>,
}

impl<I: Io> Control<I> {
    /// Finishes what the topic file says is unfinished, and adopts partitions that it does not know
    /// (a broker wrote them). Both come from [`Homes::open`].
    pub fn new(
        io: I,
        config: Config,
        homes: Homes,
        topics: TopicFile,
        shards: Vec<ShardBox>,
    ) -> Result<Control<I>, ControlError> {
        let log = LogConfig {
            cut_bytes_max: config.cut_bytes_max,
            producer_expiration_ms: config.producer_expiration.as_millis() as i64,
            producer_check_interval_ms: config.producer_check_interval.as_millis() as u64,
            ..LogConfig::default()
        };
        let defaults = Defaults::new(log, &config.topic_defaults)
            .map_err(|why| fault(Path::new("--topic-default"), why))?;
        for notice in defaults.notices() {
            tracing::warn!("--topic-default {notice}");
        }
        let mut control = Control {
            io,
            pool: Pool::new(64 << 20),
            config,
            homes,
            defaults,
            topics,
            producer_ids: ProducerIds::default(),
            topics_changed: false,
            removals: Removals::default(),
            unfit: HashMap::new(),
            catalogue: Arc::default(),
            shards,
            waiting: Vec::new(),
            free: Vec::new(),
            next_index: 0,
            phase: Phase::Opening { shards_left: 0 },
            closed: Vec::new(),
            offline: HashMap::new(),
            started: Instant::now(),
            starts_asked: Vec::new(),
            recovered: Recovered::default(),
            failed: None,
        };
        let first = control.homes.first().to_path_buf();
        control.producer_ids = ProducerIds::load(&mut control.blocking(), &first)?;
        control.settle_topics()?;
        Ok(control)
    }

    pub(super) fn blocking(&mut self) -> Blocking<'_, I> {
        Blocking::new(&mut self.io, self.pool.clone())
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
            FromShard::OpenedAll { recovered, .. } => self.opened_all(&recovered),
            FromShard::Dropped { handle, .. } => self.dropped(handle),
            FromShard::SaveStart { shard, handle } => self.starts_asked.push((shard, handle)),
            FromShard::Request { shard, waiter, api, body } => {
                self.request(Asker { shard, waiter }, api, &body);
            }
            FromShard::Poisoned { handle } => self.poisoned(handle),
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

    /// An opened partition tells the greatest producer id that it found.
    fn opened(&mut self, _shard: ShardId, handle: Handle, result: Result<i64, String>) {
        match &result {
            Ok(producer_id) => self.producer_ids.found(*producer_id),
            Err(why) => drop(self.offline.insert(handle, why.clone())),
        }
        self.created(handle, result.err());
    }

    fn opened_all(&mut self, recovered: &Recovered) {
        self.recovered.add(recovered);
        let Phase::Opening { shards_left } = self.phase else { return };
        self.phase = match shards_left {
            1 => Phase::Serving,
            more => Phase::Opening { shards_left: more - 1 },
        };
        if self.phase == Phase::Serving {
            self.recovered.log(self.started.elapsed());
            self.record_windows();
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

    pub(super) fn stop(&mut self) {
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
        self.write_clean_markers();
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
    use crate::format::identity::render_uuid;
    use crate::io::sim::World;
    use crate::server::config::Flags;
    use crate::server::datadir::random_id;
    use crate::server::topics::Topic;

    fn control(world: &World) -> Result<Control<crate::io::sim::SimIo>, ControlError> {
        let mut io = world.engine();
        let mut b = Blocking::new(&mut io, Pool::new(16 << 20));
        let (homes, topics) = Homes::open(&mut b, &["/data".into()], &mut |_| Ok(None))?;
        let flags = Flags { data_dir: Some(vec!["/data".into()]), ..Flags::default() };
        Control::new(io, Config::resolve(flags, &[0]).unwrap(), homes, topics, Vec::new())
    }

    #[test]
    fn r21_a_full_disk_does_not_keep_the_server_from_starting() {
        let world = World::new(9);
        let mut first = control(&world).unwrap();
        let topic = Topic {
            name: "t".into(),
            id: render_uuid(random_id()),
            partitions: 1,
            making: false,
            dirs: Vec::new(),
            configs: Default::default(),
            unflushed_bytes: Some(1),
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
    /// A change of settings, cut at each of its steps: afterwards the topic has the old settings or
    /// the new ones, and the new ones once the change was answered.
    #[test]
    fn a_change_of_settings_is_whole_or_not_at_all_after_a_power_cut() {
        let with = |value: &str| [("retention.ms".to_string(), value.to_string())].into();
        let (mut olds, mut news) = (0, 0);
        for n in 0..60 {
            let world = World::new(n);
            let mut first = control(&world).unwrap();
            first.topics.topics.push(Topic {
                name: "t".into(),
                id: render_uuid(random_id()),
                partitions: 1,
                making: false,
                dirs: Vec::new(),
                configs: with("1000"),
                unflushed_bytes: None,
            });
            first.save_topics().unwrap();
            world.cut_after(n % 12);
            first.topics.topics[0].configs = with("2000");
            let answered = first.save_topics().is_ok();
            drop(first);
            world.power_cut();
            let again = control(&world).unwrap();
            let held = again.topics.find("t").expect("the topic is there").configs.clone();
            let is_new = held == with("2000");
            assert!(is_new || (!answered && held == with("1000")), "cut {n}: {held:?}");
            *(if is_new { &mut news } else { &mut olds }) += 1;
        }
        assert!(olds > 0 && news > 0, "{olds} old, {news} new: the cuts hit nothing");
    }
}
