//! A rolled segment's last steps: its indexes and its name on the disk, so that recovery may trust
//! it unseen (D7).
//!
//! Owns: the order of the steps, one segment at a time. Never does: the ack path waits for none of
//! this; a failure only holds the recovery point back. Left: `filejob`. Right: `partition`, `closing`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::filejob::{FileJob, Planned};
use super::op_sink::{OpSink, Task};
use super::segment::{IndexBytes, Segment};
use crate::format::name::{FileKind, file_name};
use crate::io::buffers::Pool;
use crate::io::{Errno, Op, Outcome};
use crate::types::Micros;

/// After a failure the files are tried again this much later.
const RETRY_US: u64 = 5_000_000;
/// After the buffer pool had nothing to give.
const STARVED_US: u64 = 1_000;

#[derive(Debug)]
enum Step {
    Files,
    /// The directory is being synced.
    Naming,
}

#[derive(Debug)]
struct Seal {
    segment: u32,
    files: VecDeque<FileJob>,
    step: Step,
}

/// What a plan or a completion came to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum SealState {
    Idle,
    Busy,
    /// Nothing before this time.
    Later(Micros),
}

#[derive(Debug)]
pub(super) struct Sealer {
    dir: PathBuf,
    current: Option<Seal>,
    retry_at: Micros,
    /// Failures in a row.
    pub failures: u32,
}

impl Sealer {
    pub fn new(dir: &Path) -> Sealer {
        Sealer { dir: dir.to_path_buf(), current: None, retry_at: Micros(0), failures: 0 }
    }

    pub fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Begins with a segment whose bytes are all on the disk. `extra` is written beside the
    /// indexes: the producer snapshot.
    pub fn start(&mut self, number: u32, segment: &mut Segment, extra: Option<FileJob>) {
        assert!(self.current.is_none(), "one segment is sealed at a time");
        assert_eq!(segment.flushed, segment.staged, "only complete segments are sealed");
        segment.index.close();
        let mut files = VecDeque::new();
        if let IndexBytes::Held { offset, time } = &segment.index.bytes {
            files.push_back(self.file(segment, FileKind::OffsetIndex, offset));
            files.push_back(self.file(segment, FileKind::TimeIndex, time));
        }
        files.extend(extra);
        self.current = Some(Seal { segment: number, files, step: Step::Files });
    }

    fn file(&self, segment: &Segment, kind: FileKind, bytes: &[u8]) -> FileJob {
        FileJob::new(self.dir.join(file_name(segment.base.get(), kind)), bytes.to_vec())
    }

    /// Whether the next segment may begin, and if not, when.
    pub fn may_start(&self, now: Micros) -> SealState {
        match self.current {
            Some(_) => SealState::Busy,
            None if now < self.retry_at => SealState::Later(self.retry_at),
            None => SealState::Idle,
        }
    }

    pub fn plan(&mut self, pool: &Pool, now: Micros, out: &mut OpSink) -> SealState {
        let Some(seal) = &mut self.current else { return SealState::Idle };
        if matches!(seal.step, Step::Naming) {
            return SealState::Busy;
        }
        while let Some(job) = seal.files.front_mut() {
            match job.plan(Task::Seal, pool, out) {
                Planned::Busy => return SealState::Busy,
                Planned::Starved => return SealState::Later(now.plus(Micros(STARVED_US))),
                Planned::Done => drop(seal.files.pop_front()),
                Planned::Failed(errno) => return self.fail(errno, now),
            }
        }
        seal.step = Step::Naming;
        out.push(Task::Seal, Op::SyncDir { path: self.dir.clone() });
        SealState::Busy
    }

    fn fail(&mut self, errno: Errno, now: Micros) -> SealState {
        self.current = None;
        self.failures += 1;
        self.retry_at = now.plus(Micros(RETRY_US));
        tracing::warn!(dir = %self.dir.display(), %errno, "indexes not written; trying again later");
        SealState::Later(self.retry_at)
    }

    /// Gives the number of the segment that is now sealed, if this was its last step.
    pub fn on_done(&mut self, result: Result<Outcome, Errno>, now: Micros) -> Option<u32> {
        let seal = self.current.as_mut().expect("a completion belongs to a seal");
        match (&seal.step, result) {
            (Step::Files, result) => {
                seal.files.front_mut().expect("an op belongs to a file").on_done(result);
                None
            }
            (Step::Naming, Ok(_)) => {
                let number = seal.segment;
                self.current = None;
                self.failures = 0;
                Some(number)
            }
            (Step::Naming, Err(errno)) => {
                self.fail(errno, now);
                None
            }
        }
    }
}
