//! Kills, stops, and the clock of a simulated process.

use std::collections::BTreeSet;
use std::path::Path;

use ringlog::io::blocking::Blocking;
use ringlog::io::sim::{Order, World};
use ringlog::io::{Errno, Io, Op, Outcome, Tag, Wait};
use ringlog::types::Micros;

use crate::{CREATE, SEEDS, create, open, pool, set, text, together, world, write_op};

#[test]
fn a_kill_keeps_the_page_cache_and_a_cut_after_it_does_not() {
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS {
        let world = world(seed);
        world.write_file_durably("/d/f", "");
        let mut io = world.engine();
        create(&mut Blocking::new(&mut io, pool()), "/d/f", b"data");
        world.kill();
        assert_eq!(text(world.read_file("/d/f")), Some("data".into()), "seed {seed}");
        world.power_cut();
        found.insert(text(world.read_file("/d/f")));
    }
    assert_eq!(found, set(["", "....", "data"].map(|s| Some(s.to_string()))));
}

/// D8: what a new process finds after a kill, it has to flush itself.
#[test]
fn a_new_process_can_make_durable_what_the_old_one_wrote() {
    for seed in 0..SEEDS / 4 {
        let world = world(seed);
        world.write_file_durably("/d/f", "");
        create(&mut Blocking::new(&mut world.engine(), pool()), "/d/f", b"data");
        world.kill();
        let mut io = world.engine();
        let mut io = Blocking::new(&mut io, pool());
        let file = open(&mut io, "/d/f");
        io.fdatasync(file).unwrap();
        world.power_cut();
        assert_eq!(text(world.read_file("/d/f")), Some("data".into()), "seed {seed}");
    }
}

#[test]
fn a_write_in_flight_at_a_kill_happened_wholly_partly_or_not() {
    let found: BTreeSet<_> = (0..SEEDS)
        .map(|seed| {
            let (world, pool) = (world(seed), pool());
            world.write_file_durably("/d/f", vec![b'o'; 1024]);
            let mut io = world.engine();
            let file = open(&mut Blocking::new(&mut io, pool.clone()), "/d/f");
            io.submit(write_op(&pool, file, 0, &[b'n'; 1024]), Tag(0)).unwrap();
            world.kill();
            assert_eq!(pool.in_use(), 0, "its buffers are free again");
            world.read_file("/d/f").unwrap().iter().step_by(512).map(|&b| b as char).collect()
        })
        .collect();
    assert_eq!(found, set(["oo", "on", "no", "nn"].map(String::from)));
}

#[test]
fn a_rename_and_a_flush_in_flight_at_a_kill_happened_or_not() {
    let found: BTreeSet<_> = (0..SEEDS)
        .map(|seed| {
            let world = world(seed);
            world.write_file_durably("/d/f", "");
            let mut io = world.engine();
            let file = create(&mut Blocking::new(&mut io, pool()), "/d/f", b"x");
            io.submit(Op::Fdatasync { file }, Tag(0)).unwrap();
            io.submit(Op::Rename { from: "/d/f".into(), to: "/d/g".into() }, Tag(1)).unwrap();
            world.kill();
            let durable = world.durable_file("/d/f");
            (world.list("/d").join(" "), text(durable))
        })
        .collect();
    assert_eq!(found.len(), 4, "both for themselves: {found:?}");
}

#[test]
fn engines_of_a_killed_process_are_dead() {
    let (world, pool) = (world(1), pool());
    let mut old = world.engine();
    let file = open(&mut Blocking::new(&mut old, pool.clone()), "/d/f");
    let addr = old.listen("127.0.0.1:7440".parse().unwrap()).unwrap().1;
    let peer = world.connect(addr);
    world.kill();
    let refused = old.submit(write_op(&pool, file, 0, b"x"), Tag(0)).unwrap_err();
    assert!(matches!(refused.op, Op::Write { .. }));
    assert_eq!(old.reap(Wait::Forever, &mut Vec::new()), Err(Errno::EBADF));
    assert!(peer.at_end(), "its sockets closed with it");
    let mut new = world.engine();
    let stale = Blocking::new(&mut new, pool).len(file);
    assert_eq!(stale, Err(Errno::EBADF), "no descriptor survives");
    assert_eq!(new.listen(addr).unwrap().1, addr, "the address is free again");
}

#[test]
fn after_the_last_step_nothing_completes_any_more() {
    let (world, pool) = (world(3), pool());
    let mut io = world.engine();
    let file = open(&mut Blocking::new(&mut io, pool.clone()), "/d/f");
    let before = world.ops();
    world.cut_after(2);
    for i in 0..5 {
        io.submit(write_op(&pool, file, i * 10, b"x"), Tag(i)).unwrap();
    }
    let (mut done, far) = (Vec::new(), Micros::from_ms(1000));
    while !world.stopped() {
        io.reap(Wait::Until(far), &mut done).unwrap();
    }
    assert_eq!((done.len(), world.ops() - before), (2, 2), "the last step was heard of");
    io.submit(Op::Len { file }, Tag(9)).unwrap();
    io.reap(Wait::Until(far), &mut done).unwrap();
    assert_eq!((done.len(), io.now()), (2, far));
    assert_eq!(io.reap(Wait::Forever, &mut done), Err(Errno::ECANCELED));
    world.power_cut();
    assert!(!world.stopped());
    create(&mut Blocking::new(&mut world.engine(), pool), "/d/g", b"alive");
}

