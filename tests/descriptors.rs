//! R64: opens and accepts cancelled in flight leave no descriptor behind, and a dropped engine
//! gives back all it held. Alone in its process, because it counts the process's descriptors.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use ringlog::io::buffers::Pool;
use ringlog::io::op::OpenHow;
use ringlog::io::syscall::{SyscallIo, SyscallOptions};
use ringlog::io::uring::{UringIo, UringOptions};
use ringlog::io::{Done, Errno, FileId, Io, Op, Outcome, Tag, Wait};
use ringlog::types::Micros;

const ROUNDS: u64 = 100;

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

/// Everything that can wait is in flight when the engine goes.
fn a_dropped_engine_gives_all_back<I: Io>(make: impl Fn() -> I) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), vec![7; 8 << 20]).unwrap();
    drop(make());
    let before = descriptors();
    let pool = Pool::new(8 << 20);
    for _ in 0..20 {
        let mut io = make();
        let (listener, addr) = io.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let _peer = TcpStream::connect(addr).unwrap();
        let path = dir.path().join("f");
        io.submit(Op::Accept { listener }, Tag(1)).unwrap();
        io.submit(Op::Open { path: path.clone(), how: CREATE }, Tag(2)).unwrap();
        let mut done = finish(&mut io, 2);
        done.sort_by_key(|one| one.tag.0);
        let (socket, file) = match (&done[0].result, &done[1].result) {
            (Ok(Outcome::Accepted { socket, .. }), Ok(Outcome::File(file))) => (*socket, *file),
            other => panic!("{other:?}"),
        };
        let into = pool.window(100).unwrap();
        io.submit(Op::Recv { socket, into }, Tag(3)).unwrap();
        // The peer reads nothing, so some of these wait for room.
        let mut sent = 0;
        while sent < 8 << 20 {
            let len = (8 << 20) - sent;
            io.submit(Op::Sendfile { socket, file, pos: sent.into(), len }, Tag(4)).unwrap();
            let mut done = Vec::new();
            let until = io.now().plus(Micros::from_ms(5));
            io.reap(Wait::Until(until), &mut done).unwrap();
            match done.pop().map(|one| one.result) {
                Some(Ok(Outcome::Bytes(n))) => sent += n,
                Some(other) => panic!("{other:?}"),
                None => break,
            }
        }
        assert!(sent < 8 << 20, "the last one must wait");
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
    a_dropped_engine_gives_all_back(inline);
    a_dropped_engine_gives_all_back(pooled);
    match UringIo::new(UringOptions::default()) {
        Ok(mut io) => {
            cancels_leave_nothing(&mut io);
            drop(io);
            a_dropped_engine_gives_all_back(|| UringIo::new(UringOptions::default()).unwrap());
        }
        Err(error) => println!("skipped on the ring: {error}"),
    }
}
