//! The partitions a shard owns: finding them, turning them, waking who waits on them.
//!
//! Owns: handle to slot, which partitions were touched this turn, their deadlines, the fetches
//! parked on each, publishing marks. Never does: durability decisions (`log` and `policy` do).
//! Left: `log`. Right: `tick`, `produce`, `jobs`, `control`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use super::catalogue::{Marks, MarksNow, Owner, STATE_NOT_OPEN, STATE_POISONED, handle_index};
use super::conn::{Answer, ConnId, State};
use super::files::OpenFiles;
use super::histograms::Stage;
use super::mailbox::{Closed, FromShard, PartitionSpec, Recovered, Settings, Waiter};
use super::reopen::REOPEN_AFTER;
use super::retain::first_pass;
use super::tick::Label;
use super::{Life, Shard};
use crate::errors::ErrorCode;
use crate::io::blocking::Blocking;
use crate::io::{Errno, Io, Op, Outcome};
use crate::log::{Ack, AckError, LocalTag, Partition, PartitionState};
use crate::protocol::error::Detail;
use crate::protocol::offsets::FlushResponse;
use crate::protocol::produce::ProduceResponse;
use crate::types::{Handle, Micros, Offset};

/// Why a slot's partition is being closed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    No,
    /// The topic was deleted.
    Drop,
    Stop,
    /// Its disk was full when it was opened: it is opened again (R21).
    Reopen,
    /// Its data directory failed.
    Offline,
}

pub struct Slot {
    pub handle: Handle,
    pub partition: Partition,
    pub settings: Settings,
    pub marks: Arc<Marks>,
    /// Fetches that wait for bytes here.
    pub parked: Vec<u32>,
    /// What it was opened by.
    pub(super) spec: Box<PartitionSpec>,
    /// When a read-only partition is opened again.
    pub(super) reopen_at: Micros,
    /// Files it had open when it was last looked at.
    pub(super) files_counted: usize,
    /// A request came for it since its files were last looked at.
    pub(super) used: bool,
    /// When its next retention pass is due.
    pub(super) retain_at: Micros,
    /// Until when nothing more is said of records older than the retention (R44).
    pub(super) old_said: Micros,
    touched: bool,
    pub(super) closing: Closing,
    /// The earliest deadline that stands in the heap.
    queued: Micros,
    high_seen: Offset,
    /// The control thread knows that it is poisoned.
    poison_told: bool,
    /// Ops in the kernel.
    in_flight: u32,
}

#[derive(Default)]
pub struct Parts {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Handle index -> slot + 1.
    by_index: Vec<u32>,
    touched: Vec<u32>,
    pub(super) files: OpenFiles,
    deadlines: BinaryHeap<Reverse<(Micros, u32)>>,
    /// Partitions that cannot be served here, and why.
    pub(super) offline: HashMap<Handle, Arc<str>>,
}

impl Parts {
    pub fn find(&self, handle: Handle) -> Option<u32> {
        let slot = self.by_index.get(handle_index(handle))?.checked_sub(1)?;
        let known = self.slots[slot as usize].as_ref()?;
        (known.handle == handle && known.closing != Closing::Drop).then_some(slot)
    }

