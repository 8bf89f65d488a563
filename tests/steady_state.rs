//! After a warm-up a log allocates nothing: append, plan, completions, acks, tail lookups.
//!
//! Own file, because it counts every allocation of its process. Ops are completed by hand: the log
//! is sans-I/O, so nothing else runs.

#[path = "support/counting.rs"]
mod counting;
mod support;

use counting::measured;
use ringlog::format::batch::Codec;
use ringlog::io::{Op, Outcome};
use ringlog::log::{
    Ack, Batches, LocalTag, Located, LogConfig, OffsetLookup, OpSink, Step, Waiter,
};
use ringlog::types::{AckLevel, Micros};
use support::{Driver, batch, offset, sequenced, world};

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
    let (mut counted, mut peak_bytes) = (0, 0);
    for i in 0..200 {
        let batches: Vec<Batches> = (0..12)
            .map(|at| {
                // Half of them of an idempotent producer.
                let sequence = (i * 6 + at / 2) as i32;
                let ours = sequenced(7, 0, sequence, &[b"a record"], 1);
                let sent = if at % 2 == 0 { &ours } else { &sent };
                Batches::from_headers(driver.pool.copied(sent).unwrap()).unwrap()
            })
            .collect();
        let ((), asked) = measured(|| {
            for one in batches {
                let waiter = Waiter(i);
                driver.log.append(one, AckLevel::Policy, waiter, Micros(hands.at), 0).unwrap();
            }
            round(&mut driver, &mut hands);
            let end = driver.log.high_watermark();
            let mut lookup = OffsetLookup::new(offset(end.get() - 1), 1 << 20, true);
            let found = lookup.step(&mut driver.log, None);
            assert!(matches!(found, Step::Ready(Located::Range(_))), "{found:?}");
        });
        if i >= 100 {
            counted += asked.calls;
            peak_bytes = peak_bytes.max(asked.peak_bytes);
        }
        assert_eq!(hands.acks.len(), 12, "every append is acked");
        hands.acks.clear();
    }
    assert_eq!(driver.log.durable_end(), offset(200 * 12));
    assert_eq!((counted, peak_bytes), (0, 0), "allocations in a hundred rounds");
}