#[test]
fn reads_and_waits_are_no_steps() {
    let world = world(4);
    let mut io = world.engine();
    let mut io = Blocking::new(&mut io, pool());
    let file = create(&mut io, "/d/f", b"data");
    io.fdatasync(file).unwrap();
    io.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(world.ops(), 4);
    io.read_at(file, 0, &mut [0; 4]).unwrap();
    io.len(file).unwrap();
    io.list(Path::new("/d")).unwrap();
    io.open(Path::new("/d/f"), Default::default()).unwrap();
    io.run(Op::Timeout { at: Micros(0) }).unwrap();
    assert_eq!(world.ops(), 4);
}

/// Everything that a seeded run shows: completions, times, and what a cut left.
fn trace(seed: u64) -> String {
    let (world, pool) = (world(seed), pool());
    world.faults(|faults| faults.short_write_per_mille = 300);
    let mut io = world.engine();
    let file = open(&mut Blocking::new(&mut io, pool.clone()), "/d/f");
    let mut trace = String::new();
    for round in 0..5_u64 {
        let mut ops: Vec<Op> =
            (0..6).map(|i| write_op(&pool, file, i * 700, &[round as u8; 1000])).collect();
        ops.push(Op::Fdatasync { file });
        for done in together(&mut io, ops) {
            trace += &format!("{:?} {:?} {:?}; ", io.now(), done.tag, done.result);
        }
    }
    world.power_cut();
    trace + &format!("{:?}", world.read_file("/d/f"))
}

#[test]
fn a_seed_replays_to_the_byte() {
    for seed in 0..20 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
        assert_ne!(trace(seed), trace(seed + 1), "seed {seed}");
    }
}

#[test]
fn completions_come_in_the_order_that_was_asked_for() {
    let order_of = |seed, order| {
        let (world, pool) = (world(seed), pool());
        world.faults(|faults| faults.order = order);
        let mut io = world.engine();
        let file = open(&mut Blocking::new(&mut io, pool.clone()), "/d/f");
        let ops = (0..4).map(|i| write_op(&pool, file, i, b"x")).collect();
        together(&mut io, ops).iter().map(|done| done.tag.0).collect::<Vec<_>>()
    };
    assert!((0..20).all(|seed| order_of(seed, Order::Fifo) == [0, 1, 2, 3]));
    let shuffled: BTreeSet<_> = (0..SEEDS).map(|seed| order_of(seed, Order::Shuffled)).collect();
    assert_eq!(shuffled.len(), 24, "every order of four");
}

#[test]
fn two_engines_share_one_disk_and_one_clock() {
    let world = world(6);
    let (mut one, mut two) = (world.engine(), world.engine());
    let mut first = Blocking::new(&mut one, pool());
    let file = create(&mut first, "/d/f", b"from one");
    let after = world.now();
    let bytes = Blocking::new(&mut two, pool()).read_file(Path::new("/d/f"), 100).unwrap();
    assert_eq!(text(bytes), Some("from one".into()));
    assert!(one.now() > after && one.now() == two.now());
    let stranger = Blocking::new(&mut two, pool()).len(file);
    assert_eq!(stranger, Err(Errno::EBADF), "ids are an engine's own");
}

#[test]
fn the_wall_clock_goes_on_with_the_virtual_one() {
    let world = World::new(0);
    world.set_wall_ms(1_700_000_000_000);
    world.advance(Micros::from_ms(1500));
    let io = world.engine();
    assert_eq!((io.now(), io.wall_ms()), (Micros::from_ms(1500), 1_700_000_001_500));
}

#[test]
#[should_panic(expected = "deadlock")]
fn waiting_for_nothing_is_a_deadlock() {
    let world = world(0);
    let mut io = world.engine();
    let (listener, _) = io.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    io.submit(Op::Accept { listener }, Tag(0)).unwrap();
    let _ = io.reap(Wait::Forever, &mut Vec::new());
}

#[test]
#[should_panic(expected = "connection refused")]
fn a_peer_needs_a_listener() {
    World::new(0).connect("127.0.0.1:9".parse().unwrap());
}

#[test]
fn a_peer_that_resets_is_an_error_to_the_reader() {
    let (world, pool) = (world(0), pool());
    let mut io = world.engine();
    let (listener, addr) = io.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let peer = world.connect(addr);
    let accepted = together(&mut io, vec![Op::Accept { listener }]).pop().unwrap();
    let Outcome::Accepted { socket, .. } = accepted.result.unwrap() else { panic!("no socket") };
    peer.reset();
    let into = pool.window(10).unwrap();
    let done = together(&mut io, vec![Op::Recv { socket, into }]).pop().unwrap();
    assert_eq!(done.result.unwrap_err(), Errno(libc::ECONNRESET));
}

#[test]
fn opens_that_find_the_table_full_create_nothing() {
    let world = world(0);
    world.faults(|faults| faults.files_max = 2);
    let mut io = world.engine();
    let mut io = Blocking::new(&mut io, pool());
    let first = open(&mut io, "/d/a");
    open(&mut io, "/d/b");
    assert_eq!(io.open(Path::new("/d/c"), CREATE), Err(Errno(libc::EMFILE)));
    assert_eq!(world.list("/d"), ["a", "b"]);
    io.close(first).unwrap();
    open(&mut io, "/d/c");
}
