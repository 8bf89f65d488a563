//! Files of segments that are gone: renamed at once, unlinked later, one op at a time, so that
//! appends never wait for a mass deletion (R42).
//!
//! Owns: the order and the delay. Never does: deciding what goes; failing the log. Left: `io`,
//! `format::name`. Right: `retention`.
//!
//! A `.log` has lost its name on the disk before the next one does: whatever a power cut undoes,
//! what is left of the log has no hole. The other files mean nothing without it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::op_sink::{OpSink, Task};
use crate::format::name::{FileKind, deleted_name, file_name};
use crate::io::{Errno, Op, Outcome};
use crate::types::{Micros, Offset};

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Flight {
    Rename,
    /// Of the directory, behind the rename of a `.log`.
    Sync,
    Unlink,
}

/// A segment's files, and how far they are.
#[derive(Debug)]
struct Gone {
    base: Offset,
    /// The file that is next; the count of kinds when all are done.
    next: usize,
    /// Those that were there to be renamed.
    renamed: [bool; FileKind::ALL.len()],
    unlink_at: Micros,
}

#[derive(Debug, Default)]
pub(super) struct Removal {
    renaming: VecDeque<Gone>,
    unlinking: VecDeque<Gone>,
    in_flight: Option<Flight>,
    /// The `.log` before the next one is renamed, its name not synced.
    unsynced: bool,
    /// One would not go: what is behind it must stay too, until a restart.
    halted: bool,
}

impl Removal {
    /// Of the first segment whose `.log` may still have its name on the disk.
    pub fn first_base(&self) -> Option<Offset> {
        self.renaming.front().map(|gone| gone.base)
    }

    pub fn push(&mut self, base: Offset) {
        let renamed = [false; FileKind::ALL.len()];
        self.renaming.push_back(Gone { base, next: 0, renamed, unlink_at: Micros::NEVER });
    }

    /// The next op, or when there will be one.
    pub fn plan(&mut self, dir: &Path, now: Micros, out: &mut OpSink) -> Micros {
        if self.in_flight.is_some() {
            return Micros::NEVER;
        }
        let (flight, op) = match (self.renaming.front(), self.unlinking.front()) {
            _ if self.unsynced => (Flight::Sync, Op::SyncDir { path: dir.to_path_buf() }),
            (Some(gone), _) if !self.halted => {
                let (from, to) = paths(dir, gone);
                (Flight::Rename, Op::Rename { from, to })
            }
            (_, Some(gone)) if now >= gone.unlink_at => {
                (Flight::Unlink, Op::Unlink { path: paths(dir, gone).1 })
            }
            (_, Some(gone)) => return gone.unlink_at,
            (_, None) => return Micros::NEVER,
        };
        self.in_flight = Some(flight);
        out.push(Task::Remove, op);
        Micros::NEVER
    }

    /// Takes a completion in; `delay` is how long a renamed file stays.
    pub fn on_done(
        &mut self,
        op: &Op,
        result: &Result<Outcome, Errno>,
        now: Micros,
        delay: Micros,
    ) {
        let flight = self.in_flight.take().expect("a completion without an op");
        let failed = result.as_ref().err().filter(|errno| **errno != Errno::ENOENT);
        if let Some(errno) = failed {
            tracing::warn!(?op, %errno, "a removed segment's file stays until the next start");
        }
        match flight {
            Flight::Sync => {
                self.unsynced = false;
                self.halted |= failed.is_some();
            }
            Flight::Rename => {
                let gone = self.renaming.front_mut().expect("a rename is of the first");
                gone.renamed[gone.next] = result.is_ok();
                if FileKind::ALL[gone.next] == FileKind::Log {
                    self.unsynced = result.is_ok();
                    self.halted |= failed.is_some();
                }
                gone.next += 1;
                if gone.next == FileKind::ALL.len() {
                    let gone = self.renaming.pop_front().expect("looked at above");
                    let unlink_at = now.plus(delay);
                    self.unlinking.push_back(Gone { next: 0, unlink_at, ..gone });
                }
            }
            Flight::Unlink => {
                self.unlinking.front_mut().expect("an unlink is of the first").next += 1;
            }
        }
        self.skip_missing();
    }

    fn skip_missing(&mut self) {
        while let Some(gone) = self.unlinking.front_mut() {
            match gone.renamed.get(gone.next) {
                Some(true) => return,
                Some(false) => gone.next += 1,
                None => drop(self.unlinking.pop_front()),
            }
        }
    }
}

fn paths(dir: &Path, gone: &Gone) -> (PathBuf, PathBuf) {
    let (base, kind) = (gone.base.get(), FileKind::ALL[gone.next]);
    (dir.join(file_name(base, kind)), dir.join(deleted_name(base, kind)))
}
