//! Who waits for what: acks by offset, and which watermark releases them.
//!
//! Owns: the waiters of a partition, in offset order, and the distance of acks to the disk. Never
//! does: writes or flushes. Left: `policy::ack`. Right: `partition`.
//!
//! A waiter is `pending` until its write completed, then answered, or moved to `bounded` (it may
//! leave when the policy's bound has room) or to `durable` (a flush must settle it, D2).

use std::collections::VecDeque;

use crate::policy::FlushPolicy;
use crate::policy::ack::{Answer, Exposure, within_bound};
use crate::types::{AckLevel, Micros, Offset};

/// The shard's word for who waits; comes back in [`Ack`] unread.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter(pub u64);

/// When an append passed each station.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct Stamps {
    pub staged: Micros,
    /// Its write was submitted.
    pub submitted: Micros,
    pub written: Micros,
    /// The ack was released.
    pub settled: Micros,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AckError {
    /// D11: a write or a flush failed; nothing more is accepted.
    #[error("the partition is poisoned by a failed write or flush")]
    Poisoned,
    /// D12: it was not written; the offsets will be given to others.
    #[error("no space left on the device")]
    NoSpace,
    /// As `NoSpace`, but for descriptors: the next append need not fail.
    #[error("too many open files: raise the limit (ulimit -n)")]
    NoDescriptors,
    #[error("the partition was closed")]
    Closed,
    /// Records were deleted, but a restart may not know of it yet.
    #[error("the new log start could not be written down: delete once more")]
    StartNotSaved,
}

/// The end of a wait. Acks of one level leave in offset order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    pub waiter: Waiter,
    /// Of a flush request: the offset it covers.
    pub base_offset: Offset,
    /// The level that was met: written or durable.
    pub level: AckLevel,
    pub result: Result<(), AckError>,
    pub stamps: Stamps,
}

/// A point of the log as acks count it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub end: Offset,
    /// Bytes up to there, counted since the log was opened.
    pub bytes: u64,
}

#[derive(Copy, Clone, Debug)]
pub(super) struct Waiting {
    pub waiter: Waiter,
    pub base: Offset,
    pub reach: Reach,
    pub answer: Answer,
    pub stamps: Stamps,
}

impl Waiting {
    fn ack(&self, level: AckLevel, result: Result<(), AckError>, now: Micros) -> Ack {
        let stamps = Stamps { settled: now, ..self.stamps };
        Ack { waiter: self.waiter, base_offset: self.base, level, result, stamps }
    }
}

#[derive(Debug)]
pub(super) struct FlushQueue {
    pending: VecDeque<Waiting>,
    /// How many of `pending` have their write submitted.
    submitted: usize,
    bounded: VecDeque<Waiting>,
    durable: VecDeque<Waiting>,
    /// The furthest point that acks promised ahead of the disk, and where the disk is.
    acked: Reach,
    settled: Reach,
    /// Ends and times of acks ahead of the disk, one a release; under a bound of time.
    ahead: VecDeque<(Offset, Micros)>,
    ready: Vec<Ack>,
    pub released: u64,
}

impl FlushQueue {
    pub fn new(reach: Reach) -> FlushQueue {
        FlushQueue {
            pending: VecDeque::new(),
            submitted: 0,
            bounded: VecDeque::new(),
            durable: VecDeque::new(),
            acked: reach,
            settled: reach,
            ahead: VecDeque::new(),
            ready: Vec::new(),
            released: 0,
        }
    }

    pub fn push(&mut self, waiting: Waiting) {
        self.pending.push_back(waiting);
    }

    /// A waiter for something staged earlier takes its place among those who wait already (D13).
    pub fn push_among(&mut self, waiting: Waiting) {
        let at = insert(&mut self.pending, waiting);
        self.submitted += usize::from(at < self.submitted);
    }

    /// How far somebody waits for a flush: their writes have completed.
    pub fn wanted(&self) -> Option<Offset> {
        let durable = self.durable.back().map(|w| w.reach.end);
        durable.max(self.bounded.back().map(|w| w.reach.end))
    }

    /// A write up to `end` was submitted.
    pub fn on_submitted(&mut self, end: Offset, now: Micros) {
        while let Some(waiting) = self.pending.get_mut(self.submitted) {
            if waiting.reach.end > end {
                break;
            }
            waiting.stamps.submitted = now;
            self.submitted += 1;
        }
    }

