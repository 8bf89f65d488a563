//! One log on the simulator: appends, rolls, lookups, stops and starts, faults.

mod support;

use ringlog::format::batch::{Codec, parse_header, reseal, write_header};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::index::time_entries;
use ringlog::io::Io;
use ringlog::io::sim::Prng;
use ringlog::log::{Located, LogConfig, OffsetLookup, Refusal, Step, When};
use ringlog::types::AckLevel;
use support::{Driver, batch, log_dir, offset, world};

fn small() -> LogConfig {
    LogConfig {
        segment_bytes: 1000,
        index_interval_bytes: 200,
        segment_index_bytes: 400,
        ..LogConfig::default()
    }
}

#[test]
fn what_is_acked_is_read_back_over_rolls_and_restarts() {
    let world = world(1);
    let mut driver = Driver::fresh(&world, small());
    let value = |i: usize| format!("value {i} {}", "x".repeat(i % 90)).into_bytes();
    for i in 0..40 {
        let ack =
            driver.append_acked(&batch(&[&value(i)], Codec::None, i as i64), AckLevel::Policy);
        assert_eq!(ack.unwrap().base_offset, offset(i as i64));
    }
    let all: Vec<_> = (0..40).map(|i| (i as i64, value(i))).collect();
    assert!(driver.log.segment_count() > 4, "{}", driver.log.segment_count());
    assert_eq!(driver.consume(offset(0), 300).unwrap(), all);
    driver.settle().unwrap();
    assert_eq!(driver.log.recovery_point(), offset(39), "the last segment is not sealed");
    driver.stop().unwrap();
    let mut driver = Driver::start(&world, small()).unwrap();
    assert_eq!(driver.report.cuts, vec![]);
    assert_eq!(driver.report.damage, vec![]);
    assert_eq!(driver.log.high_watermark(), offset(40));
    assert_eq!(driver.consume(offset(0), 300).unwrap(), all);
    world.power_cut();
    let mut driver = Driver::start(&world, small()).unwrap();
    assert_eq!(driver.consume(offset(0), 300).unwrap(), all);
}

/// A log as anybody would write it who had no disk.
#[derive(Default)]
struct Model {
    records: Vec<(Vec<u8>, i64)>,
}

impl Model {
    fn by_time(&self, target: i64) -> Option<(i64, i64)> {
        let found = self.records.iter().enumerate().find(|(_, (_, time))| *time >= target);
        found.map(|(at, (_, time))| (at as i64, *time))
    }

