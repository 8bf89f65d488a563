//! The only door to a log: append, plan, completions, acks; lookups go through `locate`, `by_time`.
//!
//! Owns: one partition's state machines and the order in which they act. Never does: I/O; parsing.
//! Left: everything in `log`. Right: `shard`.

use std::path::PathBuf;

use super::appender::Appender;
use super::closing::Closing;
use super::config::LogConfig;
use super::descriptors::Descriptors;
use super::flush_queue::{Ack, AckError, FlushQueue, Reach, Waiter};
use super::isolation::Unstable;
use super::op_sink::{LocalTag, OpSink, Task};
use super::producers::Producers;
use super::removal::Removal;
use super::retention::Retention;
use super::sealing::Sealer;
use super::segment::Phase;
use super::segments::Segments;
use super::space::Space;
use super::tail::Tail;
use super::watermarks::Watermarks;
use crate::format::checkpoint::EpochCache;
use crate::io::buffers::Pool;
use crate::io::{Errno, Op, Outcome};
use crate::policy::FlushPolicy;
use crate::types::{AckLevel, Micros, Offset, WallMs};

/// What an accepted append got.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// It repeats what these offsets hold already; then the first batch's timestamp there (D13).
    pub repeats: Option<WallMs>,
}

/// Why an append was not taken; nothing of it was.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the partition is poisoned by a failed write or flush (D11)")]
    Poisoned,
    #[error("no space left on the device")]
    NoSpace,
    #[error("too many open files: raise the limit (ulimit -n)")]
    NoDescriptors,
    #[error("the partition is read-only")]
    ReadOnly,
    #[error("the partition is closing")]
    Closing,
    #[error("too much is staged already")]
    Backpressure,
    #[error("a batch of {len} bytes, at most {len_max} are allowed")]
    TooLarge { len: usize, len_max: usize },
    #[error("an append of {len} bytes, a segment takes {len_max} (segment.bytes)")]
    PastSegment { len: u64, len_max: u64 },
    #[error("{offsets} offsets in one append: more than a segment can index")]
    TooManyOffsets { offsets: i64 },
    #[error("no offsets left")]
    OffsetsExhausted,
    #[error(
        "producer {producer_id}: epoch {producer_epoch} is over, {current} has written: a newer \
         producer holds this id"
    )]
    StaleEpoch { producer_id: i64, producer_epoch: i16, current: i16 },
    #[error("producer {producer_id}, epoch {producer_epoch}: sequence {first} where {next} is due")]
    OutOfOrder {
        producer_id: i64,
        producer_epoch: i16,
        first: i32,
        next: i32,
        /// The epoch is that of the producer's last batch; else `next` is 0.
        is_current: bool,
    },
    #[error("some of the batches are in the log already, or not one behind the other there")]
    MixedRepeats,
    #[error("producer {producer_id}: {}", match open {
        true => "a transaction is open, and this batch is none of it",
        false => "transactions are not served",
    })]
    Transaction { producer_id: i64, open: bool },
}

/// What a partition can do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionState {
    Open,
    /// Recovery could not finish: reads only.
    ReadOnly,
    /// D12: appends are refused and tried again by themselves.
    NoSpace,
    /// D11: this write or flush failed; appends are refused until a restart.
    Poisoned {
        path: PathBuf,
        pos: u64,
        errno: Errno,
    },
}

/// Since the log was opened.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    pub appends: u64,
    pub batches: u64,
    pub records: u64,
    pub bytes: u64,
    pub writes: u64,
    pub flushes: u64,
    /// Acks released; divided by `flushes`: how many one flush serves.
    pub acks: u64,
    pub rolls: u64,
    pub segments_deleted: u64,
    pub bytes_deleted: u64,
    /// Whose greatest timestamp lay in the future when its age was judged (R43).
    pub segments_from_the_future: u64,
    pub refused: u64,
    /// Batches that were there already (D13).
    pub duplicates: u64,
    /// Appends refused for a gap in their sequences.
    pub out_of_order: u64,
    pub producers_expired: u64,
}

/// A policy that is being replaced: the stricter of the two holds until a flush has settled what
/// the old one left (D1).
#[derive(Copy, Clone, Debug)]
pub(super) struct OldPolicy {
    policy: FlushPolicy,
    until: Offset,
}

