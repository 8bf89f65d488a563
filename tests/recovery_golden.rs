//! Recovery of what a real broker left: `clean/`, `killed/`, `torn/` of the golden files, planted
//! in a simulated world. Where the broker is worse (see the golden README) ringlog must be
//! better.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use ringlog::format::batch::Codec;
use ringlog::format::checkpoint::parse_offsets;
use ringlog::format::name::{FileKind, FileState, PartitionDir, SegmentFile};
use ringlog::format::unpack::Unpacker;
use ringlog::format::{snapshot, stored};
use ringlog::io::Io;
use ringlog::io::sim::World;
use ringlog::log::{Fault, Located, LogConfig, OpenParams};
use ringlog::types::{AckLevel, Offset};
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
    world.set_wall_ms(0); // no producer has been silent for long
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

/// Producer state: all that the broker kept. (It had forgotten some, whose records were too old by
/// its clock; the order of the entries is no matter.)
fn compare_snapshots(world: &World, topic: &str, part: &str) {
    let mut compared = 0;
    for (name, want) in files(part, topic).iter().filter(|(n, _)| is(n, &[FileKind::Snapshot])) {
        let Some(got) = world.read_file(log_dir().join(name)) else { continue };
        let got = snapshot::parse(&got).unwrap();
        for entry in snapshot::parse(want).unwrap() {
            assert!(got.contains(&entry), "{topic}: {name} lacks {entry:?} in {got:?}");
        }
        compared += 1;
    }
    assert!(compared > 0, "{topic}: no snapshot in common");
}

/// Every snapshot that the broker keeps, and no other.
fn same_snapshots(world: &World, topic: &str, part: &str) {
    let is_snapshot = |name: &String| is(name, &[FileKind::Snapshot]);
    let ours: Vec<String> = world.list(log_dir()).into_iter().filter(is_snapshot).collect();
    let theirs: Vec<String> = files(part, topic).into_iter().map(|(name, _)| name).collect();
    let theirs: Vec<String> = theirs.into_iter().filter(is_snapshot).collect();
    assert_eq!(ours, theirs, "{topic}");
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
        compare_snapshots(&world, topic, "clean");
    }
}

/// The broker deleted the records before 55: its first segment, which begins at 40, holds 55 too.
#[test]
fn records_that_a_broker_deleted_stay_deleted_and_ours_go_as_its_would() {
    let world = plant("gold-deleted", &["clean"]);
    let (point, start) = (point("clean", "gold-deleted"), start_of("clean", "gold-deleted"));
    let mut driver = open(&world, "gold-deleted", point, start, true);
    assert_eq!((driver.log.log_start(), driver.log.first_base()), (offset(55), offset(40)));
    let gone = driver.locate(offset(54), 100).unwrap();
    let (start, end) = (offset(55), driver.log.staged_end());
    assert_eq!(gone, Located::OutOfRange { start, end });
    assert_eq!(driver.consume(offset(55), 4000).unwrap()[0].0, 55);
    let waiter = driver.waiter();
    driver.log.delete_records(80, waiter, driver.io.now()).unwrap();
    driver.save_start().unwrap();
    assert!(driver.ack_of(waiter).unwrap().result.is_ok());
    driver.log.retain(driver.io.wall_ms());
    driver.settle().unwrap();
    let names = world.list(log_dir());
    assert!(!names.iter().any(|name| {
        SegmentFile::parse(name)
            .is_some_and(|file| file.offset < 80 && file.state == FileState::Live)
    }));
    assert!(names.contains(&"00000000000000000080.snapshot".to_string()), "{names:?}");
    assert_eq!(driver.consume(offset(80), 4000).unwrap()[0].0, 80);
}

