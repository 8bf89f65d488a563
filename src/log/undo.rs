//! How a partition takes back what ENOSPC left half done (D12), or too many open files.
//!
//! Owns: what goes, in which order. Never does: touching anything that is written.
//! Left: `space`. Right: `partition`.

use std::collections::VecDeque;

use super::flush_queue::AckError;
use super::op_sink::OpSink;
use super::partition::{Partition, PartitionState};
use super::segment::{LogFile, Phase};
use super::space::{Space, Undone};
use crate::io::{Errno, Op, Outcome};
use crate::types::Micros;

impl Partition {
    /// A write or a creation found no space, or an open no descriptor: stop, let everything land,
    /// then undo.
    pub(super) fn begin_undo(&mut self, errno: Errno) {
        if self.is_poisoned() || matches!(self.space, Space::Draining) {
            return;
        }
        self.lacks_descriptors = errno.is_no_descriptors();
        if self.lacks_descriptors {
            tracing::error!(dir = %self.dir.display(), %errno, "appends fail: raise `ulimit -n`");
        } else if self.state != PartitionState::NoSpace {
            tracing::error!(dir = %self.dir.display(), %errno, "no space: appends are refused");
            self.state = PartitionState::NoSpace;
        }
        self.space = Space::Draining;
    }

    pub(super) fn plan_space(&mut self, now: Micros, out: &mut OpSink) {
        if matches!(self.space, Space::Draining) && self.has_drained() {
            self.undo(now);
        }
        if let Some(time) = self.space.plan(now, out) {
            self.before(time);
        }
    }

    fn has_drained(&self) -> bool {
        self.appender.flying() == 0
            && self.segments.live().all(|segment| {
                segment.flushing.is_none() && !segment.naming && segment.file != LogFile::Creating
            })
    }

    /// What is written stays; everything behind it goes, waiters, files and index entries included.
    fn undo(&mut self, now: Micros) {
        self.appender.abandon();
        self.marks.unstage();
        self.producers.unstage(0);
        let end = self.marks.written();
        let error = match self.lacks_descriptors {
            true => AckError::NoDescriptors,
            false => AckError::NoSpace,
        };
        self.waiters.fail_unwritten(error, now);
        self.tail.truncate(end);
        let mut steps = VecDeque::new();
        while self.segments.active().base > end {
            let gone = self.segments.pop();
            if let Some(file) = gone.open_file() {
                // Never flushed, about to be unlinked: there is no error left to lose.
                self.files.open -= 1;
                steps.push_back(Op::Close { file });
            }
            // Also where its creation failed: a file that is no segment's must not stay.
            steps.push_back(Op::Unlink { path: self.log_path(gone.base) });
        }
        if !steps.is_empty() {
            steps.push_back(Op::SyncDir { path: self.dir.clone() });
        }
        let active = self.segments.active_mut();
        active.phase = Phase::Active;
        active.unstage();
        if let Some(file) = active.open_file() {
            steps.push_back(Op::Truncate { file, len: active.written.pos });
            steps.push_back(Op::Fdatasync { file });
        }
        self.space = match steps.is_empty() {
            true => self.after_undo(now),
            false => Space::Undoing { steps, in_flight: false },
        };
    }

    /// Space takes its time to come back; descriptors are closed all the time.
    fn after_undo(&self, now: Micros) -> Space {
        match (self.lacks_descriptors, &self.state) {
            (true, PartitionState::NoSpace) => Space::Trying,
            (true, _) => Space::Fine,
            (false, _) => Space::cooling(now),
        }
    }

    pub(super) fn on_undone(&mut self, result: Result<Outcome, Errno>, now: Micros) {
        match self.space.on_done(result, now) {
            Undone::No => {}
            Undone::Yes => {
                let active = self.segments.active_mut();
                active.flushed = active.written;
                active.oldest_unflushed = None;
                self.space = self.after_undo(now);
            }
            Undone::Failed(errno) => {
                let (number, pos) =
                    (self.segments.active_number(), self.segments.active().written.pos);
                self.poison(number, pos, errno, now);
            }
        }
    }

    /// A write finished: if appends were being tried, there is space again (R39).
    pub(super) fn space_found(&mut self) {
        if matches!(self.space, Space::Trying) {
            self.space = Space::Fine;
            self.state = PartitionState::Open;
            tracing::info!(dir = %self.dir.display(), "space again: appends go on");
        }
    }
}