    /// Everything before `written` is written.
    pub fn on_written(&mut self, written: Offset, now: Micros) {
        while let Some(mut waiting) = self.pending.pop_front_if(|w| w.reach.end <= written) {
            self.submitted = self.submitted.saturating_sub(1);
            waiting.stamps.written = now;
            match waiting.answer {
                Answer::Staged | Answer::Written => {
                    self.ready.push(waiting.ack(AckLevel::Written, Ok(()), now));
                    self.released += 1;
                }
                Answer::Bounded => drop(insert(&mut self.bounded, waiting)),
                Answer::Durable => drop(insert(&mut self.durable, waiting)),
            }
        }
    }

    /// Everything before `settled` is durable.
    pub fn on_durable(&mut self, settled: Reach, now: Micros) {
        self.settled = settled;
        while self.ahead.pop_front_if(|(end, _)| *end <= settled.end).is_some() {}
        while let Some(waiting) = self.durable.pop_front_if(|w| w.reach.end <= settled.end) {
            self.ready.push(waiting.ack(AckLevel::Durable, Ok(()), now));
            self.released += 1;
        }
        while let Some(waiting) = self.bounded.pop_front_if(|w| w.reach.end <= settled.end) {
            self.ready.push(waiting.ack(AckLevel::Durable, Ok(()), now));
            self.released += 1;
        }
    }

    /// Releases what the bound has room for.
    pub fn release_bounded(&mut self, policy: FlushPolicy, now: Micros) {
        while let Some(first) = self.bounded.front() {
            let exposure = Exposure {
                bytes: first.reach.bytes.saturating_sub(self.settled.bytes),
                records: first.reach.end.since(self.settled.end).max(0) as u64,
                oldest_ack: self.ahead.front().map_or(now, |(_, at)| *at),
            };
            if !within_bound(policy, &exposure, now) {
                break;
            }
            let waiting = self.bounded.pop_front().expect("looked at above");
            if waiting.reach.end > self.acked.end {
                self.acked = waiting.reach;
            }
            if policy.bounds_time() {
                self.note_ahead(waiting.reach.end, now);
            }
            self.ready.push(waiting.ack(AckLevel::Written, Ok(()), now));
            self.released += 1;
        }
    }

    fn note_ahead(&mut self, end: Offset, now: Micros) {
        match self.ahead.back_mut() {
            // An end that was acked before: the ack is no further ahead than that one.
            Some((last, _)) if *last >= end => {}
            Some((last, at)) if *at == now => *last = end,
            _ => self.ahead.push_back((end, now)),
        }
    }

    /// Nothing behind `written` will be written: its waiters fail, the others go on (D12).
    pub fn fail_unwritten(&mut self, error: AckError, now: Micros) {
        self.submitted = 0;
        for waiting in self.pending.drain(..) {
            let level = level_asked(waiting.answer);
            self.ready.push(waiting.ack(level, Err(error), now));
        }
    }

    /// Everybody fails (D11, close).
    pub fn fail_all(&mut self, error: AckError, now: Micros) {
        for waiting in self.durable.drain(..).chain(self.bounded.drain(..)) {
            let level = level_asked(waiting.answer);
            self.ready.push(waiting.ack(level, Err(error), now));
        }
        self.fail_unwritten(error, now);
    }

    /// Of a wait that was not for a flush.
    pub fn push_ready(&mut self, ack: Ack) {
        self.ready.push(ack);
    }

    pub fn drain(&mut self, out: &mut Vec<Ack>) {
        out.append(&mut self.ready);
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn settled(&self) -> Reach {
        self.settled
    }

    /// Where acks stopped that wait at the bound; `None` when none waits.
    pub fn held_back(&self) -> Option<u64> {
        (!self.bounded.is_empty()).then(|| self.acked.bytes.max(self.settled.bytes))
    }
}

/// Puts a waiter where its offset belongs: nearly always last. Its place.
fn insert(queue: &mut VecDeque<Waiting>, waiting: Waiting) -> usize {
    let at = match queue.back() {
        Some(last) if last.reach.end > waiting.reach.end => {
            queue.partition_point(|other| other.reach.end <= waiting.reach.end)
        }
        _ => queue.len(),
    };
    queue.insert(at, waiting);
    at
}

fn level_asked(answer: Answer) -> AckLevel {
    match answer {
        Answer::Durable => AckLevel::Durable,
        Answer::Staged | Answer::Written | Answer::Bounded => AckLevel::Written,
    }
}
