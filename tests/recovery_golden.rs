//! Recovery of what a real broker left: `clean/`, `killed/`, `torn/` of the golden files, planted in
//! a simulated world. Where the broker is worse (see the golden README) ringlog must be better.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use ringlog::format::checkpoint::parse_offsets;
use ringlog::format::name::{FileKind, PartitionDir, SegmentFile};
use ringlog::io::sim::World;
use ringlog::log::{Fault, Located, LogConfig, OpenParams};
use ringlog::types::Offset;
use support::{Driver, log_dir, offset, params, world};

/// Sizes that tear the way the README of the golden files tells.
const TOPICS: [&str; 12] = [
    "gold-appendtime",
    "gold-compacted",
    "gold-deleted",
    "gold-gzip",
    "gold-lz4",
    "gold-producers",
    "gold-recompressed",
    "gold-segments",
    "gold-shapes",
    "gold-snappy",
    "gold-transactions",
    "gold-zstd",
];

fn golden(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(part)
}

fn files(part: &str, topic: &str) -> Vec<(String, Vec<u8>)> {
    let dir = golden(part).join(format!("{topic}-0"));
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_string();
            (name, fs::read(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn point(part: &str, topic: &str) -> Option<Offset> {
    let path = golden(part).join("recovery-point-offset-checkpoint");
    let rows = parse_offsets(&fs::read(path).unwrap()).unwrap();
    rows.iter().find(|row| row.topic == topic).map(|row| offset(row.offset))
}

fn start_of(part: &str, topic: &str) -> Option<Offset> {
    let path = golden(part).join("log-start-offset-checkpoint");
    let rows = parse_offsets(&fs::read(path).unwrap()).unwrap();
    rows.iter().find(|row| row.topic == topic).map(|row| offset(row.offset))
}

fn config(topic: &str) -> LogConfig {
    LogConfig {
        index_interval_bytes: 512,
        segment_index_bytes: 1200,
        compacted: topic == "gold-compacted",
        ..LogConfig::default()
    }
}

/// Plants a partition under the tests' own name.
fn plant(topic: &str, parts: &[&str]) -> World {
    let world = world(1);
    for part in parts {
        for (name, bytes) in files(part, topic) {
            world.write_file_durably(log_dir().join(name), bytes);
        }
    }
    world
}

fn open(
    world: &World,
    topic: &str,
    point: Option<Offset>,
    start: Option<Offset>,
    clean: bool,
) -> Driver {
    let params =
        OpenParams { clean, recovery_point: point, log_start: start, ..params(config(topic)) };
    Driver::open_with(world, world.engine(), params)
        .unwrap_or_else(|error| panic!("{topic}: {error}"))
}

fn is(name: &str, kinds: &[FileKind]) -> bool {
    SegmentFile::parse(name).is_some_and(|file| kinds.contains(&file.kind))
}

fn compare(world: &World, topic: &str, part: &str, kinds: &[FileKind]) {
    for (name, want) in files(part, topic).iter().filter(|(name, _)| is(name, kinds)) {
        let got = world.read_file(log_dir().join(name));
        let got = got.unwrap_or_else(|| panic!("{topic}: {name} is missing"));
        assert!(got == *want, "{topic}: {name} differs: {} and {} bytes", got.len(), want.len());
    }
}

/// Every offset can be found, and what is found holds it.
fn find_all(driver: &mut Driver, topic: &str) {
    let (start, end) = (driver.log.log_start().get(), driver.log.high_watermark().get());
    for at in start..end {
        match driver.locate(offset(at), 100).unwrap() {
            Located::Range(range) => assert!(range.first_batch_len > 0),
            other => panic!("{topic}: offset {at}: {other:?}"),
        }
    }
}

#[test]
fn clean_is_taken_as_it_is_and_left_so() {
    for topic in TOPICS {
        let world = plant(topic, &["clean"]);
        let (point, start) = (point("clean", topic), start_of("clean", topic));
        let mut driver = open(&world, topic, point, start, true);
        assert_eq!(driver.log.staged_end(), point.unwrap(), "{topic}");
        assert_eq!(driver.log.log_start(), start.unwrap_or(offset(0)), "{topic}");
        assert!(driver.report.cuts.is_empty() && driver.report.damage.is_empty(), "{topic}");
        assert_eq!((driver.report.epoch_rose, driver.report.rebuilt), (None, 0), "{topic}");
        find_all(&mut driver, topic);
        driver.stop().unwrap();
        let kinds = [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex];
        compare(&world, topic, "clean", &kinds);
    }
}

#[test]
fn indexes_made_anew_are_those_the_broker_makes() {
    for topic in TOPICS {
        let world = plant(topic, &["clean"]);
        for (name, _) in files("clean", topic) {
            if is(&name, &[FileKind::OffsetIndex, FileKind::TimeIndex]) {
                world.write_file_durably(log_dir().join(name), b"xyz".to_vec());
            }
        }
        let driver = open(&world, topic, None, start_of("clean", topic), false);
        assert_eq!(driver.log.staged_end(), point("clean", topic).unwrap(), "{topic}");
        assert!(driver.report.cuts.is_empty() && driver.report.damage.is_empty(), "{topic}");
        driver.stop().unwrap();
        compare(&world, topic, "clean", &[FileKind::Log]);
        compare(&world, topic, "rebuilt", &[FileKind::OffsetIndex, FileKind::TimeIndex]);
    }
}

#[test]
fn killed_ends_where_the_broker_recovered_to() {
    for topic in TOPICS {
        let world = plant(topic, &["killed"]);
        let start = start_of("killed", topic);
        let mut driver = open(&world, topic, point("killed", topic), start, false);
        let end = point("killed-recovered", topic).unwrap();
        assert_eq!(driver.log.staged_end(), end, "{topic}");
        assert_eq!(driver.log.durable_end(), end, "{topic}");
        assert!(driver.report.cuts.is_empty(), "{topic}: {:?}", driver.report.cuts);
        find_all(&mut driver, topic);
        driver.stop().unwrap();
        compare(&world, topic, "killed-recovered", &[FileKind::Log]);
        let left = world.list(log_dir());
        assert!(left.iter().all(|name| !name.ends_with(".deleted")), "{topic}: {left:?}");
    }
}

const TORN: [&str; 9] = [
    "gold-shapes",
    "gold-gzip",
    "gold-snappy",
    "gold-lz4",
    "gold-zstd",
    "gold-segments",
    "gold-producers",
    "gold-recompressed",
    "gold-appendtime",
];

#[test]
fn torn_ends_at_the_brokers_byte_or_a_better_one() {
    for topic in TORN {
        let world = plant(topic, &["clean", "torn"]);
        let before = files("torn", topic);
        let [(name, torn)] = &before[..] else { panic!("{topic}: one torn file") };
        let mut driver = open(&world, topic, Some(offset(0)), None, false);
        let (_, broker) =
            files("torn-recovered", topic).into_iter().find(|(n, _)| n == name).unwrap();
        let log = world.read_file(log_dir().join(name)).unwrap();
        let [cut] = &driver.report.cuts[..] else { panic!("{topic}: {:?}", driver.report.cuts) };
        match topic {
            // The broker drops ninety good records: here every one before the old batch stays.
            "gold-producers" => {
                assert_eq!(driver.log.staged_end(), offset(270));
                assert!(broker.is_empty() && log.len() > 4000);
                assert!(matches!(cut.fault, Fault::OffsetBack { .. }), "{:?}", cut.fault);
            }
            // The broker keeps the last batch twice, and serves its records twice.
            "gold-segments" => {
                assert_eq!(driver.log.staged_end(), offset(500));
                assert_eq!(broker.len(), torn.len());
                assert_eq!(log.len(), 3802 / 2);
                assert!(matches!(cut.fault, Fault::OffsetBack { .. }), "{:?}", cut.fault);
            }
            _ => assert_eq!(log.len(), broker.len(), "{topic}: {:?}", cut.fault),
        }
        assert!(torn.starts_with(&log), "{topic}: what stays is what was there");
        let side = world.read_file(cut.side_file.as_ref().unwrap()).unwrap();
        assert_eq!(&torn[log.len()..], side, "{topic}: what was cut is kept aside");
        let parsed = cut.side_file.as_ref().unwrap().file_name().unwrap().to_str().unwrap();
        assert!(SegmentFile::parse(parsed).is_none(), "{topic}: no broker reads {parsed}");
        let epoch = driver.report.epoch_rose.expect("the epoch rises at a cut");
        assert_eq!(driver.log.leader_epoch(), epoch);
        find_all(&mut driver, topic);
        driver.stop().unwrap();
    }
}

#[test]
fn below_the_recovery_point_flips_are_damage() {
    for topic in ["gold-zstd", "gold-appendtime"] {
        let world = plant(topic, &["clean", "torn"]);
        let before = files("torn", topic);
        let mut driver = open(&world, topic, point("clean", topic), None, false);
        assert!(driver.report.cuts.is_empty(), "{topic}: {:?}", driver.report.cuts);
        let [damaged] = &driver.report.damage[..] else { panic!("{:?}", driver.report) };
        let damage = damaged.damage;
        assert_eq!(driver.log.staged_end(), point("clean", topic).unwrap(), "{topic}");
        let (name, torn) = &before[0];
        assert_eq!(&world.read_file(log_dir().join(name)).unwrap(), torn, "nothing is truncated");
        for at in 0..driver.log.staged_end().get() {
            let located = driver.locate(offset(at), 100).unwrap();
            let lost = (damage.first.get()..damage.next.get()).contains(&at);
            match located {
                Located::Corrupt { first, next, .. } => {
                    assert!(lost, "{topic}: {at} is not lost");
                    assert_eq!((first, next), (damage.first, damage.next));
                }
                other => assert!(!lost && matches!(other, Located::Range(_)), "{topic}: {other:?}"),
            }
        }
    }
}

#[test]
fn the_golden_directories_are_partitions() {
    let entries = fs::read_dir(golden("clean")).unwrap().map(Result::unwrap);
    let dirs = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    let names: Vec<_> = dirs.map(|d| d.file_name().into_string().unwrap()).collect();
    assert!(names.len() == TOPICS.len() && names.iter().all(|n| PartitionDir::parse(n).is_ok()));
}
