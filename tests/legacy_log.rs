//! Logs of magic 0 and 1, and logs that begin so and go on with record batches: opened, looked up,
//! served as they stand, appended to, recovered.

#[path = "support/golden.rs"]
mod fixtures;
mod support;

use std::path::PathBuf;

use fixtures::{LEGACY_SETS, legacy};
use ringlog::format::batch::Codec;
use ringlog::format::name::{FileKind, file_name};
use ringlog::format::stored;
use ringlog::format::unpack::Unpacker;
use ringlog::io::sim::World;
use ringlog::log::{Damage, Fault, Located, LogConfig, OpenParams, When};
use ringlog::types::AckLevel;
use support::{Driver, batch, log_dir, offset, params, world};

/// Behind the last record of each.
const END: i64 = 56;
const T: i64 = 1_400_000_000_000;

fn log(set: &str) -> Vec<u8> {
    legacy(set, "00000000000000000000.log")
}

/// (offset, timestamp) of what Kafka's client library read.
fn records(set: &str) -> Vec<(i64, i64)> {
    let lines = legacy(set, "records.jsonl");
    let lines = serde_json::Deserializer::from_slice(&lines).into_iter::<serde_json::Value>();
    let number = |line: &serde_json::Value, name: &str| line[name].as_i64().expect("a number");
    lines
        .map(|line| line.expect("JSON"))
        .map(|l| (number(&l, "offset"), number(&l, "timestamp")))
        .collect()
}

fn file(base: i64, kind: FileKind) -> PathBuf {
    log_dir().join(file_name(base, kind))
}

fn config() -> LogConfig {
    LogConfig { index_interval_bytes: 256, ..LogConfig::default() }
}

fn plant(bytes: &[u8]) -> World {
    let world = world(1);
    world.write_file_durably(file(0, FileKind::Log), bytes.to_vec());
    world
}

fn open(world: &World, clean: bool) -> Driver {
    Driver::open_with(world, world.engine(), OpenParams { clean, ..params(config()) }).unwrap()
}

/// What a consumer reads from an offset on, whatever the magic: (offset, timestamp).
fn consume(driver: &mut Driver, from: i64) -> Vec<(i64, i64)> {
    let (mut unpacker, mut seen, mut at) = (Unpacker::new(1 << 20), Vec::new(), from);
    while at < driver.log.high_watermark().get() {
        let bytes = driver.fetch(offset(at), 300).unwrap();
        let before = at;
        for found in stored::scan(&bytes) {
            assert!(found.crc_ok());
            let mut records = unpacker.open(&found).unwrap();
            while let Some(unpacked) = records.next() {
                let record = unpacked.unwrap().record;
                if record.offset >= at {
                    seen.push((record.offset, record.timestamp));
                }
            }
            at = at.max(found.header.next_offset());
        }
        assert!(at > before, "the first batch is whole");
    }
    seen
}

#[test]
fn every_offset_and_time_is_found_and_the_bytes_served_as_they_stand() {
    for (set, clean) in LEGACY_SETS.into_iter().flat_map(|set| [(set, true), (set, false)]) {
        let world = plant(&log(set));
        let mut driver = open(&world, clean);
        assert!(driver.report.cuts.is_empty() && driver.report.damage.is_empty(), "{set}");
        assert_eq!(driver.log.high_watermark(), offset(END), "{set}");
        assert_eq!(driver.fetch(offset(0), 1 << 20).unwrap(), log(set), "{set}");
        let wanted = records(set);
        for from in 0..END {
            let rest: Vec<_> = wanted.iter().copied().filter(|(at, _)| *at >= from).collect();
            assert_eq!(consume(&mut driver, from), rest, "{set} from {from}");
        }
        for step in -3..60 {
            let time = T + step * 100;
            let first = wanted.iter().find(|(_, at)| *at >= time).map(|(o, t)| (offset(*o), *t));
            assert_eq!(driver.by_time(When::AtOrAfter(time)).unwrap(), first, "{set} {time}");
        }
        let newest = wanted.iter().map(|(_, at)| *at).max().unwrap();
        let first = wanted.iter().find(|(_, at)| *at == newest).map(|(o, t)| (offset(*o), *t));
        let found = driver.by_time(When::Max).unwrap();
        assert_eq!(found, first.filter(|_| newest >= 0), "{set}: magic 0 has no times");
        driver.stop().unwrap();
        assert_eq!(world.read_file(file(0, FileKind::Log)).unwrap(), log(set), "{set}");
    }
}

