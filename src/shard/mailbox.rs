//! Bounded messages between the control thread and the shards, and the shapes they carry.
//!
//! Owns: the message types, the bound, waking a sleeping shard. Never does: data-path traffic (a
//! request for another shard's partition gets NOT_OWNER). Left: `io::Waker`, `log` types. Right:
//! `control` of the shard, `server::control`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use super::catalogue::{Catalogue, Marks};
use super::histograms::{Counters, Stages};
use crate::errors::ErrorCode;
use crate::format::reencode::Target;
use crate::io::op::Waker;
use crate::log::LogConfig;
use crate::types::{Handle, Offset, ShardId};

/// Messages a mailbox holds; past it the sender waits (control) or keeps its own (shard).
pub const MAILBOX_MESSAGES_MAX: usize = 1024;

/// A request's place: which connection of the shard and which of its requests.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter(pub u64);

/// A topic's settings in force: its log's, and what its clients' batches are checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub log: LogConfig,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    /// `message.timestamp.type` is LogAppendTime.
    pub log_append_time: bool,
    /// `compression.type`; None: batches are stored as their producer compressed them.
    pub compression: Option<Target>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            log: LogConfig::default(),
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            log_append_time: false,
            compression: None,
        }
    }
}

/// A partition for a shard to open and serve.
#[derive(Clone, Debug)]
pub struct PartitionSpec {
    pub handle: Handle,
    pub dir: PathBuf,
    pub topic: String,
    pub index: u32,
    pub settings: Settings,
    /// The last stop of this directory was clean.
    pub clean: bool,
    /// The largest unflushed window since its last recovery (D6).
    pub unflushed_max: Option<u64>,
    pub recovery_point: Option<Offset>,
    pub log_start: Option<Offset>,
    pub marks: Arc<Marks>,
}

#[derive(Debug)]
pub enum ToShard {
    Open(Box<PartitionSpec>),
    /// Every partition of the start has been sent: say when all are open.
    OpenedAll,
    /// Take connections.
    Serve,
    Drop(Handle),
    /// Nothing can be done for this partition, open or not: its requests are answered with `why`.
    Offline {
        handle: Handle,
        why: Arc<str>,
    },
    Alter(Handle, Box<Settings>),
    /// The log start of the partition is on the disk up to here; `None`: it could not be written.
    StartSaved(Handle, Option<Offset>),
    Catalogue(Arc<Catalogue>),
    /// The control thread's answer to a forwarded request.
    Reply {
        to: Waiter,
        error: ErrorCode,
        body: Vec<u8>,
    },
    /// Copy the histograms and counters out.
    Snapshot,
    /// Answer what is durable, close every partition, say so, end.
    Stop,
}

/// What a shard knew of a partition when it closed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    pub handle: Handle,
    /// Flushed, trimmed and synced whole: the clean marker may be written.
    pub clean: bool,
}

/// What opening partitions came to.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub partitions: u64,
    /// Bytes of batches read, of so many that there are.
    pub scanned_bytes: u64,
    pub log_bytes: u64,
    pub cuts: u64,
    pub cut_bytes: u64,
    pub damaged: u64,
}

impl Recovered {
    pub fn add(&mut self, other: &Recovered) {
        self.partitions += other.partitions;
        self.scanned_bytes += other.scanned_bytes;
        self.log_bytes += other.log_bytes;
        self.cuts += other.cuts;
        self.cut_bytes += other.cut_bytes;
        self.damaged += other.damaged;
    }

    /// One line for all partitions (R19).
    pub fn log(&self, took: std::time::Duration) {
        let Recovered { partitions, scanned_bytes, log_bytes, cuts, cut_bytes, damaged } = *self;
        tracing::info!(
            "opened {partitions} partitions in {took:?}: read {scanned_bytes} of {log_bytes} \
             bytes, cut {cut_bytes} in {cuts} places, damaged ranges: {damaged}"
        );
    }
}

#[derive(Debug)]
pub enum FromShard {
    Opened {
        shard: ShardId,
        handle: Handle,
        /// The greatest producer id found in it (-1: none), or why it is offline.
        result: Result<i64, String>,
    },
    OpenedAll {
        shard: ShardId,
        recovered: Recovered,
    },
    Dropped {
        shard: ShardId,
        handle: Handle,
    },
    /// Write down the log start that the partition's marks show, and say so.
    SaveStart {
        shard: ShardId,
        handle: Handle,
    },
    Request {
        shard: ShardId,
        waiter: Waiter,
        api: u8,
        body: Vec<u8>,
    },
    /// A write or flush of this partition failed (D11): its directory may have failed, too.
    Poisoned {
        handle: Handle,
    },
    Snapshot {
        shard: ShardId,
        stages: Box<Stages>,
        counters: Box<Counters>,
    },
    Stopped {
        shard: ShardId,
        closed: Vec<Closed>,
    },
    /// The shard's thread ended without having been told to.
    Failed {
        shard: ShardId,
        why: String,
    },
    /// A signal asked for a stop (from the signal thread, not from a shard).
    StopAsked,
}

/// The control thread's end towards one shard.
#[derive(Clone, Debug)]
pub struct ShardBox {
    sender: SyncSender<ToShard>,
    waker: Waker,
}

impl ShardBox {
    pub fn new(waker: Waker) -> (ShardBox, Receiver<ToShard>) {
        let (sender, receiver) = sync_channel(MAILBOX_MESSAGES_MAX);
        (ShardBox { sender, waker }, receiver)
    }

    /// Waits while the mailbox is full; a shard that is gone takes nothing.
    pub fn send(&self, message: ToShard) {
        let mut message = message;
        loop {
            match self.sender.try_send(message) {
                Ok(()) | Err(TrySendError::Disconnected(_)) => break,
                Err(TrySendError::Full(back)) => {
                    message = back;
                    self.waker.wake();
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            }
        }
        self.waker.wake();
    }
}

/// A shard's end towards the control thread: never waits.
#[derive(Debug)]
pub struct ControlBox {
    sender: SyncSender<FromShard>,
    /// What did not fit yet, in order.
    held: std::collections::VecDeque<FromShard>,
}

impl ControlBox {
    pub fn new(sender: SyncSender<FromShard>) -> ControlBox {
        ControlBox { sender, held: std::collections::VecDeque::new() }
    }

    /// Room for a client's request? One that finds none is answered OVERLOADED, so that `held`
    /// only ever grows by what the control thread itself asked for, and one message a partition.
    pub fn has_room(&self) -> bool {
        self.held.is_empty()
    }

    pub fn send(&mut self, message: FromShard) {
        self.held.push_back(message);
        self.push_held();
    }

    /// Tries again what did not fit; true when nothing is held.
    pub fn push_held(&mut self) -> bool {
        while let Some(message) = self.held.pop_front() {
            if let Err(TrySendError::Full(back)) = self.sender.try_send(message) {
                self.held.push_front(back);
                return false;
            }
        }
        true
    }
}
