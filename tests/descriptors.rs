//! R64: opens and accepts cancelled in flight leave no descriptor behind, and a dropped engine
//! gives back all it held. Alone in its process, because it counts the process's descriptors.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use ringlog::io::buffers::Pool;
use ringlog::io::op::OpenHow;
use ringlog::io::probe::DirFacts;
use ringlog::io::syscall::{SyscallIo, SyscallOptions};
use ringlog::io::uring::{UringIo, UringOptions};
use ringlog::io::{Done, Errno, FileId, Io, Op, Outcome, Tag, Wait};
use ringlog::types::Micros;

const ROUNDS: u64 = 100;

/// What no socket buffer takes.
const FILE_BYTES: u32 = 8 << 20;

/// Ops started and cancelled in each round, half of them opens.
const OPS: u64 = 100;

const CREATE: OpenHow =
    OpenHow { write: true, create: true, exclusive: false, truncate: false, direct: false };

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn finish(io: &mut impl Io, count: usize) -> Vec<Done> {
    let mut done = Vec::new();
    while done.len() < count {
        io.reap(Wait::Forever, &mut done).unwrap();
    }
    assert_eq!(done.len(), count);
    done
}

fn close_all(io: &mut impl Io, files: Vec<FileId>) {
    let count = files.len();
    for file in files {
        io.submit(Op::Close { file }, Tag(0)).unwrap();
    }
    assert!(finish(io, count).iter().all(|one| one.result.is_ok()));
}

/// One round: some accepts find a peer, some opens are done before their cancel.
fn round(io: &mut impl Io, dir: &Path, (listener, addr): (FileId, SocketAddr)) -> u64 {
    let peers: Vec<_> = (0..OPS / 10).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let mut tokens = Vec::new();
    for index in 0..OPS {
        let op = match index % 2 {
            0 => Op::Open { path: dir.join(format!("f{}", index % 7)), how: CREATE },
            _ => Op::Accept { listener },
        };
        tokens.push(io.submit(op, Tag(1)).unwrap());
    }
    for token in tokens {
        io.submit(Op::Cancel { token }, Tag(2)).unwrap();
    }
    let (mut cancelled, mut files) = (0, Vec::new());
    for one in finish(io, 2 * OPS as usize).into_iter().filter(|one| one.tag == Tag(1)) {
        match one.result {
            Ok(Outcome::File(file) | Outcome::Accepted { socket: file, .. }) => files.push(file),
            Err(Errno::ECANCELED) => cancelled += 1,
            other => panic!("{:?} gave {other:?}", one.op),
        }
    }
    close_all(io, files);
    drop(peers);
    drain_backlog(io, listener);
    cancelled
}

/// Connections that no accept of the round took.
fn drain_backlog(io: &mut impl Io, listener: FileId) {
    loop {
        let token = io.submit(Op::Accept { listener }, Tag(1)).unwrap();
        let mut done = Vec::new();
        let until = io.now().plus(Micros(200));
        io.reap(Wait::Until(until), &mut done).unwrap();
        if done.is_empty() {
            io.submit(Op::Cancel { token }, Tag(2)).unwrap();
            done = finish(io, 2);
        }
        match done.into_iter().find(|one| one.tag == Tag(1)).unwrap().result {
            Ok(Outcome::Accepted { socket, .. }) => close_all(io, vec![socket]),
            Err(Errno::ECANCELED) => return,
            other => panic!("accept gave {other:?}"),
        }
    }
}

fn cancels_leave_nothing(io: &mut impl Io) {
    let dir = tempfile::tempdir().unwrap();
    let listening = io.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    round(io, dir.path(), listening);
    let before = descriptors();
    let cancelled: u64 = (0..ROUNDS).map(|_| round(io, dir.path(), listening)).sum();
    println!("{}: {cancelled} of {} ended as cancelled", io.name(), ROUNDS * OPS);
    assert!(cancelled > ROUNDS, "too few were caught in flight to show anything");
    assert_eq!(descriptors(), before, "{}", io.name());
}

/// Sends until the socket is full and the last sendfile waits; gives what was sent before.
fn fill(io: &mut impl Io, socket: FileId, file: FileId) -> u32 {
    let mut sent = 0;
    while sent < FILE_BYTES {
        let (pos, len) = (u64::from(sent), FILE_BYTES - sent);
        io.submit(Op::Sendfile { socket, file, pos, len }, Tag(4)).unwrap();
        let mut done = Vec::new();
        let until = io.now().plus(Micros::from_ms(5));
        io.reap(Wait::Until(until), &mut done).unwrap();
        match done.pop().map(|one| one.result) {
            Some(Ok(Outcome::Bytes(n))) => sent += n,
            Some(other) => panic!("{other:?}"),
            None => return sent,
        }
    }
    panic!("a socket that takes {FILE_BYTES} bytes");
}

