//! The engine on io_uring: ops become entries, completions become [`Done`].
//!
//! Owns: every op in flight with all memory its entry points at, until the last completion.
//! Never does: give memory back while the kernel may use it (E9), reuse a file's slot while an
//! entry may name it (E10), enter the kernel more than once a tick unless a queue is full.
//! Left: `ring`, `entries`, `files`, `inflight`, `timers`, `wake`. Right: `shard`.
//!
//! Ops without an entry (sendfile, shutdown, length, list, timeout), and buffered writes on file
//! systems where the ring would hand them to a worker thread, are direct system calls here.

mod complete;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{opcode, squeue, types};

use super::buffers::Arena;
use super::calls::{Answer, Call};
use super::entries::{self, Parts, Target, Vector};
use super::files::{Files, Kind};
use super::inflight::Inflight;
use super::op::{
    Done, Errno, FileId, Io, IoCounters, Op, Outcome, Refused, Tag, Token, Wait, Waker,
};
use super::ring::{Completion, Ring};
use super::setup::{self, Flags, SetupError};
use super::sys;
use super::timers::Timers;
use super::wake::Wake;
use crate::types::{Micros, WallMs};

/// How buffered writes go.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WritePath {
    /// As ring entries: right where the file system writes without blocking (XFS, btrfs).
    Ring,
    /// pwritev2(2) on this thread: ext4 and others make every ring write a worker's task, 20 to
    /// 40 times slower than the call.
    Direct,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UringOptions {
    /// Submission entries wanted; fewer when locked memory is short.
    pub entries: u32,
    /// Slots of the fixed-file table; files beyond them use plain descriptors.
    pub fixed_files_max: u32,
    /// The kernel's worker threads for files and for sockets, for each ring.
    pub iowq_max: [u32; 2],
    pub write_path: WritePath,
}

impl Default for UringOptions {
    fn default() -> Self {
        UringOptions {
            entries: 1024,
            fixed_files_max: 16384,
            iowq_max: [8, 4],
            write_path: WritePath::Direct,
        }
    }
}

/// Completions of our own entries; tokens stay below.
const OWN: u64 = 1 << 63;
const WAKE: u64 = OWN | 1;
const CANCEL_ALL: u64 = OWN | 2;

/// The tag of closes that come with no `Done`; it is never seen.
const UNHEARD_TAG: Tag = Tag(0);

/// The token of an op that was answered at once: finds nothing.
const ANSWERED: Token = Token(u64::MAX);

/// Completion entries kept free for our own entries.
const OWN_ENTRIES: u32 = 8;

/// Times an op is repeated when the kernel says "not now" (spurious ENOMEM before 6.14, EAGAIN
/// from a worker) before the errno is handed out.
const TRIES_MAX: u8 = 16;

/// Longest single wait for the kernel to finish what it holds, when the engine is dropped.
const DRAIN_WAIT: Duration = Duration::from_millis(100);

struct Slot {
    op: Op,
    tag: Tag,
    parts: Parts,
    /// Whether the kernel has, or will get, an entry for it (timers have none).
    in_kernel: bool,
    cancelled: bool,
    /// A close that nobody asked for in so many words: no `Done`.
    unheard: bool,
    tries: u8,
}

impl Slot {
    fn new(op: Op, tag: Tag, parts: Parts) -> Slot {
        Slot { op, tag, parts, in_kernel: true, cancelled: false, unheard: false, tries: 0 }
    }
}

pub struct UringIo {
    /// First, so that it is dropped before any memory it was told of.
    ring: Ring,
    arena: Option<Arena>,
    fixed_transfers: u64,
    files: Files,
    /// Which slots of `files` are in the ring's fixed table.
    fixed: Vec<bool>,
    slots: Inflight<Slot>,
    /// Slots with `in_kernel`.
    kernel_ops: usize,
    /// Slots with `unheard`.
    unheard: usize,
    ready: VecDeque<Done>,
    timers: Timers,
    wake: Arc<Wake>,
    /// Where the kernel puts the eventfd's count; boxed, so it stays in place.
    wake_count: Box<[u8; 8]>,
    wake_armed: bool,
    /// Entries that found the queue full; they go first at the next tick.
    deferred: VecDeque<squeue::Entry>,
    vectors: Vec<Vector>,
    iovecs: Vec<libc::iovec>,
    completions: Vec<Completion>,
    counters: IoCounters,
    write_path: WritePath,
    ops_max: usize,
}

