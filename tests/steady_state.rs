//! After a warm-up a log allocates nothing: append, plan, completions, acks, tail lookups.
//!
//! Own file, because it counts every allocation of its process. Ops are completed by hand: the log
//! is sans-I/O, so nothing else runs.

#![expect(unsafe_code, reason = "an allocator that counts cannot be written without")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ringlog::format::batch::Codec;
use ringlog::io::{Op, Outcome};
use ringlog::log::{
    Ack, Batches, LocalTag, Located, LogConfig, OffsetLookup, OpSink, Step, Waiter,
};
use ringlog::types::{AckLevel, Micros};
use support::{Driver, batch, offset, world};

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to `System` unchanged, which upholds the contract; counting uses a
// thread-local `Cell` of constant initial value without a destructor, so it neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's contract for `layout` is `System`'s own.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System.alloc` above with this `layout`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Everything a round needs, made before the count begins.
struct Hands {
    sink: OpSink,
    ops: Vec<(LocalTag, Op)>,
    acks: Vec<Ack>,
    at: u64,
}

/// What is staged is written, flushed and acked.
fn round(driver: &mut Driver, hands: &mut Hands) {
    for _ in 0..6 {
        hands.at += 1;
        driver.log.plan(Micros(hands.at), &mut hands.sink);
        hands.ops.extend(hands.sink.drain());
        for (tag, op) in hands.ops.drain(..) {
            let outcome = match &op {
                Op::Write { bufs, .. } => Outcome::Bytes(bufs.len() as u32),
                _ => Outcome::Nothing,
            };
            driver.log.on_done(tag, op, Ok(outcome), Micros(hands.at));
        }
        driver.log.drain_acks(&mut hands.acks);
    }
}

#[test]
fn nothing_is_allocated_in_the_steady_state() {
    let world = world(1);
    // An index entry a batch would grow a vector now and then: keep them rare, as they are.
    let config = LogConfig { index_interval_bytes: 1 << 30, ..LogConfig::default() };
    let mut driver = Driver::fresh(&world, config);
    driver.settle().unwrap();
    let mut hands = Hands { sink: OpSink::new(), ops: Vec::new(), acks: Vec::new(), at: 1_000_000 };
    let sent = batch(&[b"a record"], Codec::None, 1);
    let mut counted = 0;
    for i in 0..200 {
        let batches: Vec<Batches> = (0..12)
            .map(|_| Batches::from_headers(driver.pool.copied(&sent).unwrap()).unwrap())
            .collect();
        let before = CALLS.get();
        for one in batches {
            let waiter = Waiter(i);
            driver.log.append(one, AckLevel::Policy, waiter, Micros(hands.at), 0).unwrap();
        }
        round(&mut driver, &mut hands);
        let end = driver.log.high_watermark();
        let mut lookup = OffsetLookup::new(offset(end.get() - 1), 1 << 20, true);
        let found = lookup.step(&mut driver.log, None);
        assert!(matches!(found, Step::Ready(Located::Range(_))), "{found:?}");
        if i >= 100 {
            counted += CALLS.get() - before;
        }
        assert_eq!(hands.acks.len(), 12, "every append is acked");
        hands.acks.clear();
    }
    assert_eq!(driver.log.durable_end(), offset(200 * 12));
    assert_eq!(counted, 0, "allocations in a hundred rounds");
}
