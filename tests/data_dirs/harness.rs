//! A server without sockets for tests: the real control thread over the simulator, and a shard that
//! only opens, closes and counts.
//!
//! Owns: carrying messages between the two. Never does: real I/O. Left: `ringlog::server`. Right:
//! the tests of this folder.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use ringlog::errors::ErrorCode;
use ringlog::io::Io;
use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::Pool;
use ringlog::io::sim::{SimIo, World};
use ringlog::log::{OpenParams, Partition, open};
use ringlog::protocol::Request;
use ringlog::protocol::topics::{AlterRequest, CreateRequest, DeleteRequest};
use ringlog::server::config::{Config, Flags};
use ringlog::server::control::{Control, ControlError, Phase};
use ringlog::server::homes::Homes;
use ringlog::shard::catalogue::{Catalogue, STATE_NOT_OPEN, TopicEntry};
use ringlog::shard::mailbox::{
    Closed, FromShard, PartitionSpec, Recovered, ShardBox, ToShard, Waiter,
};
use ringlog::types::{Handle, Micros, ShardId};

/// What a request was answered: a body, or an error with its text.
pub type Answer = Result<Vec<u8>, (ErrorCode, String)>;

pub struct Server {
    pub world: World,
    pub control: Control<SimIo>,
    inbox: Receiver<ToShard>,
    io: SimIo,
    pool: Pool,
    pub specs: BTreeMap<u32, PartitionSpec>,
    pub logs: BTreeMap<u32, Partition>,
    /// Why partitions are offline, by handle.
    pub offline: BTreeMap<u32, String>,
    pub catalogue: Arc<Catalogue>,
    answers: Vec<Answer>,
    stop_asked: bool,
}

pub fn paths(dirs: &[&str]) -> Vec<PathBuf> {
    dirs.iter().map(PathBuf::from).collect()
}

