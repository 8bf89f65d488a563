//! The graceful end of a log: no more appends, everything flushed, indexes and snapshot written,
//! files closed; only then may the clean marker follow (D9).
//!
//! Owns: the order. Never does: the marker itself (`datadir`). Left: `roll`. Right: `partition`.

use super::flush_queue::AckError;
use super::op_sink::{OpSink, Task};
use super::partition::{Partition, PartitionState};
use super::segment::{LogFile, Phase};
use super::space::Space;
use crate::io::{Errno, Op};
use crate::types::Micros;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    No,
    /// Writes, flushes and indexes are under way.
    Flushing,
    /// Descriptors are being closed.
    Files {
        clean: bool,
    },
    Closed {
        clean: bool,
    },
}

impl Partition {
    /// Begins the end; plans and completions bring it about.
    pub fn close(&mut self, now: Micros) {
        if self.closing != Closing::No {
            return;
        }
        self.closing = Closing::Flushing;
        self.sealer.retry_now();
        if let Space::Cooling { .. } = self.space {
            self.space = Space::Trying;
        }
        self.wake();
        self.before(now);
    }

    /// Its directory failed: nothing more is written or flushed, who waits is refused, and what can
    /// be closed is.
    pub fn forsake(&mut self, now: Micros) {
        self.give_up(self.dir.clone(), 0, Errno::EIO, now);
        self.close(now);
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.closing, Closing::Closed { .. })
    }

    /// Whether everything is on the disk, indexes included: what the clean marker says of a whole
    /// directory. Never of a poisoned partition.
    pub fn closed_clean(&self) -> bool {
        self.closing == Closing::Closed { clean: true }
    }

    pub(super) fn plan_close(&mut self, now: Micros, out: &mut OpSink) {
        match self.closing {
            Closing::No | Closing::Closed { .. } => {}
            Closing::Flushing => {
                let sealed = self.segments.iter().all(|segment| segment.phase == Phase::Sealed);
                let stuck =
                    self.state != PartitionState::Open && self.state != PartitionState::NoSpace;
                let failed = self.sealer.failures > 0 && self.sealer.is_idle();
                if self.in_flight == 0 && out.is_empty() && (sealed || stuck || failed) {
                    self.close_files(sealed && !self.is_poisoned(), now, out);
                }
            }
            Closing::Files { clean } => {
                if self.in_flight == 0 && out.is_empty() {
                    self.closing = Closing::Closed { clean };
                }
            }
        }
    }

    /// A descriptor whose bytes are not all flushed stays open: closing it could lose the error
    /// that the next flush of it would report (D11).
    fn close_files(&mut self, clean: bool, now: Micros, out: &mut OpSink) {
        self.waiters.fail_all(AckError::Closed, now);
        self.fail_deleted(AckError::Closed, now);
        for segment in self.segments.iter_mut() {
            if let Some(file) = segment.open_file().filter(|_| segment.flushed == segment.written) {
                out.push(Task::Close, Op::Close { file });
                segment.file = LogFile::Closed;
                self.files.open -= 1;
            }
        }
        for held in self.files.retiring.drain(..) {
            out.push(Task::Close, Op::Close { file: held.id() });
        }
        self.closing = Closing::Files { clean };
        self.wake();
    }
}
