//! What several test files share: whole shards in the simulator, spoken to over the wire.
//!
//! Owns: the harness. Never does: assert behaviour. Left: `ringlog::{shard, io::sim, protocol}`.
//! Right: the test files that include it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use ringlog::format::batch::Codec;
use ringlog::format::builder::BatchBuilder;
use ringlog::format::validate::Depth;
use ringlog::io::Io;
use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::Pool;
use ringlog::io::op::Waker;
use ringlog::io::sim::{SimIo, SimSocket, World};
use ringlog::log::LogConfig;
use ringlog::protocol::api::{Message, Request, ResponseHeader, encode_request};
use ringlog::protocol::frame::{Scan, scan_response};
use ringlog::protocol::produce::{ProduceResponse, request_head};
use ringlog::shard::catalogue::{self, Catalogue, PartitionEntry, TopicEntry};
use ringlog::shard::histograms::Counters;
use ringlog::shard::mailbox::{ControlBox, FromShard, PartitionSpec, Settings, ShardBox, ToShard};
use ringlog::shard::{FetchPath, Hello, Shard, ShardConfig};
use ringlog::types::{AckLevel, Handle, Micros, Offset, ShardId};

pub const DATA_DIR: &str = "/data";
/// The id of the test topic.
pub const ID: uuid::Uuid = uuid::Uuid::from_bytes([7; 16]);

/// One shard over the simulator, with the test as its control thread.
pub struct SimShard {
    pub world: World,
    pub shard: Shard<SimIo>,
    pub mail: ShardBox,
    waker: Waker,
    pub from: Receiver<FromShard>,
    pub address: SocketAddr,
    pub handles: Vec<Handle>,
    /// What the shard told the control thread.
    pub heard: Vec<FromShard>,
}

/// How the shard of a test is set up.
#[derive(Clone)]
pub struct Setup {
    pub partitions: u32,
    pub settings: Settings,
    pub fetch_path: FetchPath,
    pub frame_bytes_max: u32,
    pub memory_bytes: usize,
    pub in_flight_max: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            partitions: 1,
            settings: Settings::default(),
            fetch_path: FetchPath::Send,
            frame_bytes_max: 8 << 20,
            memory_bytes: 64 << 20,
            in_flight_max: 256,
        }
    }
}

impl Setup {
    pub fn flush(mut self, policy: &str) -> Setup {
        self.settings.log.flush = policy.parse().expect("a policy");
        self
    }

    pub fn log(mut self, change: impl FnOnce(&mut LogConfig)) -> Setup {
        change(&mut self.settings.log);
        self
    }
}

fn hello() -> Hello {
    Hello {
        server: "test".into(),
        cluster_id: "test".into(),
        node_id: 1,
        engine: "sim".into(),
        flush_policy: "group".into(),
        policy_level: AckLevel::Durable,
        promise: "nothing".into(),
        shards: vec![(String::new(), 7440)],
    }
}

pub fn partition_dir(index: u32) -> PathBuf {
    Path::new(DATA_DIR).join(format!("t-{index}"))
}

impl SimShard {
    /// A fresh world with created partitions, served.
    pub fn create(seed: u64, setup: &Setup) -> SimShard {
        let world = World::new(seed);
        let mut io = world.engine();
        let mut blocking = Blocking::new(&mut io, Pool::new(16 << 20));
        blocking.create_dir(Path::new(DATA_DIR)).expect("a fresh world");
        blocking.sync_dir(Path::new("/")).expect("a fresh world");
        for index in 0..setup.partitions {
            let created = ringlog::log::create(&mut blocking, &partition_dir(index), ID, 0);
            created.expect("a fresh partition");
        }
        drop(io);
        SimShard::serve(world, setup, false)
    }

    /// A new process on the world's files.
    pub fn serve(world: World, setup: &Setup, clean: bool) -> SimShard {
        let mut io = world.engine();
        let any: SocketAddr = "127.0.0.1:0".parse().expect("a literal");
        let (listener, address) = io.listen(any).expect("the simulator listens");
        let waker = io.waker();
        let (mail, inbox) = ShardBox::new(waker.clone());
        let (to_control, from) = sync_channel(1024);
        let config = ShardConfig {
            id: ShardId(0),
            fetch_path: setup.fetch_path,
            depth: Depth::Deep,
            decompressed_bytes_max: 64 << 20,
            frame_bytes_max: setup.frame_bytes_max,
            fetch_bytes_max: 8 << 20,
            in_flight_max: setup.in_flight_max,
            connections_max: 64,
            stop_timeout: Micros::from_ms(10_000),
            retention_interval: Micros::from_ms(300_000),
            files_max: 1000,
            hello: hello(),
        };
        let (pool, control) = (Pool::new(setup.memory_bytes), ControlBox::new(to_control));
        let shard = Shard::new(io, pool, config, listener, inbox, control);
        let mut served = SimShard {
            world,
            shard,
            mail,
            waker,
            from,
            address,
            handles: Vec::new(),
            heard: Vec::new(),
        };
        served.open(setup, clean);
        served
    }

