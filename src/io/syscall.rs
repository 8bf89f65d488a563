//! The engine on plain system calls: the control arm, and the way where io_uring is forbidden.
//!
//! Owns: the order of attempts: sockets are tried at once and parked on EAGAIN until epoll says
//! otherwise; file reads and writes run inline; what blocks for long runs on a few workers.
//! Never does: keep an op it has answered, wait inside `submit` (unless built inline).
//! Left: `op`, `buffers`, `files`, `inflight`, `timers`, `epoll`, `pool`. Right: `shard`.
//!
//! Callers keep at most one receive and one send (or sendfile) in flight a socket: a second one
//! would have no defined order. Accepts queue.

mod sockets;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::calls::{Answer, Call};
use super::epoll::Epoll;
use super::files::{Files, Kind};
use super::inflight::Inflight;
use super::op::{
    Done, Errno, FileId, Io, IoCounters, Op, Outcome, Refused, Tag, Token, Wait, Waker,
};
use super::pool::Workers;
use super::sys;
use super::timers::Timers;
use super::wake::Wake;
use crate::types::{Micros, WallMs};
use sockets::Readiness;
pub(super) use sockets::trivial;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SyscallOptions {
    /// Ops accepted and not handed out; past it `submit` refuses.
    pub ops_max: usize,
    /// Threads for blocking calls; 0 runs them inside `submit` (tools, the control thread).
    pub workers_max: usize,
}

impl Default for SyscallOptions {
    fn default() -> Self {
        SyscallOptions { ops_max: 4096, workers_max: 4 }
    }
}

impl SyscallOptions {
    /// Everything on the calling thread.
    pub fn inline() -> Self {
        SyscallOptions { workers_max: 0, ..SyscallOptions::default() }
    }
}

/// The token of an op that was answered at once: finds nothing.
const ANSWERED: Token = Token(u64::MAX);

struct Pending {
    op: Op,
    tag: Tag,
    place: Place,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Place {
    Reader(FileId),
    Writer(FileId),
    Timer,
    Worker,
}

pub struct SyscallIo {
    /// First, so that it is dropped first: its threads use descriptors of `files`.
    workers: Workers,
    files: Files,
    sockets: Vec<Readiness>,
    pending: Inflight<Pending>,
    parked: usize,
    ready: VecDeque<Done>,
    timers: Timers,
    epoll: Epoll,
    wake: Arc<Wake>,
    iovecs: Vec<libc::iovec>,
    counters: IoCounters,
    ops_max: usize,
}

impl SyscallIo {
    pub fn new(options: SyscallOptions) -> Result<SyscallIo, Errno> {
        let wake = Wake::new(true)?;
        let epoll = Epoll::new()?;
        epoll.watch_wake(wake.fd())?;
        Ok(SyscallIo {
            workers: Workers::new(options.workers_max, Arc::clone(&wake)),
            files: Files::new(),
            sockets: Vec::new(),
            pending: Inflight::new(options.ops_max),
            parked: 0,
            ready: VecDeque::with_capacity(options.ops_max.min(1024)),
            timers: Timers::default(),
            epoll,
            wake,
            iovecs: Vec::with_capacity(sys::IOV_MAX),
            counters: IoCounters::default(),
            ops_max: options.ops_max,
        })
    }

    fn finish(&mut self, op: Op, tag: Tag, result: Result<Outcome, Errno>) {
        self.ready.push_back(Done { tag, op, result });
    }

    /// Closes a descriptor. The last close of an unlinked file frees its blocks, which may take
    /// long: a worker's task. True when the worker will answer.
    fn close_fd(&mut self, token: Token, fd: OwnedFd, kind: Kind) -> bool {
        if kind.is_socket() || self.workers.are_inline() {
            self.counters.calls += 1;
            drop(fd);
            return false;
        }
        self.punt(token, Call::Close(fd));
        true
    }

    fn punt(&mut self, token: Token, call: Call) {
        self.counters.punted += 1;
        self.workers.submit(token, call);
    }

