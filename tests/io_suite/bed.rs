//! What a suite body stands on: an engine of some kind, a directory, peers on its sockets.
//!
//! Owns: the constructors of every engine, and the harness that counts completions.
//! Never does: assert what an op means (the bodies do).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringlog::io::buffers::{Group, Pool, Slice, Window};
use ringlog::io::op::OpenHow;
use ringlog::io::sim::{SimIo, SimSocket, World};
use ringlog::io::syscall::{SyscallIo, SyscallOptions};
use ringlog::io::uring::{UringIo, UringOptions, WritePath};
use ringlog::io::{Done, Errno, FileId, Io, Op, Outcome, Tag, Token, Wait};
use ringlog::types::Micros;

/// A test that hears nothing for so long has found a lost completion.
const PATIENCE: Duration = Duration::from_secs(20);

pub const SEED: u64 = 0x5eed;

/// Worlds that each body runs in; the last seed printed is the one that failed.
const SIM_SEEDS: u64 = 12;

/// The other end of a connection to the engine under test.
pub trait Peer {
    fn send(&mut self, bytes: &[u8]);
    /// What has arrived by now; may be nothing.
    fn recv(&mut self) -> Vec<u8>;
    /// The engine's side has ended and all of it was received.
    fn at_end(&mut self) -> bool;
}

/// One kind of engine and the world around it.
pub trait Bed: Sized {
    type Engine: Io;
    /// True when other threads can wake the engine.
    const THREADS: bool;
    /// The beds to run each body on; none where this machine cannot run the engine, and then a
    /// line on stdout says why.
    fn make() -> impl Iterator<Item = Self>;
    /// An engine that refuses past this many ops.
    fn engine(&self, queue_max: usize) -> Self::Engine;
    /// An empty directory that is there.
    fn dir(&self) -> &Path;
    fn connect(&self, to: SocketAddr) -> Box<dyn Peer>;
}

pub struct Sim(World);

impl Bed for Sim {
    type Engine = SimIo;
    const THREADS: bool = false;

    fn make() -> impl Iterator<Item = Sim> {
        (SEED..SEED + SIM_SEEDS).map(|seed| {
            println!("seed {seed:#x}");
            let world = World::new(seed);
            world.make_dir_durably("/bed");
            Sim(world)
        })
    }

    fn engine(&self, queue_max: usize) -> SimIo {
        self.0.faults(|faults| {
            faults.queue_max = queue_max;
            // Few enough that a body which leaks descriptors runs out of them.
            faults.files_max = 32;
        });
        self.0.engine()
    }

    fn dir(&self) -> &Path {
        Path::new("/bed")
    }

    fn connect(&self, to: SocketAddr) -> Box<dyn Peer> {
        Box::new(self.0.connect(to))
    }
}

impl Peer for SimSocket {
    fn send(&mut self, bytes: &[u8]) {
        SimSocket::send(self, bytes);
    }

    fn recv(&mut self) -> Vec<u8> {
        SimSocket::recv(self)
    }

    fn at_end(&mut self) -> bool {
        SimSocket::at_end(self)
    }
}

/// Plain system calls, blocking ones on workers.
pub struct Syscall(tempfile::TempDir);

impl Bed for Syscall {
    type Engine = SyscallIo;
    const THREADS: bool = true;

    fn make() -> impl Iterator<Item = Syscall> {
        std::iter::once(Syscall(tempfile::tempdir().unwrap()))
    }

    fn engine(&self, queue_max: usize) -> SyscallIo {
        let options = SyscallOptions { ops_max: queue_max, ..SyscallOptions::default() };
        SyscallIo::new(options).unwrap()
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn connect(&self, to: SocketAddr) -> Box<dyn Peer> {
        Box::new(TcpPeer::connect(to))
    }
}

/// Plain system calls, everything on the calling thread.
pub struct SyscallInline(tempfile::TempDir);

impl Bed for SyscallInline {
    type Engine = SyscallIo;
    const THREADS: bool = true;

    fn make() -> impl Iterator<Item = SyscallInline> {
        std::iter::once(SyscallInline(tempfile::tempdir().unwrap()))
    }

