//! Appends on their way in: whether they may, which offsets and which place they get.
//!
//! Owns: admission, assignment, the staged end. Never does: writes; a roll (it only asks for one).
//! Left: `batches`, `policy::admit`. Right: `partition`, `appender`.

use super::appender::StagedAppend;
use super::batches::Batches;
use super::closing::Closing;
use super::flush_queue::{Reach, Stamps, Waiter, Waiting};
use super::idempotence::{Original, judge};
use super::partition::{Partition, PartitionState, Refusal, Staged};
use super::tail::TailBatch;
use super::watermarks::Mark;
use crate::format::batch;
use crate::policy::ack::{Answer, answer};
use crate::policy::admit;
use crate::policy::roll::COLUMN_MAX;
use crate::types::{AckLevel, Micros, Offset, WallMs};

impl Partition {
    /// Gives the batches their offsets and places; they leave with the next plan. `level` None is
    /// answered by the return value, every other level by an [`Ack`](super::Ack).
    pub fn append(
        &mut self,
        mut batches: Batches,
        level: AckLevel,
        waiter: Waiter,
        now: Micros,
        wall: WallMs,
    ) -> Result<Staged, Refusal> {
        let last = self.admit(&batches).inspect_err(|_| self.counters.refused += 1)?;
        let staged = self.marks.staged();
        match judge(&mut self.producers, &batches, staged, now) {
            Ok(None) => {}
            Ok(Some(original)) => return Ok(self.append_again(original, level, waiter, now)),
            Err(refusal) => {
                self.counters.refused += 1;
                let gap = matches!(refusal, Refusal::OutOfOrder { .. } | Refusal::MixedRepeats);
                self.counters.out_of_order += u64::from(gap);
                return Err(refusal);
            }
        }
        self.roll_if_due(&batches, last, wall);
        let (number, base) = (self.segments.active_number(), self.marks.staged());
        let mut at = Mark { end: base, pos: self.segments.active().staged.pos };
        let start = at.pos;
        let mut rest = &mut batches.bytes[..];
        for summary in batches.checked.iter() {
            let (bytes, behind) = rest.split_at_mut(summary.len as usize);
            batch::assign(bytes, at.end.get(), self.leader_epoch).expect("a whole header");
            let last = at.end.checked_add(i64::from(summary.last_offset_delta)).expect("admitted");
            let segment = self.segments.active_mut();
            segment.index.on_batch(at.pos, last, summary.max_timestamp);
            if at.pos == 0 && summary.max_timestamp >= 0 {
                segment.first_timestamp = Some(summary.max_timestamp);
            }
            let (base, pos, len) = (at.end, at.pos, summary.len);
            self.producers.stage(summary, last, now);
            self.tail.push(TailBatch { base, last, segment: number, pos, len });
            at = Mark { end: last.next(), pos: at.pos + u64::from(summary.len) };
            self.counters.records += u64::from(summary.records);
            rest = behind;
        }
        assert!(rest.is_empty() && at.end == last.next(), "summaries cover the append");
        self.counters.appends += 1;
        self.counters.batches += batches.checked.len() as u64;
        self.counters.bytes += batches.bytes.len() as u64;
        self.stage(StagedAppend {
            bytes: batches.bytes,
            segment: number,
            pos: start,
            end: at,
            index: self.segments.active().index.point(),
        });
        self.wait(level, waiter, base, now);
        Ok(Staged { base_offset: base, last_offset: last, repeats: None })
    }

    /// D13: nothing is written, and the ack waits for what the original's would.
    fn append_again(
        &mut self,
        original: Original,
        level: AckLevel,
        waiter: Waiter,
        now: Micros,
    ) -> Staged {
        self.counters.duplicates += original.batches;
        let answer = answer(level, self.policy());
        if answer != Answer::Staged {
            let (base, reach) = (original.base, self.reach_of(original.last));
            // What it waits for may be under way already, or over.
            let stamps = Stamps { staged: now, submitted: now, ..Stamps::default() };
            self.waiters.push_among(Waiting { waiter, base, reach, answer, stamps });
            self.advance(now);
            self.wake();
        }
        Staged {
            base_offset: original.base,
            last_offset: original.last,
            repeats: Some(original.timestamp),
        }
    }

