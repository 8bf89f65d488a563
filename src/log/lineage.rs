//! Which leader epoch wrote which offsets, and what a reader of an older one is told.
//!
//! Owns: the questions about epochs. Never does: raise one or store them (`recovery` does,
//! before a batch of the new epoch can be written). Left: `format::checkpoint`. Right: `shard`.

use super::partition::Partition;
use crate::types::Offset;

/// Up to where the log still is what a reader has read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Diverged {
    pub epoch: i32,
    pub end: Offset,
    /// The reader's epoch is newer than all that this log ever had.
    pub unknown: bool,
}

impl Partition {
    /// Where the records of `epoch` end, and the epoch that is true of: the greatest known one at
    /// or below it. None if it is newer than all that are known.
    pub fn end_offset_for_epoch(&self, epoch: i32) -> Option<(i32, Offset)> {
        let (epoch, end) = self.epochs.end_offset_for(epoch, self.written_end().get())?;
        Some((epoch, Offset::new(end).expect("epochs begin at offsets")))
    }

    /// The epoch of the log's first record: -1 where that is not known.
    pub fn epoch_at_start(&self) -> i32 {
        let oldest = self.epochs.entries().first();
        let start = self.log_start().get();
        oldest.filter(|oldest| oldest.start_offset <= start).map_or(-1, |oldest| oldest.epoch)
    }

    /// What a reader that asks for `offset`, having read up to there in `last_epoch`, must be told
    /// before anything else (R11): that the log was cut below it. Below the log's start there is
    /// nothing to compare.
    pub fn diverged(&self, offset: Offset, last_epoch: i32) -> Option<Diverged> {
        if last_epoch < 0 || offset < self.log_start() {
            return None;
        }
        let Some((epoch, end)) = self.end_offset_for_epoch(last_epoch) else {
            let latest = self.epochs.latest().map_or(-1, |latest| latest.epoch);
            let end = self.written_end().min(offset);
            return Some(Diverged { epoch: latest, end, unknown: true });
        };
        let end = end.max(self.log_start());
        (epoch < last_epoch || end < offset).then_some(Diverged {
            epoch,
            end: end.min(offset),
            unknown: false,
        })
    }
}