    fn engine(&self, queue_max: usize) -> SyscallIo {
        let options = SyscallOptions { ops_max: queue_max, ..SyscallOptions::inline() };
        SyscallIo::new(options).unwrap()
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn connect(&self, to: SocketAddr) -> Box<dyn Peer> {
        Box::new(TcpPeer::connect(to))
    }
}

/// The ring, buffered writes as system calls.
pub struct Uring(tempfile::TempDir);

/// The ring, buffered writes as entries too.
pub struct UringWrites(tempfile::TempDir);

/// Entries enough for this many ops in flight; `None`, with a line, where there is no ring.
fn ring(ops: usize, write_path: WritePath) -> Option<UringIo> {
    let entries = (ops / 4).max(1) as u32;
    match UringIo::new(UringOptions { entries, write_path, ..UringOptions::default() }) {
        Ok(io) => Some(io),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

impl Bed for Uring {
    type Engine = UringIo;
    const THREADS: bool = true;

    fn make() -> impl Iterator<Item = Uring> {
        ring(1, WritePath::Direct).map(|_| Uring(tempfile::tempdir().unwrap())).into_iter()
    }

    fn engine(&self, queue_max: usize) -> UringIo {
        ring(queue_max, WritePath::Direct).expect("a ring was made before")
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn connect(&self, to: SocketAddr) -> Box<dyn Peer> {
        Box::new(TcpPeer::connect(to))
    }
}

impl Bed for UringWrites {
    type Engine = UringIo;
    const THREADS: bool = true;

    fn make() -> impl Iterator<Item = UringWrites> {
        ring(1, WritePath::Ring).map(|_| UringWrites(tempfile::tempdir().unwrap())).into_iter()
    }

    fn engine(&self, queue_max: usize) -> UringIo {
        ring(queue_max, WritePath::Ring).expect("a ring was made before")
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn connect(&self, to: SocketAddr) -> Box<dyn Peer> {
        Box::new(TcpPeer::connect(to))
    }
}

/// A real peer whose sends go out of a buffer of its own, so that the one test thread never waits.
struct TcpPeer {
    stream: TcpStream,
    outbox: Vec<u8>,
    ended: bool,
}

impl TcpPeer {
    fn connect(to: SocketAddr) -> TcpPeer {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
        TcpPeer { stream, outbox: Vec::new(), ended: false }
    }

    fn push(&mut self) {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(n) => drop(self.outbox.drain(..n)),
                Err(_) => return,
            }
        }
    }
}

impl Peer for TcpPeer {
    fn send(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
        self.push();
    }

    fn recv(&mut self) -> Vec<u8> {
        self.push();
        let mut bytes = vec![0; 64 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => {
                self.ended = true;
                Vec::new()
            }
            Ok(n) => bytes[..n].to_vec(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Vec::new(),
            Err(_) => {
                self.ended = true;
                Vec::new()
            }
        }
    }

    fn at_end(&mut self) -> bool {
        assert!(self.ended || self.recv().is_empty(), "bytes before the end");
        self.ended
    }
}

impl Drop for TcpPeer {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// An engine under test: gives each op a tag of its own, and holds the engine to one `Done` each.
pub struct Rig<B: Bed> {
    pub bed: B,
    pub io: B::Engine,
    pub pool: Pool,
    next_tag: u64,
    open: BTreeSet<u64>,
    done: BTreeMap<u64, Done>,
}

impl<B: Bed> Rig<B> {
    pub fn new(bed: B) -> Rig<B> {
        Rig::with_queue(bed, 1024)
    }

    pub fn with_queue(bed: B, queue_max: usize) -> Rig<B> {
        let io = bed.engine(queue_max);
        let (open, done) = (BTreeSet::new(), BTreeMap::new());
        Rig { bed, io, pool: Pool::new(64 << 20), next_tag: 0, open, done }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.bed.dir().join(name)
    }

    pub fn window(&self, capacity: usize) -> Window {
        self.pool.window(capacity).unwrap()
    }

    pub fn slice(&self, bytes: &[u8]) -> Slice {
        self.pool.copied(bytes).unwrap()
    }

    pub fn group(&self, parts: &[&[u8]]) -> Group {
        let mut group = Group::new();
        parts.iter().for_each(|part| group.push(self.slice(part)));
        group
    }

    /// Submits; the tag names the op from here on.
    pub fn start(&mut self, op: Op) -> (u64, Token) {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.open.insert(tag);
        (tag, self.io.submit(op, Tag(tag)).expect("the queue has room"))
    }

    /// One reap of at most a millisecond.
    pub fn turn(&mut self) {
        let until = self.io.now().plus(Micros::from_ms(1));
        self.reap(Wait::Until(until));
    }

    pub fn reap(&mut self, wait: Wait) {
        let mut done = Vec::new();
        self.io.reap(wait, &mut done).unwrap();
        for one in done {
            let tag = one.tag.0;
            assert!(self.open.remove(&tag), "a second Done, or one of nobody: {one:?}");
            self.done.insert(tag, one);
        }
        assert_eq!(self.io.in_flight(), self.open.len(), "in flight: accepted, not handed out");
    }

    pub fn is_done(&self, tag: u64) -> bool {
        self.done.contains_key(&tag)
    }

    /// Reaps until this is so.
    pub fn until(&mut self, what: &str, mut so: impl FnMut(&mut Rig<B>) -> bool) {
        let begun = Instant::now();
        while !so(self) {
            assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
            self.turn();
        }
    }

    /// Reaps until this op is done.
    pub fn finish(&mut self, tag: u64) -> Done {
        self.until("a Done", |rig| rig.is_done(tag));
        self.done.remove(&tag).unwrap()
    }

    pub fn run(&mut self, op: Op) -> Done {
        let (tag, _) = self.start(op);
        self.finish(tag)
    }

    pub fn ok(&mut self, op: Op) -> Outcome {
        let done = self.run(op);
        done.result.unwrap_or_else(|errno| panic!("{:?} gave {errno:?}", done.op))
    }

    pub fn errno(&mut self, op: Op) -> Errno {
        let done = self.run(op);
        done.result.err().unwrap_or_else(|| panic!("{:?} went well", done.op))
    }

    pub fn open(&mut self, name: &str, how: OpenHow) -> FileId {
        match self.ok(Op::Open { path: self.path(name), how }) {
            Outcome::File(file) => file,
            other => panic!("open gave {other:?}"),
        }
    }

    pub fn create(&mut self, name: &str) -> FileId {
        self.open(name, CREATE)
    }

    pub fn write(&mut self, file: FileId, pos: u64, bytes: &[u8]) {
        let bufs = self.group(&[bytes]);
        let moved = bytes_of(self.ok(Op::Write { file, pos, bufs }));
        assert_eq!(moved, bytes.len(), "no engine is short without a fault");
    }

    pub fn read(&mut self, file: FileId, pos: u64, max: usize) -> Vec<u8> {
        let into = self.window(max.max(1));
        let done = self.run(Op::Read { file, pos, max: max as u32, into });
        let moved = bytes_of(done.result.unwrap());
        let Op::Read { into, .. } = done.op else { panic!("the op came back as {:?}", done.op) };
        assert_eq!(into.len(), moved);
        into.bytes().to_vec()
    }

    pub fn len(&mut self, file: FileId) -> u64 {
        match self.ok(Op::Len { file }) {
            Outcome::Len(len) => len,
            other => panic!("len gave {other:?}"),
        }
    }

    /// A listener, a peer connected to it, and the engine's end of that connection.
    pub fn connection(&mut self) -> (FileId, Box<dyn Peer>) {
        let (listener, addr) = self.io.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let peer = self.bed.connect(addr);
        let Outcome::Accepted { socket, .. } = self.ok(Op::Accept { listener }) else {
            panic!("accept gave something else")
        };
        self.ok(Op::Close { file: listener });
        (socket, peer)
    }

    /// Receives once; empty at the end.
    pub fn recv(&mut self, socket: FileId) -> Vec<u8> {
        let into = self.window(4096);
        let done = self.run(Op::Recv { socket, into });
        received(done)
    }

    /// Gathers from the peer until it has `n` bytes.
    pub fn gather(&mut self, peer: &mut dyn Peer, n: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.until("bytes at the peer", |_| {
            bytes.extend(peer.recv());
            bytes.len() >= n
        });
        bytes
    }

    /// Nothing is in flight, and every buffer has come home.
    pub fn settled(mut self) {
        self.until("the last Done", |rig| rig.open.is_empty());
        self.done.clear();
        assert_eq!(self.pool.in_use(), 0, "bytes of chunks that some op kept");
    }
}

pub const CREATE: OpenHow =
    OpenHow { write: true, create: true, exclusive: false, truncate: false, direct: false };

pub fn bytes_of(outcome: Outcome) -> usize {
    match outcome {
        Outcome::Bytes(n) => n as usize,
        other => panic!("a transfer gave {other:?}"),
    }
}

pub fn received(done: Done) -> Vec<u8> {
    let moved = bytes_of(done.result.unwrap());
    let Op::Recv { into, .. } = done.op else { panic!("the op came back as {:?}", done.op) };
    assert_eq!(into.len(), moved);
    into.bytes().to_vec()
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ seed).collect()
}
