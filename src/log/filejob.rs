//! A small derived file, written beside its place, made durable and renamed, one op at a time.
//! A crash leaves the old one or the new one, whole (the caller syncs the directory).
//!
//! Owns: the steps from open to close. Never does: deciding which files (`sealing` does).
//! Left: `io`. Right: `sealing`.

use std::path::PathBuf;

use super::op_sink::{OpSink, Task};
use crate::format::name::FileState;
use crate::io::buffers::{Group, Pool};
use crate::io::op::OpenHow;
use crate::io::{Errno, FileId, Op, Outcome};

/// Bytes a write takes from the pool at once.
const STEP_BYTES: usize = 128 << 10;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Write(FileId),
    Sync(FileId),
    Close(FileId),
    Rename,
    Done,
}

/// What a plan came to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Planned {
    /// An op was emitted, or one is in flight.
    Busy,
    /// The pool had nothing to give: try again later.
    Starved,
    Done,
    /// It could not be written; it has been closed if it was open.
    Failed(Errno),
}

#[derive(Debug)]
pub(super) struct FileJob {
    path: PathBuf,
    beside: PathBuf,
    bytes: Vec<u8>,
    written: usize,
    step: Step,
    in_flight: bool,
    failed: Option<Errno>,
}

impl FileJob {
    /// The name beside is one that every start, a broker's too, takes for a leftover.
    pub fn new(path: PathBuf, bytes: Vec<u8>) -> FileJob {
        FileJob::beside(path, FileState::Cleaned.suffix(), bytes)
    }

    /// The name beside as every replacement of a checkpoint uses it.
    pub fn checkpoint(path: PathBuf, bytes: Vec<u8>) -> FileJob {
        FileJob::beside(path, ".tmp", bytes)
    }

    fn beside(path: PathBuf, suffix: &str, bytes: Vec<u8>) -> FileJob {
        let mut beside = path.as_os_str().to_owned();
        beside.push(suffix);
        let beside = PathBuf::from(beside);
        FileJob {
            path,
            beside,
            bytes,
            written: 0,
            step: Step::Open,
            in_flight: false,
            failed: None,
        }
    }

    pub fn plan(&mut self, task: Task, pool: &Pool, out: &mut OpSink) -> Planned {
        if self.in_flight {
            return Planned::Busy;
        }
        let op = match self.step {
            Step::Done => return self.failed.map_or(Planned::Done, Planned::Failed),
            Step::Open => Op::Open {
                path: self.beside.clone(),
                how: OpenHow { write: true, create: true, truncate: true, ..OpenHow::default() },
            },
            Step::Write(file) => {
                let end = self.bytes.len().min(self.written + STEP_BYTES);
                let Some(slice) = pool.copied(&self.bytes[self.written..end]) else {
                    return Planned::Starved;
                };
                Op::Write { file, pos: self.written as u64, bufs: Group::of(slice) }
            }
            Step::Sync(file) => Op::Fdatasync { file },
            Step::Close(file) => Op::Close { file },
            Step::Rename => Op::Rename { from: self.beside.clone(), to: self.path.clone() },
        };
        out.push(task, op);
        self.in_flight = true;
        Planned::Busy
    }

    pub fn on_done(&mut self, result: Result<Outcome, Errno>) {
        assert!(self.in_flight, "a completion without an op");
        self.in_flight = false;
        self.step = match (self.step, result) {
            (step @ (Step::Open | Step::Write(_)), Err(errno)) if errno.is_transient() => step,
            (Step::Open, Ok(Outcome::File(file))) => self.after_write(file),
            (Step::Write(_), Ok(Outcome::Bytes(0))) => self.fail(Errno::EIO),
            (Step::Write(file), Ok(Outcome::Bytes(n))) => {
                self.written += n as usize;
                self.after_write(file)
            }
            (Step::Sync(file), Ok(_)) => Step::Close(file),
            (Step::Close(_), _) if self.failed.is_none() => Step::Rename,
            (Step::Close(_), _) | (Step::Rename, Ok(_)) => Step::Done,
            (_, Err(errno)) => self.fail(errno),
            (step, Ok(outcome)) => unreachable!("{step:?} gave {outcome:?}"),
        };
    }

    fn after_write(&self, file: FileId) -> Step {
        if self.written < self.bytes.len() { Step::Write(file) } else { Step::Sync(file) }
    }

    /// A derived file holds nothing that cannot be made again: it may be closed dirty.
    fn fail(&mut self, errno: Errno) -> Step {
        self.failed = Some(errno);
        match self.step {
            Step::Write(file) | Step::Sync(file) => Step::Close(file),
            _ => Step::Done,
        }
    }
}
