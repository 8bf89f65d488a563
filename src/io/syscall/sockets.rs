//! The sockets of the syscall engine: tried at once, parked on EAGAIN, tried again on an edge.
//!
//! Owns: what epoll has said about each socket and who waits for it to say more.
//! Never does: file or timer work. Left: `epoll`, `files`, `sys`. Right: the engine above.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use super::{ANSWERED, Pending, Place, SyscallIo};
use crate::io::files::Kind;
use crate::io::op::{Errno, FileId, Op, Outcome, Tag, Token};
use crate::io::sys;
use crate::types::Micros;

/// What epoll has said about a socket, and who waits for it to say more.
#[derive(Default)]
pub(super) struct Readiness {
    readable: bool,
    writable: bool,
    hangup: bool,
    pub(super) readers: VecDeque<Token>,
    pub(super) writer: Option<Token>,
}

impl SyscallIo {
    pub(super) fn add_socket(&mut self, fd: OwnedFd, kind: Kind) -> Result<FileId, Errno> {
        let raw = fd.as_raw_fd();
        let id = self.files.insert(fd, kind);
        let slot = id.slot as usize;
        if self.sockets.len() <= slot {
            self.sockets.resize_with(slot + 1, Readiness::default);
        }
        // Unknown counts as ready: the first attempt tells.
        let state = &mut self.sockets[slot];
        assert!(state.readers.is_empty() && state.writer.is_none(), "slot {slot} is not free");
        (state.readable, state.writable, state.hangup) = (true, true, false);
        if let Err(errno) = self.epoll.watch(raw, id) {
            // Nothing holds it yet, so this close drops the descriptor.
            drop(self.files.close(id));
            return Err(errno);
        }
        Ok(id)
    }

    /// Tries a socket op once. EAGAIN: it would wait.
    fn attempt(&mut self, op: &mut Op) -> Result<Outcome, Errno> {
        self.counters.calls += 1;
        match op {
            Op::Recv { socket, into } => {
                let (fd, room) = (self.files.held_fd(*socket), into.room());
                let n = sys::recv(fd, into.spare_mut())?;
                into.grow(n as usize);
                let state = &mut self.sockets[socket.slot as usize];
                // A short read drained the socket: the next byte is a new edge. After a hang-up
                // no edge follows, so the end of the stream must be read, not waited for.
                state.readable = n as usize == room || state.hangup;
                Ok(Outcome::Bytes(n))
            }
            Op::Send { socket, bufs, more } => {
                let fd = self.files.held_fd(*socket);
                sys::send(fd, bufs, *more, &mut self.iovecs).map(Outcome::Bytes)
            }
            Op::Sendfile { socket, file, pos, len } => {
                let (to, from) = (self.files.held_fd(*socket), self.files.held_fd(*file));
                sys::sendfile(to, from, *pos, *len).map(Outcome::Bytes)
            }
            Op::Accept { listener } => {
                let (socket, peer) = sys::accept(self.files.held_fd(*listener))?;
                sys::set_nodelay(socket.as_raw_fd());
                let socket = self.add_socket(socket, Kind::Socket)?;
                Ok(Outcome::Accepted { socket, peer })
            }
            other => unreachable!("not a socket op: {other:?}"),
        }
    }

    fn attempt_through_signals(&mut self, op: &mut Op) -> Result<Outcome, Errno> {
        loop {
            match self.attempt(op) {
                Err(Errno::EINTR) => {}
                result => return result,
            }
        }
    }

    pub(super) fn start_reader(&mut self, file: FileId, op: Op, tag: Tag) -> Token {
        let wanted = if matches!(op, Op::Accept { .. }) { Kind::Listener } else { Kind::Socket };
        let mut op = match self.hold_sockets(op, tag, file, wanted) {
            Some(op) => op,
            None => return ANSWERED,
        };
        let state = &self.sockets[file.slot as usize];
        let alone = state.readers.is_empty();
        assert!(alone || wanted == Kind::Listener, "one receive in flight a socket");
        if alone && state.readable {
            match self.attempt_through_signals(&mut op) {
                Err(Errno::EAGAIN) => self.sockets[file.slot as usize].readable = false,
                result => return self.end_socket_op(op, tag, result),
            }
        }
        let token = self.pending.insert(Pending { op, tag, place: Place::Reader(file) });
        self.sockets[file.slot as usize].readers.push_back(token);
        self.parked += 1;
        token
    }

    pub(super) fn start_writer(&mut self, socket: FileId, op: Op, tag: Tag) -> Token {
        let mut op = match self.hold_sockets(op, tag, socket, Kind::Socket) {
            Some(op) => op,
            None => return ANSWERED,
        };
        let state = &self.sockets[socket.slot as usize];
        assert!(state.writer.is_none(), "one send in flight a socket");
        if state.writable {
            match self.attempt_through_signals(&mut op) {
                Err(Errno::EAGAIN) => self.sockets[socket.slot as usize].writable = false,
                result => return self.end_socket_op(op, tag, result),
            }
        }
        let token = self.pending.insert(Pending { op, tag, place: Place::Writer(socket) });
        self.sockets[socket.slot as usize].writer = Some(token);
        self.parked += 1;
        token
    }

