//! One `.log` and its indexes: how far it is staged, written, flushed and visible.
//!
//! Owns: a segment's marks, its index bytes, its file's identity. Never does: I/O, decisions.
//! Left: `format::index`, `watermarks`. Right: `segments`, `partition` and its state machines.

use super::config::LogConfig;
use super::held::HeldFile;
use super::watermarks::Mark;
use crate::format::cut_name::CutReason;
use crate::format::index::{self, IndexBuilder, TimeEntry};
use crate::io::FileId;
use crate::policy::roll::RollState;
use crate::types::{Micros, Offset, WallMs};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogFile {
    /// To be created by the next plan.
    Wanted,
    /// A file of that name is in the way, and belongs to no segment.
    Leftover,
    /// The op that creates or opens it, or clears its way, is in flight.
    Creating,
    Open(HeldFile),
    /// On the disk and closed: opened when a lookup or an append needs it.
    Closed,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Takes appends.
    Active,
    /// Takes no more; its last bytes, flush and indexes may be under way.
    Rolled,
    /// All of it is on the disk, indexes and name included (D7).
    Sealed,
}

/// Where the builder and the entry bytes stood behind an append.
#[derive(Clone, Debug)]
pub(super) struct IndexPoint {
    builder: IndexBuilder,
    offset_len: usize,
    time_len: usize,
}

/// The entries in memory.
#[derive(Debug)]
pub(super) enum IndexBytes {
    Held {
        offset: Vec<u8>,
        time: Vec<u8>,
    },
    /// In their files only; read when a lookup needs them.
    OnDisk,
}

#[derive(Debug)]
pub(super) struct SegmentIndex {
    pub bytes: IndexBytes,
    builder: IndexBuilder,
}

impl SegmentIndex {
    pub fn empty(base: Offset, config: &LogConfig) -> SegmentIndex {
        SegmentIndex {
            bytes: IndexBytes::Held { offset: Vec::new(), time: Vec::new() },
            builder: IndexBuilder::new(base.get(), config.index_limits()),
        }
    }

    /// With entries that are whole and checked; `builder` stands behind all batches.
    pub fn held(builder: IndexBuilder, offset: Vec<u8>, time: Vec<u8>) -> SegmentIndex {
        SegmentIndex { bytes: IndexBytes::Held { offset, time }, builder }
    }

    /// Of a sealed segment whose last time entry is `last`.
    pub fn on_disk(base: Offset, config: &LogConfig, last: Option<TimeEntry>) -> SegmentIndex {
        let time = last.map(TimeEntry::encode).unwrap_or_default();
        let time = if last.is_some() { &time[..] } else { &[] };
        let builder = IndexBuilder::resume(base.get(), config.index_limits(), &[], time);
        SegmentIndex { bytes: IndexBytes::OnDisk, builder }
    }

    /// Takes note of a staged batch and keeps the entries it earns.
    pub fn on_batch(&mut self, pos: u64, last: Offset, max_timestamp: WallMs) {
        let Some((entry, timed)) = self.builder.on_batch(pos, last.get(), max_timestamp) else {
            return;
        };
        let IndexBytes::Held { offset, time } = &mut self.bytes else {
            unreachable!("the active segment's index is in memory")
        };
        offset.extend_from_slice(&entry.encode());
        if let Some(timed) = timed {
            time.extend_from_slice(&timed.encode());
        }
    }

    pub fn is_full(&self) -> bool {
        self.builder.is_full()
    }

    /// The greatest timestamp (-1: none) and the last offset of the first batch that has it.
    pub fn max_timestamp(&self) -> (WallMs, i64) {
        self.builder.max_timestamp()
    }

    pub fn point(&self) -> IndexPoint {
        let (offset_len, time_len) = match &self.bytes {
            IndexBytes::Held { offset, time } => (offset.len(), time.len()),
            IndexBytes::OnDisk => (0, 0),
        };
        IndexPoint { builder: self.builder.clone(), offset_len, time_len }
    }

    /// Back to how it stood then (D12).
    pub fn restore(&mut self, point: &IndexPoint) {
        if let IndexBytes::Held { offset, time } = &mut self.bytes {
            assert!(point.offset_len <= offset.len(), "an index is restored backwards only");
            assert!(point.time_len <= time.len(), "an index is restored backwards only");
            offset.truncate(point.offset_len);
            time.truncate(point.time_len);
        }
        self.builder = point.builder.clone();
    }

    /// Adds the closing time entry (spec: a rolled or closed segment ends with its true maximum).
    pub fn close(&mut self) {
        let Some(entry) = self.builder.close() else { return };
        if let IndexBytes::Held { time, .. } = &mut self.bytes {
            time.extend_from_slice(&entry.encode());
        }
    }

    /// Position at or before the batch that holds `offset`; `None` when the entries are not here.
    pub fn floor(&self, base: Offset, offset: Offset) -> Option<u64> {
        let IndexBytes::Held { offset: entries, .. } = &self.bytes else { return None };
        let relative = u32::try_from(offset.since(base).clamp(0, i64::from(i32::MAX))).ok()?;
        Some(index::floor_offset(entries, relative).map_or(0, |entry| u64::from(entry.pos)))
    }