impl UringIo {
    /// A ring for the calling thread, which alone may use it.
    pub fn new(options: UringOptions) -> Result<UringIo, SetupError> {
        let ring = Ring::new(options.entries, options.fixed_files_max, options.iowq_max)?;
        // Each op in flight has at most one completion outstanding, so the queue cannot overflow.
        let ops_max = (ring.cq_entries() - OWN_ENTRIES) as usize;
        let mut io = UringIo {
            ring,
            arena: None,
            fixed_transfers: 0,
            files: Files::new(),
            fixed: Vec::new(),
            slots: Inflight::new(ops_max),
            kernel_ops: 0,
            unheard: 0,
            ready: VecDeque::with_capacity(ops_max),
            timers: Timers::default(),
            // Blocking: the ring polls it; a non-blocking one would answer EAGAIN at once.
            wake: Wake::new(false).map_err(SetupError::Failed)?,
            wake_count: Box::new([0; 8]),
            wake_armed: false,
            deferred: VecDeque::new(),
            vectors: Vec::new(),
            iovecs: Vec::with_capacity(sys::IOV_MAX),
            completions: Vec::with_capacity(ops_max),
            counters: IoCounters::default(),
            write_path: options.write_path,
            ops_max,
        };
        io.arm_wake();
        Ok(io)
    }

    /// The set-up flags the kernel took.
    pub fn flags(&self) -> Flags {
        self.ring.flags()
    }

    /// Registers a pool's arena, so that direct transfers of its chunks spare the look-up of every
    /// page. A refusal, mostly for want of locked memory, comes as a line for the log; all works
    /// without.
    pub fn register_arena(&mut self, arena: &Arena) -> Result<(), String> {
        assert!(self.arena.is_none(), "one arena a ring");
        // SAFETY: `self.arena` keeps the memory, and is dropped after `self.ring`.
        let registered = unsafe { self.ring.register_buffer(arena.as_ptr(), arena.len()) };
        registered.map_err(|errno| setup::buffers_text(arena.len(), errno))?;
        self.arena = Some(arena.clone());
        Ok(())
    }

    /// Transfers that went through registered memory.
    pub fn fixed_transfers(&self) -> u64 {
        self.fixed_transfers
    }

    /// Submission entries, as locked memory allowed.
    pub fn entries(&self) -> u32 {
        self.ring.sq_entries()
    }

    fn arm_wake(&mut self) {
        let fd = types::Fd(self.wake.fd());
        let count = self.wake_count.as_mut_ptr();
        let entry = opcode::Read::new(fd, count, 8).build().user_data(WAKE);
        self.wake_armed = true;
        // `wake_count` is boxed and outlives the read: drop waits while `wake_armed` is set.
        self.push(entry);
    }

    /// Queues an entry, behind those that wait already. What it points at is in `slots` or in
    /// `wake_count`, in place until its completion is taken.
    fn push(&mut self, entry: squeue::Entry) {
        if !self.deferred.is_empty() || !self.push_now(&entry) {
            self.deferred.push_back(entry);
        }
    }

    /// Pushes into the submission queue, emptying it into the kernel when it is full.
    fn push_now(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: `entries` builds them from an op and its parts, which `insert_and_push` puts
        // into `slots` before it pushes, and which leave only in `end`, on the entry's
        // completion; or (`arm_wake`) they point at `wake_count`, or (cancels) at nothing.
        // `drop` waits for all completions before it frees any of these.
        let pushed = unsafe { self.ring.push(entry) };
        if pushed {
            return true;
        }
        self.counters.enters += 1;
        // A failed enter shows again, and is reported, at the next reap.
        let _ = self.ring.enter(0, None);
        // SAFETY: as above; the same entry, which was not queued.
        unsafe { self.ring.push(entry) }
    }

