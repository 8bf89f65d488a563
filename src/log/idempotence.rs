//! Whether the batches of an append continue their producers' sequences, repeat what is there, or
//! neither (Kafka's rules, in Kafka's order).
//!
//! Owns: the verdict on a whole append, judged against what is staged. Never does: remembering
//! (`producers`), waiting for an original's watermark (`flush_queue`). Left: `producers`,
//! `batches`. Right: `staging`.
//!
//! The batches of one append are judged in their order, all or nothing: all new, or all of them
//! repeats that lie one behind the other in the log. A mixture is refused, as a gap is: whoever
//! sends again sends what it sent before.

use super::batches::{BatchSummary, Batches};
use super::partition::Refusal;
use super::producers::{Known, Producers};
use crate::types::{Micros, Offset, WallMs};

/// Where the batches of a repeated append lie.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Original {
    pub base: Offset,
    pub last: Offset,
    /// Of the first batch.
    pub timestamp: WallMs,
    pub batches: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Verdict {
    New,
    Repeats { base: Offset, last: Offset, timestamp: WallMs },
}

/// What the append repeats; `None`: it is new. `base` is the offset it would get. Nothing is
/// changed, whatever the verdict.
pub(super) fn judge(
    producers: &mut Producers,
    batches: &Batches,
    base: Offset,
    now: Micros,
) -> Result<Option<Original>, Refusal> {
    let checked = &batches.checked;
    if checked.iter().all(|summary| summary.producer_id < 0) {
        return Ok(None);
    }
    let before = producers.staged();
    let judged = judge_all(producers, checked.iter(), base, now, checked.len() > 1);
    producers.unstage(before);
    judged
}

/// A later batch is judged as if the earlier ones were staged: `several` are, for the while.
fn judge_all<'a>(
    producers: &mut Producers,
    summaries: impl Iterator<Item = &'a BatchSummary>,
    base: Offset,
    now: Micros,
    several: bool,
) -> Result<Option<Original>, Refusal> {
    let mut original: Option<Original> = None;
    let mut next = base;
    for (at, summary) in summaries.enumerate() {
        match (judge_one(producers, summary)?, &mut original) {
            (Verdict::New, None) => {
                let last = next.checked_add(i64::from(summary.last_offset_delta));
                let last = last.ok_or(Refusal::OffsetsExhausted)?;
                if several {
                    producers.stage(summary, last, now);
                }
                next = last.next();
            }
            (Verdict::Repeats { base, last, timestamp }, None) if at == 0 => {
                original = Some(Original { base, last, timestamp, batches: 1 });
            }
            (Verdict::Repeats { base, last, .. }, Some(first)) if base == first.last.next() => {
                first.last = last;
                first.batches += 1;
            }
            _ => return Err(Refusal::MixedRepeats),
        }
    }
    Ok(original)
}

fn judge_one(producers: &Producers, summary: &BatchSummary) -> Result<Verdict, Refusal> {
    let BatchSummary { producer_id, producer_epoch, base_sequence: first, .. } = *summary;
    if producer_id < 0 {
        return Ok(Verdict::New);
    }
    let known = producers.get(producer_id);
    if let Some(known) = known.filter(|known| known.epoch == producer_epoch) {
        // One that goes on is no repeat: for both, sequences would have to go once round in the
        // few batches remembered.
        if first != known.next_sequence()
            && let Some(repeats) = find(known, summary)
        {
            return Ok(repeats);
        }
    }
    if summary.transactional {
        return Err(Refusal::Transaction { producer_id, open: false });
    }
    let Some(known) = known.filter(|known| known.epoch >= 0) else { return Ok(Verdict::New) };
    if producer_epoch < known.epoch {
        return Err(Refusal::StaleEpoch { producer_id, producer_epoch, current: known.epoch });
    }
    let is_current = producer_epoch == known.epoch;
    let next = if is_current { known.next_sequence() } else { 0 };
    if first != next {
        return Err(Refusal::OutOfOrder { producer_id, producer_epoch, first, next, is_current });
    }
    if known.txn_first_offset >= 0 {
        return Err(Refusal::Transaction { producer_id, open: true });
    }
    Ok(Verdict::New)
}

/// The batch remembered that has exactly these sequences.
fn find(known: &Known, summary: &BatchSummary) -> Option<Verdict> {
    let delta = i32::try_from(summary.last_offset_delta).ok()?;
    let is_it = |batch: &&super::producers::Remembered| {
        batch.offset_delta == delta && batch.first_sequence() == summary.base_sequence
    };
    let batch = known.window.iter().rev().find(is_it)?;
    Some(Verdict::Repeats {
        base: Offset::new(batch.first_offset())?,
        last: Offset::new(batch.last_offset)?,
        timestamp: batch.timestamp,
    })
}