    fn start_close(&mut self, file: FileId, op: Op, tag: Tag) -> Token {
        match self.files.close(file) {
            Ok(Some((fd, kind))) => {
                let token = self.pending.insert(Pending { op, tag, place: Place::Worker });
                if !self.close_fd(token, fd, kind) {
                    let pending = self.pending.remove(token).expect("inserted above");
                    self.finish(pending.op, tag, Ok(Outcome::Nothing));
                }
                token
            }
            Ok(None) => {
                self.finish(op, tag, Ok(Outcome::Nothing));
                ANSWERED
            }
            Err(errno) => {
                self.finish(op, tag, Err(errno));
                ANSWERED
            }
        }
    }

    fn transfer(&mut self, op: &mut Op) -> Result<Outcome, Errno> {
        self.counters.calls += 1;
        match op {
            Op::Read { file, pos, max, into } => {
                let fd = self.files.fd(*file)?;
                let len = into.room().min(*max as usize);
                let n = sys::read_at(fd, &mut into.spare_mut()[..len], *pos)?;
                into.grow(n as usize);
                Ok(Outcome::Bytes(n))
            }
            Op::Write { file, pos, bufs } => {
                let fd = self.files.fd(*file)?;
                sys::write_at(fd, bufs, *pos, &mut self.iovecs).map(Outcome::Bytes)
            }
            other => unreachable!("not a file transfer: {other:?}"),
        }
    }

    fn start_call(&mut self, op: Op, tag: Tag) -> Token {
        let call = match Call::of(&op, &self.files).expect("every other op is handled in submit") {
            Ok(call) => call,
            Err(errno) => {
                self.finish(op, tag, Err(errno));
                return ANSWERED;
            }
        };
        if self.workers.are_inline() || !call.may_block() {
            self.counters.calls += 1;
            let result = call.run();
            self.finish_call(op, tag, result);
            return ANSWERED;
        }
        if let Some(file) = file_of_call(&op) {
            self.files.hold(file);
        }
        let token = self.pending.insert(Pending { op, tag, place: Place::Worker });
        self.punt(token, call);
        token
    }

    fn finish_call(&mut self, op: Op, tag: Tag, result: Result<Answer, Errno>) {
        let result = result.map(|answer| match answer {
            Answer::Nothing => Outcome::Nothing,
            Answer::Len(len) => Outcome::Len(len),
            Answer::Entries(entries) => Outcome::Entries(entries),
            Answer::Stat(stat) => Outcome::Stat(stat),
            Answer::Opened(fd) => {
                let direct = matches!(&op, Op::Open { how, .. } if how.direct);
                let kind = if direct { Kind::DirectFile } else { Kind::File };
                Outcome::File(self.files.insert(fd, kind))
            }
        });
        self.finish(op, tag, result);
    }

    fn cancel(&mut self, token: Token) -> Result<Outcome, Errno> {
        let place = self.pending.get(token).map(|pending| pending.place).ok_or(Errno::ENOENT)?;
        match place {
            Place::Reader(file) => {
                self.sockets[file.slot as usize].readers.retain(|reader| *reader != token);
                self.end_parked(token, Err(Errno::ECANCELED));
            }
            Place::Writer(file) => {
                self.sockets[file.slot as usize].writer = None;
                self.end_parked(token, Err(Errno::ECANCELED));
            }
            Place::Timer => {
                let Pending { op, tag, .. } = self.pending.remove(token).expect("found above");
                self.finish(op, tag, Err(Errno::ECANCELED));
                let pending = &self.pending;
                self.timers.cancelled(|token| pending.get(token).is_some());
            }
            Place::Worker => {
                if self.workers.cancel(token) {
                    self.end_call(token, Err(Errno::ECANCELED));
                }
            }
        }
        Ok(Outcome::Nothing)
    }

    /// A worker has answered, or never will. Closes of held files have no op any more.
    fn end_call(&mut self, token: Token, result: Result<Answer, Errno>) {
        let Some(Pending { op, tag, .. }) = self.pending.remove(token) else { return };
        if let Some(file) = file_of_call(&op) {
            self.release(file);
        }
        self.finish_call(op, tag, result);
    }