    /// Checks a socket op and holds its files; answers it and gives `None` when it cannot run.
    fn hold_sockets(&mut self, op: Op, tag: Tag, socket: FileId, kind: Kind) -> Option<Op> {
        let source = match &op {
            Op::Sendfile { file, .. } => Some(*file),
            _ => None,
        };
        let checked = self.files.kind(socket).and_then(|found| {
            if found != kind {
                return Err(Errno(libc::ENOTSOCK));
            }
            source.map_or(Ok(()), |file| self.files.fd(file).map(drop))?;
            trivial(&op)
        });
        match checked {
            Ok(None) => {
                self.files.hold(socket);
                source.into_iter().for_each(|file| self.files.hold(file));
                Some(op)
            }
            Ok(Some(outcome)) => {
                self.finish(op, tag, Ok(outcome));
                None
            }
            Err(errno) => {
                self.finish(op, tag, Err(errno));
                None
            }
        }
    }

    fn end_socket_op(&mut self, op: Op, tag: Tag, result: Result<Outcome, Errno>) -> Token {
        match &op {
            Op::Recv { socket, .. } | Op::Send { socket, .. } => self.release(*socket),
            Op::Accept { listener } => self.release(*listener),
            Op::Sendfile { socket, file, .. } => {
                let (socket, file) = (*socket, *file);
                self.release(socket);
                self.release(file);
            }
            other => unreachable!("not a socket op: {other:?}"),
        }
        self.finish(op, tag, result);
        ANSWERED
    }

    /// Ends a hold; closes the file if that was the last and it was closed meanwhile.
    pub(super) fn release(&mut self, file: FileId) {
        if let Some((fd, kind)) = self.files.release(file) {
            self.close_fd(ANSWERED, fd, kind);
        }
    }

    pub(super) fn end_parked(&mut self, token: Token, result: Result<Outcome, Errno>) {
        let Pending { op, tag, .. } = self.pending.remove(token).expect("parked ops are pending");
        self.parked -= 1;
        self.end_socket_op(op, tag, result);
    }

    /// Tries a parked op again; true when it is done.
    fn retry(&mut self, token: Token) -> bool {
        // Taken out for the attempt: it borrows the engine.
        let placeholder = Op::Timeout { at: Micros::NEVER };
        let pending = self.pending.get_mut(token).expect("parked ops are pending");
        let mut op = std::mem::replace(&mut pending.op, placeholder);
        let result = self.attempt_through_signals(&mut op);
        self.pending.get_mut(token).expect("attempts remove nothing").op = op;
        if matches!(result, Err(Errno::EAGAIN)) {
            return false;
        }
        self.end_parked(token, result);
        true
    }

    fn on_readable(&mut self, file: FileId) {
        let slot = file.slot as usize;
        while self.sockets[slot].readable {
            let Some(&token) = self.sockets[slot].readers.front() else { return };
            // Out of the queue first: the last op of a closed file frees the slot.
            self.sockets[slot].readers.pop_front();
            if !self.retry(token) {
                self.sockets[slot].readers.push_front(token);
                self.sockets[slot].readable = false;
            }
        }
    }

    fn on_writable(&mut self, file: FileId) {
        let slot = file.slot as usize;
        let Some(token) = self.sockets[slot].writer.take() else { return };
        if !self.retry(token) {
            self.sockets[slot].writer = Some(token);
            self.sockets[slot].writable = false;
        }
    }

    /// One epoll_wait and what it brought. True when the waker was among it.
    pub(super) fn poll(&mut self, timeout: Option<Duration>) -> Result<bool, Errno> {
        self.counters.enters += 1;
        let count = self.epoll.wait(timeout)?;
        let mut woken = false;
        for index in 0..count {
            let ready = self.epoll.ready(index);
            let Some(file) = ready.file else {
                // EAGAIN: a second reader is impossible, a spurious edge is harmless.
                let _ = sys::eventfd_take(self.wake.fd());
                woken = true;
                continue;
            };
            if !self.files.is_current(file) {
                continue;
            }
            let state = &mut self.sockets[file.slot as usize];
            state.hangup |= ready.hangup;
            state.readable |= ready.readable;
            state.writable |= ready.writable;
            if ready.readable {
                self.on_readable(file);
            }
            // The first half may have ended the file's last op.
            if ready.writable && self.files.is_current(file) {
                self.on_writable(file);
            }
        }
        Ok(woken)
    }
}

/// Ops that need no call: nothing to send or write, no room to receive into.
pub(in crate::io) fn trivial(op: &Op) -> Result<Option<Outcome>, Errno> {
    match op {
        // Zero would read as the end of the stream.
        Op::Recv { into, .. } if into.room() == 0 => Err(Errno::EINVAL),
        Op::Send { bufs, .. } | Op::Write { bufs, .. } if bufs.is_empty() => {
            Ok(Some(Outcome::Bytes(0)))
        }
        Op::Sendfile { len: 0, .. } => Ok(Some(Outcome::Bytes(0))),
        _ => Ok(None),
    }
}