    fn flush_deferred(&mut self) {
        while let Some(entry) = self.deferred.pop_front() {
            if !self.push_now(&entry) {
                self.deferred.push_front(entry);
                return;
            }
        }
    }

    fn finish(&mut self, op: Op, tag: Tag, result: Result<Outcome, Errno>) {
        self.ready.push_back(Done { tag, op, result });
    }

    fn answer(&mut self, op: Op, tag: Tag, result: Result<Outcome, Errno>) -> Token {
        self.finish(op, tag, result);
        ANSWERED
    }

    fn add_file(&mut self, fd: OwnedFd, kind: Kind) -> FileId {
        let raw = fd.as_raw_fd();
        let id = self.files.insert(fd, kind);
        let slot = id.slot as usize;
        if self.fixed.len() <= slot {
            self.fixed.resize(slot + 1, false);
        }
        assert!(!self.fixed[slot], "slot {slot} is free and fixed");
        self.fixed[slot] = self.ring.fix_file(id.slot, raw);
        id
    }

    fn target(&self, file: FileId) -> Target {
        match self.fixed[file.slot as usize] {
            true => Target::Fixed(file.slot),
            false => Target::Fd(self.files.held_fd(file)),
        }
    }

    /// After `Files` gave a descriptor up: its slot leaves the fixed table.
    fn unfix(&mut self, slot: u32) {
        if std::mem::take(&mut self.fixed[slot as usize]) {
            self.ring.unfix_file(slot);
        }
    }

    fn start_entry(&mut self, op: Op, tag: Tag) -> Token {
        let mut op = op;
        let file = entries::file_of(&op);
        if let Some(file) = file {
            let checked = self.files.fd(file).and_then(|_| super::syscall::trivial(&op));
            match checked {
                Ok(None) => self.files.hold(file),
                Ok(Some(outcome)) => return self.answer(op, tag, Ok(outcome)),
                Err(errno) => return self.answer(op, tag, Err(errno)),
            }
        }
        let mut parts = match entries::prepare(&op, &mut self.vectors) {
            Ok(parts) => parts,
            Err(errno) => return self.answer(op, tag, Err(errno)),
        };
        let entry = match file {
            Some(file) => {
                let target = self.target(file);
                // Buffered transfers copy: they gain nothing from registered memory.
                let is_direct = self.files.kind(file) == Ok(Kind::DirectFile);
                let arena = self.arena.as_ref().filter(|_| is_direct);
                let fixed = arena.and_then(|arena| entries::on_arena(&mut op, target, arena));
                self.fixed_transfers += u64::from(fixed.is_some());
                fixed.unwrap_or_else(|| entries::on_file(&mut op, &mut parts, target))
            }
            None => entries::on_path(&op, &mut parts),
        };
        self.counters.punted += u64::from(entries::is_punted(&op));
        self.insert_and_push(op, tag, parts, entry)
    }

    fn insert_and_push(&mut self, op: Op, tag: Tag, parts: Parts, entry: squeue::Entry) -> Token {
        let token = self.slots.insert(Slot::new(op, tag, parts));
        assert!(token.0 < OWN, "tokens stay below our own user_data");
        self.kernel_ops += 1;
        self.push(entry.user_data(token.0));
        token
    }

    /// The same entry again, for an op that is still in its slot.
    fn resubmit(&mut self, token: Token) {
        let slot = self.slots.get(token).expect("resubmit of an op in flight");
        let target = entries::file_of(&slot.op).map(|file| self.target(file));
        let slot = self.slots.get_mut(token).expect("found above");
        let entry = match target {
            Some(target) => entries::on_file(&mut slot.op, &mut slot.parts, target),
            None => entries::on_path(&slot.op, &mut slot.parts),
        };
        self.push(entry.user_data(token.0));
    }

    /// sendfile(2) now; when the socket is full, an entry that polls for room.
    fn start_sendfile(&mut self, op: Op, tag: Tag) -> Token {
        let Op::Sendfile { socket, file, pos, len } = op else { unreachable!("only sendfile") };
        let fds = self.files.fd(socket).and_then(|to| Ok((to, self.files.fd(file)?)));
        let (to, from) = match fds {
            Ok(fds) => fds,
            Err(errno) => return self.answer(op, tag, Err(errno)),
        };
        self.counters.calls += 1;
        match sys::sendfile(to, from, pos, len) {
            Err(Errno::EAGAIN | Errno::EINTR) => {
                self.files.hold(file);
                self.start_entry(op, tag)
            }
            result => self.answer(op, tag, result.map(Outcome::Bytes)),
        }
    }

