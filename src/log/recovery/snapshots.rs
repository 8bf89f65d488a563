//! Producer state at an opening: the newest usable snapshot, then the batches behind it.
//!
//! Owns: which snapshots are read, written and removed, and the replay. Never does: judging
//! batches; failing for want of space (a snapshot can be made again). Left: `log::producers`,
//! `cursor`. Right: `scan`, `open`.

use std::collections::VecDeque;
use std::path::Path;

use super::cursor::FileCursor;
use super::files::{self, Found};
use super::resync::next_batch;
use super::{Fault, OpenError, cut};
use crate::format::batch::{BatchError, BatchHeader, RECORDS};
use crate::format::name::FileKind;
use crate::format::snapshot;
use crate::io::blocking::Blocking;
use crate::io::op::OpenHow;
use crate::io::{Errno, Io};
use crate::log::producers::Producers;
use crate::log::segment::Segment;
use crate::types::{Micros, Offset, WallMs};

const SNAPSHOT_BYTES_MAX: usize = 64 << 20;
/// A marker is a few dozen bytes; a control batch that is longer is none.
const MARKER_BYTES_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct Replay {
    pub state: Producers,
    /// The state holds everything before it.
    end: i64,
    /// Offsets of the snapshots there are, in order.
    snapshots: Vec<i64>,
    /// Where a replay leaves snapshots: the bases of the last two segments, as in Kafka.
    marks: [i64; 2],
    /// Bases of the segments there are, in order, and when each was last written to.
    written: Vec<(i64, WallMs)>,
    /// The offset of the one that was read last; 0: none was.
    loaded: i64,
    wall: WallMs,
    now: Micros,
    expiration_ms: i64,
}

impl Replay {
    pub fn new(found: &mut Found, (wall, now): (WallMs, Micros), expiration_ms: i64) -> Replay {
        let mut snapshots = std::mem::take(&mut found.snapshots);
        snapshots.sort_unstable();
        let mut marks = [0; 2];
        for (mark, log) in marks.iter_mut().zip(found.logs.iter().rev()) {
            *mark = log.base.get();
        }
        let written = found.logs.iter().map(|log| (log.base.get(), log.modified_ms)).collect();
        let state = Producers::new();
        Replay { state, end: 0, snapshots, marks, written, loaded: 0, wall, now, expiration_ms }
    }

    pub fn has_snapshots(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// The offset of the newest snapshot; 0 without one (a log's first offset never has any).
    pub fn newest(&self) -> Offset {
        self.snapshots.last().and_then(|at| Offset::new(*at)).unwrap_or_default()
    }

    /// A log that begins anew, at `start`.
    pub fn start_over(&mut self, start: Offset) {
        self.state = Producers::new();
        self.end = start.get();
    }

    /// Brings the state up to `to` without the batches of a scan: from the newest snapshot that is
    /// not behind it, then out of the segments, which end there.
    pub fn reach<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        dir: &Path,
        segments: &VecDeque<Segment>,
        to: Offset,
    ) -> Result<(), OpenError> {
        if self.end >= to.get() {
            return Ok(());
        }
        self.load(b, dir, to)?;
        for segment in segments {
            if self.end >= segment.staged.end.get() {
                continue;
            }
            let path = files::path_of(dir, segment.base, FileKind::Log);
            self.replay(b, &path, segment).map_err(OpenError::io("reading", &path))?;
            self.passed(segment.staged.end);
            if self.marks.contains(&self.end) {
                self.write(b, dir, segment.staged.end)?;
            }
        }
        self.passed(to);
        Ok(())
    }

    /// Everything before `to` is in the state.
    pub fn passed(&mut self, to: Offset) {
        self.end = self.end.max(to.get());
    }

