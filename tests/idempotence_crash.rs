//! Crash sweep with idempotent producers: the same seeded run is cut after every single step, and
//! the producers send again what has no ack. Each record is in the log exactly once, and those of a
//! producer in order, whatever was cut and however often.
//!
//! `RINGLOG_SEED=n` replays one seed.

mod support;

use std::collections::VecDeque;

use ringlog::io::sim::{Prng, World};
use ringlog::log::{LogConfig, Refusal, Waiter};
use ringlog::types::{AckLevel, Micros};
use support::{Driver, Stopped, create_topic, offset, sequenced, world};

const BATCHES: usize = 14;
/// Batches of one producer under way at once: more than Kafka remembers.
const PIPELINE: usize = 8;

/// A producer outside of the machine that is cut.
struct Sender {
    id: i64,
    /// Where its sequences begin: they go round on the way.
    begin: i32,
    acked: usize,
    /// Sent in this life, in order; without a waiter: known to have landed.
    under_way: VecDeque<Option<Waiter>>,
}

impl Sender {
    fn batch(&self, number: usize) -> Vec<u8> {
        let values: Vec<String> =
            (0..2).map(|record| format!("{} {}", self.id, 2 * number + record)).collect();
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        // Old times: who loads an archive is no silent producer.
        sequenced(self.id, 0, self.sequence(number), &values, 1000)
    }

    fn sequence(&self, number: usize) -> i32 {
        ((i64::from(self.begin) + 2 * number as i64) % (1 << 31)) as i32
    }

    fn send(&mut self, driver: &mut Driver) {
        let number = self.acked + self.under_way.len();
        if self.under_way.len() == PIPELINE || number == BATCHES {
            return;
        }
        match driver.append(&self.batch(number), AckLevel::Durable) {
            Ok((waiter, _)) => self.under_way.push_back(Some(waiter)),
            Err(Refusal::OutOfOrder { next, is_current: true, first, .. }) => {
                let ahead = next.wrapping_sub(first) & i32::MAX;
                assert!((2..1000).contains(&ahead), "{first} where {next} is due: acked, and lost");
                self.under_way.push_back(None);
            }
            Err(refusal) => panic!("producer {}: {refusal}", self.id),
        }
    }

    fn take(&mut self, waiter: Waiter) {
        let Some(at) = self.under_way.iter().position(|one| *one == Some(waiter)) else { return };
        let skipped = self.under_way.drain(..=at).rev().skip(1);
        assert!(skipped.into_iter().all(|one| one.is_none()), "acks out of order");
        self.acked += at + 1;
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 600,
        group_bytes_max: 400,
        producer_expiration_ms: 1_000,
        ..LogConfig::default()
    }
}

/// Sends until all is acked, or the world stops.
fn live(world: &World, senders: &mut [Sender], dice: &mut Prng) -> Result<(), Stopped> {
    senders.iter_mut().for_each(|sender| sender.under_way.clear());
    let mut driver = Driver::start(world, config()).map_err(|_| Stopped)?;
    let stop_at = dice.below(40);
    for turn in 0.. {
        for sender in senders.iter_mut() {
            (0..dice.below(4)).for_each(|_| sender.send(&mut driver));
        }
        driver.poll()?;
        driver.world.advance(Micros(dice.below(300)));
        for ack in std::mem::take(&mut driver.acks) {
            ack.result.map_err(|_| Stopped)?;
            senders.iter_mut().for_each(|sender| sender.take(ack.waiter));
        }
        if dice.below(8) == 0 {
            driver.checkpoint()?;
        }
        if senders.iter().all(|sender| sender.acked == BATCHES) {
            return driver.stop();
        }
        if turn == stop_at {
            // A clean stop in the midst: what is answered by an error then is sent again, too.
            return driver.stop().and(Err(Stopped));
        }
        assert!(turn < 10_000, "acks that never come");
    }
    Ok(())
}

fn judge(world: &World, what: &str) {
    let mut driver = Driver::start(world, config()).unwrap();
    let got = driver.consume(offset(0), 4000).unwrap();
    assert!(got.iter().map(|(at, _)| *at).eq(0..got.len() as i64), "{what}: offsets");
    for id in [3, 4] {
        let mine: Vec<String> = got
            .iter()
            .map(|(_, value)| String::from_utf8(value.clone()).unwrap())
            .filter_map(|value| Some(value.strip_prefix(&format!("{id} "))?.to_string()))
            .collect();
        let sent: Vec<String> = (0..2 * BATCHES).map(|number| number.to_string()).collect();
        assert_eq!(mine, sent, "{what}: producer {id}");
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("RINGLOG_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..12).collect(),
    }
}

#[test]
fn d13_each_record_lands_once_and_in_order_whatever_is_cut() {
    for seed in seeds() {
        for cut in 0.. {
            let what = format!("seed {seed}, cut {cut}");
            let (world, mut dice) = (world(seed), Prng::new(seed));
            let mut io = world.engine();
            create_topic(&world, &mut io);
            drop(io);
            let mut senders = [(3, 0), (4, i32::MAX - 9)].map(|(id, begin)| Sender {
                id,
                begin,
                acked: 0,
                under_way: VecDeque::new(),
            });
            world.cut_after(cut);
            let mut cuts = 0;
            while live(&world, &mut senders, &mut dice).is_err() {
                if world.stopped() {
                    cuts += 1;
                    match (seed + cuts) % 3 {
                        0 => world.kill(),
                        _ => world.power_cut(),
                    }
                    if cuts < 3 {
                        // Also in the midst of the recovery.
                        world.cut_after(dice.below(1 + cut));
                    }
                }
            }
            if world.stopped() {
                world.power_cut();
            }
            world.cut_after(1 << 40);
            judge(&world, &what);
            if cuts == 0 {
                break;
            }
        }
    }
}
