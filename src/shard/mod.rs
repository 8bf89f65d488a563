//! One core, one engine, one loop: connections, requests, partitions, replies.
//!
//! Owns: a shard's state and its turn. Never does: share it (messages only), wait (but to open a
//! partition), or know files and offsets better than `log` does. Left: `io`, `log`, `format`,
//! `protocol`, `policy`. Right: `server`, which makes shards and their control thread.

pub mod catalogue;
pub mod histograms;
pub mod mailbox;

mod conn;
mod conns;
mod control;
mod fetch;
mod files;
mod jobs;
mod offline;
mod offsets;
mod parts;
mod produce;
mod reencode;
mod reopen;
mod retain;
mod tick;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use crate::format::reencode::Reencoder;
use crate::format::validate::{Depth, Scratch};
use crate::io::buffers::Pool;
use crate::io::{Done, FileId, Io, Op, Tag};
use crate::log::{Ack, OpSink};
use crate::types::{Micros, ShardId, WallMs};
use catalogue::Catalogue;
use conns::Conns;
use histograms::{Counters, Stages};
use jobs::Jobs;
use mailbox::{Closed, ControlBox, Recovered, ToShard};
use parts::Parts;

/// How fetched bytes reach the socket.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FetchPath {
    /// Read behind the response head, one send.
    Send,
    /// Head with MSG_MORE, then sendfile(2).
    Sendfile,
}

/// What a shard is told once, at its start.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    pub id: ShardId,
    pub fetch_path: FetchPath,
    pub depth: Depth,
    /// What one compressed batch may expand to while it is checked.
    pub decompressed_bytes_max: u64,
    pub frame_bytes_max: u32,
    pub fetch_bytes_max: usize,
    pub in_flight_max: usize,
    pub connections_max: usize,
    pub stop_timeout: Micros,
    /// Kafka's `log.retention.check.interval.ms`.
    pub retention_interval: Micros,
    /// Descriptors that the files of this shard's logs may take.
    pub files_max: usize,
    pub hello: Hello,
}

/// What hello tells, the same for every shard.
#[derive(Clone, Debug)]
pub struct Hello {
    pub server: String,
    pub cluster_id: String,
    pub node_id: i32,
    pub engine: String,
    pub flush_policy: String,
    pub policy_level: crate::types::AckLevel,
    pub promise: String,
    /// Host (empty: the one the client dialled) and port, by shard.
    pub shards: Vec<(String, u16)>,
}

/// Where a shard is between its first and its last turn.
#[derive(Debug)]
enum Life {
    /// Partitions are being opened; no connections yet.
    Opening,
    Serving,
    /// No new requests; partitions close, answers leave.
    Stopping {
        deadline: Micros,
    },
    Ended,
}

/// A shard. Make it on the thread that turns it: its engine belongs to that thread.
pub struct Shard<I: Io> {
    io: I,
    config: ShardConfig,
    pool: Pool,
    listener: FileId,
    accepting: bool,
    life: Life,
    now: Micros,
    wall: WallMs,
    conns: Conns,
    parts: Parts,
    jobs: Jobs,
    catalogue: Arc<Catalogue>,
    inbox: Receiver<ToShard>,
    control: ControlBox,
    stages: Stages,
    counters: Counters,
    /// What opening this shard's partitions came to.
    recovered: Recovered,
    scratch: Scratch,
    reencoder: Reencoder,
    /// The batches of a request as they are to be stored, until they have a slice of their own.
    reencoded: Vec<u8>,
    /// Reused every turn: completions, ops of partitions, acks, encoded replies.
    done: Vec<Done>,
    sink: OpSink,
    acks: Vec<Ack>,
    encoded: Vec<u8>,
    /// Ops the engine had no room for, in order.
    backlog: VecDeque<(Op, Tag)>,
    /// Something is left that needs another turn at once.
    restless: bool,
    /// Somebody was refused buffer memory in this turn; when last, and since when again and again.
    hungry: bool,
    hungry_at: Micros,
    hungry_since: Micros,
    /// Produce requests staged in this turn.
    staged_now: u64,
    closed: Vec<Closed>,
}

impl<I: Io> Shard<I> {
    /// `listener` belongs to `io`; `pool` is the shard's whole buffer memory.
    pub fn new(
        io: I,
        pool: Pool,
        config: ShardConfig,
        listener: FileId,
        inbox: Receiver<ToShard>,
        control: ControlBox,
    ) -> Shard<I> {
        let (now, wall) = (io.now(), io.wall_ms());
        Shard {
            pool,
            conns: Conns::new(config.connections_max),
            io,
            config,
            listener,
            accepting: false,
            life: Life::Opening,
            now,
            wall,
            parts: Parts::default(),
            jobs: Jobs::default(),
            catalogue: Arc::default(),
            inbox,
            control,
            stages: Stages::default(),
            counters: Counters::default(),
            recovered: Recovered::default(),
            scratch: Scratch::new(),
            reencoder: Reencoder::default(),
            reencoded: Vec::new(),
            done: Vec::new(),
            sink: OpSink::default(),
            acks: Vec::new(),
            encoded: Vec::new(),
            backlog: VecDeque::new(),
            restless: false,
            hungry: false,
            hungry_at: Micros(0),
            hungry_since: Micros::NEVER,
            staged_now: 0,
            closed: Vec::new(),
        }
    }

    /// Hands an op to the engine; one that it refuses is kept, in order, for the next turn.
    fn submit(&mut self, op: Op, tag: tick::Label) {
        let tag = tag.to_tag();
        if !self.backlog.is_empty() {
            self.backlog.push_back((op, tag));
            return;
        }
        if let Err(refused) = self.io.submit(op, tag) {
            self.backlog.push_back((refused.op, tag));
        }
    }

    pub fn is_ended(&self) -> bool {
        matches!(self.life, Life::Ended)
    }
}