    pub fn get(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    fn add(
        &mut self,
        spec: Box<PartitionSpec>,
        partition: Partition,
        now: Micros,
        retain_at: Micros,
    ) -> u32 {
        let high_seen = partition.high_watermark();
        let handle = spec.handle;
        let slot = Slot {
            handle,
            partition,
            settings: spec.settings.clone(),
            marks: Arc::clone(&spec.marks),
            spec,
            reopen_at: now.plus(REOPEN_AFTER),
            parked: Vec::new(),
            files_counted: 0,
            used: false,
            retain_at,
            old_said: Micros(0),
            touched: false,
            closing: Closing::No,
            queued: Micros::NEVER,
            high_seen,
            poison_told: false,
            in_flight: 0,
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[at as usize] = Some(slot);
        let index = handle_index(handle);
        if self.by_index.len() <= index {
            self.by_index.resize(index + 1, 0);
        }
        self.by_index[index] = at + 1;
        at
    }

    /// The partition gets its turn in this turn's plan.
    pub fn touch(&mut self, slot: u32) {
        if let Some(known) = self.get(slot)
            && !known.touched
        {
            known.touched = true;
            self.touched.push(slot);
        }
    }

    /// A lookup may have left its partition something to do (files to close).
    pub fn touch_if_work(&mut self, slot: u32) {
        self.recount(slot);
        if self.get(slot).is_some_and(|known| known.partition.has_work()) {
            self.touch(slot);
        }
    }

    pub fn next_deadline(&self) -> Micros {
        self.deadlines.peek().map_or(Micros::NEVER, |Reverse((at, _))| *at)
    }

    pub fn touch_due(&mut self, now: Micros) {
        while let Some(Reverse((at, slot))) = self.deadlines.peek().copied()
            && at <= now
        {
            self.deadlines.pop();
            if let Some(known) = self.get(slot) {
                known.queued = Micros::NEVER;
                self.touch(slot);
            }
        }
    }

    pub fn all_closed(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    pub(super) fn slot_count(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn indexes(&self) -> Vec<u32> {
        (0..self.slots.len() as u32).filter(|&at| self.slots[at as usize].is_some()).collect()
    }
}

impl<I: Io> Shard<I> {
    /// Opens a partition, waiting for it: recovery at the start, an empty one later.
    pub(super) fn open_partition(&mut self, spec: Box<PartitionSpec>) {
        let (shard, handle, now) = (self.config.id, spec.handle, self.now);
        let result = match self.open_log(&spec) {
            Ok(partition) => {
                let producer_id = partition.greatest_producer_id();
                let first = first_pass(handle, now, self.config.retention_interval);
                let slot = self.parts.add(spec, partition, now, first);
                self.parts.recount(slot);
                self.parts.touch(slot);
                self.publish(slot);
                Ok(producer_id)
            }
            Err(why) => {
                self.parts.offline.insert(handle, why.as_str().into());
                Err(why)
            }
        };
        self.control.send(FromShard::Opened { shard, handle, result });
    }

    /// The log of a partition; an error is logged and shown as the partition's state.
    pub(super) fn open_log(&mut self, spec: &PartitionSpec) -> Result<Partition, String> {
        let log = &spec.settings.log;
        let params = crate::log::OpenParams {
            config: log.clone(),
            clean: spec.clean,
            recovery_point: spec.recovery_point,
            log_start: spec.log_start,
            unflushed_max: spec.unflushed_max,
        };
        let pool = self.pool.clone();
        let mut blocking = Blocking::new(&mut self.io, pool.clone());
        let opened = crate::log::open(&mut blocking, &spec.dir, &params, &pool);
        // Completions of others that came meanwhile take their place in this turn.
        let foreign = std::mem::take(&mut blocking.foreign);
        self.done.extend(foreign);
        self.restless |= !self.done.is_empty();
        opened
            .map(|(partition, report)| {
                self.recovered.add(&Recovered {
                    partitions: 1,
                    scanned_bytes: report.scanned_bytes,
                    log_bytes: report.log_bytes,
                    cuts: report.cuts.len() as u64,
                    cut_bytes: report.cuts.iter().map(|cut| cut.bytes).sum(),
                    damaged: report.damage.len() as u64,
                });
                partition
            })
            .map_err(|error| {
                tracing::error!("{}-{} stays offline: {error}", spec.topic, spec.index);
                spec.marks.publish(MarksNow { state: STATE_NOT_OPEN, ..MarksNow::default() });
                error.to_string()
            })
    }

    /// Which error a request for a handle that is not served here gets.
    pub(super) fn not_here(&self, handle: Handle) -> (ErrorCode, String, Detail) {
        match self.catalogue.owner(handle) {
            Owner::Shard(shard) if shard != self.config.id => {
                let message = format!("handle {:#x} belongs to shard {shard}", handle.0);
                (ErrorCode::NotOwner, message, Detail::Owner(shard))
            }
            Owner::Shard(_) => {
                let message = match self.parts.offline.get(&handle) {
                    Some(why) => format!("the partition is offline: {why}"),
                    None => "the partition is offline; the server's log says why".to_string(),
                };
                (ErrorCode::KafkaStorageError, message, Detail::None)
            }
            Owner::Stale => {
                let message =
                    format!("handle {:#x} is of no topic that exists: ask metadata", handle.0);
                (ErrorCode::StaleHandle, message, Detail::None)
            }
        }
    }

    pub(super) fn part_done(
        &mut self,
        slot: u32,
        local: LocalTag,
        op: Op,
        result: Result<Outcome, Errno>,
    ) {
        let now = self.now;
        let Some(known) = self.parts.get(slot) else { return };
        known.in_flight -= 1;
        known.partition.on_done(local, op, result, now);
        self.parts.touch(slot);
    }

    /// Every touched partition says what to write, flush or roll, and who is answered.
    pub(super) fn plan(&mut self) {
        self.bound_files();
        let mut touched = std::mem::take(&mut self.parts.touched);
        for slot in touched.drain(..) {
            self.plan_one(slot);
        }
        touched.append(&mut self.parts.touched);
        self.restless |= !touched.is_empty();
        self.parts.touched = touched;
    }

    fn plan_one(&mut self, slot: u32) {
        let (now, wall, interval) = (self.now, self.wall, self.config.retention_interval);
        let (mut sink, mut acks) = (std::mem::take(&mut self.sink), std::mem::take(&mut self.acks));
        if let Some(known) = self.parts.get(slot) {
            known.touched = false;
            known.retain_if_due(now, wall, interval);
            known.partition.plan(now, &mut sink);
            known.partition.drain_acks(&mut acks);
            known.in_flight += sink.len() as u32;
            let deadline = known.partition.next_deadline().min(known.reopen_deadline());
            let deadline = deadline.min(known.retain_at);
            if deadline < known.queued {
                known.queued = deadline;
                self.parts.deadlines.push(Reverse((deadline, slot)));
            }
        }
        for (local, op) in sink.drain() {
            self.submit(op, Label::Part { slot, local });
        }
        for ack in acks.drain(..) {
            self.acked(slot, ack);
        }
        self.sink = sink;
        self.acks = acks;
        self.parts.recount(slot);
        self.publish(slot);
        self.ask_start_saved(slot);
        self.begin_reopen(slot);
        self.step_closing(slot);
    }

    /// Copies the offsets out for other threads, and wakes fetches when there is more to read.
    fn publish(&mut self, slot: u32) {
        let Some(known) = self.parts.get(slot) else { return };
        let partition = &known.partition;
        let (damaged, damaged_from) = partition.damage();
        let is_poisoned = matches!(partition.state(), PartitionState::Poisoned { .. });
        known.marks.publish(MarksNow {
            start: partition.log_start().get(),
            first_base: partition.first_base().get(),
            high_watermark: partition.high_watermark().get(),
            staged: partition.staged_end().get(),
            written: partition.written_end().get(),
            durable: partition.durable_end().get(),
            epoch: i64::from(partition.leader_epoch()),
            bytes: partition.size_bytes() as i64,
            segments: partition.segment_count() as i64,
            recovery_point: partition.recovery_point().get(),
            damaged: damaged as i64,
            damaged_from: damaged_from.get(),
            state: state_mark(partition.state()),
        });
        if known.partition.high_watermark() > known.high_seen {
            known.high_seen = known.partition.high_watermark();
            for job in std::mem::take(&mut known.parked) {
                self.wake_job(job);
            }
        }
        self.tell_poison(slot, is_poisoned);
    }

    /// Once for each partition; not for one that is on its way out.
    fn tell_poison(&mut self, slot: u32, is_poisoned: bool) {
        let Some(known) = self.parts.get(slot).filter(|_| is_poisoned) else { return };
        if !known.poison_told && known.closing == Closing::No {
            known.poison_told = true;
            let handle = known.handle;
            self.control.send(FromShard::Poisoned { handle });
        }
    }

    fn acked(&mut self, slot: u32, ack: Ack) {
        let (id, sequence) = ConnId::of(Waiter(ack.waiter.0));
        let log_start = match self.parts.get(slot) {
            Some(known) => known.partition.log_start(),
            None => Offset::ZERO,
        };
        let stamps = ack.stamps;
        let Some(conn) = self.conns.get(id) else { return };
        let Some(request) = conn.pending_mut(sequence) else { return };
        let answer = match ack.result {
            Ok(()) if matches!(request.state, State::Flush) => {
                let mut frame = Vec::new();
                let response = FlushResponse { durable: ack.base_offset };
                super::control::encode(
                    crate::protocol::api::Api::Flush,
                    request.correlation,
                    &response,
                    &mut frame,
                );
                Answer::Frame(frame)
            }
            Ok(()) if matches!(request.state, State::DeleteRecords) => {
                Self::deleted(request.correlation, ack.base_offset)
            }
            Ok(()) => {
                let append_time = match request.state {
                    State::Produce { append_time } => append_time,
                    _ => -1,
                };
                self.stages.record(Stage::Queue, stamps.submitted.since(stamps.staged));
                self.stages.record(Stage::Write, stamps.written.since(stamps.submitted));
                self.stages.record(Stage::Flush, stamps.settled.since(stamps.written));
                let response = ProduceResponse {
                    base: ack.base_offset,
                    append_time,
                    level_met: ack.level,
                    log_start,
                };
                Answer::Produce { response, settled: stamps.settled }
            }
            Err(error) => {
                if matches!(request.state, State::Produce { .. }) {
                    self.counters.produce_refused += 1;
                }
                super::control::error_answer(
                    request.api,
                    request.correlation,
                    ack_code(error),
                    &error.to_string(),
                    Detail::None,
                )
            }
        };
        conn.answer(sequence, answer);
        self.conns.reply.push(id);
    }

    pub(super) fn drop_partition(&mut self, handle: Handle) {
        self.parts.offline.remove(&handle);
        let Some(slot) = self.parts.find(handle) else {
            self.control.send(FromShard::Dropped { shard: self.config.id, handle });
            return;
        };
        let now = self.now;
        if let Some(known) = self.parts.get(slot) {
            known.closing = Closing::Drop;
            known.partition.close(now);
            for job in std::mem::take(&mut known.parked) {
                self.wake_job(job);
            }
        }
        self.parts.touch(slot);
    }

    /// No new requests; every partition flushes, trims and closes.
    pub(super) fn begin_stop(&mut self) {
        if matches!(self.life, Life::Stopping { .. } | Life::Ended) {
            return;
        }
        let now = self.now;
        self.life = Life::Stopping { deadline: self.now.plus(self.config.stop_timeout) };
        for slot in self.parts.indexes() {
            if let Some(known) = self.parts.get(slot) {
                known.closing = Closing::Stop;
                known.partition.close(now);
                for job in std::mem::take(&mut known.parked) {
                    self.drop_job(job);
                }
            }
            self.parts.touch(slot);
        }
    }

    fn step_closing(&mut self, slot: u32) {
        let Some(known) = self.parts.get(slot) else { return };
        if known.closing == Closing::No || !known.partition.is_closed() || known.in_flight > 0 {
            return;
        }
        let (handle, closing) = (known.handle, known.closing);
        match closing {
            Closing::Reopen => return self.reopen(slot),
            Closing::Offline => return self.gone_offline(slot),
            Closing::No | Closing::Drop | Closing::Stop => {}
        }
        let clean = known.partition.closed_clean();
        self.remove_slot(slot, handle);
        self.let_go(handle, closing, clean);
    }

    pub(super) fn remove_slot(&mut self, slot: u32, handle: Handle) {
        if let Some(known) = self.parts.slots[slot as usize].take() {
            self.parts.files.change(known.files_counted, 0);
        }
        self.parts.free.push(slot);
        if self.parts.by_index[handle_index(handle)] == slot + 1 {
            self.parts.by_index[handle_index(handle)] = 0;
        }
    }

    fn let_go(&mut self, handle: Handle, closing: Closing, clean: bool) {
        match closing {
            Closing::Drop => {
                self.parts.offline.remove(&handle);
                self.control.send(FromShard::Dropped { shard: self.config.id, handle });
            }
            _ => self.closed.push(Closed { handle, clean }),
        }
    }
}

/// Kafka's error for a wait that ended badly.
fn ack_code(error: AckError) -> ErrorCode {
    match error {
        AckError::Poisoned
        | AckError::NoSpace
        | AckError::NoDescriptors
        | AckError::StartNotSaved => ErrorCode::KafkaStorageError,
        AckError::Closed => ErrorCode::ShuttingDown,
    }
}

/// The state as `catalogue::STATE_NAMES` counts it.
fn state_mark(state: &PartitionState) -> i64 {
    match state {
        PartitionState::Open => 0,
        PartitionState::ReadOnly => 1,
        PartitionState::NoSpace => 2,
        PartitionState::Poisoned { .. } => STATE_POISONED,
    }
}