/// Works on the directories as a process of its own would.
pub fn with<T>(world: &World, work: impl FnOnce(&mut Blocking<'_, SimIo>) -> T) -> T {
    let mut io = world.engine();
    work(&mut Blocking::new(&mut io, Pool::new(16 << 20)))
}

impl Server {
    /// A start, up to where clients may come.
    pub fn start(world: &World, dirs: &[&str]) -> Result<Server, ControlError> {
        let mut io = world.engine();
        let mut b = Blocking::new(&mut io, Pool::new(16 << 20));
        let (homes, topics) = Homes::open(&mut b, &paths(dirs), &mut |_| Ok(None))?;
        let flags = Flags { data_dir: Some(paths(dirs)), ..Flags::default() };
        let config = Config::resolve(flags, &[0]).expect("settings within bounds");
        let shard = world.engine();
        let (mailbox, inbox) = ShardBox::new(shard.waker());
        let control = Control::new(io, config, homes, topics, vec![mailbox])?;
        let mut server = Server {
            world: world.clone(),
            control,
            inbox,
            io: shard,
            pool: Pool::new(64 << 20),
            specs: BTreeMap::new(),
            logs: BTreeMap::new(),
            offline: BTreeMap::new(),
            catalogue: Arc::default(),
            answers: Vec::new(),
            stop_asked: false,
        };
        server.control.open_all();
        server.pump();
        Ok(server)
    }

    /// Carries messages until none is left.
    pub fn pump(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            self.take(message);
        }
    }

    fn take(&mut self, message: ToShard) {
        let shard = ShardId(0);
        match message {
            ToShard::Open(spec) => {
                let handle = spec.handle;
                let result = self.open(*spec).map(|()| -1);
                self.control.handle(FromShard::Opened { shard, handle, result });
            }
            ToShard::Offline { handle, why } => {
                self.logs.remove(&handle.0);
                self.offline.insert(handle.0, why.to_string());
            }
            ToShard::OpenedAll => {
                let recovered = Recovered::default();
                self.control.handle(FromShard::OpenedAll { shard, recovered });
            }
            ToShard::Drop(handle) => {
                self.logs.remove(&handle.0);
                self.specs.remove(&handle.0);
                self.offline.remove(&handle.0);
                self.control.handle(FromShard::Dropped { shard, handle });
            }
            ToShard::Catalogue(catalogue) => self.catalogue = catalogue,
            ToShard::Reply { error: ErrorCode::None, body, .. } => self.answers.push(Ok(body)),
            ToShard::Reply { error, body, .. } => {
                self.answers.push(Err((error, String::from_utf8_lossy(&body).into_owned())));
            }
            ToShard::Stop => self.stop_asked = true,
            _ => {}
        }
    }

    fn open(&mut self, spec: PartitionSpec) -> Result<(), String> {
        let params = OpenParams {
            config: spec.settings.log.clone(),
            clean: spec.clean,
            recovery_point: spec.recovery_point,
            log_start: spec.log_start,
            unflushed_max: None,
        };
        let mut b = Blocking::new(&mut self.io, self.pool.clone());
        let opened = open(&mut b, &spec.dir, &params, &self.pool);
        let handle = spec.handle;
        self.specs.insert(handle.0, spec);
        match opened {
            Ok((log, _)) => {
                self.logs.insert(handle.0, log);
                Ok(())
            }
            Err(error) => {
                self.offline.insert(handle.0, error.to_string());
                Err(error.to_string())
            }
        }
    }

    pub fn request<'a, R: Request<'a>>(&mut self, request: &R) -> Option<Answer> {
        let mut body = Vec::new();
        request.encode(&mut body).expect("a request that fits");
        self.control.handle(FromShard::Request {
            shard: ShardId(0),
            waiter: Waiter(1),
            api: R::API.to_wire(),
            body,
        });
        self.pump();
        self.answers.pop()
    }

    pub fn create(&mut self, name: &str, partitions: u32, configs: &[(&str, &str)]) -> Answer {
        let request = CreateRequest { name, partitions, configs: configs.to_vec() };
        self.request(&request).expect("an answer")
    }

    pub fn alter(&mut self, name: &str, key: &str, value: &str) -> Answer {
        let request = AlterRequest { name, changes: vec![(key, Some(value))] };
        self.request(&request).expect("an answer")
    }

    pub fn delete(&mut self, name: &str) -> Answer {
        self.request(&DeleteRequest { name }).expect("an answer")
    }

    pub fn topic(&self, name: &str) -> Option<Arc<TopicEntry>> {
        self.catalogue.topic(name).cloned()
    }

    pub fn handle(&self, topic: &str, index: u32) -> Handle {
        self.topic(topic).expect("it exists").partitions[index as usize].handle
    }

    /// The directory in which a partition was opened.
    pub fn dir_of(&self, topic: &str, index: u32) -> String {
        let spec = &self.specs[&self.handle(topic, index).0];
        spec.dir.parent().expect("it is in one").display().to_string()
    }

    pub fn why_offline(&self, topic: &str, index: u32) -> Option<&str> {
        self.offline.get(&self.handle(topic, index).0).map(String::as_str)
    }

    /// Lets every partition show this high watermark.
    pub fn mark(&self, high_watermark: i64) {
        for topic in self.catalogue.topics() {
            for partition in topic.partitions.iter() {
                let marks = &partition.marks;
                if marks.now().state != STATE_NOT_OPEN {
                    let now = marks.now();
                    marks.publish(ringlog::shard::catalogue::MarksNow { high_watermark, ..now });
                }
            }
        }
    }

    /// Lets the background deletion run until nothing is due.
    pub fn remove_all(&mut self) {
        self.world.advance(Micros(120_000_000));
        while self.control.removal_due().is_some_and(|due| due.is_zero()) && !self.world.stopped() {
            self.control.remove_some();
        }
    }

    /// A stop at which all partitions but those of `unclean` directories close cleanly.
    pub fn stop(mut self, unclean: &[&str]) {
        self.control.handle(FromShard::StopAsked);
        self.pump();
        assert!(self.stop_asked);
        let closed = self.logs.keys().map(|handle| Closed {
            handle: Handle(*handle),
            clean: !unclean.iter().any(|dir| self.specs[handle].dir.starts_with(dir)),
        });
        let closed = closed.collect();
        self.control.handle(FromShard::Stopped { shard: ShardId(0), closed });
        assert_eq!(self.control.phase(), Phase::Ended);
    }
}
