//! Where the newest batches lie, so that a fetch at the head reads nothing to find its bytes.
//!
//! Owns: a bounded ring of positions, contiguous up to the staged end. Never does: I/O.
//! Left: `types`. Right: `locate`.

use std::collections::VecDeque;

use crate::types::Offset;

/// One batch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct TailBatch {
    pub base: Offset,
    pub last: Offset,
    /// Number of the segment that holds it.
    pub segment: u32,
    pub pos: u64,
    pub len: u32,
}

#[derive(Debug)]
pub(super) struct Tail {
    batches: VecDeque<TailBatch>,
    batches_max: usize,
}

impl Tail {
    pub fn new(batches_max: usize) -> Tail {
        Tail { batches: VecDeque::new(), batches_max }
    }

    pub fn push(&mut self, batch: TailBatch) {
        if self.batches_max == 0 {
            return;
        }
        if self.batches.len() == self.batches_max {
            self.batches.pop_front();
        }
        self.batches.push_back(batch);
    }

    /// The batch that holds `offset`, or the next one behind a gap; `None` when it is too old.
    pub fn find(&self, offset: Offset) -> Option<TailBatch> {
        if self.batches.front().is_none_or(|first| offset < first.base) {
            return None;
        }
        let at = self.batches.partition_point(|batch| batch.last < offset);
        self.batches.get(at).copied()
    }

    /// Forgets what begins at or behind `end`.
    pub fn truncate(&mut self, end: Offset) {
        let keep = self.batches.partition_point(|batch| batch.base < end);
        self.batches.truncate(keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(raw: i64) -> Offset {
        Offset::new(raw).unwrap()
    }

    fn tail() -> Tail {
        let mut tail = Tail::new(3);
        for (base, last) in [(0, 4), (5, 5), (6, 9), (20, 22)] {
            let (base, last) = (offset(base), offset(last));
            tail.push(TailBatch { base, last, segment: 0, pos: base.get() as u64, len: 1 });
        }
        tail
    }

    #[test]
    fn finds_the_batch_that_holds_an_offset_or_follows_a_gap() {
        let tail = tail();
        let base = |at| tail.find(offset(at)).map(|batch| batch.base.get());
        assert_eq!(
            [4, 5, 8, 9, 10, 22, 23].map(base).to_vec(),
            vec![None, Some(5), Some(6), Some(6), Some(20), Some(20), None]
        );
    }

    #[test]
    fn truncation_forgets_whole_batches() {
        let mut tail = tail();
        tail.truncate(offset(6));
        assert!(tail.find(offset(6)).is_none());
        assert!(tail.find(offset(5)).is_some());
    }
}
