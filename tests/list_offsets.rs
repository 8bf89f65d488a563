//! List offsets and isolation over logs that a broker wrote: what Kafka's own answered, and what a
//! reader of committed records may see of transactions that never ended.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use ringlog::format::batch::{self, Attributes, Codec};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::checkpoint::parse_offsets;
use ringlog::format::name::{FileKind, file_name};
use ringlog::format::txn_index::{self, AbortedTxn};
use ringlog::io::sim::World;
use ringlog::log::{Located, LogConfig, OpenParams, View, When};
use ringlog::types::{AckLevel, Offset};
use support::{Driver, log_dir, offset, params, world};

const T: i64 = 1_700_000_000_000;

fn golden(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(part)
}

fn row(part: &str, checkpoint: &str, topic: &str) -> Option<Offset> {
    let rows = parse_offsets(&fs::read(golden(part).join(checkpoint)).unwrap()).unwrap();
    rows.iter().find(|row| row.topic == topic).map(|row| offset(row.offset))
}

fn plant(part: &str, topic: &str, keep: impl Fn(&str) -> bool) -> World {
    let world = world(1);
    world.set_wall_ms(0); // no producer has been silent for long
    for entry in fs::read_dir(golden(part).join(format!("{topic}-0"))).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if keep(name) {
            world.write_file_durably(log_dir().join(name), fs::read(&path).unwrap());
        }
    }
    world
}

fn config(topic: &str) -> LogConfig {
    LogConfig {
        index_interval_bytes: 512,
        segment_index_bytes: 1200,
        compacted: topic == "gold-compacted",
        ..LogConfig::default()
    }
}

fn open(world: &World, topic: &str, clean: bool) -> Driver {
    let recovery_point =
        if clean { row("clean", "recovery-point-offset-checkpoint", topic) } else { None };
    let log_start = row("clean", "log-start-offset-checkpoint", topic);
    let params = OpenParams { clean, recovery_point, log_start, ..params(config(topic)) };
    Driver::open_with(world, world.engine(), params).unwrap()
}

/// (offset, timestamp, leader epoch), as the shard answers it.
fn answer(driver: &mut Driver, question: &str, view: View) -> (i64, i64, i32) {
    let when = match question {
        "earliest" | "earliest_local" => {
            return (driver.log.log_start().get(), -1, driver.log.epoch_at_start());
        }
        "latest" => return (driver.log.end_for(view).get(), -1, driver.log.leader_epoch()),
        "max_timestamp" => When::Max,
        time => When::AtOrAfter(time.strip_prefix("ts:").unwrap().parse().unwrap()),
    };
    let found = driver.timed(when, view).unwrap();
    found.map_or((-1, -1, -1), |f| (f.offset.get(), f.timestamp, f.leader_epoch))
}

