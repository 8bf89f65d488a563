//! What only a real kernel can show: both engines over real files and sockets.
//!
//! Owns: transfers, readiness, timers and wake-ups over real descriptors, and the paths that the
//! probe names. The engine-independent contract is in `io_suite/`.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};

use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::{Group, Pool};
use ringlog::io::engine::EngineKind;
use ringlog::io::op::{IoCounters, OpenHow, Waker};
use ringlog::io::probe::paths::{self, Path};
use ringlog::io::probe::{DirFacts, Features};
use ringlog::io::syscall::{SyscallIo, SyscallOptions};
use ringlog::io::uring::{UringIo, UringOptions, WritePath};
use ringlog::io::{Done, Errno, FileId, Io, Op, Outcome, Refused, Tag, Token, Wait};
use ringlog::types::{Micros, WallMs};

const CREATE: OpenHow =
    OpenHow { write: true, create: true, exclusive: false, truncate: false, direct: false };

/// Any engine, as one type.
struct Boxed(Box<dyn Io>);

impl Io for Boxed {
    fn submit(&mut self, op: Op, tag: Tag) -> Result<Token, Refused> {
        self.0.submit(op, tag)
    }
    fn reap(&mut self, wait: Wait, done: &mut Vec<Done>) -> Result<(), Errno> {
        self.0.reap(wait, done)
    }
    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
    fn now(&self) -> Micros {
        self.0.now()
    }
    fn wall_ms(&self) -> WallMs {
        self.0.wall_ms()
    }
    fn listen(&mut self, addr: SocketAddr) -> Result<(FileId, SocketAddr), Errno> {
        self.0.listen(addr)
    }
    fn waker(&self) -> Waker {
        self.0.waker()
    }
    fn counters(&self) -> IoCounters {
        self.0.counters()
    }
    fn name(&self) -> &'static str {
        self.0.name()
    }
}

/// An engine under test and the memory of its ops.
struct Rig {
    io: Boxed,
    pool: Pool,
}

fn rigs() -> Vec<Rig> {
    let pooled = SyscallIo::new(SyscallOptions::default()).unwrap();
    let inline = SyscallIo::new(SyscallOptions::inline()).unwrap();
    let mut engines = vec![Box::new(pooled) as Box<dyn Io>, Box::new(inline)];
    for write_path in [WritePath::Direct, WritePath::Ring] {
        match UringIo::new(UringOptions { write_path, entries: 64, ..UringOptions::default() }) {
            Ok(ring) => engines.push(Box::new(ring)),
            Err(error) => println!("skipped on the ring: {error}"),
        }
    }
    engines.into_iter().map(|io| Rig { io: Boxed(io), pool: Pool::new(64 << 20) }).collect()
}

impl Rig {
    fn submit(&mut self, op: Op, tag: u64) -> Token {
        self.io.submit(op, Tag(tag)).expect("the queue has room")
    }

    /// The next `count` completions, sorted by tag.
    fn finish(&mut self, count: usize) -> Vec<Done> {
        let mut done = Vec::new();
        while done.len() < count {
            self.io.reap(Wait::Forever, &mut done).unwrap();
        }
        done.sort_by_key(|one| one.tag.0);
        done
    }

    fn one(&mut self, op: Op) -> Done {
        self.submit(op, 7);
        let mut done = self.finish(1);
        assert_eq!((done.len(), done[0].tag), (1, Tag(7)));
        done.remove(0)
    }

    fn open(&mut self, path: &std::path::Path, how: OpenHow) -> FileId {
        match self.one(Op::Open { path: path.to_path_buf(), how }).result {
            Ok(Outcome::File(file)) => file,
            other => panic!("open: {other:?}"),
        }
    }

    fn close(&mut self, file: FileId) {
        self.one(Op::Close { file }).result.unwrap();
    }

    /// A connected pair: our end and the test's.
    fn pair(&mut self, listener: FileId, addr: SocketAddr) -> (FileId, TcpStream) {
        self.submit(Op::Accept { listener }, 1);
        let peer = TcpStream::connect(addr).unwrap();
        match self.finish(1).remove(0).result {
            Ok(Outcome::Accepted { socket, peer: Some(from) }) => {
                assert_eq!(from, peer.local_addr().unwrap());
                (socket, peer)
            }
            other => panic!("accept: {other:?}"),
        }
    }

    fn listen(&mut self) -> (FileId, SocketAddr) {
        self.io.listen("127.0.0.1:0".parse().unwrap()).unwrap()
    }
}

fn bytes_of(outcome: &Result<Outcome, Errno>) -> u32 {
    match outcome {
        Ok(Outcome::Bytes(n)) => *n,
        other => panic!("{other:?} instead of bytes"),
    }
}