    /// How far the log reaches when the batch that ends with `last` is in it. Of one that is no
    /// longer at hand its segment's end bounds the bytes.
    fn reach_of(&self, last: Offset) -> Reach {
        let (number, pos) = match self.tail.find(last) {
            Some(batch) => (batch.segment, batch.pos + u64::from(batch.len)),
            None => (self.segments.floor(last), u64::MAX),
        };
        let before = self
            .segments
            .get(number)
            .map_or(0, |segment| segment.bytes_before + pos.min(segment.staged.pos));
        Reach { end: last.next(), bytes: before }
    }

    /// Whether appends are taken at all now.
    pub(super) fn takes_appends(&self) -> Result<(), Refusal> {
        match &self.state {
            PartitionState::Poisoned { .. } => return Err(Refusal::Poisoned),
            PartitionState::ReadOnly => return Err(Refusal::ReadOnly),
            PartitionState::Open | PartitionState::NoSpace if self.space.refuses() => {
                return Err(match self.lacks_descriptors {
                    true => Refusal::NoDescriptors,
                    false => Refusal::NoSpace,
                });
            }
            PartitionState::Open | PartitionState::NoSpace => {}
        }
        match self.closing {
            Closing::No => Ok(()),
            _ => Err(Refusal::Closing),
        }
    }

    /// The append's last offset, if it may come in.
    fn admit(&self, batches: &Batches) -> Result<Offset, Refusal> {
        self.takes_appends()?;
        let len_max = self.config.max_message_bytes;
        let long = batches.checked.iter().map(|s| s.len as usize).find(|len| *len > len_max);
        if let Some(len) = long {
            return Err(Refusal::TooLarge { len, len_max });
        }
        let (len, len_max) = (batches.len() as u64, self.config.segment_bytes);
        if len > len_max {
            return Err(Refusal::PastSegment { len, len_max });
        }
        let offsets = batches.offsets();
        if offsets > COLUMN_MAX as i64 {
            return Err(Refusal::TooManyOffsets { offsets });
        }
        if !self.can_accept(batches.len()) {
            return Err(Refusal::Backpressure);
        }
        let last = self.marks.staged().checked_add(offsets - 1);
        last.filter(|last| last.get() < i64::MAX).ok_or(Refusal::OffsetsExhausted)
    }

    /// Whether an append of this size stays within the bound on unsettled bytes.
    pub fn can_accept(&self, bytes: usize) -> bool {
        admit::fits(self.unsettled_bytes(), bytes as u64, self.config.unsettled_bytes_max)
    }

    /// Bytes staged that the policy has not settled.
    fn unsettled_bytes(&self) -> u64 {
        let active = self.segments.active();
        let staged = active.bytes_before + active.staged.pos;
        staged.saturating_sub(match self.policy() {
            policy if policy.promises_durable() => self.waiters.settled().bytes,
            _ => self.waiters.held_back().unwrap_or_else(|| self.written_bytes()),
        })
    }

    pub(super) fn written_bytes(&self) -> u64 {
        let written = self.marks.written();
        let holder = self.segments.get(self.segments.floor(written)).expect("floor is a segment");
        holder.bytes_before + holder.written.pos
    }

    fn stage(&mut self, append: StagedAppend) {
        self.segments.active_mut().staged = append.end;
        self.marks.stage(append.end.end);
        self.appender.stage(append);
        self.wake();
    }

    /// Queues a waiter for everything staged so far.
    pub(super) fn wait(&mut self, level: AckLevel, waiter: Waiter, base: Offset, now: Micros) {
        let answer = answer(level, self.policy());
        if answer == Answer::Staged {
            return;
        }
        let active = self.segments.active();
        let bytes = active.bytes_before + active.staged.pos;
        self.waiters.push(Waiting {
            waiter,
            base,
            reach: Reach { end: self.marks.staged(), bytes },
            answer,
            stamps: Stamps { staged: now, ..Stamps::default() },
        });
    }
}