/// A connection and a file to send over it.
fn socket_and_file(io: &mut impl Io, dir: &Path) -> (FileId, FileId, FileId, TcpStream) {
    let path = dir.join("f");
    std::fs::write(&path, vec![7; FILE_BYTES as usize]).unwrap();
    let (listener, addr) = io.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let peer = TcpStream::connect(addr).unwrap();
    io.submit(Op::Accept { listener }, Tag(1)).unwrap();
    io.submit(Op::Open { path, how: CREATE }, Tag(2)).unwrap();
    let mut done = finish(io, 2);
    done.sort_by_key(|one| one.tag.0);
    match (&done[0].result, &done[1].result) {
        (Ok(Outcome::Accepted { socket, .. }), Ok(Outcome::File(file))) => {
            (listener, *socket, *file, peer)
        }
        other => panic!("{other:?}"),
    }
}

/// A file closed under a sendfile that waits is closed when that has ended.
fn a_closed_file_goes_with_its_last_op<I: Io>(mut io: I) {
    let dir = tempfile::tempdir().unwrap();
    let (_, socket, file, mut peer) = socket_and_file(&mut io, dir.path());
    let before = descriptors();
    fill(&mut io, socket, file);
    io.submit(Op::Close { file }, Tag(5)).unwrap();
    assert_eq!(finish(&mut io, 1)[0].tag, Tag(5));
    assert_eq!(descriptors(), before, "the sendfile holds it");
    let mut room = vec![0; 1 << 20];
    peer.set_read_timeout(Some(std::time::Duration::from_millis(10))).unwrap();
    let (mut drained, mut done) = (0, Vec::new());
    while done.is_empty() {
        drained += peer.read(&mut room).unwrap_or(0);
        assert!(drained <= FILE_BYTES as usize, "all was read, and it still waits");
        let until = io.now().plus(Micros(100));
        io.reap(Wait::Until(until), &mut done).unwrap();
    }
    for _ in 0..1000 {
        if descriptors() == before - 1 {
            return;
        }
        let until = io.now().plus(Micros::from_ms(1));
        io.reap(Wait::Until(until), &mut done).unwrap();
    }
    panic!("{}: the file stays open", io.name());
}

/// After the ring's end the device writes to no memory that its ops have owned (E9).
fn no_byte_arrives_after_the_end() {
    const LEN: u32 = 1 << 20;
    // Beside the crate, on a disk: a read must be under way for a while.
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    if !DirFacts::probe(dir.path()).unwrap().direct.works {
        return println!("skipped: no direct I/O here");
    }
    let path = dir.path().join("f");
    std::fs::write(&path, vec![0xff; LEN as usize]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    // Room for one chunk of the class that holds it, not for two.
    let pool = Pool::new(LEN as usize * 3 / 2);
    for round in 0..10 {
        let mut io = UringIo::new(UringOptions::default()).unwrap();
        let how = OpenHow { direct: true, ..OpenHow::default() };
        io.submit(Op::Open { path: path.clone(), how }, Tag(1)).unwrap();
        let Ok(Outcome::File(file)) = finish(&mut io, 1).remove(0).result else {
            panic!("no file")
        };
        let into = pool.window(LEN as usize).unwrap();
        io.submit(Op::Read { file, pos: 0, max: LEN, into }, Tag(2)).unwrap();
        io.reap(Wait::No, &mut Vec::new()).unwrap();
        drop(io);
        // The pool has only this one chunk.
        let mut same = pool.window(LEN as usize).unwrap();
        same.spare_mut().fill(0xaa);
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(same.spare_mut().iter().all(|byte| *byte == 0xaa), "round {round}");
    }
}

/// Everything that can wait is in flight when the engine goes.
fn a_dropped_engine_gives_all_back<I: Io>(make: impl Fn() -> I) {
    let dir = tempfile::tempdir().unwrap();
    drop(make());
    let before = descriptors();
    let pool = Pool::new(8 << 20);
    for _ in 0..20 {
        let mut io = make();
        let (listener, socket, file, _peer) = socket_and_file(&mut io, dir.path());
        let into = pool.window(100).unwrap();
        io.submit(Op::Recv { socket, into }, Tag(3)).unwrap();
        fill(&mut io, socket, file);
        let path = dir.path().join("f");
        io.submit(Op::Accept { listener }, Tag(5)).unwrap();
        io.submit(Op::Timeout { at: Micros::NEVER }, Tag(6)).unwrap();
        io.submit(Op::Open { path, how: CREATE }, Tag(7)).unwrap();
        io.submit(Op::Fdatasync { file }, Tag(8)).unwrap();
        io.submit(Op::Close { file }, Tag(9)).unwrap();
    }
    assert_eq!(descriptors(), before);
    assert_eq!(pool.in_use(), 0, "buffers come home");
}

#[test]
fn no_descriptor_is_lost() {
    let inline = || SyscallIo::new(SyscallOptions::inline()).unwrap();
    let pooled = || SyscallIo::new(SyscallOptions::default()).unwrap();
    cancels_leave_nothing(&mut pooled());
    a_closed_file_goes_with_its_last_op(pooled());
    a_dropped_engine_gives_all_back(inline);
    a_dropped_engine_gives_all_back(pooled);
    match UringIo::new(UringOptions::default()) {
        Ok(mut io) => {
            let ring = || UringIo::new(UringOptions::default()).unwrap();
            cancels_leave_nothing(&mut io);
            a_closed_file_goes_with_its_last_op(io);
            a_dropped_engine_gives_all_back(ring);
            no_byte_arrives_after_the_end();
        }
        Err(error) => println!("skipped on the ring: {error}"),
    }
}
