//! Planned faults, chances and limits.

use std::path::Path;

use ringlog::io::blocking::Blocking;
use ringlog::io::op::OpenHow;
use ringlog::io::sim::{Effect, On, Order};
use ringlog::io::{Errno, Io, Op, Outcome, Tag, Wait};
use ringlog::types::Micros;

use crate::{CREATE, create, open, pool, together, world, write_op};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// R63: 10,000 bytes, of which 4,096 go, then none: no progress becomes an error.
#[test]
fn a_write_that_makes_no_progress_is_an_error() {
    let world = world(0);
    let mut io = world.engine();
    let mut io = Blocking::new(&mut io, pool());
    let (file, bytes) = (open(&mut io, "/d/f"), pattern(10_000));
    world.faults(|faults| faults.script_writes("/d/f", &[4096, 0]));
    assert_eq!(io.write_at(file, 0, &bytes), Err(Errno::EIO));
    assert_eq!(world.read_file("/d/f").unwrap(), bytes[..4096]);
}

/// R63: the remainder goes to the right place, through EAGAIN and EINTR too.
#[test]
fn short_and_interrupted_transfers_resume_where_they_stopped() {
    let bytes = pattern(100_000);
    for seed in 0..20 {
        let world = world(seed);
        world.faults(|faults| {
            faults.short_write_per_mille = 500;
            faults.short_read_per_mille = 500;
            faults.eintr_per_mille = 200;
            faults.eagain_per_mille = 200;
            faults.script_writes("/d/f", &[4096, 1]);
            faults.plan(On::Write, "/d/f", 3, Effect::Fail(Errno::EINTR));
        });
        let mut io = world.engine();
        let mut io = Blocking::new(&mut io, pool());
        let file = create(&mut io, "/d/f", &bytes);
        let mut back = vec![0; bytes.len()];
        assert_eq!(io.read_at(file, 0, &mut back), Ok(bytes.len()), "seed {seed}");
        assert!(back == bytes && world.read_file("/d/f").unwrap() == bytes, "seed {seed}");
        assert!(world.ops() > 4, "seed {seed}: it took several writes");
    }
}

/// R66: two writes in flight, the second ends first.
#[test]
fn writes_completing_in_reverse_are_where_they_belong() {
    let (world, pool) = (world(0), pool());
    let mut io = world.engine();
    let file = open(&mut Blocking::new(&mut io, pool.clone()), "/d/f");
    world.faults(|faults| faults.plan(On::Write, "/d/f", 1, Effect::DelayUs(50_000)));
    let ops =
        vec![write_op(&pool, file, 0, &[b'a'; 4096]), write_op(&pool, file, 4096, &[b'b'; 4096])];
    let ended: Vec<u64> = together(&mut io, ops).iter().map(|done| done.tag.0).collect();
    assert_eq!(ended, [1, 0]);
    assert_eq!(world.read_file("/d/f").unwrap(), [[b'a'; 4096], [b'b'; 4096]].concat());
}

#[test]
fn a_failed_write_leaves_nothing_and_the_next_one_goes() {
    let world = world(0);
    let mut io = world.engine();
    let mut io = Blocking::new(&mut io, pool());
    let (file, other) = (open(&mut io, "/d/f"), open(&mut io, "/d/g"));
    world.faults(|faults| faults.fail_write("/d/f", 2, Errno::EIO));
    io.write_at(file, 0, b"one").unwrap();
    io.write_at(other, 0, b"not concerned").unwrap();
    assert_eq!(io.write_at(file, 3, b"two"), Err(Errno::EIO));
    assert_eq!(world.read_file("/d/f").unwrap(), b"one");
    io.write_at(file, 3, b"two").unwrap();
}

#[test]
fn a_stalled_flush_holds_nothing_else_up() {
    for order in [Order::Fifo, Order::Shuffled] {
        let (world, pool) = (world(0), pool());
        let mut io = world.engine();
        let file = create(&mut Blocking::new(&mut io, pool.clone()), "/d/f", b"data");
        world.faults(|faults| {
            faults.order = order;
            faults.stall_fdatasync("/d/f", 1, 2_000_000);
        });
        let start = world.now();
        io.submit(Op::Fdatasync { file }, Tag(7)).unwrap();
        let into = pool.window(10).unwrap();
        io.submit(Op::Read { file, pos: 0, max: 4, into }, Tag(8)).unwrap();
        let mut done = Vec::new();
        io.reap(Wait::Forever, &mut done).unwrap();
        assert_eq!(done[0].tag, Tag(8));
        assert!(world.now().since(start) < Micros::from_ms(1000));
        io.reap(Wait::Forever, &mut done).unwrap();
        assert!(world.now().since(start) >= Micros::from_ms(2000));
    }
}