/// Every answer of the broker's, also when all but the logs was lost.
#[test]
fn list_offsets_answers_what_kafka_answers() {
    let mut compared = 0;
    for entry in fs::read_dir(golden("consumed")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(topic) = name.strip_suffix(".offsets.json") else { continue };
        let answers = fs::read(golden("consumed").join(&name)).unwrap();
        let answers: serde_json::Value = serde_json::from_slice(&answers).unwrap();
        for clean in [true, false] {
            let keep = |name: &str| clean || name.ends_with(".log") || name.contains("epoch");
            let world = plant("clean", topic, keep);
            let mut driver = open(&world, topic, clean);
            for (question, wanted) in answers.as_object().unwrap() {
                let (what, isolation) = question.split_once('/').unwrap();
                let view = match isolation {
                    "read_committed" => View::Committed,
                    _ => View::Uncommitted,
                };
                let (at, time, epoch) = answer(&mut driver, what, view);
                let number = |name: &str| wanted[name].as_i64().unwrap();
                assert_eq!(
                    (at, time),
                    (number("offset"), number("timestamp")),
                    "{topic} {question}"
                );
                // The current epoch is that of our start, not of the broker's.
                if what != "latest" {
                    assert_eq!(i64::from(epoch), number("leader_epoch"), "{topic} {question}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 1000, "{compared}");
}

struct Written {
    bytes: Vec<u8>,
    next: i64,
}

impl Written {
    fn new() -> Written {
        Written { bytes: Vec::new(), next: 0 }
    }

    fn data(&mut self, producer: Option<(i64, i32)>, records: i64) {
        let mut builder = BatchBuilder::new();
        for i in 0..records {
            builder.append(None, Some(b"value"), &[], T + self.next + i);
        }
        if let Some((id, sequence)) = producer {
            builder.producer(id, 0, sequence);
            builder.attributes(Attributes(0).with_transactional(true));
        }
        self.put(builder, records);
    }

    fn marker(&mut self, producer: i64, commit: bool) {
        let mut builder = BatchBuilder::new();
        let key = [0, 0, 0, u8::from(commit)];
        builder.append(Some(&key), Some(&[0, 0, 0, 0, 0, 1]), &[], T + self.next);
        builder.producer(producer, 0, -1);
        builder.attributes(Attributes(0).with_transactional(true).with_control(true));
        self.put(builder, 1);
    }

    fn put(&mut self, mut builder: BatchBuilder, records: i64) {
        let mut batch = builder.finish(Codec::None, None).unwrap().to_vec();
        batch::assign(&mut batch, self.next, 0).unwrap();
        self.bytes.extend(batch);
        self.next += records;
    }
}

/// The log of R30: an aborted transaction 0..2, its marker 3, a plain record 4, a transaction from
/// 5 that never ended.
fn r30() -> Vec<u8> {
    let mut log = Written::new();
    log.data(Some((9, 0)), 3);
    log.marker(9, false);
    log.data(None, 1);
    log.data(Some((9, 3)), 2);
    log.data(None, 1);
    log.bytes
}

fn file(kind: FileKind) -> PathBuf {
    log_dir().join(file_name(0, kind))
}

/// Everything a reader of committed records gets, from any offset on: where it ends.
fn ends(driver: &mut Driver, view: View) -> Vec<Option<i64>> {
    let high = driver.log.high_watermark().get();
    let mut ends = Vec::new();
    for at in 0..high {
        let located = driver.locate_in(view, offset(at), 1 << 20).unwrap();
        ends.push(match located {
            Located::Range(range) => {
                assert!(range.at_end);
                let bytes = driver.read(range.file.id(), range.pos, range.len as u32).unwrap();
                batch::scan(&bytes).last().map(|found| found.header.next_offset())
            }
            Located::AtEnd => None,
            other => panic!("{other:?}"),
        });
    }
    ends
}

/// R30 as far as the log goes: the last stable offset bounds readers of committed records, also
/// after a restart and without the `.txnindex`, which is made again.
#[test]
fn r30_readers_of_committed_records_stop_before_open_transactions() {
    let world = world(1);
    world.write_file_durably(file(FileKind::Log), r30());
    for round in 0..4 {
        let clean = round == 1;
        let mut driver =
            Driver::open_with(&world, world.engine(), OpenParams { clean, ..params(config("")) })
                .unwrap();
        assert_eq!(driver.log.high_watermark(), offset(8));
        assert_eq!(driver.log.last_stable(), offset(5), "round {round}");
        let all = [Some(8); 8];
        assert_eq!(ends(&mut driver, View::Uncommitted), all);
        let stable = [Some(5), Some(5), Some(5), Some(5), Some(5), None, None, None];
        assert_eq!(ends(&mut driver, View::Committed), stable, "round {round}");
        let mut found = |time| {
            [View::Uncommitted, View::Committed]
                .map(|view| driver.timed(When::AtOrAfter(time), view).unwrap().map(|f| f.offset))
        };
        assert_eq!(found(T + 4), [Some(offset(4)); 2]);
        assert_eq!(found(T + 5), [Some(offset(5)), None]);
        assert_eq!(driver.timed(When::Max, View::Committed).unwrap(), None);
        driver.stop().unwrap();
        let entry =
            AbortedTxn { producer_id: 9, first_offset: 0, last_offset: 3, last_stable_offset: 4 };
        assert_eq!(world.read_file(file(FileKind::TxnIndex)).unwrap(), entry.encode());
        match round {
            1 => world.write_file_durably(file(FileKind::TxnIndex), entry.encode()[..20].to_vec()),
            2 => world.write_file_durably(file(FileKind::TxnIndex), vec![9; 34]),
            _ => {}
        }
    }
}

/// A log goes on behind a transaction that never ended; readers of committed records do not.
#[test]
fn appends_behind_an_open_transaction_are_not_stable() {
    let world = world(1);
    world.write_file_durably(file(FileKind::Log), r30());
    let mut driver = Driver::open_with(&world, world.engine(), params(config(""))).unwrap();
    let bytes = support::batch(&[b"more"], Codec::None, T);
    driver.append_acked(&bytes, AckLevel::Durable).unwrap();
    assert_eq!((driver.log.high_watermark(), driver.log.last_stable()), (offset(9), offset(5)));
    assert_eq!(driver.locate_in(View::Committed, offset(8), 100).unwrap(), Located::AtEnd);
    assert!(matches!(driver.locate(offset(8), 100).unwrap(), Located::Range(_)));
}

/// The index of aborted transactions is as the broker makes it: kept, made again, cut with a tail.
#[test]
fn aborted_transactions_are_indexed_as_the_broker_does_it() {
    let topic = "gold-transactions";
    let indexes = |part: &str| -> Vec<(String, Vec<u8>)> {
        let dir = golden(part).join(format!("{topic}-0"));
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let of_kind = names.filter(|path| path.extension().is_some_and(|e| e == "txnindex"));
        let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
        of_kind.map(|path| (name(&path), fs::read(path).unwrap())).collect()
    };
    let wanted = indexes("rebuilt");
    assert!(!wanted.is_empty());
    for (clean, with_index) in [(true, true), (false, true), (false, false)] {
        let world = plant("clean", topic, |name| with_index || !name.ends_with("index"));
        open(&world, topic, clean).stop().unwrap();
        for (name, bytes) in &wanted {
            assert_eq!(world.read_file(log_dir().join(name)).as_ref(), Some(bytes), "{name}");
        }
        let made = world.list(log_dir()).iter().filter(|n| n.ends_with(".txnindex")).count();
        assert_eq!(made, wanted.len());
    }
    // Of a tail that is cut off nothing stays in it.
    let (name, bytes) = &wanted[0];
    let entries: Vec<AbortedTxn> = txn_index::entries(bytes).map(Result::unwrap).collect();
    for cut in 1..2000 {
        let world = plant("clean", topic, |_| true);
        let log = log_dir().join(name.replace("txnindex", "log"));
        let mut short = world.read_file(&log).unwrap();
        short.truncate(short.len().saturating_sub(cut * 7));
        world.write_file_durably(&log, short.clone());
        let driver = open(&world, topic, false);
        let end = driver.log.staged_end().get();
        driver.stop().unwrap();
        let kept: Vec<u8> =
            entries.iter().filter(|e| e.last_offset < end).flat_map(|e| e.encode()).collect();
        assert_eq!(world.read_file(log_dir().join(name)).unwrap_or_default(), kept, "{cut}");
        if short.is_empty() {
            break;
        }
    }
}

#[test]
fn r25_time_lookup_inside_a_compressed_batch() {
    for codec in Codec::ALL {
        let mut builder = BatchBuilder::new();
        for time in 1..=20 {
            builder.append(None, Some(b"v"), &[], time);
        }
        let bytes = builder.finish(codec, None).unwrap().to_vec();
        let mut driver = Driver::fresh(&world(1), LogConfig::default());
        driver.append_acked(&bytes, AckLevel::Durable).unwrap();
        for time in 1..=20 {
            let found = driver.by_time(When::AtOrAfter(time)).unwrap();
            assert_eq!(found, Some((offset(time - 1), time)), "{codec:?}");
        }
        assert_eq!(driver.by_time(When::AtOrAfter(21)).unwrap(), None);
    }
}

#[test]
fn r26_offset_of_the_maximum_timestamp() {
    for (times, found) in [([5, 9, 7], (1, 9)), ([9, 9, 7], (0, 9)), ([5, 9, 9], (1, 9))] {
        let mut builder = BatchBuilder::new();
        for time in times {
            builder.append(None, Some(b"v"), &[], time);
        }
        let bytes = builder.finish(Codec::Gzip, None).unwrap().to_vec();
        let mut driver = Driver::fresh(&world(1), LogConfig::default());
        // The same again does not take its place, nor in a later segment.
        for _ in 0..3 {
            driver.append_acked(&bytes, AckLevel::Durable).unwrap();
            let max = driver.by_time(When::Max).unwrap();
            assert_eq!(max, Some((offset(found.0), found.1)), "{times:?}");
            let config = LogConfig { segment_bytes: 100, ..driver.log.config().clone() };
            driver.log.set_config(config);
        }
    }
}

#[test]
fn r27_an_offset_lost_to_compaction_at_a_segments_end() {
    let world = world(1);
    let at = |base: i64| {
        let mut bytes = support::batch(&[b"v"], Codec::None, T);
        batch::assign(&mut bytes, base, 0).unwrap();
        bytes
    };
    for (segment, bytes) in [(0, [at(3), at(8740)]), (8748, [at(8748), at(8749)])] {
        let path = log_dir().join(file_name(segment, FileKind::Log));
        world.write_file_durably(path, bytes.concat());
    }
    let config = LogConfig { compacted: true, ..LogConfig::default() };
    let mut driver = Driver::open_with(&world, world.engine(), params(config)).unwrap();
    for lost in 8741..8748 {
        let bytes = driver.fetch(offset(lost), 1000).unwrap();
        assert_eq!(bytes, [at(8748), at(8749)].concat());
    }
    assert_eq!(driver.fetch(offset(4), 1000).unwrap(), at(8740));
}