/// Appends go behind the old messages, in the same file, as record batches.
#[test]
fn a_log_goes_on_in_the_new_format() {
    for set in LEGACY_SETS {
        let world = plant(&log(set));
        let mut driver = open(&world, true);
        for value in [b"first".as_slice(), b"second"] {
            let bytes = batch(&[value], Codec::Lz4, T + 10_000);
            driver.append_acked(&bytes, AckLevel::Durable).unwrap();
        }
        let mut wanted = records(set);
        wanted.extend([(END, T + 10_000), (END + 1, T + 10_000)]);
        assert_eq!(consume(&mut driver, 0), wanted, "{set}");
        driver.stop().unwrap();
        let bytes = world.read_file(file(0, FileKind::Log)).unwrap();
        assert!(bytes.starts_with(&log(set)), "{set}");
        let indexes = [FileKind::OffsetIndex, FileKind::TimeIndex];
        let before = indexes.map(|kind| world.read_file(file(0, kind)).unwrap());
        for clean in [true, false] {
            let mut driver = open(&world, clean);
            assert_eq!(consume(&mut driver, 0), wanted, "{set} {clean}");
            let found = driver.by_time(When::AtOrAfter(T + 9_000)).unwrap();
            assert_eq!(found, Some((offset(END), T + 10_000)));
            driver.stop().unwrap();
            assert_eq!(indexes.map(|kind| world.read_file(file(0, kind)).unwrap()), before);
        }
    }
}

/// R08 for old messages: cut anywhere, what is whole before stays and what is not is kept aside.
#[test]
fn r08_a_torn_tail_of_old_messages() {
    for set in LEGACY_SETS {
        let whole = log(set);
        let ends: Vec<usize> =
            stored::scan(&whole).map(|found| found.pos + found.bytes.len()).collect();
        for cut in (0..whole.len()).step_by(37).chain(whole.len() - 30..whole.len()) {
            let world = plant(&whole[..cut]);
            let mut driver = open(&world, false);
            let end = ends.iter().copied().filter(|end| *end <= cut).max().unwrap_or(0);
            assert_eq!(driver.log.size_bytes(), end as u64, "{set} {cut}");
            assert_eq!(driver.report.cuts.is_empty(), end == cut);
            let next = driver.log.staged_end().get();
            let wanted: Vec<_> = records(set).into_iter().filter(|(at, _)| *at < next).collect();
            assert_eq!(consume(&mut driver, 0), wanted);
            if let [torn] = &driver.report.cuts[..] {
                let side = torn.side_file.as_deref().expect("there is space");
                assert_eq!(world.read_file(side).unwrap(), whole[end..cut]);
            }
        }
    }
}

/// R10: an old message that stands there again does not count.
#[test]
fn r10_repeated_old_messages_are_cut() {
    for set in LEGACY_SETS {
        let whole = log(set);
        let found: Vec<_> = stored::scan(&whole).collect();
        let again = [&whole, found[1].bytes].concat();
        let driver = open(&plant(&again), false);
        assert_eq!(driver.log.staged_end(), offset(END), "{set}");
        let fault = driver.report.cuts[0].fault;
        assert!(matches!(fault, Fault::OffsetBack { .. }), "{set}: {fault}");
    }
}

/// R17 for old messages: a flipped bit below the recovery point costs its message alone, also where
/// it hides where the next one begins.
#[test]
fn r17_damage_costs_one_old_message() {
    for (set, at) in LEGACY_SETS.into_iter().flat_map(|set| [(set, 20), (set, 10), (set, 16)]) {
        let mut bytes = log(set);
        let found: Vec<_> = stored::scan(&bytes).map(|f| (f.pos, f.header.next_offset())).collect();
        let (pos, first, next) = (found[2].0, found[1].1, found[2].1);
        bytes[pos + at] ^= 1 << 5;
        let world = plant(&bytes);
        let point = Some(offset(END));
        let opened = OpenParams { recovery_point: point, ..params(config()) };
        let mut driver = Driver::open_with(&world, world.engine(), opened).unwrap();
        let [damaged] = &driver.report.damage[..] else { panic!("{set} {:?}", driver.report) };
        let Damage { first: from, next: to, .. } = damaged.damage;
        assert_eq!(from.get(), first, "{set}");
        let behind = records(set).into_iter().map(|(offset, _)| offset).find(|at| *at >= next);
        assert_eq!(Some(to.get()), behind, "{set} {at}");
        for offset_at in (0..first).chain(to.get()..END) {
            let located = driver.locate(offset(offset_at), 100).unwrap();
            assert!(matches!(located, Located::Range(_)), "{set} {at}: {offset_at} {located:?}");
        }
        assert!(matches!(driver.locate(from, 100).unwrap(), Located::Corrupt { .. }));
        assert!(driver.report.cuts.is_empty());
    }
}