    /// Where the first indexed batch behind `pos` begins, if the entries are here.
    pub fn next_indexed(&self, pos: u64) -> Option<u64> {
        let IndexBytes::Held { offset: entries, .. } = &self.bytes else { return None };
        index::offset_entries(entries).map(|entry| u64::from(entry.pos)).find(|at| *at > pos)
    }

    /// No record newer than `timestamp` lies at or before this offset; `None` as in `floor`.
    pub fn time_floor(&self, base: Offset, timestamp: WallMs) -> Option<Offset> {
        let IndexBytes::Held { time, .. } = &self.bytes else { return None };
        let relative =
            index::floor_time(time, timestamp).map_or(0, |e| i64::from(e.relative_offset));
        base.checked_add(relative)
    }
}

/// Bytes that recovery found broken in place (D6): reported, served around, never truncated.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub pos: u64,
    /// First byte behind it that can be trusted again.
    pub end_pos: u64,
    /// First offset lost, and the first one behind.
    pub first: Offset,
    pub next: Offset,
    pub reason: CutReason,
}

#[derive(Debug)]
pub(super) struct Segment {
    pub base: Offset,
    pub file: LogFile,
    pub phase: Phase,
    /// Its directory entry is on the disk (D10).
    pub named: bool,
    pub naming: bool,
    pub staged: Mark,
    pub written: Mark,
    pub flushed: Mark,
    pub visible: Mark,
    /// What the flush in flight settles: only what was written when it was submitted (D2).
    pub flushing: Option<Mark>,
    /// When the oldest write that no submitted flush covers had completed.
    pub oldest_unflushed: Option<Micros>,
    pub first_timestamp: Option<WallMs>,
    pub created: WallMs,
    /// Of an active one, drawn once.
    pub jitter_ms: i64,
    pub index: SegmentIndex,
    /// Index state behind the last written append.
    pub index_written: IndexPoint,
    /// Bytes of the log before this segment, counted since it was opened.
    pub bytes_before: u64,
    pub damage: Vec<Damage>,
    /// Producer state as of its end, once it takes no more.
    pub snapshot: Option<Vec<u8>>,
    /// When its file was last changed, and how long it was when that was asked.
    pub modified: Option<(WallMs, u64)>,
    /// When a lookup last used it, as `descriptors` counts.
    pub used: u64,
}

impl Segment {
    /// A segment whose file is still to be created.
    pub fn wanted(base: Offset, bytes_before: u64, config: &LogConfig, now: WallMs) -> Segment {
        let index = SegmentIndex::empty(base, config);
        let mut segment = Segment::stored(Mark { end: base, pos: 0 }, base, index, now);
        segment.file = LogFile::Wanted;
        segment.phase = Phase::Active;
        segment.named = false;
        segment.bytes_before = bytes_before;
        segment
    }

    /// A sealed segment that is on the disk up to `end`.
    pub fn stored(end: Mark, base: Offset, index: SegmentIndex, now: WallMs) -> Segment {
        let index_written = index.point();
        Segment {
            base,
            file: LogFile::Closed,
            phase: Phase::Sealed,
            named: true,
            naming: false,
            staged: end,
            written: end,
            flushed: end,
            visible: end,
            flushing: None,
            oldest_unflushed: None,
            first_timestamp: None,
            created: now,
            jitter_ms: 0,
            index,
            index_written,
            bytes_before: 0,
            damage: Vec::new(),
            snapshot: None,
            modified: None,
            used: 0,
        }
    }

    pub fn roll_state(&self) -> RollState {
        RollState {
            base: self.base.get(),
            size: self.staged.pos,
            first_timestamp: self.first_timestamp,
            created: self.created,
            index_full: self.index.is_full(),
        }
    }

    pub fn open_file(&self) -> Option<FileId> {
        match &self.file {
            LogFile::Open(file) => Some(file.id()),
            _ => None,
        }
    }

    pub fn held_file(&self) -> Option<HeldFile> {
        match &self.file {
            LogFile::Open(file) => Some(file.clone()),
            _ => None,
        }
    }

    /// All its bytes are on the disk, and there will be no more.
    pub fn is_complete(&self) -> bool {
        self.phase != Phase::Active && self.flushed == self.staged
    }

    pub fn unflushed_bytes(&self) -> u64 {
        self.written.pos - self.flushed.pos
    }

    /// A write finished.
    pub fn on_written(&mut self, to: Mark, index: IndexPoint, now: Micros) {
        assert!(to.pos >= self.written.pos, "a segment's written bytes moved back");
        assert!(to.pos <= self.staged.pos, "a segment is written past what was staged");
        self.written = to;
        self.index_written = index;
        self.oldest_unflushed.get_or_insert(now);
    }

    /// Back to what is written (D12).
    pub fn unstage(&mut self) {
        self.snapshot = None;
        self.staged = self.written;
        let point = self.index_written.clone();
        self.index.restore(&point);
        if self.written.pos == 0 {
            self.first_timestamp = None;
        }
    }
}
