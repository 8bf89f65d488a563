//! What only a real kernel can show: both engines over real files and sockets.
//!
//! Owns: transfers, readiness, timers and wake-ups over real descriptors. The engine-independent
//! contract is in `io_suite.rs`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use ringlog::io::blocking::Blocking;
use ringlog::io::buffers::{Group, Pool};
use ringlog::io::op::{IoCounters, OpenHow, Waker};
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

    fn open(&mut self, path: &Path, how: OpenHow) -> FileId {
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

#[test]
fn files_are_written_read_listed_and_removed() {
    for mut rig in rigs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let data = pattern(3 << 20, 1);
        let pool = rig.pool.clone();
        let mut blocking = Blocking::new(&mut rig.io, pool);
        let file = blocking.open(&path, CREATE).unwrap();
        blocking.write_at(file, 0, &data).unwrap();
        blocking.fdatasync(file).unwrap();
        blocking.sync_dir(dir.path()).unwrap();
        assert_eq!(blocking.len(file), Ok(data.len() as u64));
        assert_eq!(std::fs::read(&path).unwrap(), data);
        let mut back = vec![0; data.len() + 10];
        assert_eq!(blocking.read_at(file, 0, &mut back), Ok(data.len()));
        assert_eq!(back[..data.len()], data);
        blocking.truncate(file, 1000).unwrap();
        blocking.drop_cache(file).unwrap();
        assert_eq!(blocking.stat(&path).unwrap().len, 1000);
        blocking.close(file).unwrap();
        assert_eq!(blocking.len(file), Err(Errno::EBADF));
        let renamed = dir.path().join("b");
        blocking.rename(&path, &renamed).unwrap();
        blocking.create_dir(&dir.path().join("d")).unwrap();
        assert_eq!(blocking.create_dir(&dir.path().join("d")), Err(Errno::EEXIST));
        let names: Vec<(String, bool)> =
            blocking.list(dir.path()).unwrap().into_iter().map(|e| (e.name, e.is_dir)).collect();
        assert_eq!(names, [("b".to_string(), false), ("d".to_string(), true)]);
        blocking.unlink(&renamed).unwrap();
        blocking.remove_dir(&dir.path().join("d")).unwrap();
        assert_eq!(blocking.stat(&renamed), Err(Errno::ENOENT));
        assert!(blocking.foreign.is_empty());
    }
}

#[test]
fn sockets_echo_and_end() {
    for mut rig in rigs() {
        let (listener, addr) = rig.listen();
        let (socket, mut peer) = rig.pair(listener, addr);
        let into = rig.pool.window(100).unwrap();
        let room = into.room() as u32;
        rig.submit(Op::Recv { socket, into }, 1);
        let mut none = Vec::new();
        rig.io.reap(Wait::No, &mut none).unwrap();
        assert!(none.is_empty(), "nothing was sent yet");
        peer.write_all(b"hello").unwrap();
        let done = rig.finish(1).remove(0);
        assert_eq!(bytes_of(&done.result), 5);
        let Op::Recv { mut into, .. } = done.op else { panic!("another op came back") };
        assert_eq!(into.bytes(), b"hello");
        assert_eq!(into.room() as u32, room - 5);
        let mut bufs = Group::of(into.take(3));
        bufs.push(into.take(2));
        assert_eq!(bytes_of(&rig.one(Op::Send { socket, bufs, more: false }).result), 5);
        let mut echo = [0; 5];
        peer.read_exact(&mut echo).unwrap();
        assert_eq!(&echo, b"hello");
        peer.write_all(b"bye").unwrap();
        drop(peer);
        let done = rig.one(Op::Recv { socket, into });
        assert_eq!(bytes_of(&done.result), 3);
        let Op::Recv { into, .. } = done.op else { panic!("another op came back") };
        let done = rig.one(Op::Recv { socket, into });
        assert_eq!(bytes_of(&done.result), 0, "the peer closed");
        rig.close(socket);
        rig.close(listener);
    }
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
        let waker = rig.io.waker();
        let other = std::thread::spawn(move || waker.wake());
        let mut none = Vec::new();
        rig.io.reap(Wait::Forever, &mut none).unwrap();
        other.join().unwrap();
        assert!(none.is_empty());
        let at = rig.io.now().plus(Micros(1500));
        rig.io.reap(Wait::Until(at), &mut none).unwrap();
        assert_eq!(rig.io.in_flight(), 0);
    }
}
