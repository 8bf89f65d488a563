//! What a produce request becomes where its topic says so: another codec; and what is said of
//! records that retention will take at once.
//!
//! Owns: the memory that re-encoded batches take, and the warning of old records (R44). Never does:
//! run for a topic whose `compression.type` is `producer` (the default) or whose producers use the
//! topic's codec. Left: `format::reencode`. Right: `produce`.

use super::Shard;
use super::produce::{Stop, batch_len, summary_of};
use crate::format::reencode::Target;
use crate::format::validate::Limits;
use crate::io::Io;
use crate::io::buffers::Slice;
use crate::log::Summaries;
use crate::protocol::produce::BATCHES_AT;
use crate::types::Micros;

/// A partition says so once in this time, whatever arrives.
const OLD_SAID_EVERY: Micros = Micros(60_000_000);

/// A buffer that grew beyond this is given back after its request.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl<I: Io> Shard<I> {
    /// The batches of a produce frame, checked, as the topic stores them. A frame that has to wait
    /// comes back untouched.
    pub(super) fn reencode(
        &mut self,
        slot: u32,
        frame: Slice,
        target: Target,
        limits: &Limits,
    ) -> Result<(Slice, Summaries), Stop> {
        // Past the pool's bound by one frame at most, as the frame that could not wait for memory:
        // what is stored takes the place of what was received, and is gone once written.
        if self.pool.in_use() > self.pool.bytes_max() + self.config.frame_bytes_max as usize {
            return Err(Stop::Wait(frame));
        }
        let mut out = std::mem::take(&mut self.reencoded);
        out.clear();
        let checked = self.reencode_all(&frame[BATCHES_AT..], target, limits, &mut out);
        let fits = self.parts.get(slot).is_some_and(|k| k.partition.can_accept(out.len()));
        let stored = match checked {
            Ok(_) if !fits => Err(Stop::Wait(frame)),
            checked => checked.map(|checked| (self.pool.copied_past_bound(&out), checked)),
        };
        self.reencoded = if out.capacity() > KEPT_BYTES_MAX { Vec::new() } else { out };
        self.counters.reencoded += u64::from(stored.is_ok());
        stored
    }

    fn reencode_all(
        &mut self,
        batches: &[u8],
        target: Target,
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> Result<Summaries, Stop> {
        let mut summaries = Summaries::default();
        let mut rest = batches;
        loop {
            let (one, behind) = rest.split_at(batch_len(rest));
            let scratch = &mut self.scratch;
            let checked = self.reencoder.reencode(one, target, limits, scratch, out);
            summaries.push(summary_of(checked)?);
            if behind.is_empty() {
                return Ok(summaries);
            }
            rest = behind;
        }
    }

    /// How many records are in batches that retention by time would take already (R44).
    pub(super) fn older_than_retention(&mut self, slot: u32, batches: &Summaries) -> u64 {
        let wall = self.wall;
        let Some(known) = self.parts.get(slot) else { return 0 };
        let log = &known.settings.log;
        if !log.deletes || log.retention_ms < 0 {
            return 0;
        }
        // Records without a time age from the file's last change.
        let old = 0..wall.saturating_sub(log.retention_ms);
        let old = batches.iter().filter(|batch| old.contains(&batch.max_timestamp));
        old.map(|batch| u64::from(batch.records)).sum()
    }

    /// Counts them, and says so now and then.
    pub(super) fn accepted_old(&mut self, slot: u32, records: u64) {
        let now = self.now;
        self.counters.records_past_retention += records;
        let Some(known) = self.parts.get(slot) else { return };
        if now < known.old_said {
            return;
        }
        known.old_said = now.plus(OLD_SAID_EVERY);
        tracing::warn!(
            "{}-{}: took {records} records stamped longer ago than retention.ms ({}): the next \
             pass of retention may delete them; with message.timestamp.type=LogAppendTime they age \
             from their arrival, message.timestamp.before.max.ms refuses such records",
            known.spec.topic,
            known.spec.index,
            known.settings.log.retention_ms
        );
    }
}
