//! What a start makes of a directory: the behaviour cases R07 to R18 and their kin.

mod support;

use std::path::PathBuf;

use ringlog::format::batch::{Codec, assign, parse_header};
use ringlog::format::checkpoint::EpochCache;
use ringlog::io::Errno;
use ringlog::io::sim::{Effect, On, World};
use ringlog::log::{Diverged, Fault, Located, LogConfig, OpenParams, When};
use ringlog::types::{AckLevel, Offset};
use support::{Driver, batch, log_dir, offset, params, world};

fn config() -> LogConfig {
    LogConfig { index_interval_bytes: 100, ..LogConfig::default() }
}

fn file(base: i64, kind: &str) -> PathBuf {
    log_dir().join(format!("{base:020}.{kind}"))
}

/// A batch as it lies in a log.
fn stored(base: i64, values: &[&[u8]]) -> Vec<u8> {
    let mut bytes = batch(values, Codec::None, 1000 + base);
    assign(&mut bytes, base, 0).unwrap();
    bytes
}

fn plant(world: &World, base: i64, batches: &[Vec<u8>]) {
    world.write_file_durably(file(base, "log"), batches.concat());
    world.write_file_durably(log_dir().join("leader-epoch-checkpoint"), b"0\n1\n0 0\n".to_vec());
}

fn start(world: &World, point: Option<i64>, log_start: Option<i64>) -> Driver {
    start_as(
        world,
        OpenParams {
            recovery_point: point.map(offset),
            log_start: log_start.map(offset),
            ..params(config())
        },
    )
}

fn start_as(world: &World, params: OpenParams) -> Driver {
    Driver::open_with(world, world.engine(), params).unwrap()
}

fn values(driver: &mut Driver) -> Vec<String> {
    let from = driver.log.log_start();
    let got = driver.consume(from, 10_000).unwrap();
    got.into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect()
}

#[test]
fn r08_a_torn_tail_is_cut_to_whole_batches() {
    let whole = [stored(0, &[b"a"]), stored(1, &[b"b", b"c"])];
    let last = stored(3, &[b"lost"]);
    for keep in [last.len() - 1, 5, 61] {
        let world = world(1);
        plant(&world, 0, &[whole.concat(), last[..keep].to_vec()]);
        world.write_file_durably(file(0, "index"), Vec::new());
        world.write_file_durably(file(0, "timeindex"), Vec::new());
        let mut driver = start(&world, None, None);
        assert_eq!(driver.log.staged_end(), offset(3), "{keep} bytes kept");
        assert_eq!(values(&mut driver), ["a", "b", "c"]);
        let [cut] = &driver.report.cuts[..] else { panic!("{:?}", driver.report) };
        assert_eq!((cut.pos, cut.bytes), (whole.concat().len() as u64, keep as u64));
        assert_eq!(world.durable_file(file(0, "log")).unwrap(), whole.concat());
        let side = world.durable_file(cut.side_file.as_ref().unwrap()).unwrap();
        assert_eq!(side, &last[..keep]);
    }
}

#[test]
fn r09_empty_indexes_are_rebuilt() {
    let world = world(1);
    let batches =
        [stored(0, &[b"a", b"b"]), stored(2, &[b"c".as_slice(); 3]), stored(5, &[b"d", b"e"])];
    plant(&world, 0, &batches);
    world.write_file_durably(file(0, "index"), Vec::new());
    world.write_file_durably(file(0, "timeindex"), Vec::new());
    let mut driver = start(&world, None, None);
    assert_eq!(driver.log.staged_end(), offset(7));
    for at in 0..7 {
        assert!(matches!(driver.locate(offset(at), 1).unwrap(), Located::Range(_)));
    }
    let max = driver.by_time(When::Max).unwrap();
    assert_eq!(max, Some((offset(6), 1006)));
    driver.stop().unwrap();
    assert!(!world.read_file(file(0, "timeindex")).unwrap().is_empty());
}