    /// A buffered write on this thread.
    fn write_direct(&mut self, op: Op, tag: Tag) -> Token {
        let Op::Write { file, pos, bufs } = &op else { unreachable!("only writes") };
        self.counters.calls += 1;
        let written = self
            .files
            .fd(*file)
            .and_then(|fd| sys::write_at(fd, bufs, *pos, &mut self.iovecs))
            .map(Outcome::Bytes);
        self.answer(op, tag, written)
    }

    fn writes_directly(&self, file: FileId) -> bool {
        self.write_path == WritePath::Direct && self.files.kind(file) != Ok(Kind::DirectFile)
    }

    /// Ops that have no entry in this kernel, as one call.
    fn start_call(&mut self, op: Op, tag: Tag) -> Token {
        let call = Call::of(&op, &self.files).expect("every other op is handled in submit");
        self.counters.calls += 1;
        let result = call.and_then(Call::run).map(|answer| match answer {
            Answer::Nothing => Outcome::Nothing,
            Answer::Len(len) => Outcome::Len(len),
            Answer::Entries(entries) => Outcome::Entries(entries),
            Answer::Stat(stat) => Outcome::Stat(stat),
            Answer::Opened(fd) => Outcome::File(self.add_file(fd, kind_of(&op))),
        });
        self.answer(op, tag, result)
    }

    fn start_close(&mut self, file: FileId, op: Op, tag: Tag) -> Token {
        let (fd, kind) = match self.files.close(file) {
            Ok(Some(closed)) => closed,
            // The last op on it will close it.
            Ok(None) => return self.answer(op, tag, Ok(Outcome::Nothing)),
            Err(errno) => return self.answer(op, tag, Err(errno)),
        };
        self.unfix(file.slot);
        if kind.is_socket() {
            self.counters.calls += 1;
            let result = sys::close(fd).map(|()| Outcome::Nothing);
            return self.answer(op, tag, result);
        }
        self.counters.punted += 1;
        let raw = fd.into_raw_fd();
        self.insert_and_push(op, tag, Parts::Closing(raw), entries::close(raw))
    }

    /// Ends an op's hold on a file; closes the file if `Close` came meanwhile.
    fn release(&mut self, file: FileId) {
        let Some((fd, kind)) = self.files.release(file) else { return };
        self.unfix(file.slot);
        if kind.is_socket() {
            self.counters.calls += 1;
            drop(fd);
            return;
        }
        self.counters.punted += 1;
        let raw = fd.into_raw_fd();
        let op = Op::Close { file };
        // The op that held the file has left its slot: there is room.
        let token = self.insert_and_push(op, UNHEARD_TAG, Parts::Closing(raw), entries::close(raw));
        self.slots.get_mut(token).expect("inserted above").unheard = true;
        self.unheard += 1;
    }

    fn cancel(&mut self, op: Op, tag: Tag, token: Token) -> Token {
        let Some(slot) = self.slots.get_mut(token) else {
            return self.answer(op, tag, Err(Errno::ENOENT));
        };
        slot.cancelled = true;
        if !slot.in_kernel {
            let timer = self.slots.remove(token).expect("found above");
            let slots = &self.slots;
            self.timers.cancelled(|token| slots.get(token).is_some());
            self.finish(timer.op, timer.tag, Err(Errno::ECANCELED));
            return self.answer(op, tag, Ok(Outcome::Nothing));
        }
        if matches!(slot.op, Op::Close { .. }) {
            // Found, and left to finish: a close half way would lose the descriptor.
            return self.answer(op, tag, Ok(Outcome::Nothing));
        }
        let entry = opcode::AsyncCancel::new(token.0).build();
        self.insert_and_push(op, tag, Parts::None, entry)
    }

