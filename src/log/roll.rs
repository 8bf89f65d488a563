//! Segment after segment: when one ends, how the next one's file comes to be, how the old one is
//! flushed and sealed, while appends go on (R42).
//!
//! Owns: creation, naming (D10), flushes of every live segment (D1, D2), sealing in order (D7).
//! Never does: making an ack wait for anything but the flush and the name it depends on.
//! Left: `policy::roll`, `policy::flush`. Right: `partition`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use super::batches::Batches;
use super::closing::Closing;
use super::filejob::FileJob;
use super::op_sink::{OpSink, Task};
use super::partition::{Partition, Refusal};
use super::sealing::SealState;
use super::segment::{LogFile, Phase, Segment};
use crate::format::name::{FileKind, deleted_name, file_name};
use crate::io::op::OpenHow;
use crate::io::{Errno, Op, Outcome};
use crate::policy::flush::{FlushDecision, FlushState, decide};
use crate::policy::roll::{Incoming, draw_jitter, roll};
use crate::types::{Micros, Offset, WallMs};

impl Partition {
    pub(super) fn log_path(&self, base: Offset) -> PathBuf {
        self.dir.join(file_name(base.get(), FileKind::Log))
    }

    /// Ends the active segment if the append does not belong into it.
    pub(super) fn roll_if_due(&mut self, batches: &Batches, last: Offset, wall: WallMs) {
        let active = self.segments.active();
        let incoming = Incoming {
            bytes: batches.len() as u64,
            max_timestamp: batches.max_timestamp(),
            last_offset: last.get(),
            now: wall,
        };
        let limits = self.config.roll_limits(active.jitter_ms);
        if roll(&active.roll_state(), &limits, &incoming).is_some() {
            self.start_segment(wall);
        }
    }

    /// Ends the active segment on request, unless it is empty. Gives the active one's base offset.
    pub fn roll(&mut self, wall: WallMs) -> Result<Offset, Refusal> {
        self.takes_appends()?;
        if self.segments.active().staged.pos > 0 {
            self.start_segment(wall);
            self.wake();
        }
        Ok(self.segments.active().base)
    }

    /// Once a segment; the directory tells the partitions of a topic apart.
    pub(super) fn draw_jitter(&mut self) {
        let active = self.segments.active();
        let mut seed = DefaultHasher::new();
        (&self.dir, active.base.get(), active.created).hash(&mut seed);
        let (jitter_ms, segment_ms) =
            (self.config.segment_jitter_ms, self.config.segment_ms_bound());
        self.segments.active_mut().jitter_ms = draw_jitter(seed.finish(), jitter_ms, segment_ms);
    }

    pub(super) fn start_segment(&mut self, wall: WallMs) {
        let base = self.marks.staged();
        let active = self.segments.active_mut();
        assert!(base > active.base, "two segments may not begin at {base}");
        active.phase = Phase::Rolled;
        active.snapshot = Some(self.producers.snapshot());
        let bytes_before = active.bytes_before + active.staged.pos;
        self.segments.push(Segment::wanted(base, bytes_before, &self.config, wall));
        self.draw_jitter();
        self.counters.rolls += 1;
        tracing::debug!(dir = %self.dir.display(), %base, "segment rolled");
    }

    pub(super) fn plan_creates(&mut self, out: &mut OpSink) {
        let dir = &self.dir;
        for (number, segment) in self.segments.live_mut() {
            if segment.file == LogFile::Wanted {
                let path = dir.join(file_name(segment.base.get(), FileKind::Log));
                let how =
                    OpenHow { write: true, create: true, exclusive: true, ..OpenHow::default() };
                out.push(Task::Create(number), Op::Open { path, how });
                segment.file = LogFile::Creating;
            }
            if segment.file == LogFile::Leftover {
                let path = dir.join(file_name(segment.base.get(), FileKind::Log));
                tracing::warn!(path = %path.display(), "no segment's file: renamed away");
                let to = dir.join(deleted_name(segment.base.get(), FileKind::Log));
                out.push(Task::Create(number), Op::Rename { from: path, to });
                segment.file = LogFile::Creating;
            }
            if segment.file == LogFile::Closed && segment.written.pos < segment.staged.pos {
                let path = dir.join(file_name(segment.base.get(), FileKind::Log));
                let how = OpenHow { write: true, ..OpenHow::default() };
                out.push(Task::Create(number), Op::Open { path, how });
                segment.file = LogFile::Creating;
            }
            if segment.open_file().is_some() && !segment.named && !segment.naming {
                out.push(Task::Name(number), Op::SyncDir { path: dir.clone() });
                segment.naming = true;
            }
        }
    }

