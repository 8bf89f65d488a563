//! What of a log a reader may see: all that its high watermark shows, or nothing of transactions
//! that are still open.
//!
//! Owns: the last stable offset, and where it lies. Never does: open or end a transaction (a broker
//! did, in logs that it wrote). Left: `producers`, which know what is open. Right: `locate`,
//! `by_time`, `shard`.

use super::partition::Partition;
use crate::types::Offset;

/// How much a reader may see.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub enum View {
    /// Up to the high watermark.
    #[default]
    Uncommitted,
    /// Up to the last stable offset: the first one of the oldest open transaction.
    Committed,
}

/// Transactions that were open when the log was opened. They stay so: none is begun or ended here.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Unstable {
    first: Option<Offset>,
    /// The segment and position that an offset was found at: readers stop there.
    place: Option<(Offset, u32, u64)>,
}

impl Unstable {
    pub fn from(first: Option<Offset>) -> Unstable {
        Unstable { first, place: None }
    }
}

impl Partition {
    /// The fourth watermark: no record below it is part of a transaction that has not ended.
    pub fn last_stable(&self) -> Offset {
        let high = self.high_watermark();
        self.unstable.first.map_or(high, |first| first.max(self.log_start()).min(high))
    }

    /// Behind the last offset that a reader with this view may see.
    pub fn end_for(&self, view: View) -> Offset {
        match view {
            View::Uncommitted => self.high_watermark(),
            View::Committed => self.last_stable(),
        }
    }

    /// The offset that has to be found before a reader with this view may get bytes.
    pub(super) fn bound_to_find(&self, view: View) -> Option<Offset> {
        let end = self.end_for(view);
        let found = self.unstable.place.is_some_and(|(offset, ..)| offset == end);
        (end < self.high_watermark() && !found).then_some(end)
    }

    /// It lies there, or what holds it does.
    pub(super) fn bound_found(&mut self, offset: Offset, segment: u32, pos: u64) {
        self.unstable.place = Some((offset, segment, pos));
    }

    /// Where bytes of this segment end for a reader with this view, if before their own end.
    pub(super) fn bound_in(&self, view: View, segment: u32) -> Option<u64> {
        let end = self.end_for(view);
        let (offset, bound, pos) = self.unstable.place.filter(|_| end < self.high_watermark())?;
        match segment.cmp(&bound) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal if offset == end => Some(pos),
            _ => Some(0),
        }
    }
}