    fn expire(&mut self) {
        if self.timers.is_empty() {
            return;
        }
        let now = sys::now();
        while let Some(token) = self.timers.pop_due(now) {
            if let Some(timer) = self.slots.remove(token) {
                self.finish(timer.op, timer.tag, Ok(Outcome::Nothing));
            }
        }
    }

    fn enter(&mut self, min: u32, timeout: Option<Duration>) -> Result<(), Errno> {
        self.flush_deferred();
        self.counters.enters += 1;
        self.counters.cq_overflows += u64::from(self.ring.is_overflown());
        self.ring.enter(min, timeout)
    }

    /// Sleeps once, until `deadline` at most. True when a wake-up ended it.
    fn sleep(&mut self, deadline: Option<Micros>) -> Result<bool, Errno> {
        if !self.wake.may_sleep() {
            self.enter(0, None)?;
            return Ok(true);
        }
        let until = [deadline, self.timers.next()].into_iter().flatten().min();
        let timeout = until.map(|at| sys::until(at, sys::now()));
        let entered = self.enter(1, timeout);
        let woken = self.wake.awake();
        entered.map(|()| woken)
    }
}

fn kind_of(op: &Op) -> Kind {
    match op {
        Op::Open { how, .. } if how.direct => Kind::DirectFile,
        _ => Kind::File,
    }
}

impl Drop for UringIo {
    fn drop(&mut self) {
        if self.quiesce().is_err() {
            // The ring is broken and the kernel may still write: memory is lost, not reused.
            let slots = std::mem::replace(&mut self.slots, Inflight::new(1));
            std::mem::forget(slots);
            Box::leak(std::mem::take(&mut self.wake_count));
        }
        self.ring.unfix_all();
    }
}

impl Io for UringIo {
    fn submit(&mut self, op: Op, tag: Tag) -> Result<Token, Refused> {
        if self.in_flight() >= self.ops_max || self.slots.is_full() {
            self.counters.refused += 1;
            return Err(Refused { op });
        }
        self.counters.submitted += 1;
        Ok(match op {
            Op::Sendfile { .. } => self.start_sendfile(op, tag),
            Op::Write { file, .. } if self.writes_directly(file) => self.write_direct(op, tag),
            Op::Shutdown { socket } => {
                self.counters.calls += 1;
                let result = self.files.fd(socket).and_then(sys::shutdown);
                self.answer(op, tag, result.map(|()| Outcome::Nothing))
            }
            Op::Close { file } => self.start_close(file, op, tag),
            Op::Timeout { at } => {
                let slot = Slot { in_kernel: false, ..Slot::new(op, tag, Parts::None) };
                let token = self.slots.insert(slot);
                self.timers.add(at, token);
                token
            }
            Op::Cancel { token } => self.cancel(op, tag, token),
            _ => match entries::opcode_of(&op) {
                Some(code) if self.ring.supports(code) => self.start_entry(op, tag),
                _ => self.start_call(op, tag),
            },
        })
    }

    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), Errno> {
        let deadline = match wait {
            Wait::Until(at) => Some(at),
            Wait::No | Wait::Forever => None,
        };
        self.expire();
        loop {
            if wait == Wait::No || !self.ready.is_empty() {
                if !self.deferred.is_empty() || self.ring.wants_enter() {
                    self.enter(0, None)?;
                }
                self.drain();
                self.expire();
                break;
            }
            let woken = self.sleep(deadline)?;
            self.drain();
            self.expire();
            if woken || !self.ready.is_empty() || deadline.is_some_and(|at| sys::now() >= at) {
                break;
            }
        }
        done.extend(self.ready.drain(..));
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.unheard + self.ready.len()
    }

    fn now(&self) -> Micros {
        sys::now()
    }

    fn wall_ms(&self) -> WallMs {
        sys::wall_ms()
    }

    fn listen(&mut self, addr: SocketAddr) -> Result<(FileId, SocketAddr), Errno> {
        // Blocking: kernels before 6.10 answer EAGAIN for a non-blocking listener.
        let (listener, bound) = sys::listen(addr, false)?;
        Ok((self.add_file(listener, Kind::Listener), bound))
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn counters(&self) -> IoCounters {
        self.counters
    }

    fn name(&self) -> &'static str {
        "uring"
    }
}