    fn max(&self) -> Option<(i64, i64)> {
        self.by_time(self.records.iter().map(|(_, time)| *time).max()?)
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("RINGLOG_SEED") {
        Ok(seed) => vec![seed.parse().expect("RINGLOG_SEED is a number")],
        Err(_) => (0..40).collect(),
    }
}

/// Times that jump about, days apart.
fn some_batch(dice: &mut Prng, model: &mut Model) -> Vec<u8> {
    let codec = Codec::ALL[dice.below(5) as usize];
    let mut builder = BatchBuilder::new();
    for _ in 0..1 + dice.below(4) {
        let time = 1_000_000 + dice.below(1000) as i64;
        let mut value = format!("{}-", model.records.len()).into_bytes();
        value.resize(value.len() + dice.below(200) as usize, b'.');
        builder.append(None, Some(&value), &[], time);
        model.records.push((value, time));
    }
    builder.finish(codec, None).unwrap().to_vec()
}

const POLICIES: [&str; 8] = [
    "os",
    "each",
    "group",
    "group:200us",
    "bytes:500",
    "records:4",
    "interval:1ms",
    "records:4,interval:1ms",
];

fn run_model(seed: u64) {
    let mut dice = Prng::new(seed);
    let world = world(seed);
    world.faults(|faults| {
        faults.short_write_per_mille = 100;
        faults.short_read_per_mille = 100;
        faults.eintr_per_mille = 20;
    });
    let mut config = LogConfig {
        flush: POLICIES[dice.below(8) as usize].parse().unwrap(),
        writes_in_flight_max: 1 + dice.below(3) as usize,
        tail_batches_max: dice.below(5) as usize,
        index_cache_bytes_max: dice.below(60) as usize,
        ..small()
    };
    let mut model = Model::default();
    let mut driver = Driver::fresh(&world, config.clone());
    for _ in 0..120 {
        match dice.below(12) {
            0..5 => {
                let mut bytes = Vec::new();
                let first = model.records.len() as i64;
                for _ in 0..1 + dice.below(3) {
                    bytes.extend(some_batch(&mut dice, &mut model));
                }
                let level =
                    [AckLevel::None, AckLevel::Written, AckLevel::Durable, AckLevel::Policy]
                        [dice.below(4) as usize];
                let appended = driver.append(&bytes, level);
                if bytes.len() as u64 > config.segment_bytes {
                    assert!(matches!(appended, Err(Refusal::PastSegment { .. })), "seed {seed}");
                    model.records.truncate(first as usize);
                    continue;
                }
                let (_, staged) = appended.unwrap();
                assert_eq!(staged.base_offset, offset(first));
                assert_eq!(staged.last_offset, offset(model.records.len() as i64 - 1));
            }
            5..7 => driver.tick().unwrap(),
            7 => driver.settle().unwrap(),
            8 => {
                let flush = driver.flush();
                driver.tick_until(|d| d.ack_of(flush).is_some()).unwrap();
                look(&mut driver, &mut dice, &model);
            }
            9 => match dice.coin() {
                true => driver.log.close_sealed(dice.below(3) as usize),
                false => drop(driver.log.close_idle()),
            },
            10 => {
                config.flush = POLICIES[dice.below(8) as usize].parse().unwrap();
                let waiter = driver.waiter();
                let before = driver.log.high_watermark();
                driver.log.set_policy(config.flush, waiter, driver.io.now());
                driver.tick_until(|d| d.ack_of(waiter).is_some()).unwrap();
                assert!(driver.log.high_watermark() >= before);
            }
            _ => {
                driver.stop().unwrap();
                driver = Driver::start(&world, config.clone()).unwrap();
                assert!(driver.report.cuts.is_empty(), "seed {seed}: {:?}", driver.report);
                look(&mut driver, &mut dice, &model);
            }
        }
        let log = &driver.log;
        assert!(log.staged_end() >= log.written_end() && log.written_end() >= log.durable_end());
        assert!(log.high_watermark() >= log.durable_end(), "seed {seed}");
        assert!(log.recovery_point() <= log.durable_end(), "seed {seed}");
    }
}

/// Everything is there, by offset and by time.
fn look(driver: &mut Driver, dice: &mut Prng, model: &Model) {
    let end = model.records.len() as i64;
    assert_eq!(driver.log.high_watermark(), offset(end));
    let values: Vec<_> =
        model.records.iter().enumerate().map(|(i, (value, _))| (i as i64, value.clone())).collect();
    let from = dice.below(end as u64 + 1) as i64;
    let got = driver.consume(offset(from), 1 + dice.below(2000) as u32).unwrap();
    assert_eq!(got, values[from as usize..]);
    for _ in 0..3 {
        let target = 1_000_000 + dice.below(1010) as i64;
        let found = driver.by_time(When::AtOrAfter(target)).unwrap();
        assert_eq!(found.map(|(at, time)| (at.get(), time)), model.by_time(target), "{target}");
    }
    let max = driver.by_time(When::Max).unwrap();
    assert_eq!(max.map(|(at, time)| (at.get(), time)), model.max());
}

#[test]
fn a_log_does_what_a_vector_does() {
    for seed in seeds() {
        println!("seed {seed}");
        run_model(seed);
    }
}

#[test]
fn r07_times_far_apart_and_out_of_order() {
    const DAY: i64 = 24 * 3600 * 1000;
    let now = 1_700_000_000_000;
    let world = world(2);
    let mut driver = Driver::fresh(&world, LogConfig { index_interval_bytes: 1, ..small() });
    for time in [now, now - 90 * DAY, now + 60 * DAY, now] {
        let config = LogConfig { segment_ms: i64::MAX, ..driver.log.config().clone() };
        driver.log.set_config(config);
        driver.append_acked(&batch(&[b"v"], Codec::None, time), AckLevel::Durable).unwrap();
    }
    let mut look = |target| driver.by_time(When::AtOrAfter(target)).unwrap();
    assert_eq!(look(now - DAY), Some((offset(0), now)));
    assert_eq!(look(now - 100 * DAY), Some((offset(0), now)));
    assert_eq!(look(now + 1), Some((offset(2), now + 60 * DAY)));
    assert_eq!(look(now + 61 * DAY), None);
    driver.stop().unwrap();
    let entries = world.read_file(log_dir().join("00000000000000000000.timeindex")).unwrap();
    let times: Vec<_> = time_entries(&entries).map(|entry| entry.timestamp).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert_eq!(times.last(), Some(&(now + 60 * DAY)));
}

#[test]
fn r28_out_of_range_answers_carry_the_range() {
    let world = world(3);
    let mut driver = Driver::fresh(&world, LogConfig::default());
    for _ in 0..20 {
        driver
            .append_acked(&batch(&[b"v".as_slice(); 10], Codec::None, 1), AckLevel::Durable)
            .unwrap();
    }
    let waiter = driver.waiter();
    driver.log.delete_records(100, waiter, driver.io.now()).unwrap();
    let range = Located::OutOfRange { start: offset(100), end: offset(200) };
    assert_eq!(driver.locate(offset(99), 100).unwrap(), range);
    assert_eq!(driver.locate(offset(201), 100).unwrap(), range);
    assert_eq!(driver.locate(offset(200), 100).unwrap(), Located::AtEnd);
    assert!(matches!(driver.locate(offset(100), 100).unwrap(), Located::Range(_)));
}

#[test]
fn the_first_batch_is_whole_and_the_last_may_be_cut() {
    let world = world(4);
    let mut driver = Driver::fresh(&world, LogConfig::default());
    let large = batch(&[&[b'v'; 5000]], Codec::None, 1);
    driver.append_acked(&large, AckLevel::Durable).unwrap();
    driver.append_acked(&large, AckLevel::Durable).unwrap();
    assert_eq!(driver.fetch(offset(0), 1).unwrap().len(), large.len());
    assert_eq!(driver.fetch(offset(0), 6000).unwrap().len(), 6000);
    assert_eq!(driver.fetch(offset(0), 60_000).unwrap().len(), 2 * large.len());
    let mut lookup = OffsetLookup::new(offset(0), 100, false);
    assert!(matches!(lookup.step(&mut driver.log, None), Step::Ready(Located::NoRoom)));
}

#[test]
fn a_batch_too_large_is_refused_whole() {
    let world = world(5);
    let sent = batch(&[b"v"], Codec::None, 1);
    let config = LogConfig { max_message_bytes: sent.len(), ..LogConfig::default() };
    let mut driver = Driver::fresh(&world, config);
    driver.append_acked(&sent, AckLevel::Durable).unwrap();
    let larger = batch(&[b"vv"], Codec::None, 1);
    let refused = driver.append(&[sent, larger].concat(), AckLevel::Durable).unwrap_err();
    assert!(matches!(refused, Refusal::TooLarge { .. }), "{refused}");
    assert_eq!(driver.log.staged_end(), offset(1), "all or nothing");
}

#[test]
fn r04_the_live_index_equals_a_rebuilt_one() {
    let world = world(6);
    let mut driver = Driver::fresh(&world, LogConfig::default());
    let four = batch(&[&[b'v'; 4000]], Codec::None, 1);
    let mut ten = Vec::new();
    (0..10).for_each(|_| ten.extend(&four));
    driver.append_acked(&ten, AckLevel::Durable).unwrap();
    driver.append_acked(&batch(&[&[b'm'; 1 << 19]], Codec::None, 2), AckLevel::Durable).unwrap();
    for i in 0..10 {
        driver.append_acked(&batch(&[b"tiny"], Codec::None, 3 + i), AckLevel::Durable).unwrap();
    }
    driver.stop().unwrap();
    let read = |kind| world.read_file(log_dir().join(format!("{:020}.{kind}", 0))).unwrap();
    let live = (read("index"), read("timeindex"));
    assert!(live.0.len() >= 8 * 5);
    world.power_cut();
    for kind in ["index", "timeindex"] {
        world.write_file_durably(log_dir().join(format!("{:020}.{kind}", 0)), Vec::new());
    }
    let io = world.engine();
    let driver = Driver::open_with(&world, io, support::params(LogConfig::default())).unwrap();
    driver.stop().unwrap();
    assert_eq!((read("index"), read("timeindex")), live);
}

#[test]
fn an_idle_log_holds_no_descriptor_and_wakes_by_itself() {
    let world = world(7);
    world.faults(|faults| faults.files_max = 4);
    let mut driver = Driver::fresh(&world, small());
    for i in 0..30 {
        let sent = batch(&[format!("value {i}").as_bytes()], Codec::None, i);
        driver.append_acked(&sent, AckLevel::Durable).unwrap();
        driver.settle().unwrap();
        if i % 3 == 0 {
            assert!(driver.log.close_idle());
            driver.settle().unwrap();
        }
        if i % 5 == 0 {
            assert_eq!(driver.consume(offset(i), 1000).unwrap().len(), 1);
        }
        driver.log.close_sealed(0);
    }
    assert_eq!(driver.consume(offset(0), 100).unwrap().len(), 30);
    world.kill();
    let mut driver = Driver::start(&world, small()).unwrap();
    assert_eq!(driver.consume(offset(0), 100).unwrap().len(), 30);
}

#[test]
fn r05_an_append_that_no_segment_can_index_is_refused() {
    let world = world(8);
    let mut driver = Driver::fresh(&world, LogConfig::default());
    let mut sparse = batch(&[b"v"], Codec::Gzip, 1);
    let mut header = parse_header(&sparse).unwrap();
    header.last_offset_delta = i32::MAX - 1;
    write_header(&mut sparse, &header).unwrap();
    reseal(&mut sparse).unwrap();
    let two = [sparse.clone(), sparse.clone()].concat();
    let refused = driver.append(&two, AckLevel::Durable).unwrap_err();
    assert!(matches!(refused, Refusal::TooManyOffsets { .. }), "{refused}");
    for base in [0, i64::from(i32::MAX)] {
        let ack = driver.append_acked(&sparse, AckLevel::Durable).unwrap();
        assert_eq!(ack.base_offset, offset(base));
    }
    assert_eq!(driver.log.segment_count(), 2, "rolled before a relative offset overflows");
}