#[test]
fn r10_dead_bytes_never_come_back() {
    let world = world(1);
    let old = stored(0, &[b"old"]);
    let torn = stored(2, &[b"torn by the cut"]);
    let half = torn[..torn.len() / 2].to_vec();
    plant(&world, 0, &[stored(0, &[b"a"]), stored(1, &[b"b"]), half, old]);
    let mut driver = start(&world, None, None);
    assert_eq!(values(&mut driver), ["a", "b"]);
    driver.append_acked(&batch(&[b"new"], Codec::None, 1), AckLevel::Durable).unwrap();
    world.kill();
    for _ in 0..2 {
        let mut driver = Driver::start(&world, config()).unwrap();
        assert_eq!(values(&mut driver), ["a", "b", "new"]);
        assert!(driver.report.cuts.is_empty());
        world.power_cut();
    }
}

#[test]
fn r10_a_legitimate_forward_gap_loads_untouched() {
    let world = world(1);
    let batches = [stored(0, &[b"a"]), stored(10, &[b"b"]), stored(500, &[b"c"])];
    plant(&world, 0, &batches);
    let mut driver = start(&world, None, None);
    assert!(driver.report.cuts.is_empty() && driver.report.damage.is_empty());
    assert_eq!(driver.log.staged_end(), offset(501));
    assert_eq!(values(&mut driver), ["a", "b", "c"]);
    let Located::Range(range) = driver.locate(offset(11), 1).unwrap() else { panic!() };
    assert_eq!(range.pos as usize, batches[0].len() + batches[1].len(), "data behind the gap");
}

#[test]
fn r11_offsets_given_anew_carry_a_higher_epoch() {
    for seed in 0..30 {
        let world = world(seed);
        let weak = LogConfig { flush: "os".parse().unwrap(), ..config() };
        let mut driver = Driver::fresh(&world, weak.clone());
        for i in 0..10 {
            let value = format!("old {i}");
            let sent = batch(&[value.as_bytes()], Codec::None, 1);
            driver.append_acked(&sent, AckLevel::Policy).unwrap();
        }
        let old_epoch = driver.log.leader_epoch();
        world.power_cut();
        let mut driver = Driver::start(&world, weak.clone()).unwrap();
        let kept = driver.log.staged_end();
        for i in 0..5 {
            let value = format!("new {i}");
            let sent = batch(&[value.as_bytes()], Codec::None, 1);
            driver.append_acked(&sent, AckLevel::Policy).unwrap();
        }
        let bytes = driver.fetch(kept, 10_000).unwrap();
        let epoch = parse_header(&bytes).unwrap().leader_epoch;
        assert!(epoch > old_epoch, "a reader that knows (offset, {old_epoch}) is told");
        assert_eq!(driver.log.end_offset_for_epoch(old_epoch), Some((old_epoch, kept)));
        assert_eq!(driver.log.end_offset_for_epoch(epoch), Some((epoch, offset(kept.get() + 5))));
        assert_eq!(driver.log.end_offset_for_epoch(epoch + 1), None);
        for read_to in 0..=10 {
            let told = driver.log.diverged(offset(read_to), old_epoch);
            let want = Diverged { epoch: old_epoch, end: kept, unknown: false };
            assert_eq!(told, (read_to > kept.get()).then_some(want), "read up to {read_to}");
            assert_eq!(driver.log.diverged(offset(read_to), -1), None, "knows nothing");
        }
        let text = world.read_file(log_dir().join("leader-epoch-checkpoint")).unwrap();
        let epochs = EpochCache::parse(&text).unwrap();
        assert_eq!(epochs.latest().unwrap().start_offset, kept.get());
        let before = values(&mut driver);
        driver.stop().unwrap();
        let mut driver = Driver::start(&world, weak).unwrap();
        assert_eq!(values(&mut driver), before, "the third start agrees");
        assert_eq!(driver.log.leader_epoch(), epoch, "a clean start does not raise it");
    }
}

