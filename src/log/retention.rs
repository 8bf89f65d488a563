//! The log's front moves up: retention passes, deleted records, and the segments that go with them.
//!
//! Owns: the pass, what leaves the list, and who waits until the new start is on the disk. Never
//! does: I/O; writing the start down (whoever owns the checkpoint does, and says so with
//! [`Partition::start_saved`]). Left: `policy::retention`, `removal`. Right: `partition`, `shard`.
//!
//! A pass moves the start and lets the sealed segments before it go. Deleted records only move the
//! start, and are acked once a restart would find it there; what then still lies before it, a
//! restart takes away.

use std::collections::VecDeque;

use super::closing::Closing;
use super::filejob::{FileJob, Planned};
use super::flush_queue::{Ack, AckError, Stamps, Waiter};
use super::op_sink::{OpSink, Task};
use super::partition::{Partition, PartitionState};
use super::recovery::epochs;
use super::segment::Phase;
use crate::io::{Errno, Op, Outcome};
use crate::policy::retention::{
    Candidate, Doomed, LogState, RetentionLimits, Verdict, is_future, judge,
};
use crate::types::{AckLevel, Micros, Offset, WallMs};

/// A start that could not be written down is tried again this much later.
const SAVE_AGAIN_US: u64 = 1_000_000;
/// After the buffer pool had nothing to give.
const STARVED_US: u64 = 1_000;

/// Why records were not deleted.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeleteRefusal {
    #[error("cleanup.policy has no `delete`: the topic's records are only ever compacted")]
    Policy,
    #[error("offset {before} is outside {start}..={high_watermark}")]
    OutOfRange { before: i64, start: Offset, high_watermark: Offset },
    #[error("the partition is read-only until its disk has space and it was recovered")]
    ReadOnly,
    #[error("the partition is closing")]
    Closing,
}

#[derive(Debug)]
pub(super) struct Retention {
    /// The clock of the pass that is due or under way.
    pass: Option<WallMs>,
    /// Whose file's age was asked for, and how long the file was then.
    asked: Option<(u32, u64)>,
    /// What ends at or before it goes once it is sealed.
    doomed: Offset,
    /// The start that is on the disk.
    saved: Offset,
    saving: bool,
    save_at: Micros,
    waiters: VecDeque<(Waiter, Offset)>,
    /// The epochs lost some at their start that their file still has.
    epochs_stale: bool,
    epochs_file: Option<FileJob>,
}

impl Retention {
    pub fn new(start: Offset) -> Retention {
        Retention {
            pass: None,
            asked: None,
            doomed: Offset::ZERO,
            saved: start,
            saving: false,
            save_at: Micros(0),
            waiters: VecDeque::new(),
            epochs_stale: false,
            epochs_file: None,
        }
    }
}

impl Partition {
    /// Asks for a retention pass; plans carry it out.
    pub fn retain(&mut self, wall: WallMs) {
        if self.closing != Closing::No || self.retention.pass.is_some() {
            return;
        }
        self.retention.pass = Some(wall);
        for segment in self.segments.iter_mut() {
            let size = segment.staged.pos;
            segment.modified = segment.modified.filter(|(_, then)| *then == size);
        }
        self.wake();
    }

    /// Moves the log start up to `before` (-1: the high watermark). Acked with the start once that
    /// is on the disk; segments go with the next pass.
    pub fn delete_records(
        &mut self,
        before: i64,
        waiter: Waiter,
        now: Micros,
    ) -> Result<(), DeleteRefusal> {
        if !self.config.deletes {
            return Err(DeleteRefusal::Policy);
        }
        if self.state == PartitionState::ReadOnly {
            return Err(DeleteRefusal::ReadOnly);
        }
        if self.closing != Closing::No {
            return Err(DeleteRefusal::Closing);
        }
        let (start, high_watermark) = (self.log_start(), self.high_watermark());
        let to = match before {
            -1 => Some(high_watermark),
            before => Offset::new(before).filter(|to| *to <= high_watermark),
        };
        let to = to.ok_or(DeleteRefusal::OutOfRange { before, start, high_watermark })?;
        self.move_start(to);
        self.retention.waiters.push_back((waiter, self.log_start()));
        self.release_deleted(now);
        self.wake();
        Ok(())
    }