pub struct Partition {
    pub(super) dir: PathBuf,
    pub(super) config: LogConfig,
    old_policy: Option<OldPolicy>,
    pub(super) leader_epoch: i32,
    /// All epochs; the newest is `leader_epoch`.
    pub(super) epochs: EpochCache,
    pub(super) segments: Segments,
    pub(super) marks: Watermarks,
    pub(super) unstable: Unstable,
    pub(super) tail: Tail,
    pub(super) appender: Appender,
    pub(super) waiters: FlushQueue,
    pub(super) producers: Producers,
    /// The offset of the newest snapshot on the disk, or about to be there.
    pub(super) snapshot: Offset,
    pub(super) expiry_at: Micros,
    pub(super) sealer: Sealer,
    pub(super) space: Space,
    /// What is undone is for want of a descriptor, not of space.
    pub(super) lacks_descriptors: bool,
    pub(super) closing: Closing,
    pub(super) retention: Retention,
    pub(super) removal: Removal,
    pub(super) state: PartitionState,
    pub(super) pool: Pool,
    pub(super) counters: LogCounters,
    pub(super) files: Descriptors,
    /// Ops handed out and not come back.
    pub(super) in_flight: usize,
    /// Recovery found or remembered damage.
    is_damaged: bool,
    has_work: bool,
    pub(super) deadline: Micros,
}

/// What recovery found, for [`Partition::recovered`].
pub(super) struct Recovered {
    pub dir: PathBuf,
    pub config: LogConfig,
    pub segments: Segments,
    pub log_start: Offset,
    pub leader_epoch: i32,
    pub epochs: EpochCache,
    pub read_only: bool,
    pub producers: Producers,
    /// The offset of the newest snapshot on the disk.
    pub snapshot: Offset,
    pub pool: Pool,
}

impl Partition {
    /// A log whose segments are all on the disk (D8).
    pub(super) fn recovered(found: Recovered) -> Partition {
        let is_damaged = found.segments.iter().any(|segment| !segment.damage.is_empty());
        let active = found.segments.active();
        let end = active.written;
        let reach = Reach { end: end.end, bytes: active.bytes_before + end.pos };
        let open = found.segments.iter().filter(|s| s.open_file().is_some()).count();
        let files = Descriptors::new(open);
        let mut partition = Partition {
            sealer: Sealer::new(&found.dir),
            dir: found.dir,
            old_policy: None,
            leader_epoch: found.leader_epoch,
            epochs: found.epochs,
            marks: Watermarks::durable_at(found.log_start, end.end),
            unstable: Unstable::from(found.producers.first_unstable(None).and_then(Offset::new)),
            tail: Tail::new(found.config.tail_batches_max),
            appender: Appender::default(),
            waiters: FlushQueue::new(reach),
            producers: found.producers,
            snapshot: found.snapshot,
            expiry_at: Micros(0),
            space: Space::Fine,
            lacks_descriptors: false,
            closing: Closing::No,
            retention: Retention::new(found.log_start),
            removal: Removal::default(),
            is_damaged,
            state: match found.read_only {
                true => PartitionState::ReadOnly,
                false => PartitionState::Open,
            },
            segments: found.segments,
            config: found.config,
            pool: found.pool,
            counters: LogCounters::default(),
            files,
            in_flight: 0,
            has_work: true,
            deadline: Micros::NEVER,
        };
        partition.draw_jitter();
        partition
    }

    /// Asks for everything staged so far to be durable; acked when it is.
    pub fn flush(&mut self, waiter: Waiter, now: Micros) {
        self.wait(AckLevel::Durable, waiter, self.marks.staged(), now);
        match self.state {
            PartitionState::Poisoned { .. } => self.waiters.fail_all(AckError::Poisoned, now),
            _ => self.advance(now),
        }
        self.has_work = true;
    }

    /// Replaces the flush policy, flushing first (D1): the ack tells when the new one holds alone.
    pub fn set_policy(&mut self, policy: FlushPolicy, waiter: Waiter, now: Micros) {
        if policy != self.config.flush {
            let strict = self.policy();
            self.config.flush = policy;
            self.old_policy = Some(OldPolicy { policy: strict, until: self.marks.staged() });
        }
        self.flush(waiter, now);
    }

    /// Everything but the flush policy, which [`Partition::set_policy`] replaces.
    pub fn set_config(&mut self, config: LogConfig) {
        self.config = LogConfig { flush: self.config.flush, ..config };
    }

    /// The policy in force: while one is replaced, the one that promises more.
    pub fn policy(&self) -> FlushPolicy {
        match self.old_policy {
            Some(old) if old.policy.promises_durable() => old.policy,
            _ => self.config.flush,
        }
    }

