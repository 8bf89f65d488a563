//! The log's front: retention passes, deleted records, removed files, rolls on request.

mod support;

use ringlog::format::batch::Codec;
use ringlog::io::Errno;
use ringlog::io::Io;
use ringlog::io::op::{Op, OpenHow};
use ringlog::io::sim::{Effect, On, World};
use ringlog::log::{AckError, DeleteRefusal, Located, LogConfig, PartitionState, Refusal, When};
use ringlog::types::{AckLevel, Micros};
use support::{Driver, batch, log_dir, offset, world};

const HOUR: i64 = 3_600_000;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 300,
        index_interval_bytes: 100,
        segment_index_bytes: 200,
        retention_ms: -1,
        file_delete_delay_ms: 1000,
        ..LogConfig::default()
    }
}

/// `count` records of a batch each, two or three a segment, all of this time.
fn fill(driver: &mut Driver, count: usize, time: i64) {
    for _ in 0..count {
        let one = batch(&[&[7; 50]], Codec::None, time);
        driver.append_acked(&one, AckLevel::Durable).unwrap().result.unwrap();
    }
    driver.settle().unwrap();
}

/// A pass, and everything it sets going before a deadline.
fn pass(driver: &mut Driver) {
    driver.log.retain(driver.io.wall_ms());
    driver.settle().unwrap();
}

fn delete(driver: &mut Driver, before: i64) -> Result<i64, AckError> {
    let waiter = driver.waiter();
    driver.log.delete_records(before, waiter, driver.io.now()).unwrap();
    driver.save_start().unwrap();
    let ack = driver.ack_of(waiter).expect("saved, so acked");
    ack.result.map(|()| ack.base_offset.get())
}

fn names(world: &World) -> Vec<String> {
    let mut names = world.list(log_dir());
    names.sort();
    names
}

fn logs(world: &World) -> Vec<i64> {
    let base = |name: String| name.strip_suffix(".log")?.parse().ok();
    names(world).into_iter().filter_map(base).collect()
}

fn deleted(world: &World) -> usize {
    names(world).iter().filter(|name| name.ends_with(".deleted")).count()
}

