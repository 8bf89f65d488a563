//! How far a log is staged, written, durable, and visible: always staged >= written >= durable.
//!
//! Owns: the offsets and that none of them moves back unnoticed. Never does: deciding when they move
//! (`appender` finishes writes, `flush_queue` finishes flushes). Left: `types`. Right: `partition`.

use crate::types::Offset;

/// A point in one segment: everything before `end` lies before `pos`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub end: Offset,
    pub pos: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Watermarks {
    pub start: Offset,
    staged: Offset,
    written: Offset,
    durable: Offset,
    high: Offset,
}

impl Watermarks {
    /// A log whose bytes up to `end` are all durable.
    pub fn durable_at(start: Offset, end: Offset) -> Watermarks {
        assert!(start <= end, "log start {start} past its end {end}");
        Watermarks { start, staged: end, written: end, durable: end, high: end }
    }

    pub fn staged(&self) -> Offset {
        self.staged
    }

    pub fn written(&self) -> Offset {
        self.written
    }

    pub fn durable(&self) -> Offset {
        self.durable
    }

    pub fn high(&self) -> Offset {
        self.high
    }

    pub fn stage(&mut self, to: Offset) {
        assert!(to >= self.staged, "staged moved back: {to} < {}", self.staged);
        self.staged = to;
    }

    /// What was staged and never written is gone (D12).
    pub fn unstage(&mut self) {
        self.staged = self.written;
    }

    pub fn advance_written(&mut self, to: Offset) {
        assert!(to >= self.written, "written moved back: {to} < {}", self.written);
        assert!(to <= self.staged, "written ahead of staged: {to} > {}", self.staged);
        self.written = to;
    }

    pub fn advance_durable(&mut self, to: Offset) {
        assert!(to >= self.durable, "durable moved back: {to} < {}", self.durable);
        assert!(to <= self.written, "durable ahead of written: {to} > {}", self.written);
        self.durable = to;
    }

    /// Moves the high watermark up to what the policy shows; it never falls, whatever changes (D1).
    pub fn show(&mut self, durable_only: bool) {
        let to = if durable_only { self.durable } else { self.written };
        self.high = self.high.max(to);
        assert!(self.high <= self.written, "readers ahead of the log");
    }

    pub fn advance_start(&mut self, to: Offset) {
        self.start = self.start.max(to.min(self.high));
    }
}