#[test]
fn r14_a_recovery_point_ahead_of_the_log_is_clamped() {
    let world = world(1);
    let batches: Vec<_> = (0..42).map(|i| stored(i * 10, &[b"v".as_slice(); 10])).collect();
    plant(&world, 0, &batches);
    let driver = start(&world, Some(500), None);
    assert_eq!(driver.log.staged_end(), offset(420));
    assert!(driver.log.recovery_point() <= offset(420));
    assert!(driver.report.cuts.is_empty());
}

#[test]
fn r14_a_log_that_ends_before_its_start_begins_again_there() {
    let world = world(1);
    plant(&world, 0, &[stored(0, &[b"v".as_slice(); 10])]);
    let mut driver = start(&world, None, Some(100));
    assert_eq!((driver.log.log_start(), driver.log.staged_end()), (offset(100), offset(100)));
    assert!(matches!(driver.report.cuts[0].fault, Fault::BeforeStart { .. }));
    let ack = driver.append_acked(&batch(&[b"new"], Codec::None, 1), AckLevel::Durable).unwrap();
    assert_eq!(ack.base_offset, offset(100));
    let text = world.read_file(log_dir().join("leader-epoch-checkpoint")).unwrap();
    let epochs = EpochCache::parse(&text).unwrap();
    assert_eq!(epochs.entries().len(), 1);
    assert_eq!(epochs.latest().unwrap().start_offset, 100);
}

#[test]
fn r16_behind_a_missing_tail_nothing_counts() {
    let world = world(1);
    plant(&world, 0, &[stored(0, &[b"a"]), stored(1, &[b"b"])]);
    world.write_file_durably(file(5, "log"), stored(5, &[b"behind"]));
    world.write_file_durably(file(6, "log"), stored(6, &[b"further"]));
    let mut driver = start(&world, None, None);
    assert_eq!(values(&mut driver), ["a", "b"]);
    assert_eq!(driver.log.staged_end(), offset(2));
    let faults: Vec<_> = driver.report.cuts.iter().map(|cut| cut.fault).collect();
    assert_eq!(faults, [Fault::Behind, Fault::Gap { end: offset(2) }]);
    assert!(world.read_file(file(5, "log")).is_none());
    // In a compacted topic such a hole is how compaction leaves it.
    let world = support::world(1);
    plant(&world, 0, &[stored(0, &[b"a"]), stored(1, &[b"b"])]);
    world.write_file_durably(file(5, "log"), stored(5, &[b"behind"]));
    let compacted = LogConfig { compacted: true, ..config() };
    let mut driver = start_as(&world, params(compacted));
    assert_eq!(values(&mut driver), ["a", "b", "behind"]);
}

#[test]
fn d6_a_tear_takes_the_later_segments_with_it() {
    let world = world(1);
    let torn = stored(1, &[b"torn"]);
    plant(&world, 0, &[stored(0, &[b"a"]), torn[..torn.len() - 3].to_vec()]);
    world.write_file_durably(file(2, "log"), stored(2, &[b"later"]));
    let mut driver = start(&world, None, None);
    assert_eq!(values(&mut driver), ["a"]);
    assert_eq!(driver.report.cuts.len(), 2);
    driver.append_acked(&batch(&[b"new"], Codec::None, 1), AckLevel::Durable).unwrap();
    world.kill();
    let mut driver = Driver::start(&world, config()).unwrap();
    assert_eq!(values(&mut driver), ["a", "new"]);
}

/// Five batches, one bit of the second one flipped.
fn flipped(world: &World) -> u64 {
    let mut batches: Vec<_> = (0..5).map(|i| stored(i * 2, &[b"first", b"second"])).collect();
    let pos = batches[0].len() as u64;
    *batches[1].last_mut().unwrap() ^= 4;
    plant(world, 0, &batches);
    pos
}

fn check_flipped(driver: &mut Driver, pos: u64) {
    for at in 0..10 {
        match driver.locate(offset(at), 1_000).unwrap() {
            Located::Corrupt { pos: at_pos, first, next, .. } => {
                assert!((2..4).contains(&at), "{at}");
                assert_eq!((at_pos, first, next), (pos, offset(2), offset(4)));
            }
            Located::Range(range) => {
                assert!(!(2..4).contains(&at), "{at}");
                let end = if at < 2 { pos } else { u64::MAX };
                assert!(range.pos + range.len <= end, "a range stops before the damage");
            }
            other => panic!("{at}: {other:?}"),
        }
    }
}

