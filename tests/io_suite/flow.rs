//! Bodies on the flow of ops: one Done each, cancels, timeouts, refusals, wake-ups.

use std::time::Duration;

use ringlog::io::{Errno, Io, Op, Tag, Token, Wait};
use ringlog::types::Micros;

use crate::bed::{Bed, CREATE, Rig, bytes_of, pattern};

pub fn timeouts_end_in_their_order_and_not_before<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let start = rig.io.now();
    let at = |ms| start.plus(Micros::from_ms(ms));
    let (late, _) = rig.start(Op::Timeout { at: at(30) });
    let (early, _) = rig.start(Op::Timeout { at: at(10) });
    let (past, _) = rig.start(Op::Timeout { at: Micros(0) });
    rig.finish(past).result.unwrap();
    rig.finish(early).result.unwrap();
    assert!(rig.io.now() >= at(10));
    rig.finish(late).result.unwrap();
    assert!(rig.io.now() >= at(30));
    rig.settled();
}

pub fn reap_waits_as_told<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let start = rig.io.now();
    rig.reap(Wait::No);
    let until = start.plus(Micros::from_ms(5));
    rig.reap(Wait::Until(until));
    assert!(rig.io.now() >= until, "nothing was in flight: the whole wait");
    let (far, token) = rig.start(Op::Timeout { at: until.plus(Micros::from_ms(3_600_000)) });
    rig.reap(Wait::No);
    assert!(!rig.is_done(far));
    let (soon, _) = rig.start(Op::Timeout { at: rig.io.now().plus(Micros::from_ms(5)) });
    while !rig.is_done(soon) {
        rig.reap(Wait::Forever);
    }
    rig.ok(Op::Cancel { token });
    rig.settled();
}

pub fn cancelled_ops_end_once<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let far = rig.io.now().plus(Micros::from_ms(3_600_000));
    let (listener, _) = rig.io.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let (socket, peer) = rig.connection();
    let into = rig.window(10);
    let waiting = [
        rig.start(Op::Timeout { at: far }),
        rig.start(Op::Accept { listener }),
        rig.start(Op::Recv { socket, into }),
    ];
    rig.turn();
    for (tag, token) in waiting {
        rig.ok(Op::Cancel { token });
        assert_eq!(rig.finish(tag).result.unwrap_err(), Errno::ECANCELED);
        assert_eq!(rig.errno(Op::Cancel { token }), Errno::ENOENT, "it has ended");
    }
    assert_eq!(rig.errno(Op::Cancel { token: Token(u64::MAX >> 8) }), Errno::ENOENT);
    drop(peer);
    rig.settled();
}

/// Whatever a cancel finds, the op ends once, with its result or ECANCELED; R64's descriptors too.
pub fn cancels_race_with_ops_under_way<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    for round in 0..50 {
        let bytes = pattern(5_000, round);
        let bufs = rig.group(&[&bytes]);
        let into = rig.window(5_000);
        let started = [
            rig.start(Op::Write { file, pos: 0, bufs }),
            rig.start(Op::Fdatasync { file }),
            rig.start(Op::Read { file, pos: 0, max: 5_000, into }),
            rig.start(Op::Open { path: rig.path("f"), how: CREATE }),
            rig.start(Op::Len { file }),
        ];
        let cancels: Vec<u64> =
            started.map(|(_, token)| rig.start(Op::Cancel { token }).0).to_vec();
        for (tag, _) in started {
            let done = rig.finish(tag);
            match done.result {
                Err(errno) => assert_eq!(errno, Errno::ECANCELED, "{:?}", done.op),
                Ok(ringlog::io::Outcome::File(opened)) => drop(rig.ok(Op::Close { file: opened })),
                Ok(_) => {}
            }
        }
        for tag in cancels {
            let result = rig.finish(tag).result;
            assert!(result.is_ok() || matches!(result, Err(Errno::ENOENT)), "{result:?}");
        }
    }
    let bufs = rig.group(&[b"still works"]);
    assert_eq!(bytes_of(rig.ok(Op::Write { file, pos: 0, bufs })), 11);
    rig.settled();
}

pub fn a_full_queue_gives_the_op_back<B: Bed>(bed: B) {
    const QUEUE: usize = 8;
    let mut rig = Rig::with_queue(bed, QUEUE);
    let at = rig.io.now().plus(Micros::from_ms(20));
    let mut accepted = 0;
    // An engine may take more than asked (rings round up), but not without end.
    let refused = loop {
        let bufs = rig.group(&[b"mine"]);
        let file = ringlog::io::FileId { slot: 7, generation: 7 };
        let probe = Op::Write { file, pos: 0, bufs };
        match rig.io.submit(probe, Tag(u64::MAX)) {
            Err(refused) => break refused,
            Ok(_) => {
                let mut done = Vec::new();
                rig.io.reap(Wait::Forever, &mut done).unwrap();
                assert_eq!(done.len(), 1);
            }
        }
        match rig.io.submit(Op::Timeout { at }, Tag(accepted)) {
            Ok(_) => accepted += 1,
            Err(refused) => break refused,
        }
        assert!(accepted < 1 << 16, "never refused");
    };
    match refused.op {
        Op::Write { bufs, .. } => assert_eq!(bufs.remaining().collect::<Vec<_>>(), [b"mine"]),
        Op::Timeout { at: same } => assert_eq!(same, at),
        other => panic!("another op came back: {other:?}"),
    }
    assert!(rig.io.counters().refused > 0);
    let mut done = Vec::new();
    while done.len() < accepted as usize {
        rig.io.reap(Wait::Forever, &mut done).unwrap();
    }
    assert_eq!((done.len(), rig.io.in_flight()), (accepted as usize, 0));
    rig.io.submit(Op::Timeout { at }, Tag(0)).expect("room again");
    rig.io.reap(Wait::Forever, &mut done).unwrap();
    drop(done);
    rig.settled();
}

pub fn a_wake_before_the_reap_is_not_lost<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let waker = rig.io.waker();
    waker.clone().wake();
    rig.reap(Wait::Forever);
    if B::THREADS {
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        rig.reap(Wait::Forever);
        thread.join().unwrap();
    }
    rig.settled();
}

pub fn many_ops_end_once_each_and_their_buffers_come_home<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    rig.write(file, 0, &pattern(64 << 10, 0));
    let mut tags = Vec::new();
    for i in 0..300_u64 {
        let pos = (i % 16) * 4096;
        let op = match i % 3 {
            0 => Op::Write { file, pos, bufs: rig.group(&[&pattern(4096, 0)]) },
            1 => Op::Read { file, pos, max: 4096, into: rig.window(4096) },
            _ => Op::Fdatasync { file },
        };
        tags.push(rig.start(op).0);
    }
    let counted = rig.io.counters().submitted;
    assert!(counted >= 300, "{counted}");
    for tag in tags {
        rig.finish(tag).result.unwrap();
    }
    rig.settled();
}