#[test]
fn indexes_made_anew_are_those_the_broker_makes() {
    for topic in TOPICS {
        let world = plant(topic, &["clean"]);
        for (name, _) in files("clean", topic) {
            if is(&name, &[FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::Snapshot]) {
                world.write_file_durably(log_dir().join(name), b"xyz".to_vec());
            }
        }
        let driver = open(&world, topic, None, start_of("clean", topic), false);
        assert_eq!(driver.log.staged_end(), point("clean", topic).unwrap(), "{topic}");
        assert!(driver.report.cuts.is_empty() && driver.report.damage.is_empty(), "{topic}");
        driver.stop().unwrap();
        compare(&world, topic, "clean", &[FileKind::Log]);
        compare(&world, topic, "rebuilt", &[FileKind::OffsetIndex, FileKind::TimeIndex]);
        compare_snapshots(&world, topic, "rebuilt");
        same_snapshots(&world, topic, "rebuilt");
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
        compare_snapshots(&world, topic, "killed-recovered");
        same_snapshots(&world, topic, "killed-recovered");
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

/// What Kafka's consumer read: (offset, timestamp, key, value), in base64.
fn consumed(topic: &str) -> Vec<serde_json::Value> {
    let path = golden("consumed").join(format!("{topic}.read_uncommitted.jsonl"));
    let lines = fs::read(path).unwrap();
    let lines = serde_json::Deserializer::from_slice(&lines).into_iter::<serde_json::Value>();
    lines.map(Result::unwrap).collect()
}

/// Everything from the log's start on, as a consumer gets it: through lookups and fetches.
fn read_all(driver: &mut Driver) -> Vec<serde_json::Value> {
    use base64::Engine;
    let text = |b: Option<&[u8]>| b.map(|b| base64::engine::general_purpose::STANDARD.encode(b));
    let (mut unpacker, mut got) = (Unpacker::new(1 << 20), Vec::new());
    let mut at = driver.log.log_start();
    while at < driver.log.high_watermark() {
        let bytes = driver.fetch(at, 3000).unwrap();
        let before = at;
        for found in stored::scan(&bytes) {
            let header = found.header;
            let mut records = unpacker.open(&found).unwrap();
            while let Some(unpacked) = records.next().filter(|_| !header.is_control()) {
                let record = unpacked.unwrap().record;
                if record.offset < at.get() {
                    continue;
                }
                let headers: Vec<_> = record
                    .headers
                    .map(|h| serde_json::json!([text(Some(h.key)), text(h.value)]))
                    .collect();
                got.push(serde_json::json!({
                    "offset": record.offset,
                    "leader_epoch": header.leader_epoch,
                    "timestamp": record.timestamp,
                    "timestamp_type": header.timestamp_type().name(),
                    "key": text(record.key),
                    "value": text(record.value),
                    "headers": headers,
                }));
            }
            at = at.max(offset(header.next_offset()));
        }
        assert!(at > before, "the first batch is whole");
    }
    got
}

/// What a clean stop of the broker left is opened, read, appended to and stopped cleanly, as often
/// as one likes: the records are those that Kafka's consumer read, what should not change does not,
/// and what grows begins with what was there.
#[test]
fn a_golden_directory_goes_on_and_keeps_its_bytes() {
    for topic in TOPICS {
        let world = plant(topic, &["clean"]);
        let (mut point, start) = (point("clean", topic), start_of("clean", topic));
        let before = files("clean", topic);
        let newest = before.iter().rfind(|(name, _)| is(name, &[FileKind::Log]));
        let newest = newest.unwrap().0.split('.').next().unwrap().to_owned();
        let wanted = consumed(topic);
        for round in 0..3 {
            let mut driver = open(&world, topic, point, start, true);
            let read = read_all(&mut driver);
            assert_eq!(read[..wanted.len()], wanted, "{topic} {round}");
            assert_eq!(read.len(), wanted.len() + round, "{topic}");
            let bytes = support::batch(&[b"one more"], Codec::Zstd, 1);
            driver.append_acked(&bytes, AckLevel::Durable).unwrap();
            point = Some(driver.log.staged_end());
            driver.stop().unwrap();
            for (name, bytes) in &before {
                let sealed = !name.starts_with(&newest) || name.ends_with("txnindex");
                let now = world.read_file(log_dir().join(name));
                match name.as_str() {
                    // The broker's clean-stop snapshot gives way to ours; its epochs may gain one.
                    name if name.ends_with("snapshot") && now.is_none() => {}
                    name if name.ends_with("snapshot") => compare_snapshots(&world, topic, "clean"),
                    "leader-epoch-checkpoint" => {}
                    _ if sealed => assert!(now.as_ref() == Some(bytes), "{topic}: {name}"),
                    // The newest log and its indexes may only grow; their closing entry may not.
                    _ => assert!(now.unwrap().starts_with(bytes), "{topic}: {name}"),
                }
            }
        }
    }
}

/// Every state of every partition opens, clean or not, loses nothing and serves what it holds.
#[test]
fn every_golden_directory_in_every_state_opens_and_reads() {
    let mut opened = 0;
    for topic in TOPICS {
        for parts in [
            &["clean"][..],
            &["clean", "rebuilt"],
            &["killed"],
            &["killed-recovered"],
            &["torn-recovered"],
        ] {
            for clean in [true, false] {
                if clean && parts == ["killed"] {
                    continue; // its indexes are not trimmed: no clean stop leaves that
                }
                let world = plant(topic, parts);
                let start = start_of(if parts[0] == "killed" { "killed" } else { "clean" }, topic);
                let mut driver = open(&world, topic, None, start, clean);
                assert!(driver.report.damage.is_empty(), "{topic} {parts:?}");
                // What the broker kept twice is cut here, see the README of these files.
                let twice = topic == "gold-segments" && parts == ["torn-recovered"];
                assert_eq!(driver.report.cuts.is_empty(), !twice, "{topic} {parts:?}");
                let read = read_all(&mut driver);
                let wanted = consumed(topic);
                let whole = parts[0] == "clean";
                let same = wanted.iter().zip(&read).take_while(|(a, b)| a == b).count();
                assert!(
                    same == wanted.len().min(read.len()) || topic == "gold-compacted",
                    "{topic} {parts:?}: {same}"
                );
                assert!(!whole || read.len() == wanted.len(), "{topic} {parts:?}");
                driver.stop().unwrap();
                opened += 1;
            }
        }
    }
    assert_eq!(opened, TOPICS.len() * 9);
}