#[test]
fn r17_damage_below_the_recovery_point_costs_one_batch() {
    let world = world(1);
    let pos = flipped(&world);
    let before = world.read_file(file(0, "log")).unwrap();
    let mut driver = start(&world, Some(10), None);
    assert!(driver.report.cuts.is_empty());
    assert_eq!(driver.report.damage.len(), 1);
    check_flipped(&mut driver, pos);
    let ack = driver.append_acked(&batch(&[b"new"], Codec::None, 1), AckLevel::Durable).unwrap();
    assert_eq!(ack.base_offset, offset(10));
    assert_eq!(world.read_file(file(0, "log")).unwrap(), before, "damaged files are left alone");
}

#[test]
fn d6_a_long_chain_behind_a_bad_batch_is_no_torn_tail() {
    for (unflushed_max, torn) in [(None, true), (Some(10_000), true), (Some(200), false)] {
        let world = world(1);
        let pos = flipped(&world);
        let params = OpenParams { unflushed_max, ..params(config()) };
        let mut driver = start_as(&world, params);
        match torn {
            true => assert_eq!(driver.log.staged_end(), offset(2)),
            false => {
                check_flipped(&mut driver, pos);
                assert_eq!(driver.log.staged_end(), offset(10));
                let sent = batch(&[b"new"], Codec::None, 1);
                driver.append_acked(&sent, AckLevel::Durable).unwrap();
                assert!(world.read_file(file(10, "log")).is_some(), "rolled behind the damage");
            }
        }
    }
}

#[test]
fn d6_a_flushed_file_that_ends_in_its_last_batch_is_cut_to_whole_ones() {
    let world = world(1);
    let last = stored(1, &[b"last"]);
    plant(&world, 0, &[stored(0, &[b"a"]), last[..last.len() - 2].to_vec()]);
    let mut driver = start(&world, Some(2), None);
    assert_eq!(values(&mut driver), ["a"]);
    assert!(matches!(driver.report.cuts[0].fault, Fault::CutShort { .. }));
}

#[test]
fn r18_an_empty_newest_segment_is_nothing_special() {
    let world = world(1);
    plant(&world, 0, &[stored(0, &[b"a"]), stored(1, &[b"b"])]);
    world.write_file_durably(file(2, "log"), Vec::new());
    let mut driver = start(&world, None, None);
    assert!(driver.report.cuts.is_empty() && driver.report.damage.is_empty());
    assert_eq!(driver.log.staged_end(), offset(2));
    driver.settle().unwrap();
    driver.stop().unwrap();
    assert!(world.read_file(file(2, "log")).unwrap().is_empty(), "a clean stop keeps the file");
    let mut driver = Driver::start(&world, config()).unwrap();
    driver.append_acked(&batch(&[b"c"], Codec::None, 1), AckLevel::Durable).unwrap();
    assert_eq!(values(&mut driver), ["a", "b", "c"]);
    assert!(!world.read_file(file(2, "log")).unwrap().is_empty());
}

#[test]
fn r18_a_stray_empty_first_file_is_set_aside() {
    let world = world(1);
    plant(&world, 368, &[stored(368, &[b"a"])]);
    world.write_file_durably(file(0, "log"), Vec::new());
    let mut driver = start(&world, Some(368), None);
    assert_eq!((driver.log.log_start(), driver.log.staged_end()), (offset(368), offset(369)));
    assert_eq!(driver.report.cuts[0].fault, Fault::Stray);
    assert_eq!(values(&mut driver), ["a"]);
    assert!(world.read_file(file(0, "log")).is_none());
}

