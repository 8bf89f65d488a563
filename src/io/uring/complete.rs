//! The completion side of the ring engine: what the kernel has finished becomes [`Outcome`]s.
//!
//! Owns: results and errors of entries, repeats of those the kernel was too busy for, the wait
//! for all of them at the end. Never does: start an op.
//! Left: `entries`, `files`. Right: the engine above.

use std::os::fd::AsRawFd;

use io_uring::{opcode, types};

use super::{CANCEL_ALL, DRAIN_WAIT, Slot, TRIES_MAX, UringIo, WAKE, kind_of};
use crate::io::entries::{self, Parts};
use crate::io::files::Kind;
use crate::io::op::{Errno, Op, Outcome, Token, check};
use crate::io::ring::Completion;
use crate::io::sys;

impl UringIo {
    /// Takes what the kernel has finished.
    pub(super) fn drain(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.take(&mut completions);
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
    }

    fn complete(&mut self, completion: Completion) {
        assert!(!completion.more, "no multi-shot entry is ever submitted");
        match completion.user_data {
            WAKE => {
                self.wake_armed = false;
                self.arm_wake();
            }
            CANCEL_ALL => {}
            token => self.complete_op(Token(token), check(completion.result)),
        }
    }

    fn complete_op(&mut self, token: Token, result: Result<u32, Errno>) {
        // A stale token finds nothing (E5).
        let Some(slot) = self.slots.get_mut(token) else { return };
        match (&slot.op, result) {
            (Op::Sendfile { .. }, Ok(_)) => self.on_room(token),
            (op, Err(errno)) if is_repeated(op, errno) && slot.cancelled => {
                self.end(token, Err(Errno::ECANCELED));
            }
            (op, Err(errno)) if is_repeated(op, errno) && slot.tries < TRIES_MAX => {
                slot.tries += 1;
                self.resubmit(token);
            }
            _ => self.end(token, result),
        }
    }

    /// The socket of a sendfile has room again.
    fn on_room(&mut self, token: Token) {
        let slot = self.slots.get(token).expect("checked by the caller");
        let Op::Sendfile { socket, file, pos, len } = slot.op else { unreachable!("sendfile") };
        let cancelled = slot.cancelled;
        self.counters.calls += 1;
        match sys::sendfile(self.files.held_fd(socket), self.files.held_fd(file), pos, len) {
            Err(Errno::EAGAIN | Errno::EINTR) if !cancelled => self.resubmit(token),
            Err(Errno::EAGAIN | Errno::EINTR) => self.end(token, Err(Errno::ECANCELED)),
            result => self.end(token, result),
        }
    }

    fn end(&mut self, token: Token, result: Result<u32, Errno>) {
        let slot = self.slots.remove(token).expect("ended once");
        let Slot { mut op, tag, parts, unheard, .. } = slot;
        self.kernel_ops -= 1;
        let result = self.outcome(&mut op, parts, result);
        if unheard {
            self.unheard -= 1;
            return;
        }
        if let Some(file) = entries::file_of(&op) {
            self.release(file);
        }
        if let Op::Sendfile { file, .. } = op {
            self.release(file);
        }
        self.finish(op, tag, result);
    }

    fn outcome(
        &mut self,
        op: &mut Op,
        parts: Parts,
        result: Result<u32, Errno>,
    ) -> Result<Outcome, Errno> {
        let peer = match parts {
            Parts::Peer(peer) => sys::peer_of(&peer.storage),
            Parts::Vector(vector) => {
                self.vectors.push(vector);
                None
            }
            Parts::Stat(_, buffer) => {
                return result.map(|_| Outcome::Stat(entries::stat_of(&buffer)));
            }
            Parts::Closing(raw) => return closed(raw, result),
            Parts::None | Parts::Path(_) | Parts::Paths(..) | Parts::Dir(_) => None,
        };
        let n = match (&op, result) {
            // EALREADY: found, and too far to stop. It will still complete.
            (Op::Cancel { .. }, Err(Errno(libc::EALREADY))) => 0,
            (_, result) => result?,
        };
        Ok(match op {
            Op::Accept { .. } => {
                let socket = entries::own(n);
                sys::set_nodelay(socket.as_raw_fd());
                Outcome::Accepted { socket: self.add_file(socket, Kind::Socket), peer }
            }
            Op::Open { .. } => Outcome::File(self.add_file(entries::own(n), kind_of(op))),
            Op::Recv { into, .. } | Op::Read { into, .. } => {
                into.grow(n as usize);
                Outcome::Bytes(n)
            }
            Op::Send { .. } | Op::Sendfile { .. } | Op::Write { .. } => Outcome::Bytes(n),
            _ => Outcome::Nothing,
        })
    }

    /// Waits until the kernel holds nothing of ours (E4): cancels all, then takes every
    /// completion. Descriptors that arrive are closed by the table's drop.
    pub(super) fn quiesce(&mut self) -> Result<(), Errno> {
        while self.kernel_ops > 0 || self.wake_armed || !self.deferred.is_empty() {
            let all = types::CancelBuilder::any().all();
            let entry = opcode::AsyncCancel2::new(all).build().user_data(CANCEL_ALL);
            self.push(entry);
            self.enter(1, Some(DRAIN_WAIT))?;
            let mut completions = std::mem::take(&mut self.completions);
            self.ring.take(&mut completions);
            for completion in completions.drain(..) {
                match completion.user_data {
                    WAKE => self.wake_armed = false,
                    CANCEL_ALL => {}
                    token if self.slots.get(Token(token)).is_some() => {
                        self.end(Token(token), check(completion.result));
                    }
                    _ => {}
                }
            }
            self.completions = completions;
        }
        Ok(())
    }
}

/// Errors after which the same entry is worth another try, unseen. Never a flush (D11).
fn is_repeated(op: &Op, errno: Errno) -> bool {
    match op {
        Op::Recv { .. } | Op::Send { .. } | Op::Accept { .. } => {
            matches!(errno, Errno::EAGAIN | Errno::EINTR | Errno(libc::ENOMEM))
        }
        Op::Read { .. } | Op::Write { .. } | Op::Sendfile { .. } => errno == Errno(libc::ENOMEM),
        _ => false,
    }
}

/// A close that was cancelled before it ran is done here; else the descriptor is gone.
fn closed(raw: i32, result: Result<u32, Errno>) -> Result<Outcome, Errno> {
    match result {
        Err(Errno::ECANCELED) => sys::close(entries::own(raw as u32)),
        result => result.map(drop),
    }
    .map(|()| Outcome::Nothing)
}