/// Bytes that differ everywhere.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

/// The same calls on each engine: the same bytes in the files, the same answers.
#[test]
fn every_engine_leaves_the_same_bytes() {
    let mut results = Vec::new();
    for mut rig in rigs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = rig.open(&path, CREATE);
        let mut answers = Vec::new();
        // In flight together, backwards, over disjoint ranges (R66).
        for index in (0..64u64).rev() {
            let data = pattern(5000, index as u8);
            let mut bufs = Group::of(rig.pool.copied(&data[..1]).unwrap());
            bufs.push(rig.pool.copied(&data[1..]).unwrap());
            rig.submit(Op::Write { file, pos: index * 5000, bufs }, index);
        }
        answers.extend(rig.finish(64).iter().map(|one| bytes_of(&one.result)));
        rig.one(Op::Fdatasync { file }).result.unwrap();
        rig.one(Op::Truncate { file, len: 300_001 }).result.unwrap();
        let into = rig.pool.window(9000).unwrap();
        let done = rig.one(Op::Read { file, pos: 296_000, max: 9000, into });
        answers.push(bytes_of(&done.result));
        rig.close(file);
        results.push((rig.io.name(), answers, std::fs::read(&path).unwrap()));
    }
    for (name, answers, bytes) in &results[1..] {
        assert!((answers, bytes) == (&results[0].1, &results[0].2), "{name} differs");
    }
}

/// Direct transfers of an arena's chunks go through registered memory, and no others.
#[test]
fn registered_memory_carries_the_same_bytes() {
    const LEN: usize = 128 << 10;
    let Ok(mut io) = UringIo::new(UringOptions::default()) else {
        return println!("skipped: no ring");
    };
    let pool = Pool::with_arena(16 << 20, 2 << 20);
    if let Err(line) = io.register_arena(&pool.arena().unwrap()) {
        return println!("skipped: {line}");
    }
    // Beside the crate, on a disk: not every file system in memory has direct I/O.
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    if !DirFacts::probe(dir.path()).unwrap().direct.works {
        return println!("skipped: no direct I/O here");
    }
    for (direct, fixed) in [(true, 3), (false, 0)] {
        let path = dir.path().join(format!("direct-{direct}"));
        let data = pattern(LEN, 9);
        let before = io.fixed_transfers();
        let mut blocking = Blocking::new(&mut io, pool.clone());
        let file = blocking.open(&path, OpenHow { direct, ..CREATE }).unwrap();
        blocking.write_at(file, 0, &data).unwrap();
        blocking.write_at(file, LEN as u64, &data).unwrap();
        let mut back = vec![0; LEN];
        assert_eq!(blocking.read_at(file, LEN as u64, &mut back), Ok(LEN));
        blocking.close(file).unwrap();
        assert!(back == data && std::fs::read(&path).unwrap() == [&data[..], &data].concat());
        assert_eq!(io.fixed_transfers() - before, fixed, "direct: {direct}");
    }
}