    /// The start that somebody waits for to be written down. Answered with
    /// [`Partition::start_saved`].
    pub fn start_to_save(&mut self, now: Micros) -> Option<Offset> {
        let retention = &mut self.retention;
        if retention.waiters.is_empty() || retention.saving {
            return None;
        }
        if now < retention.save_at {
            let at = retention.save_at;
            self.before(at);
            return None;
        }
        retention.saving = true;
        Some(self.marks.start)
    }

    /// The start up to `saved` is on the disk; `None`: it could not be written.
    pub fn start_saved(&mut self, saved: Option<Offset>, now: Micros) {
        self.retention.saving = false;
        match saved {
            Some(saved) => {
                assert!(saved <= self.marks.start, "a start was saved that there never was");
                self.retention.saved = self.retention.saved.max(saved);
                self.release_deleted(now);
            }
            None => {
                self.retention.save_at = now.plus(Micros(SAVE_AGAIN_US));
                self.fail_deleted(AckError::StartNotSaved, now);
            }
        }
        self.wake();
    }

    fn release_deleted(&mut self, now: Micros) {
        let saved = self.retention.saved;
        while let Some((waiter, start)) = self.retention.waiters.pop_front_if(|w| w.1 <= saved) {
            self.ack_deleted(waiter, start, Ok(()), now);
        }
    }

    pub(super) fn fail_deleted(&mut self, error: AckError, now: Micros) {
        for (waiter, start) in std::mem::take(&mut self.retention.waiters) {
            self.ack_deleted(waiter, start, Err(error), now);
        }
    }

    fn ack_deleted(
        &mut self,
        waiter: Waiter,
        start: Offset,
        result: Result<(), AckError>,
        now: Micros,
    ) {
        let stamps = Stamps { settled: now, ..Stamps::default() };
        let level = AckLevel::Durable;
        self.waiters.push_ready(Ack { waiter, base_offset: start, level, result, stamps });
    }

    pub(super) fn plan_retention(&mut self, now: Micros, out: &mut OpSink) {
        if self.closing != Closing::No {
            self.retention.epochs_stale = false;
            return self.plan_epochs(now, out);
        }
        if let Some(wall) = self.retention.pass
            && self.retention.asked.is_none()
        {
            match self.judge(wall) {
                Verdict::AskAge(at) => self.ask_age(at, out),
                Verdict::Doomed(doomed) => {
                    self.retention.pass = None;
                    self.doom(doomed, wall);
                }
            }
        }
        self.remove_doomed();
        let later = self.removal.plan(&self.dir, now, out);
        self.before(later);
        self.plan_epochs(now, out);
    }

    fn move_start(&mut self, to: Offset) {
        self.marks.advance_start(to);
        let before = self.epochs.entries().first().copied();
        self.epochs.truncate_start(self.marks.start.get());
        self.retention.epochs_stale |= self.epochs.entries().first().copied() != before;
    }

    /// The file follows when it can: a start truncates what it finds.
    fn plan_epochs(&mut self, now: Micros, out: &mut OpSink) {
        if self.retention.epochs_stale && self.retention.epochs_file.is_none() {
            self.retention.epochs_stale = false;
            let bytes = self.epochs.render().into_bytes();
            let path = self.dir.join(epochs::FILE_NAME);
            self.retention.epochs_file = Some(FileJob::checkpoint(path, bytes));
        }
        let Some(job) = &mut self.retention.epochs_file else { return };
        match job.plan(Task::Epochs, &self.pool, out) {
            Planned::Busy => {}
            Planned::Starved => self.before(now.plus(Micros(STARVED_US))),
            Planned::Done => self.retention.epochs_file = None,
            Planned::Failed(errno) => {
                tracing::warn!(dir = %self.dir.display(), %errno, "leader epochs not written");
                self.retention.epochs_file = None;
            }
        }
    }

    pub(super) fn on_epochs_written(&mut self, result: Result<Outcome, Errno>) {
        let job = self.retention.epochs_file.as_mut().expect("a completion belongs to a file");
        job.on_done(result);
    }