fn out_of_range(driver: &mut Driver, at: i64) -> (i64, i64) {
    match driver.locate(offset(at), 100).unwrap() {
        Located::OutOfRange { start, end } => (start.get(), end.get()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn by_size_a_prefix_goes_and_its_files_are_renamed_then_unlinked() {
    let world = world(1);
    let mut driver = Driver::fresh(&world, config());
    let now = driver.io.wall_ms();
    fill(&mut driver, 20, now);
    let (before, total) = (logs(&world), driver.log.size_bytes());
    let keep = total - total / 2;
    driver.log.set_config(LogConfig { retention_bytes: keep as i64, ..config() });
    pass(&mut driver);
    let after = logs(&world);
    assert!(after.len() < before.len() && before.ends_with(&after), "{before:?} {after:?}");
    assert_eq!(driver.log.log_start().get(), after[0]);
    assert!(driver.log.size_bytes() >= keep, "never below the bound");
    let gone = before.len() - after.len();
    // Log and both indexes of each, and the snapshots of all but the one at 0.
    assert_eq!(deleted(&world), 4 * gone - 1, "{:?}", names(&world));
    assert_eq!(driver.log.counters().segments_deleted, gone as u64);
    assert_eq!(out_of_range(&mut driver, after[0] - 1), (after[0], 20));
    assert_eq!(driver.consume(offset(after[0]), 500).unwrap().len(), 20 - after[0] as usize);
    world.advance(Micros::from_ms(800));
    driver.poll().unwrap();
    driver.poll().unwrap();
    assert!(deleted(&world) > 0, "file.delete.delay.ms has not passed");
    world.advance(Micros::from_ms(300));
    driver.settle().unwrap();
    assert_eq!(deleted(&world), 0);
}

#[test]
fn r45_a_quiet_log_ends_empty_and_goes_on_at_the_next_offset() {
    let world = world(2);
    let mut driver = Driver::fresh(&world, LogConfig { retention_ms: 60_000, ..config() });
    let now = driver.io.wall_ms();
    fill(&mut driver, 1, now);
    pass(&mut driver);
    assert_eq!((logs(&world), driver.log.log_start()), (vec![0], offset(0)), "it is young");
    world.advance(Micros::from_ms(60_001));
    pass(&mut driver);
    assert_eq!(logs(&world), [1]);
    assert_eq!((driver.log.log_start(), driver.log.high_watermark()), (offset(1), offset(1)));
    assert_eq!(driver.by_time(When::Max).unwrap(), None);
    let value = batch(&[b"next"], Codec::None, driver.io.wall_ms());
    let ack = driver.append_acked(&value, AckLevel::Durable).unwrap();
    assert_eq!(ack.base_offset, offset(1));
    driver.stop().unwrap();
    let mut again = Driver::start(&world, config()).unwrap();
    assert_eq!((again.log.log_start(), again.log.staged_end()), (offset(1), offset(2)));
    assert_eq!(again.consume(offset(1), 500).unwrap(), [(1, b"next".to_vec())]);
    // The whole log again, by size this time.
    again.log.set_config(LogConfig { retention_bytes: 0, ..config() });
    pass(&mut again);
    assert_eq!(again.log.log_start(), offset(2), "size retention takes the active segment too");
}

#[test]
fn r45_a_producers_state_outlives_its_last_record() {
    let world = world(3);
    let mut driver = Driver::fresh(&world, LogConfig { retention_ms: 0, ..config() });
    fill(&mut driver, 1, 1);
    pass(&mut driver);
    world.advance(Micros::from_ms(5000));
    driver.settle().unwrap();
    let snapshot = "00000000000000000001.snapshot".to_string();
    assert!(names(&world).contains(&snapshot), "a start knows who wrote: {:?}", names(&world));
}

#[test]
fn r43_a_time_in_the_future_goes_by_the_files_last_change() {
    for future in [10 * 365 * 24 * HOUR, 1_000_000 * HOUR * 500] {
        let world = world(4);
        let mut driver = Driver::fresh(&world, LogConfig { retention_ms: HOUR, ..config() });
        let now = driver.io.wall_ms();
        fill(&mut driver, 1, now + future);
        fill(&mut driver, 6, now);
        pass(&mut driver);
        assert_eq!(driver.log.log_start(), offset(0));
        world.advance(Micros::from_ms(HOUR as u64 - 100));
        pass(&mut driver);
        assert_eq!(driver.log.log_start(), offset(0), "its file is not old enough");
        world.advance(Micros::from_ms(1000));
        pass(&mut driver);
        assert_eq!(driver.log.log_start(), offset(7), "gone on time, with all that it held back");
        assert_eq!(driver.log.counters().segments_from_the_future, 1, "counted once");
    }
}

#[test]
fn r44_replayed_old_records_go_with_the_pass_after_their_roll() {
    let world = world(5);
    world.set_wall_ms(1_700_000_000_000);
    let mut driver = Driver::fresh(&world, LogConfig { retention_ms: 7 * 24 * HOUR, ..config() });
    let now = driver.io.wall_ms();
    fill(&mut driver, 4, now - 2 * 365 * 24 * HOUR);
    fill(&mut driver, 1, now);
    let young = *logs(&world).last().unwrap();
    pass(&mut driver);
    assert_eq!(logs(&world)[0], driver.log.log_start().get());
    assert_eq!(driver.log.log_start().get(), young, "{:?}", driver.log);
}

#[test]
fn records_without_a_time_go_by_the_files_last_change() {
    let world = world(6);
    let mut driver = Driver::fresh(&world, LogConfig { retention_ms: HOUR, ..config() });
    fill(&mut driver, 3, -1);
    pass(&mut driver);
    assert_eq!(driver.log.log_start(), offset(0));
    world.advance(Micros::from_ms(HOUR as u64 + 1000));
    // What grew since is young again, and holds nothing else back but itself.
    fill(&mut driver, 1, -1);
    pass(&mut driver);
    let start = driver.log.log_start();
    assert!(start > offset(0) && start < offset(4), "{start}");
}

#[test]
fn a_compacted_topic_keeps_its_records_and_refuses_to_delete_them() {
    let world = world(7);
    let compacted = LogConfig { deletes: false, retention_ms: 0, retention_bytes: 0, ..config() };
    let mut driver = Driver::fresh(&world, compacted);
    fill(&mut driver, 9, 1);
    pass(&mut driver);
    assert_eq!(driver.log.log_start(), offset(0));
    let waiter = driver.waiter();
    let refused = driver.log.delete_records(3, waiter, driver.io.now());
    assert_eq!(refused, Err(DeleteRefusal::Policy));
}

#[test]
fn deleted_records_are_acked_when_a_restart_would_know() {
    let world = world(8);
    let mut driver = Driver::fresh(&world, config());
    fill(&mut driver, 10, 1);
    let waiter = driver.waiter();
    driver.log.delete_records(4, waiter, driver.io.now()).unwrap();
    driver.settle().unwrap();
    assert_eq!(driver.ack_of(waiter), None, "the start is not on the disk");
    assert_eq!(out_of_range(&mut driver, 3), (4, 10));
    driver.save_start().unwrap();
    assert_eq!(driver.ack_of(waiter).unwrap().base_offset, offset(4));
    let first = logs(&world)[0];
    assert_eq!(first, 0, "files go with the next pass");
    for (before, start) in [(2, 4), (4, 4), (-1, 10), (10, 10)] {
        assert_eq!(delete(&mut driver, before), Ok(start), "never down");
    }
    let waiter = driver.waiter();
    for before in [11, -2, i64::MIN, i64::MAX] {
        let refused = driver.log.delete_records(before, waiter, driver.io.now()).unwrap_err();
        let (start, high_watermark) = (offset(10), offset(10));
        assert_eq!(refused, DeleteRefusal::OutOfRange { before, start, high_watermark });
    }
    drop(driver);
    world.power_cut();
    let mut again = Driver::start(&world, config()).unwrap();
    assert_eq!((again.log.log_start(), again.log.staged_end()), (offset(10), offset(10)));
    assert_eq!(again.report.cuts, []);
    assert_eq!(logs(&world).len(), 1, "what lay before the start is gone: {:?}", names(&world));
    fill(&mut again, 1, 1);
    assert_eq!(again.consume(offset(10), 500).unwrap().len(), 1);
}

#[test]
fn a_start_that_cannot_be_written_down_fails_its_waiters_and_is_tried_again() {
    let world = world(9);
    let mut driver = Driver::fresh(&world, config());
    fill(&mut driver, 10, 1);
    let waiter = driver.waiter();
    driver.log.delete_records(4, waiter, driver.io.now()).unwrap();
    assert_eq!(driver.log.start_to_save(driver.io.now()), Some(offset(4)));
    assert_eq!(driver.log.start_to_save(driver.io.now()), None, "asked once");
    driver.log.start_saved(None, driver.io.now());
    driver.settle().unwrap();
    assert_eq!(driver.ack_of(waiter).unwrap().result, Err(AckError::StartNotSaved));
    let waiter = driver.waiter();
    driver.log.delete_records(4, waiter, driver.io.now()).unwrap();
    assert_eq!(driver.log.start_to_save(driver.io.now()), None, "not at once");
    assert!(driver.log.next_deadline() < Micros::NEVER);
    world.advance(Micros::from_ms(1000));
    driver.save_start().unwrap();
    assert_eq!(driver.ack_of(waiter).unwrap().result, Ok(()));
}

#[test]
fn the_epochs_file_begins_where_the_log_does() {
    let world = world(10);
    let mut driver = Driver::fresh(&world, config());
    fill(&mut driver, 4, 1);
    drop(driver);
    world.kill();
    let mut driver = Driver::start(&world, config()).unwrap();
    fill(&mut driver, 4, 1);
    let file = || {
        let bytes = world.read_file(log_dir().join("leader-epoch-checkpoint")).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(file(), "0\n2\n1 0\n2 4\n");
    delete(&mut driver, 6).unwrap();
    driver.settle().unwrap();
    assert_eq!(file(), "0\n1\n2 6\n");
}

#[test]
fn a_reader_keeps_the_file_it_found_and_a_lookup_under_way_starts_over() {
    let world = world(11);
    let mut driver = Driver::fresh(&world, LogConfig { retention_bytes: 0, ..config() });
    fill(&mut driver, 10, 1);
    let Located::Range(range) = driver.locate(offset(0), 100).unwrap() else { panic!("bytes") };
    pass(&mut driver);
    world.advance(Micros::from_ms(2000));
    driver.settle().unwrap();
    assert_eq!((logs(&world), deleted(&world)), (vec![10], 0));
    let bytes = driver.read(range.file.id(), range.pos, range.len as u32).unwrap();
    assert_eq!(bytes.len() as u64, range.len, "the range is still there");
    let open = driver.log.open_files();
    drop(range);
    world.advance(Micros::from_ms(100));
    driver.settle().unwrap();
    assert_eq!(driver.log.open_files(), open - 1, "let go, so closed");

    fill(&mut driver, 10, 1);
    driver.log.close_idle();
    driver.settle().unwrap();
    let mut lookup = ringlog::log::OffsetLookup::new(offset(10), 100, true);
    let step = lookup.step(&mut driver.log, None);
    let ringlog::log::Step::Open { path, .. } = step else { panic!("{step:?}") };
    driver
        .io
        .submit(Op::Open { path, how: OpenHow::default() }, ringlog::io::Tag(1 << 50))
        .unwrap();
    let mut done = Vec::new();
    driver.io.reap(ringlog::io::Wait::Forever, &mut done).unwrap();
    pass(&mut driver);
    let Ok(ringlog::io::Outcome::File(file)) = done.remove(0).result else { panic!("opened") };
    lookup.opened(&mut driver.log, Ok(file));
    let step = lookup.step(&mut driver.log, None);
    let gone = matches!(step, ringlog::log::Step::Ready(Located::OutOfRange { .. }));
    assert!(gone, "{step:?}");
}

#[test]
fn r42_a_hundred_segments_go_while_appends_are_acked() {
    let world = world(12);
    let mut driver = Driver::fresh(&world, config());
    fill(&mut driver, 250, 1);
    let segments = driver.log.segment_count();
    assert!(segments > 100, "{segments}");
    world.faults(|faults| {
        // Every rename takes a disk's time.
        for _ in 0..2000 {
            faults.plan(On::Rename, "", 1, Effect::DelayUs(5000));
            faults.plan(On::SyncDir, "", 1, Effect::DelayUs(5000));
        }
    });
    let (segment_bytes, segment_index_bytes) = (1 << 30, 1 << 20);
    let retention_bytes = 1;
    driver.log.set_config(LogConfig {
        retention_bytes,
        segment_bytes,
        segment_index_bytes,
        ..config()
    });
    // The segment that is active was begun with little room in its indexes.
    driver.log.roll(driver.io.wall_ms()).unwrap();
    driver.settle().unwrap();
    let (mut waits, mut renamed) = (Vec::new(), 0);
    driver.log.retain(driver.io.wall_ms());
    while renamed < 100 {
        let before = driver.io.now();
        let one = batch(&[&[8; 50]], Codec::None, 1);
        driver.append_acked(&one, AckLevel::Durable).unwrap().result.unwrap();
        waits.push(driver.io.now().since(before).0);
        renamed = names(&world).iter().filter(|name| name.ends_with(".log.deleted")).count();
    }
    waits.sort_unstable();
    assert!(waits.len() > 1000, "{}", waits.len());
    let p999 = waits[waits.len() * 999 / 1000];
    assert!(p999 < 2000, "{p999} us at p99.9, {:?} at most", waits.last());
}

#[test]
fn r46_a_thousand_rounds_of_flush_and_removal_hurt_nobody() {
    let world = world(13);
    let mut driver = Driver::fresh(&world, LogConfig { flush: "os".parse().unwrap(), ..config() });
    for round in 0..1000u32 {
        if round % 3 == 0 {
            // The flush of the segment that goes hangs, or fails.
            world.faults(|faults| {
                faults.forget_plans();
                faults.stall_fdatasync(".log", 1, 300);
                if round % 2 == 0 {
                    faults.fail_fdatasync(".log", 1, Errno::EIO);
                }
            });
        }
        let one = batch(&[&[7; 50]], Codec::None, 1);
        driver.append_acked(&one, AckLevel::Written).unwrap().result.unwrap();
        // Deleted first, so that nobody can miss what the flush may lose.
        delete(&mut driver, -1).unwrap();
        driver.log.roll(driver.io.wall_ms()).unwrap();
        driver.log.retain(driver.io.wall_ms());
        driver.poll().unwrap();
        if round % 5 == 0 {
            driver.settle().unwrap();
        }
    }
    driver.settle().unwrap();
    assert_eq!(*driver.log.state(), PartitionState::Open);
    assert_eq!((driver.log.log_start(), driver.log.high_watermark()), (offset(1000), offset(1000)));
    pass(&mut driver);
    assert_eq!(logs(&world), [1000]);
    world.faults(|faults| faults.forget_plans());
    driver.stop().unwrap();
    assert_eq!(Driver::start(&world, config()).unwrap().log.log_start(), offset(1000));
}

#[test]
fn a_log_that_cannot_be_renamed_keeps_all_behind_it() {
    let world = world(14);
    let mut driver = Driver::fresh(&world, config());
    fill(&mut driver, 12, 1);
    let before = logs(&world);
    world.faults(|f| {
        f.plan(On::Rename, &format!("{:020}.log", before[1]), 1, Effect::Fail(Errno::EIO))
    });
    driver.log.set_config(LogConfig { retention_bytes: 0, ..config() });
    pass(&mut driver);
    assert_eq!(logs(&world)[..before.len() - 1], before[1..], "no hole");
    assert_eq!(*driver.log.state(), PartitionState::Open);
    drop(driver);
    world.power_cut();
    let mut again = Driver::start(&world, config()).unwrap();
    assert_eq!((again.report.cuts.len(), again.log.staged_end()), (0, offset(12)));
    let start = again.log.log_start();
    assert_eq!(again.consume(start, 500).unwrap().len() as i64, 12 - start.get());
}

#[test]
fn a_full_disk_is_freed_by_retention() {
    let world = world(15);
    let mut driver = Driver::fresh(&world, LogConfig { file_delete_delay_ms: 0, ..config() });
    fill(&mut driver, 12, 1);
    world.faults(|faults| faults.space_bytes = Some(10));
    let one = batch(&[&[7; 50]], Codec::None, 1);
    let waiter = driver.append(&one, AckLevel::Durable).unwrap().0;
    driver.tick_until(|d| d.ack_of(waiter).is_some()).unwrap();
    assert_eq!(driver.ack_of(waiter).unwrap().result, Err(AckError::NoSpace));
    driver.log.set_config(LogConfig { retention_bytes: 300, file_delete_delay_ms: 0, ..config() });
    pass(&mut driver);
    assert!(driver.log.log_start() > offset(0));
    driver.append_retrying(&one, AckLevel::Durable).result.unwrap();
}

#[test]
fn a_roll_on_request_leaves_an_empty_segment_alone() {
    let world = world(16);
    let mut driver = Driver::fresh(&world, config());
    let roll = |driver: &mut Driver| driver.log.roll(driver.io.wall_ms()).map(|base| base.get());
    assert_eq!(roll(&mut driver), Ok(0));
    fill(&mut driver, 1, 1);
    assert_eq!(roll(&mut driver), Ok(1));
    assert_eq!(roll(&mut driver), Ok(1));
    driver.settle().unwrap();
    assert_eq!(logs(&world), [0, 1]);
    fill(&mut driver, 1, 1);
    driver.log.close(driver.io.now());
    assert_eq!(roll(&mut driver), Err(Refusal::Closing));
    assert_eq!(driver.consume(offset(0), 500).unwrap().len(), 2);
}

#[test]
fn a_leftover_with_the_new_segments_name_is_renamed_away() {
    let world = world(17);
    let mut driver = Driver::fresh(&world, config());
    fill(&mut driver, 1, 1);
    let leftover = log_dir().join("00000000000000000001.log");
    world.write_file_durably(&leftover, b"nobody's".to_vec());
    driver.log.roll(driver.io.wall_ms()).unwrap();
    fill(&mut driver, 1, 1);
    assert_eq!(*driver.log.state(), PartitionState::Open);
    let kept = world.read_file(log_dir().join("00000000000000000001.log.deleted")).unwrap();
    assert_eq!(kept, b"nobody's");
    assert_eq!(driver.consume(offset(0), 500).unwrap().len(), 2);
}

#[test]
fn r70_sealed_segments_hold_no_descriptors_and_no_indexes_beyond_a_bound() {
    let world = world(18);
    let bounded = LogConfig { sealed_files_max: 4, index_cache_bytes_max: 1000, ..config() };
    let mut driver = Driver::fresh(&world, bounded);
    let mut most = 0;
    for round in 0..40 {
        fill(&mut driver, 10, 1000 + round);
        most = most.max(driver.log.open_files());
    }
    assert!(driver.log.segment_count() > 150, "{}", driver.log.segment_count());
    assert!(most <= 6, "{most} files open at once");
    assert!(driver.log.index_bytes() <= 1000 + 200, "{}", driver.log.index_bytes());
    // Reading all of it opens each again, and no more stay open for it.
    assert_eq!(driver.consume(offset(0), 100).unwrap().len(), 400);
    driver.by_time(When::AtOrAfter(1001)).unwrap().unwrap();
    world.advance(Micros::from_ms(100));
    driver.settle().unwrap();
    assert!(driver.log.open_files() <= 6, "{}", driver.log.open_files());
    assert!(driver.log.index_bytes() <= 1000 + 200, "{}", driver.log.index_bytes());
}

#[test]
fn r68_running_out_of_descriptors_costs_that_request_only() {
    let world = world(19);
    let mut driver = Driver::fresh(&world, config());
    fill(&mut driver, 1, 1);
    driver.log.roll(driver.io.wall_ms()).unwrap();
    driver.settle().unwrap();
    assert!(driver.log.close_idle());
    driver.settle().unwrap();
    world.faults(|faults| faults.files_max = 0);
    let one = batch(&[&[7; 50]], Codec::None, 1);
    let waiter = driver.append(&one, AckLevel::Durable).unwrap().0;
    driver.tick_until(|d| d.ack_of(waiter).is_some()).unwrap();
    let error = driver.ack_of(waiter).unwrap().result.unwrap_err();
    assert_eq!(error, AckError::NoDescriptors, "not: no space");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    assert_eq!(*driver.log.state(), PartitionState::Open);
    world.faults(|faults| faults.files_max = 100);
    let ack = driver.append_acked(&one, AckLevel::Durable).unwrap();
    assert_eq!((ack.result, ack.base_offset), (Ok(()), offset(1)), "nothing was lost, no gap");
    assert_eq!(driver.consume(offset(0), 500).unwrap().len(), 2);
}