/// What the probe says about each op is what the engines' counters show.
#[test]
fn ops_take_the_paths_that_the_probe_names() {
    let features = Features::probe();
    let dir = tempfile::tempdir().unwrap();
    let facts = DirFacts::probe(dir.path()).unwrap();
    let mut engines = vec![EngineKind::Syscall];
    if features.has_uring() {
        engines.push(EngineKind::Uring);
    }
    for engine in engines {
        let table = paths::table(engine, &features, &facts);
        let mut rig = match engine {
            EngineKind::Syscall => rigs().remove(0),
            _ => {
                let write_path = facts.write_path();
                let options = UringOptions { write_path, ..UringOptions::default() };
                Rig { io: Boxed(Box::new(UringIo::new(options).unwrap())), pool: Pool::new(4096) }
            }
        };
        let seen = seen_paths(&mut rig, dir.path());
        for (operation, seen) in seen {
            let row = table.iter().find(|row| row.operation.starts_with(operation));
            let row = row.unwrap_or_else(|| panic!("{operation} is not in the table"));
            let told = match row.path {
                Path::RingInline | Path::Epoll | Path::Timer => Seen::Neither,
                Path::Direct => Seen::Call,
                Path::RingWorker | Path::Pool => Seen::Punt,
            };
            assert_eq!(seen, told, "{operation} on {engine}: {}", row.why);
        }
    }
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Seen {
    Call,
    Punt,
    Neither,
}

/// Runs one op of each kind and looks at what was counted.
fn seen_paths(rig: &mut Rig, dir: &std::path::Path) -> Vec<(&'static str, Seen)> {
    let path = dir.join("seen");
    let mut seen = Vec::new();
    let mut run = |rig: &mut Rig, name, op| {
        let before = rig.io.counters();
        let done = rig.one(op);
        let after = rig.io.counters();
        let kind = match (after.calls - before.calls, after.punted - before.punted) {
            (0, 0) => Seen::Neither,
            (_, 0) => Seen::Call,
            (0, _) => Seen::Punt,
            both => panic!("{name}: {both:?} calls and punts"),
        };
        seen.push((name, kind));
        done.result.unwrap_or_else(|errno| panic!("{name}: {errno:?}"))
    };
    let open = Op::Open { path: path.clone(), how: CREATE };
    let Outcome::File(file) = run(rig, "open, creating", open) else { panic!("no file") };
    let bufs = Group::of(rig.pool.copied(b"some bytes").unwrap());
    run(rig, "write, buffered", Op::Write { file, pos: 0, bufs });
    let into = rig.pool.window(10).unwrap();
    run(rig, "read", Op::Read { file, pos: 0, max: 10, into });
    run(rig, "flush", Op::Fdatasync { file });
    run(rig, "start write-back", Op::SyncRange { file, pos: 0, len: 10 });
    run(rig, "drop cache", Op::DropCache { file });
    run(rig, "truncate", Op::Truncate { file, len: 3 });
    run(rig, "close, file", Op::Close { file });
    run(rig, "stat", Op::Stat { path: path.clone() });
    run(rig, "sync directory", Op::SyncDir { path: dir.to_path_buf() });
    let to = dir.join("moved");
    run(rig, "rename", Op::Rename { from: path, to: to.clone() });
    run(rig, "open, existing", Op::Open { path: to, how: OpenHow::default() });
    run(rig, "timeout", Op::Timeout { at: Micros(0) });
    seen
}

#[test]
fn a_full_socket_parks_sends_and_sendfile_until_there_is_room() {
    for mut rig in rigs() {
        let dir = tempfile::tempdir().unwrap();
        let data = pattern(6 << 20, 3);
        std::fs::write(dir.path().join("f"), &data).unwrap();
        let file = rig.open(&dir.path().join("f"), OpenHow::default());
        let (listener, addr) = rig.listen();
        let (socket, mut peer) = rig.pair(listener, addr);
        let reader = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(30));
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            all
        });
        let mut bufs = Group::new();
        for piece in data.chunks(100_000) {
            bufs.push(rig.pool.copied(piece).unwrap());
        }
        while !bufs.is_empty() {
            let done = rig.one(Op::Send { socket, bufs, more: true });
            let Op::Send { bufs: back, .. } = done.op else { panic!("another op came back") };
            bufs = back;
            bufs.advance(bytes_of(&done.result) as usize);
        }
        let mut pos = 0;
        while pos < data.len() as u64 {
            let len = (data.len() as u64 - pos) as u32;
            let sent = bytes_of(&rig.one(Op::Sendfile { socket, file, pos, len }).result);
            assert!(sent > 0, "no progress at {pos}");
            pos += u64::from(sent);
        }
        rig.one(Op::Shutdown { socket }).result.unwrap();
        let all = reader.join().unwrap();
        assert_eq!(all.len(), 2 * data.len());
        assert!(all[..data.len()] == data && all[data.len()..] == data);
    }
}

#[test]
fn timers_cancels_and_wakes() {
    for mut rig in rigs() {
        let now = rig.io.now();
        let late = rig.submit(Op::Timeout { at: now.plus(Micros(3_600_000_000)) }, 1);
        rig.submit(Op::Timeout { at: now.plus(Micros(2000)) }, 2);
        let done = rig.finish(1);
        assert_eq!(done[0].tag, Tag(2));
        assert!(rig.io.now() >= now.plus(Micros(2000)));
        rig.submit(Op::Cancel { token: late }, 3);
        let done = rig.finish(2);
        assert_eq!(done[0].result.as_ref().unwrap_err(), &Errno::ECANCELED);
        assert!(done[1].result.is_ok());
        rig.submit(Op::Cancel { token: late }, 4);
        assert_eq!(rig.finish(1)[0].result.as_ref().unwrap_err(), &Errno::ENOENT);
        let mut none = Vec::new();
        for wait in [Wait::Forever, Wait::Until(Micros::NEVER)] {
            let waker = rig.io.waker();
            let other = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                waker.wake();
            });
            let before = rig.io.counters().enters;
            rig.io.reap(wait, &mut none).unwrap();
            other.join().unwrap();
            assert!(none.is_empty());
            let entered = rig.io.counters().enters - before;
            assert!(entered < 10, "{wait:?}: {entered} turns instead of a sleep");
        }
        let at = rig.io.now().plus(Micros(1500));
        rig.io.reap(Wait::Until(at), &mut none).unwrap();
        assert_eq!(rig.io.in_flight(), 0);
    }
}