    fn open(&mut self, setup: &Setup, clean: bool) {
        let mut partitions = Vec::new();
        for index in 0..setup.partitions {
            let handle = catalogue::handle(index, 1);
            let marks = Arc::default();
            self.mail.send(ToShard::Open(Box::new(PartitionSpec {
                handle,
                dir: partition_dir(index),
                topic: "t".into(),
                index,
                settings: setup.settings.clone(),
                clean,
                unflushed_max: None,
                recovery_point: Offset::new(0),
                log_start: None,
                marks: Arc::clone(&marks),
            })));
            partitions.push(PartitionEntry { index, handle, shard: ShardId(0), marks });
            self.handles.push(handle);
        }
        let entry = TopicEntry { name: "t".into(), id: [7; 16], configs: Vec::new(), partitions };
        self.mail.send(ToShard::Catalogue(Arc::new(Catalogue::new(vec![Arc::new(entry)]))));
        self.mail.send(ToShard::Serve);
        self.turns(4);
    }

    /// Turns that do not sleep: what is due happens, the clock stands.
    pub fn turns(&mut self, count: usize) {
        for _ in 0..count {
            if self.world.stopped() {
                return;
            }
            // A woken reap hands out what is there instead of sleeping.
            self.waker.wake();
            self.shard.tick().expect("the simulated engine works");
            self.heard.extend(self.from.try_iter());
        }
    }

    /// Lets virtual time pass in small steps, with turns in between.
    pub fn run_us(&mut self, us: u64) {
        let end = self.world.now().plus(Micros(us));
        while self.world.now() < end && !self.world.stopped() {
            self.world.advance(Micros(50.min(end.since(self.world.now()).0)));
            self.turns(2);
        }
    }

    /// The shard's counters now.
    pub fn counters(&mut self) -> Counters {
        self.mail.send(ToShard::Snapshot);
        loop {
            self.waker.wake();
            self.shard.tick().expect("the simulated engine works");
            while let Ok(message) = self.from.try_recv() {
                if let FromShard::Snapshot { counters, .. } = message {
                    return *counters;
                }
            }
        }
    }

    pub fn connect(&mut self) -> Wire {
        let socket = self.world.connect(self.address);
        self.turns(2);
        Wire { socket, received: Vec::new(), correlation: 0 }
    }

    /// Sends a request and lets time pass until its response is there.
    pub fn call<'a, R: Request<'a>>(&mut self, wire: &mut Wire, request: &R) -> Response {
        wire.send(request);
        self.response(wire)
    }

    pub fn response(&mut self, wire: &mut Wire) -> Response {
        for _ in 0..200_000 {
            self.turns(2);
            if let Some(response) = wire.poll() {
                return response;
            }
            self.world.advance(Micros(50));
        }
        panic!("no response within ten virtual seconds");
    }

    pub fn produce(&mut self, wire: &mut Wire, handle: Handle, batch: &[u8]) -> ProduceResponse {
        wire.produce(handle, AckLevel::Policy, batch);
        let response = self.response(wire);
        assert!(response.header.is_ok(), "produce: {:?}", response.message());
        ProduceResponse::parse(&response.body).expect("a produce response")
    }
}

/// A client's end: raw frames.
pub struct Wire {
    pub socket: SimSocket,
    received: Vec<u8>,
    correlation: u32,
}

/// A response frame.
#[derive(Debug)]
pub struct Response {
    pub header: ResponseHeader,
    pub body: Vec<u8>,
}

impl Response {
    /// The text of an error response.
    pub fn message(&self) -> String {
        ringlog::protocol::error::ErrorBody::parse(self.header.error, &self.body)
            .map(|body| body.message.to_string())
            .unwrap_or_default()
    }
}

impl Wire {
    pub fn send<'a, R: Request<'a>>(&mut self, request: &R) -> u32 {
        self.correlation += 1;
        let mut frame = Vec::new();
        encode_request(request, self.correlation, &mut frame).expect("a request that fits");
        self.socket.send(&frame);
        self.correlation
    }

    pub fn produce(&mut self, handle: Handle, level: AckLevel, batches: &[u8]) -> u32 {
        self.correlation += 1;
        let mut frame = request_head(handle, level, self.correlation, batches.len()).to_vec();
        frame.extend_from_slice(batches);
        self.socket.send(&frame);
        self.correlation
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.socket.send(bytes);
    }

    /// The next response, if all of it is here.
    pub fn poll(&mut self) -> Option<Response> {
        self.received.extend_from_slice(&self.socket.recv());
        let scanned = scan_response(&self.received, u32::MAX).expect("well-formed responses");
        let Scan::Frame(frame) = scanned else { return None };
        let (header, body) = ResponseHeader::split(&frame).expect("a whole header");
        let response = Response { header, body: body.to_vec() };
        let len = frame.wire_len();
        self.received.drain(..len);
        Some(response)
    }
}

/// A batch of records, each with the given value.
pub fn batch(values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.append(None, Some(value), &[], 1_000);
    }
    builder.finish(Codec::None, None).expect("plain batches cannot fail").to_vec()
}