    fn collect(&mut self) {
        while let Some((token, result)) = self.workers.collect() {
            self.end_call(token, result);
        }
        if self.timers.is_empty() {
            return;
        }
        let now = sys::now();
        while let Some(token) = self.timers.pop_due(now) {
            if let Some(Pending { op, tag, .. }) = self.pending.remove(token) {
                self.finish(op, tag, Ok(Outcome::Nothing));
            }
        }
    }

    /// Sleeps once, until `deadline` at most. True when a wake-up ended it.
    fn sleep(&mut self, deadline: Option<Micros>) -> Result<bool, Errno> {
        if !self.wake.may_sleep() {
            self.poll(Some(Duration::ZERO))?;
            return Ok(true);
        }
        let until = [deadline, self.timers.next()].into_iter().flatten().min();
        let timeout = until.map(|at| sys::until(at, sys::now()));
        let polled = self.poll(timeout);
        let woken = self.wake.awake();
        polled.map(|by_event| by_event || woken)
    }
}

fn file_of_call(op: &Op) -> Option<FileId> {
    match op {
        Op::Fdatasync { file }
        | Op::SyncRange { file, .. }
        | Op::DropCache { file }
        | Op::Truncate { file, .. }
        | Op::Len { file } => Some(*file),
        _ => None,
    }
}

impl Io for SyscallIo {
    fn submit(&mut self, op: Op, tag: Tag) -> Result<Token, Refused> {
        if self.in_flight() >= self.ops_max {
            self.counters.refused += 1;
            return Err(Refused { op });
        }
        self.counters.submitted += 1;
        let mut op = op;
        Ok(match op {
            Op::Recv { socket, .. } => self.start_reader(socket, op, tag),
            Op::Accept { listener } => self.start_reader(listener, op, tag),
            Op::Send { socket, .. } | Op::Sendfile { socket, .. } => {
                self.start_writer(socket, op, tag)
            }
            Op::Read { .. } | Op::Write { .. } => {
                let result = self.transfer(&mut op);
                self.finish(op, tag, result);
                ANSWERED
            }
            Op::Shutdown { socket } => {
                self.counters.calls += 1;
                let result = self.files.fd(socket).and_then(sys::shutdown);
                self.finish(op, tag, result.map(|()| Outcome::Nothing));
                ANSWERED
            }
            Op::Close { file } => self.start_close(file, op, tag),
            Op::Timeout { at } => {
                let token = self.pending.insert(Pending { op, tag, place: Place::Timer });
                self.timers.add(at, token);
                token
            }
            Op::Cancel { token } => {
                let result = self.cancel(token);
                self.finish(op, tag, result);
                ANSWERED
            }
            _ => self.start_call(op, tag),
        })
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), Errno> {
        let deadline = match wait {
            Wait::Until(at) => Some(at),
            Wait::No | Wait::Forever => None,
        };
        self.collect();
        loop {
            if wait == Wait::No || !self.ready.is_empty() {
                if self.parked > 0 {
                    self.poll(Some(Duration::ZERO))?;
                }
                self.collect();
                break;
            }
            let woken = self.sleep(deadline)?;
            self.collect();
            if woken || !self.ready.is_empty() || deadline.is_some_and(|at| sys::now() >= at) {
                break;
            }
        }
        done.extend(self.ready.drain(..));
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.pending.len() + self.ready.len()
    }

    fn now(&self) -> Micros {
        sys::now()
    }

    fn wall_ms(&self) -> WallMs {
        sys::wall_ms()
    }

    fn listen(&mut self, addr: SocketAddr) -> Result<(FileId, SocketAddr), Errno> {
        let (listener, bound) = sys::listen(addr, true)?;
        Ok((self.add_socket(listener, Kind::Listener)?, bound))
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn counters(&self) -> IoCounters {
        self.counters
    }

    fn name(&self) -> &'static str {
        "syscall"
    }
}