    fn judge(&self, wall: WallMs) -> Verdict {
        let limits = RetentionLimits {
            deletes: self.config.deletes,
            retention_ms: self.config.retention_ms,
            retention_bytes: self.config.retention_bytes,
        };
        let log = LogState {
            start: self.log_start().get(),
            high_watermark: self.high_watermark().get(),
            now: wall,
        };
        let first = *self.segments.numbers().start();
        let candidate = |at: usize| {
            let number = first + at as u32;
            let segment = self.segments.get(number).expect("fewer than there are");
            let end = self.segments.next_base(number).unwrap_or(self.marks.staged());
            // One that grew since it was asked for is as young as can be.
            let time = |(time, then)| if then == segment.staged.pos { time } else { wall };
            Candidate {
                end: end.get(),
                size: segment.staged.pos,
                newest: segment.index.max_timestamp().0,
                modified: segment.modified.map(time),
            }
        };
        judge(self.segments.len(), candidate, &limits, &log)
    }

    fn ask_age(&mut self, at: usize, out: &mut OpSink) {
        let wall = self.retention.pass.unwrap_or(0);
        let number = *self.segments.numbers().start() + at as u32;
        let segment = self.segments.get_mut(number).expect("a candidate is a segment");
        let (base, newest) = (segment.base, segment.index.max_timestamp().0);
        if is_future(newest, wall) && segment.modified.is_none() {
            self.counters.segments_from_the_future += 1;
            tracing::warn!(
                dir = %self.dir.display(), %base, newest,
                "the segment's greatest timestamp lies in the future: retention goes by its file's \
                 last change"
            );
        }
        self.retention.asked = Some((number, segment.staged.pos));
        out.push(Task::Age, Op::Stat { path: self.log_path(base) });
    }

    pub(super) fn on_age(&mut self, result: Result<Outcome, Errno>) {
        let (number, size) = self.retention.asked.take().expect("a completion was asked for");
        match (result, self.segments.get_mut(number)) {
            (Ok(Outcome::Stat(stat)), Some(segment)) => {
                segment.modified = Some((stat.modified_ms, size));
            }
            (Ok(_), _) => {}
            (Err(errno), _) => {
                tracing::warn!(dir = %self.dir.display(), %errno, "no retention pass this time");
                self.retention.pass = None;
            }
        }
    }

    /// Moves the start to the first segment that stays. If none does, an empty one is begun (R45).
    fn doom(&mut self, doomed: Doomed, wall: WallMs) {
        let mut count = doomed.count();
        if count == self.segments.len() {
            match self.takes_appends() {
                Ok(()) => self.start_segment(wall),
                Err(_) => count -= 1,
            }
        }
        if count == 0 {
            return;
        }
        let last = *self.segments.numbers().start() + count as u32 - 1;
        let start = self.segments.next_base(last).expect("one stays");
        self.move_start(start);
        self.retention.doomed = self.retention.doomed.max(start);
        let Doomed { by_start, by_size, by_age } = doomed;
        tracing::info!(
            dir = %self.dir.display(), by_start, by_size, by_age, start = %self.log_start(),
            "segments go"
        );
    }

    /// What was judged and is complete leaves the list.
    fn remove_doomed(&mut self) {
        let until = self.retention.doomed;
        loop {
            let first = *self.segments.numbers().start();
            let segment = self.segments.get(first).expect("there is a first one");
            let gone = segment.phase == Phase::Sealed
                && self.segments.next_base(first).is_some_and(|next| next <= until);
            if !gone {
                return;
            }
            self.detach(first);
            let segment = self.segments.pop_front();
            self.counters.segments_deleted += 1;
            self.counters.bytes_deleted += segment.staged.pos;
            self.removal.push(segment.base);
        }
    }

    pub(super) fn on_removed(&mut self, op: &Op, result: &Result<Outcome, Errno>, now: Micros) {
        let delay = u64::try_from(self.config.file_delete_delay_ms).unwrap_or(0);
        self.removal.on_done(op, result, now, Micros::from_ms(delay));
    }

    /// Readers see nothing of this segment any more: a flush of it that fails takes nothing from
    /// anybody (R46).
    pub(super) fn is_below_start(&self, number: u32) -> bool {
        self.segments.next_base(number).is_some_and(|next| next <= self.marks.start)
    }
}
