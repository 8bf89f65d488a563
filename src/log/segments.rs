//! The segments of a partition in order, numbered so that an op in flight can name one.
//!
//! Owns: the list and the numbers. Never does: I/O. Left: `segment`. Right: `partition`, `locate`.

use std::collections::VecDeque;

use super::flush_queue::Reach;
use super::op_sink::Task;
use super::segment::{IndexBytes, Phase, Segment};
use crate::types::Offset;

#[derive(Debug)]
pub(super) struct Segments {
    list: VecDeque<Segment>,
    /// Number of the first one; the others follow on.
    first: u32,
    /// Number of the first one that is not sealed: everything before it is settled.
    live: u32,
}

impl Segments {
    /// # Panics
    /// When there is none: a log always has an active segment.
    pub fn new(list: VecDeque<Segment>) -> Segments {
        assert!(!list.is_empty(), "a log has at least one segment");
        let mut segments = Segments { list, first: 0, live: 0 };
        segments.settle();
        segments
    }

    pub fn active(&self) -> &Segment {
        self.list.back().expect("a log has at least one segment")
    }

    pub fn active_mut(&mut self) -> &mut Segment {
        self.list.back_mut().expect("a log has at least one segment")
    }

    /// Number of the active one.
    pub fn active_number(&self) -> u32 {
        self.first + (self.list.len() - 1) as u32
    }

    pub fn get(&self, number: u32) -> Option<&Segment> {
        self.list.get(number.checked_sub(self.first)? as usize)
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut Segment> {
        self.list.get_mut(number.checked_sub(self.first)? as usize)
    }

    pub fn push(&mut self, segment: Segment) {
        assert!(segment.base >= self.active().base, "segments are in order");
        self.list.push_back(segment);
    }

    /// Takes the newest one off (D12); never the last.
    pub fn pop(&mut self) -> Segment {
        assert!(self.list.len() > 1, "a log keeps at least one segment");
        let segment = self.list.pop_back().expect("checked above");
        self.live = self.live.min(self.active_number());
        segment
    }

    /// Takes the oldest one off; never the last.
    pub fn pop_front(&mut self) -> Segment {
        assert!(self.list.len() > 1, "a log keeps at least one segment");
        let segment = self.list.pop_front().expect("checked above");
        assert_eq!(segment.phase, Phase::Sealed, "what is not sealed is not settled");
        self.first += 1;
        self.live = self.live.max(self.first);
        segment
    }

    /// The greatest base at or below `offset`; the first one for anything before it.
    pub fn floor(&self, offset: Offset) -> u32 {
        let above = self.list.partition_point(|segment| segment.base <= offset);
        self.first + above.saturating_sub(1) as u32
    }

    pub fn numbers(&self) -> std::ops::RangeInclusive<u32> {
        self.first..=self.active_number()
    }

    /// From the first one that is not sealed.
    pub fn live(&self) -> impl Iterator<Item = &Segment> {
        self.list.iter().skip((self.live - self.first) as usize)
    }

    /// As `live`, with numbers.
    pub fn live_mut(&mut self) -> impl Iterator<Item = (u32, &mut Segment)> {
        let live = self.live;
        let skip = (live - self.first) as usize;
        self.list.iter_mut().skip(skip).enumerate().map(move |(i, s)| (live + i as u32, s))
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Segment> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut Segment> {
        self.list.iter_mut()
    }

    /// Readers may see bytes of a later segment than `number`.
    pub fn shows_more_behind(&self, number: u32) -> bool {
        (number + 1..=self.active_number())
            .any(|later| self.get(later).is_some_and(|segment| segment.visible.pos > 0))
    }

    /// Base of the segment after `number`.
    pub fn next_base(&self, number: u32) -> Option<Offset> {
        self.get(number + 1).map(|segment| segment.base)
    }

    /// Moves `live` over what has been sealed.
    pub fn settle(&mut self) {
        while self.live < self.active_number()
            && self.get(self.live).is_some_and(|segment| segment.phase == Phase::Sealed)
        {
            self.live += 1;
        }
    }

    /// The live segment that an op in flight named.
    pub fn live_by_id(&mut self, id: u32) -> (u32, &mut Segment) {
        self.live_mut().find(|(number, _)| Task::is(id, *number)).expect("in flight, so live")
    }

    /// How far everything is durable: a segment counts once its name is on the disk and all before
    /// it are complete (D10).
    pub fn settled(&self, from: Reach) -> Reach {
        let mut reach = from;
        for segment in self.live() {
            if !segment.named {
                break;
            }
            if segment.flushed.end >= reach.end {
                let bytes = segment.bytes_before + segment.flushed.pos;
                reach = Reach { end: segment.flushed.end, bytes };
            }
            if !segment.is_complete() {
                break;
            }
        }
        reach
    }

    /// Lets readers see what is durable in order, or what is written; never less than before.
    pub fn show(&mut self, durable_only: bool) {
        let mut settled = true;
        for (_, segment) in self.live_mut() {
            settled &= segment.named;
            let to = match durable_only {
                true if !settled => break,
                true => segment.flushed,
                false => segment.written,
            };
            if to.pos > segment.visible.pos {
                segment.visible = to;
            }
            settled &= segment.is_complete();
        }
    }

    /// Keeps at most `bytes_max` of sealed indexes in memory, that of `spared` in any case.
    pub fn trim_indexes(&mut self, bytes_max: usize, spared: u32) {
        let first = self.first;
        let mut held: usize = self.list.iter().map(sealed_bytes).sum();
        for (i, segment) in self.list.iter_mut().enumerate() {
            if held <= bytes_max {
                break;
            }
            let bytes = sealed_bytes(segment);
            if bytes > 0 && first + i as u32 != spared {
                segment.index.bytes = IndexBytes::OnDisk;
                held -= bytes;
            }
        }
    }

    pub fn index_bytes(&self) -> usize {
        self.list.iter().map(held_bytes).sum()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }
}

/// Index bytes that could be read from their files again.
fn sealed_bytes(segment: &Segment) -> usize {
    if segment.phase == Phase::Sealed { held_bytes(segment) } else { 0 }
}

fn held_bytes(segment: &Segment) -> usize {
    match &segment.index.bytes {
        IndexBytes::Held { offset, time } => offset.len() + time.len(),
        IndexBytes::OnDisk => 0,
    }
}