    /// Puts what should happen now into `out`. Called once a tick while [`Partition::has_work`],
    /// and when [`Partition::next_deadline`] has come.
    pub fn plan(&mut self, now: Micros, out: &mut OpSink) {
        let before = out.len();
        self.has_work = false;
        self.deadline = Micros::NEVER;
        self.plan_closes(now, out);
        if matches!(self.state, PartitionState::Open | PartitionState::NoSpace) {
            self.plan_space(now, out);
            self.plan_retention(now, out);
            if self.space.lets_work() {
                self.plan_creates(out);
                self.plan_writes(now, out);
                self.plan_flushes(now, out);
                self.plan_seals(now, out);
            }
        }
        self.plan_expiry(now);
        self.plan_close(now, out);
        self.in_flight += out.len() - before;
    }

    /// Forgets silent producers now and then, a bounded number at a time.
    fn plan_expiry(&mut self, now: Micros) {
        if self.producers.is_empty() || self.closing != Closing::No {
            return;
        }
        if now >= self.expiry_at {
            let (expired, is_over) = self.producers.expire(now, self.config.producer_expiration_ms);
            self.counters.producers_expired += expired;
            let pause_ms = if is_over { self.config.producer_check_interval_ms } else { 0 };
            self.expiry_at = now.plus(Micros::from_ms(pause_ms));
        }
        self.before(self.expiry_at);
    }

    fn plan_writes(&mut self, now: Micros, out: &mut OpSink) {
        let (policy, limits) = (self.policy(), self.config.group_limits());
        let before = out.len();
        self.appender.plan_resumes(&self.segments, out);
        loop {
            let in_flight = self.appender.in_flight();
            let unflushed = self.marks.durable() < self.marks.written();
            let max = self.config.writes_in_flight_max;
            if !crate::policy::group::may_write(policy, in_flight, max, unflushed) {
                break;
            }
            let end = self.appender.plan_write(policy, &limits, &self.segments, out);
            let Some(end) = end else { break };
            self.waiters.on_submitted(end, now);
        }
        self.counters.writes += (out.len() - before) as u64;
    }

    /// Whether a plan has something to do before the next deadline.
    pub fn has_work(&self) -> bool {
        self.has_work
    }

    /// When to plan again although nothing has happened; [`Micros::NEVER`] for not at all.
    pub fn next_deadline(&self) -> Micros {
        self.deadline
    }

    /// Takes the completion of an op of this partition.
    pub fn on_done(&mut self, tag: LocalTag, op: Op, result: Result<Outcome, Errno>, now: Micros) {
        assert!(self.in_flight > 0, "a completion without an op");
        self.in_flight -= 1;
        self.has_work = true;
        match Task::of(tag) {
            Task::Write(id) => self.on_write(id, op, result, now),
            Task::Flush(id) => self.on_flushed(id, result, now),
            Task::Create(id) => self.on_created(id, result, now),
            Task::Name(id) => self.on_named(id, result, now),
            Task::Seal => self.on_sealed(result, now),
            Task::Space => self.on_undone(result, now),
            Task::Close => self.on_closed(op, result),
            Task::Age => self.on_age(result),
            Task::Epochs => self.on_epochs_written(result),
            Task::Remove => self.on_removed(&op, &result, now),
        }
        if !matches!(self.state, PartitionState::Poisoned { .. }) {
            self.advance(now);
        }
    }

    fn on_write(&mut self, id: u32, op: Op, result: Result<Outcome, Errno>, now: Micros) {
        match self.appender.on_write(id, op, result) {
            Ok(()) => {}
            Err(failed) if failed.errno.is_no_space() => self.begin_undo(failed.errno),
            Err(failed) => self.poison(failed.segment, failed.pos, failed.errno, now),
        }
    }

    /// Moves the watermarks to what has finished, and releases who waited for it.
    pub(super) fn advance(&mut self, now: Micros) {
        while let Some(finished) = self.appender.next_finished() {
            let segment = self.segments.get_mut(finished.segment).expect("in flight, so live");
            segment.on_written(finished.end, finished.index, now);
            self.marks.advance_written(finished.end.end);
            self.producers.advance(finished.end.end);
            self.space_found();
        }
        self.waiters.on_written(self.marks.written(), now);
        let settled = self.segments.settled(self.waiters.settled());
        self.marks.advance_durable(settled.end);
        self.waiters.on_durable(settled, now);
        self.waiters.release_bounded(self.policy(), now);
        if self.old_policy.is_some_and(|old| self.marks.durable() >= old.until) {
            self.old_policy = None;
        }
        let durable_only = self.shows_durable_only();
        self.segments.show(durable_only);
        self.marks.show(durable_only);
    }

    /// Nothing readable may vanish under the policy's own promise (R29).
    fn shows_durable_only(&self) -> bool {
        self.config.flush.promises_durable() || self.policy().promises_durable()
    }

    /// Moves what is ready into `out`: of one level in offset order.
    pub fn drain_acks(&mut self, out: &mut Vec<Ack>) {
        self.waiters.drain(out);
    }