/// D12's world: writes fill what is left, then fail; reads go on; shrinking gives space back.
#[test]
fn a_full_disk_fills_up_fails_and_recovers() {
    let world = world(0);
    let mut io = world.engine();
    let mut io = Blocking::new(&mut io, pool());
    let file = create(&mut io, "/d/f", &pattern(1000));
    world.faults(|faults| faults.space_bytes = Some(100));
    assert_eq!(io.write_at(file, 500, &pattern(500)), Ok(()), "nothing grows");
    assert_eq!(io.write_at(file, 1000, &pattern(300)), Err(Errno::ENOSPC));
    assert_eq!(io.len(file), Ok(1100), "what fitted is there");
    io.truncate(file, 1000).unwrap();
    assert_eq!(io.write_at(file, 1000, &pattern(100)), Ok(()));
    assert_eq!(io.write_at(file, 1100, b"x"), Err(Errno::ENOSPC));
    io.unlink(Path::new("/d/f")).unwrap();
    let other = open(&mut io, "/d/g");
    assert_eq!(io.write_at(other, 0, &pattern(1100)), Ok(()));
    world.faults(|faults| faults.space_bytes = None);
    assert_eq!(io.write_at(other, 1100, &pattern(5000)), Ok(()));
}

#[test]
fn a_denied_path_opens_for_nobody() {
    let world = world(0);
    world.write_file_durably("/d/secret/f", "data");
    world.faults(|faults| faults.deny("secret"));
    let mut io = world.engine();
    let mut io = Blocking::new(&mut io, pool());
    assert_eq!(io.open(Path::new("/d/secret/f"), OpenHow::default()), Err(Errno::EACCES));
    assert_eq!(io.open(Path::new("/d/secret/g"), CREATE), Err(Errno::EACCES));
    assert_eq!(io.list(Path::new("/d/secret")), Err(Errno::EACCES));
    world.faults(|faults| faults.forget_plans());
    io.open(Path::new("/d/secret/f"), OpenHow::default()).unwrap();
}

#[test]
fn direct_files_want_everything_aligned() {
    let (world, pool) = (world(0), pool());
    let how = OpenHow { direct: true, ..CREATE };
    let mut io = world.engine();
    let file = Blocking::new(&mut io, pool.clone()).open(Path::new("/d/f"), how).unwrap();
    let mut result = |op| together(&mut io, vec![op]).pop().unwrap().result.map(drop);
    assert_eq!(result(write_op(&pool, file, 0, &[1; 1024])), Ok(()));
    assert_eq!(result(write_op(&pool, file, 0, &[1; 1000])), Err(Errno::EINVAL));
    assert_eq!(result(write_op(&pool, file, 100, &[1; 512])), Err(Errno::EINVAL));
    let into = pool.window(4096).unwrap();
    assert_eq!(result(Op::Read { file, pos: 3, max: 512, into }), Err(Errno::EINVAL));
    let into = pool.window(4096).unwrap();
    assert_eq!(result(Op::Read { file, pos: 512, max: 4096, into }), Ok(()));
}

#[test]
fn names_that_fail_to_sync_are_told() {
    let world = world(0);
    let mut io = world.engine();
    let mut io = Blocking::new(&mut io, pool());
    open(&mut io, "/d/f");
    world.faults(|faults| faults.plan(On::SyncDir, "/d", 1, Effect::Fail(Errno::EIO)));
    assert_eq!(io.sync_dir(Path::new("/d")), Err(Errno::EIO));
    assert_eq!(world.durable_file("/d/f"), None);
    io.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(world.durable_file("/d/f"), Some(Vec::new()));
}

#[test]
fn a_short_send_and_a_slow_peer_lose_nothing() {
    for seed in 0..10 {
        let (world, pool) = (world(seed), pool());
        let mut io = world.engine();
        let (listener, addr) = io.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let peer = world.connect(addr);
        let accepted = together(&mut io, vec![Op::Accept { listener }]).pop().unwrap();
        let Outcome::Accepted { socket, .. } = accepted.result.unwrap() else { panic!("none") };
        let bytes = pattern(300_000);
        peer.send(&bytes);
        assert!(peer.unsent() > 0, "buffers are bounded");
        let mut heard = Vec::new();
        while heard.len() < bytes.len() {
            let into = pool.window(8000).unwrap();
            let done = together(&mut io, vec![Op::Recv { socket, into }]).pop().unwrap();
            let Op::Recv { into, .. } = done.op else { panic!("another op came back") };
            heard.extend_from_slice(into.bytes());
        }
        assert!(heard == bytes && peer.unsent() == 0, "seed {seed}");
    }
}