#[test]
fn r12_r13_unsound_indexes_and_epochs_are_made_anew() {
    let whole = [stored(0, &[&[b'v'; 300]]), stored(1, &[&[b'w'; 300]]), stored(2, &[b"x"])];
    for index in [vec![1, 2, 3], vec![0, 0, 0, 1, 0, 1, 0, 0], vec![9; 16]] {
        let world = world(1);
        plant(&world, 0, &whole);
        plant(&world, 3, &[stored(3, &[b"y"])]);
        world.write_file_durably(file(0, "index"), index.clone());
        world.write_file_durably(file(0, "timeindex"), Vec::new());
        world
            .write_file_durably(log_dir().join("leader-epoch-checkpoint"), b"0\n2\n0 0\n".to_vec());
        let mut driver = start(&world, Some(4), None);
        assert_eq!(driver.log.staged_end(), offset(4), "{index:?}");
        for at in 0..4 {
            assert!(
                matches!(driver.locate(offset(at), 1).unwrap(), Located::Range(_)),
                "{index:?}"
            );
        }
        driver.stop().unwrap();
        assert_eq!(world.read_file(file(0, "index")).unwrap().len(), 16, "{index:?}");
        let text = world.read_file(log_dir().join("leader-epoch-checkpoint")).unwrap();
        assert_eq!(EpochCache::parse(&text).unwrap().entries()[0].start_offset, 0);
    }
}

#[test]
fn r15_what_is_created_stays_and_many_can_be() {
    use ringlog::io::blocking::Blocking;
    use ringlog::io::buffers::Pool;
    use ringlog::log::create;
    let world = world(1);
    let mut io = world.engine();
    let mut b = Blocking::new(&mut io, Pool::new(8 << 20));
    let data = ringlog::log::datadir::DataDir::new(support::DATA);
    for partition in 0..10_000 {
        let dir = data.log_dir("many", partition);
        create(&mut b, &dir, uuid::Uuid::from_u128(3), 0).unwrap();
    }
    assert_eq!(data.scan(&mut b).unwrap().len(), 10_000);
    world.power_cut();
    let mut io = world.engine();
    let mut b = Blocking::new(&mut io, Pool::new(8 << 20));
    assert_eq!(data.scan(&mut b).unwrap().len(), 10_000);
    for partition in [0, 5_000, 9_999] {
        let dir = data.log_dir("many", partition);
        assert_eq!(world.read_file(dir.join("00000000000000000000.log")), Some(Vec::new()));
        assert!(world.read_file(dir.join("partition.metadata")).is_some());
    }
}

#[test]
fn a_foreign_directory_stops_the_scan() {
    use ringlog::io::blocking::Blocking;
    use ringlog::io::buffers::Pool;
    let world = world(1);
    let data = ringlog::log::datadir::DataDir::new(support::DATA);
    world.make_dir_durably("/data/lost+found");
    let mut io = world.engine();
    let mut b = Blocking::new(&mut io, Pool::new(8 << 20));
    assert!(data.scan(&mut b).unwrap_err().to_string().contains("lost+found"));
}

#[test]
fn snapshots_of_a_cut_future_go() {
    let world = world(1);
    plant(&world, 0, &[stored(0, &[b"a"]), b"torn".to_vec()]);
    world.write_file_durably(file(1, "snapshot"), b"of the end".to_vec());
    world.write_file_durably(file(7, "snapshot"), b"of the future".to_vec());
    let driver = start(&world, None, None);
    assert_eq!(driver.log.staged_end(), Offset::new(1).unwrap());
    assert!(world.read_file(file(1, "snapshot")).is_some());
    assert!(world.read_file(file(7, "snapshot")).is_none());
}

#[test]
fn d6_a_cut_during_the_cutting_leads_to_the_same_log() {
    for compacted in [false, true] {
        for n in 0..60 {
            let world = world(n);
            let torn = stored(1, &[b"torn"]);
            plant(&world, 0, &[stored(0, &[b"a"]), torn[..torn.len() - 3].to_vec()]);
            world.write_file_durably(file(2, "log"), stored(2, &[b"later"]));
            world.write_file_durably(file(3, "log"), stored(3, &[b"latest"]));
            let params = params(LogConfig { compacted, ..config() });
            world.cut_after(n);
            drop(Driver::open_with(&world, world.engine(), params.clone()));
            world.power_cut();
            let mut driver = start_as(&world, params);
            assert_eq!(values(&mut driver), ["a"], "cut after step {n}");
            assert!(driver.report.damage.is_empty());
        }
    }
}