    pub fn has_acks(&self) -> bool {
        self.waiters.has_ready()
    }

    /// D11: a write or flush failed, and nobody knows what of it is on the disk.
    pub(super) fn poison(&mut self, segment: u32, pos: u64, errno: Errno, now: Micros) {
        if matches!(self.state, PartitionState::Poisoned { .. }) {
            return;
        }
        let base = self.segments.get(segment).map_or(Offset::ZERO, |segment| segment.base);
        let path = self.log_path(base);
        tracing::error!(path = %path.display(), pos, %errno, "partition poisoned: no more appends");
        self.give_up(path, pos, errno, now);
    }

    pub(super) fn give_up(&mut self, path: PathBuf, pos: u64, errno: Errno, now: Micros) {
        if self.is_poisoned() {
            return;
        }
        self.state = PartitionState::Poisoned { path, pos, errno };
        self.appender.abandon();
        self.marks.unstage();
        self.producers.unstage(0);
        self.waiters.fail_all(AckError::Poisoned, now);
    }

    pub(super) fn is_altering(&self) -> bool {
        self.old_policy.is_some()
    }

    pub(super) fn is_poisoned(&self) -> bool {
        matches!(self.state, PartitionState::Poisoned { .. })
    }

    pub(super) fn wake(&mut self) {
        self.has_work = true;
    }

    pub(super) fn before(&mut self, deadline: Micros) {
        self.deadline = self.deadline.min(deadline);
    }

    pub fn log_start(&self) -> Offset {
        self.marks.start
    }

    /// Readers see everything before it.
    pub fn high_watermark(&self) -> Offset {
        self.marks.high()
    }

    pub fn staged_end(&self) -> Offset {
        self.marks.staged()
    }

    pub fn written_end(&self) -> Offset {
        self.marks.written()
    }

    pub fn durable_end(&self) -> Offset {
        self.marks.durable()
    }

    pub fn leader_epoch(&self) -> i32 {
        self.leader_epoch
    }

    /// Everything before it is on the disk, sealed segments with all that belongs to them (D7).
    pub fn recovery_point(&self) -> Offset {
        let open = self.segments.live().next().expect("the active segment is live");
        match open.phase {
            Phase::Sealed => self.marks.durable(),
            // Never to its very end: the next segment may begin there, and the scan with it.
            Phase::Active | Phase::Rolled => {
                let last = Offset::new(open.staged.end.get() - 1).unwrap_or(open.base);
                self.marks.durable().min(last.max(open.base))
            }
        }
    }

    /// Bytes written and not yet durable: what a power cut could take now.
    pub fn unflushed_bytes(&self) -> u64 {
        self.written_bytes().saturating_sub(self.waiters.settled().bytes)
    }

    /// How many ranges are known to be damaged on the disk, and the first offset of the first.
    pub fn damage(&self) -> (u64, Offset) {
        if !self.is_damaged {
            return (0, Offset::ZERO);
        }
        let mut ranges = self.segments.iter().flat_map(|segment| &segment.damage);
        let first = ranges.next().map(|damage| damage.first);
        (first.map_or(0, |_| 1 + ranges.count() as u64), first.unwrap_or(Offset::ZERO))
    }

    pub fn state(&self) -> &PartitionState {
        &self.state
    }

    pub fn counters(&self) -> LogCounters {
        LogCounters { acks: self.waiters.released, ..self.counters }
    }

    /// Producers remembered, whether or not they still write.
    pub fn producers_known(&self) -> usize {
        self.producers.len()
    }

    /// The greatest producer id in the log, as far as its snapshots and batches were read (D13);
    /// -1: none.
    pub fn greatest_producer_id(&self) -> i64 {
        self.producers.greatest_id()
    }

    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// Bytes of all `.log` files, staged ones included.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.staged.pos).sum()
    }

    /// Bytes of indexes in memory, the active segment's included.
    pub fn index_bytes(&self) -> usize {
        self.segments.index_bytes()
    }

    /// Base offset of the first segment that a restart would find.
    pub fn first_base(&self) -> Offset {
        self.removal.first_base().unwrap_or_else(|| {
            self.segments.iter().next().map_or(Offset::ZERO, |segment| segment.base)
        })
    }

    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    fn on_closed(&mut self, op: Op, result: Result<Outcome, Errno>) {
        let Op::Close { file } = op else { unreachable!("a close's op is a close") };
        if let Err(errno) = result {
            tracing::warn!(dir = %self.dir.display(), ?file, %errno, "closing a file failed");
        }
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Partition({}, {:?}, {:?})", self.dir.display(), self.marks, self.state)
    }
}