    pub(super) fn on_created(&mut self, id: u32, result: Result<Outcome, Errno>, now: Micros) {
        let (number, segment) = self.segments.live_by_id(id);
        match result {
            Ok(Outcome::File(file)) => self.attach(number, file),
            // What stood in the way has its other name: a start removes it.
            Ok(Outcome::Nothing) => segment.file = LogFile::Wanted,
            Ok(other) => unreachable!("open gave {other:?}"),
            Err(errno) => {
                // One that has its name had a file before: it was closed while idle.
                segment.file = if segment.named { LogFile::Closed } else { LogFile::Wanted };
                match errno {
                    _ if errno.is_transient() => {}
                    Errno::EEXIST if !segment.named => segment.file = LogFile::Leftover,
                    // Descriptors, like space, come back: this append fails, a later one need not.
                    _ if errno.is_no_descriptors() || errno.is_no_space() => self.begin_undo(errno),
                    _ => self.poison(number, 0, errno, now),
                }
            }
        }
    }

    pub(super) fn on_named(&mut self, id: u32, result: Result<Outcome, Errno>, now: Micros) {
        let (number, segment) = self.segments.live_by_id(id);
        segment.naming = false;
        match result {
            Ok(_) => segment.named = true,
            Err(errno) => self.poison(number, 0, errno, now),
        }
    }

    pub(super) fn plan_flushes(&mut self, now: Micros, out: &mut OpSink) {
        let policy = self.policy();
        let wanted = self.waiters.wanted();
        let closing = self.closing != Closing::No || self.is_altering();
        let (mut deadline, mut flushes) = (Micros::NEVER, 0);
        for (number, segment) in self.segments.live_mut() {
            let Some(file) = segment.open_file() else { continue };
            let written_out = segment.phase != Phase::Active && segment.written == segment.staged;
            let state = FlushState {
                unflushed_bytes: segment.unflushed_bytes(),
                unflushed_records: segment.written.end.since(segment.flushed.end) as u64,
                oldest_written: segment.oldest_unflushed.unwrap_or(now),
                asked: closing || written_out || wanted > Some(segment.flushed.end),
                in_flight: segment.flushing.is_some(),
            };
            match decide(policy, &state, now) {
                FlushDecision::No => {}
                FlushDecision::At(time) => deadline = deadline.min(time),
                FlushDecision::Now => {
                    segment.flushing = Some(segment.written);
                    segment.oldest_unflushed = None;
                    out.push(Task::Flush(number), Op::Fdatasync { file });
                    flushes += 1;
                }
            }
        }
        self.counters.flushes += flushes;
        self.before(deadline);
    }

    /// A flush settles what was written when it was submitted (D2); a failed one is never tried
    /// again (D11).
    pub(super) fn on_flushed(&mut self, id: u32, result: Result<Outcome, Errno>, now: Micros) {
        let (number, segment) = self.segments.live_by_id(id);
        let mark = segment.flushing.take().expect("a completion belongs to a flush");
        match result {
            Ok(_) => segment.flushed = mark,
            Err(errno) if self.is_below_start(number) => {
                tracing::warn!(dir = %self.dir.display(), %errno, "flushing deleted records");
                self.segments.get_mut(number).expect("looked at above").flushed = mark;
            }
            Err(errno) => self.poison(number, mark.pos, errno, now),
        }
    }

    /// Rolled segments are sealed one by one, in order; at a close the active one too.
    pub(super) fn plan_seals(&mut self, now: Micros, out: &mut OpSink) {
        match self.sealer.may_start(now) {
            SealState::Idle => self.start_seal(),
            SealState::Later(time) => return self.before(time),
            SealState::Busy => {}
        }
        if let SealState::Later(time) = self.sealer.plan(&self.pool, now, out) {
            self.before(time);
        }
    }

    fn start_seal(&mut self) {
        let closing = self.closing == Closing::Flushing && self.appender.is_idle();
        let first = self.segments.live_mut().next();
        let (number, segment) = first.expect("the active segment is live");
        let due = match segment.phase {
            Phase::Active => closing && segment.flushed == segment.staged,
            Phase::Rolled => segment.is_complete(),
            Phase::Sealed => false,
        };
        if due && segment.named {
            let end = segment.staged.end;
            // At a close, as in Kafka: not where one is already, and never at a log's first offset.
            let snapshot = segment
                .snapshot
                .clone()
                .or_else(|| (end > self.snapshot).then(|| self.producers.snapshot()));
            let path = self.dir.join(file_name(end.get(), FileKind::Snapshot));
            let extra = snapshot.map(|bytes| FileJob::new(path, bytes));
            self.sealer.start(number, segment, extra);
        }
    }

    pub(super) fn on_sealed(&mut self, result: Result<Outcome, Errno>, now: Micros) {
        let Some(number) = self.sealer.on_done(result, now) else { return };
        let segment = self.segments.get_mut(number).expect("sealed, so there");
        segment.phase = Phase::Sealed;
        segment.snapshot = None;
        self.snapshot = self.snapshot.max(segment.staged.end);
        self.segments.settle();
        let spared = self.segments.active_number();
        self.segments.trim_indexes(self.config.index_cache_bytes_max, spared);
        self.bound_sealed_files(spared);
    }
}