#[test]
fn r19_only_what_lies_behind_the_recovery_point_is_scanned() {
    let world = world(1);
    let config = LogConfig { segment_bytes: 2_000, ..config() };
    let mut driver = Driver::fresh(&world, config.clone());
    for _ in 0..60 {
        driver.append_acked(&batch(&[&[b'v'; 300]], Codec::None, 1), AckLevel::Durable).unwrap();
    }
    driver.settle().unwrap();
    driver.checkpoint().unwrap();
    assert!(driver.log.segment_count() > 10);
    world.kill();
    let driver = Driver::start(&world, config.clone()).unwrap();
    assert!(driver.report.scanned_bytes <= 4_000, "{:?}", driver.report);
    assert_eq!((driver.log.staged_end(), driver.report.rebuilt), (offset(60), 0));
    // One sealed index is broken: that segment is scanned too, and no other.
    world.write_file_durably(file(0, "index"), vec![1, 2, 3]);
    world.kill();
    let driver = Driver::start(&world, config).unwrap();
    assert!(driver.report.scanned_bytes <= 6_000, "{:?}", driver.report);
    assert_eq!(driver.report.rebuilt, 1);
}

#[test]
fn d7_the_recovery_point_waits_for_the_indexes() {
    let world = world(1);
    let config = LogConfig { segment_bytes: 1_000, ..config() };
    let mut driver = Driver::fresh(&world, config.clone());
    let sent = |time| batch(&[&[b'v'; 200]], Codec::None, time);
    driver.append_acked(&sent(10), AckLevel::Durable).unwrap();
    driver.stop().unwrap();
    // The indexes on the disk are those of the clean stop: the new ones cannot be written.
    let mut driver = Driver::start(&world, config.clone()).unwrap();
    world.faults(|faults| {
        (0..9).for_each(|_| faults.plan(On::Open, "index", 1, Effect::Fail(Errno::EIO)));
    });
    for time in 11..17 {
        driver.append_acked(&sent(time), AckLevel::Durable).unwrap();
    }
    driver.settle().unwrap();
    assert!(driver.log.segment_count() > 1);
    assert_eq!(driver.log.durable_end(), offset(7));
    assert!(driver.log.recovery_point() < offset(3), "{}", driver.log.recovery_point());
    driver.checkpoint().unwrap();
    world.kill();
    world.faults(|faults| *faults = Default::default());
    let mut driver = Driver::start(&world, config).unwrap();
    for at in 0..7 {
        let found = driver.by_time(When::AtOrAfter(10 + at)).unwrap();
        assert_eq!(found, Some((offset(at), 10 + at)));
    }
}

#[test]
fn d7_a_sealed_segments_names_are_on_the_disk() {
    for seed in 0..30 {
        let world = world(seed);
        let config = LogConfig { segment_bytes: 1_000, ..config() };
        let mut driver = Driver::fresh(&world, config.clone());
        let sent = |time| batch(&[&[b'v'; 200]], Codec::None, time);
        driver.append_acked(&sent(10), AckLevel::Durable).unwrap();
        driver.stop().unwrap();
        let mut driver = Driver::start(&world, config.clone()).unwrap();
        for time in 11..15 {
            driver.append_acked(&sent(time), AckLevel::Durable).unwrap();
        }
        driver.settle().unwrap();
        driver.checkpoint().unwrap();
        assert!(driver.log.recovery_point() >= offset(3), "the first segment is sealed");
        world.power_cut();
        let mut driver = Driver::start(&world, config).unwrap();
        for at in 0..5 {
            let found = driver.by_time(When::AtOrAfter(10 + at)).unwrap();
            assert_eq!(found, Some((offset(at), 10 + at)), "seed {seed}");
        }
    }
}