    /// The newest sound snapshot up to `to`, if it leads further; broken ones go, as in Kafka.
    fn load<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        dir: &Path,
        to: Offset,
    ) -> Result<(), OpenError> {
        let candidates = self.snapshots.partition_point(|at| *at <= to.get());
        for at in (0..candidates).rev() {
            let from = self.snapshots[at];
            if from <= self.end {
                break;
            }
            let base = Offset::new(from).unwrap_or_default();
            let path = files::path_of(dir, base, FileKind::Snapshot);
            let bytes =
                b.read_file(&path, SNAPSHOT_BYTES_MAX).map_err(OpenError::io("reading", &path))?;
            match snapshot::parse(&bytes.unwrap_or_default()) {
                Ok(entries) => {
                    let clock = (self.wall, self.now);
                    let written_ms = |offset| written_ms(&self.written, offset);
                    let expiration_ms = self.expiration_ms;
                    self.state =
                        Producers::from_snapshot(&entries, written_ms, clock, expiration_ms);
                    (self.end, self.loaded) = (from, from);
                    return Ok(());
                }
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%path, %error, "snapshot dropped: the log tells it anew");
                    self.remove(b, dir, at)?;
                }
            }
        }
        Ok(())
    }

    fn remove<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        dir: &Path,
        at: usize,
    ) -> Result<(), OpenError> {
        let base = Offset::new(self.snapshots.remove(at)).unwrap_or_default();
        cut::remove(b, &files::path_of(dir, base, FileKind::Snapshot))
    }

    /// The batches of a segment that is trusted: its headers are read, damage is passed over.
    fn replay<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        path: &Path,
        segment: &Segment,
    ) -> Result<(), Errno> {
        let file = b.open(path, OpenHow::default())?;
        let mut cursor = FileCursor::new(file, segment.staged.pos);
        let mut pos = 0;
        let done = loop {
            if pos >= cursor.len {
                break Ok(());
            }
            pos = match cursor.header(b, pos) {
                Ok(Ok(header)) => match self.take(b, &mut cursor, pos, &header) {
                    Ok(()) => pos + header.total_len() as u64,
                    Err(errno) => break Err(errno),
                },
                // Formats that had no producers.
                Ok(Err(Fault::Batch(BatchError::Legacy { .. }))) => break Ok(()),
                Ok(Err(fault)) => {
                    tracing::warn!(path = %path.display(), pos, %fault, "no producer state here");
                    match next_batch(b, &mut cursor, pos, segment.base) {
                        Ok(Some((at, _))) => at,
                        Ok(None) => break Ok(()),
                        Err(errno) => break Err(errno),
                    }
                }
                Err(errno) => break Err(errno),
            };
        };
        b.close(file)?;
        done
    }

    /// A batch that counts, at `pos`.
    pub fn take<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        cursor: &mut FileCursor,
        pos: u64,
        header: &BatchHeader,
    ) -> Result<(), Errno> {
        if header.base_offset < self.end || !header.has_producer() {
            return Ok(());
        }
        let len = header.total_len();
        if !header.is_control() || len > MARKER_BYTES_MAX {
            self.state.replay(header, &[], self.now);
            return Ok(());
        }
        let bytes = cursor.bytes(b, pos, len)?;
        self.state.replay(header, bytes.get(RECORDS..len).unwrap_or_default(), self.now);
        Ok(())
    }

    /// Snapshots of a future that was cut go, those of a past that was deleted, and those that no
    /// segment begins at, but for the newest if it lies in the last segment (a clean stop leaves
    /// such a one).
    pub fn drop_stray<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        dir: &Path,
        segments: &VecDeque<Segment>,
        (start, end): (Offset, Offset),
    ) -> Result<(), OpenError> {
        let last_base = segments.back().map_or(Offset::ZERO, |segment| segment.base);
        let within = self.snapshots.iter().filter(|at| **at <= end.get());
        let spared = within.max().copied().filter(|at| *at >= last_base.get());
        for at in (0..self.snapshots.len()).rev() {
            let offset = self.snapshots[at];
            let begins = segments.iter().any(|segment| segment.base.get() == offset);
            let is_past = offset <= start.get() && offset != end.get();
            if offset > end.get() || is_past || (!begins && Some(offset) != spared) {
                self.remove(b, dir, at)?;
            }
        }
        Ok(())
    }

    /// The state as of `at`, unless there is a snapshot of it or of a later one already; one of the
    /// same offset that says something else, or nothing, is replaced.
    pub fn write<I: Io>(
        &mut self,
        b: &mut Blocking<'_, I>,
        dir: &Path,
        at: Offset,
    ) -> Result<(), OpenError> {
        if at < self.newest() || at == Offset::ZERO || self.loaded == at.get() {
            return Ok(());
        }
        let path = files::path_of(dir, at, FileKind::Snapshot);
        let bytes = self.state.snapshot();
        if at == self.newest() && holds(b, &path, &bytes)? {
            return Ok(());
        }
        match b.replace_file(&path, &bytes) {
            Ok(()) if at == self.newest() => {}
            Ok(()) => self.snapshots.push(at.get()),
            Err(errno) if errno.is_no_space() => {
                tracing::warn!(path = %path.display(), %errno, "snapshot not written");
            }
            Err(errno) => return Err(OpenError::io("writing", path)(errno)),
        }
        Ok(())
    }
}

/// The last write to the segment that holds this offset; -1: none does.
fn written_ms(written: &[(i64, WallMs)], offset: i64) -> WallMs {
    let at = written.partition_point(|(base, _)| *base <= offset);
    at.checked_sub(1).and_then(|at| written.get(at)).map_or(-1, |(_, modified_ms)| *modified_ms)
}

/// Whether a snapshot has these entries, in whatever order.
fn holds<I: Io>(b: &mut Blocking<'_, I>, path: &Path, bytes: &[u8]) -> Result<bool, OpenError> {
    let there = b.read_file(path, SNAPSHOT_BYTES_MAX).map_err(OpenError::io("reading", path))?;
    let sorted = |bytes: &[u8]| {
        let mut entries = snapshot::parse(bytes).ok()?;
        entries.sort_unstable_by_key(|entry| entry.producer_id);
        Some(entries)
    };
    Ok(sorted(&there.unwrap_or_default()).is_some_and(|there| Some(there) == sorted(bytes)))
}
