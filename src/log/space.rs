//! No space left: take back what was staged, keep what was written, and try again by ourselves
//! (D12).
//!
//! Owns: the order of the steps. Never does: poisoning decisions of its own; a step that fails is
//! handed up (D11). Left: `io`. Right: `partition`.

use std::collections::VecDeque;

use super::op_sink::{OpSink, Task};
use crate::io::{Errno, Op, Outcome};
use crate::types::Micros;

/// Appends are tried again this much after they failed.
const RETRY_US: u64 = 1_000_000;

#[derive(Debug)]
pub(super) enum Space {
    Fine,
    /// Ops are still in flight; nothing new is submitted.
    Draining,
    /// The file goes back to what is written.
    Undoing {
        steps: VecDeque<Op>,
        in_flight: bool,
    },
    /// Appends are refused until then; after that the first one is a trial.
    Cooling {
        until: Micros,
    },
    /// Appends are let in again; the first finished write proves that there is space.
    Trying,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Undone {
    No,
    /// All steps are done: the active file is what is written, and on the disk.
    Yes,
    Failed(Errno),
}

impl Space {
    pub fn refuses(&self) -> bool {
        !matches!(self, Space::Fine | Space::Trying)
    }

    /// Ordinary work may be planned.
    pub fn lets_work(&self) -> bool {
        matches!(self, Space::Fine | Space::Trying)
    }

    pub fn plan(&mut self, now: Micros, out: &mut OpSink) -> Option<Micros> {
        match self {
            Space::Undoing { steps, in_flight: in_flight @ false } => {
                let op = steps.pop_front()?;
                out.push(Task::Space, op);
                *in_flight = true;
                None
            }
            Space::Cooling { until } if now >= *until => {
                *self = Space::Trying;
                None
            }
            Space::Cooling { until } => Some(*until),
            _ => None,
        }
    }

    pub fn on_done(&mut self, result: Result<Outcome, Errno>, now: Micros) -> Undone {
        let Space::Undoing { steps, in_flight } = self else {
            unreachable!("a completion belongs to an undoing")
        };
        *in_flight = false;
        match result {
            // Only an unlink gives this, and then there is nothing to take away.
            Err(errno) if errno != Errno::ENOENT => Undone::Failed(errno),
            _ if !steps.is_empty() => Undone::No,
            _ => {
                *self = Space::cooling(now);
                Undone::Yes
            }
        }
    }

    pub fn cooling(now: Micros) -> Space {
        Space::Cooling { until: now.plus(Micros(RETRY_US)) }
    }
}
