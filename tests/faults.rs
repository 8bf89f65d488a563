//! One log on a simulated machine that fails: short writes, full disks, failed and slow flushes.

mod support;

use ringlog::format::batch::Codec;
use ringlog::io::Errno;
use ringlog::io::Io;
use ringlog::io::sim::{Effect, On, Prng};
use ringlog::log::{AckError, Located, LogConfig, PartitionState, Refusal};
use ringlog::policy::FlushPolicy;
use ringlog::types::{AckLevel, Micros};
use support::{Driver, batch, log_dir, offset, world};

fn with(flush: &str) -> LogConfig {
    LogConfig { flush: flush.parse().unwrap(), ..LogConfig::default() }
}

fn one(value: &[u8]) -> Vec<u8> {
    batch(&[value], Codec::None, 1000)
}

/// A batch of exactly this many bytes.
fn sized(len: usize) -> Vec<u8> {
    let empty = one(b"").len();
    let bytes = (len - empty - 4..len).map(|n| one(&vec![b'v'; n])).find(|b| b.len() == len);
    bytes.expect("some value makes that length")
}

fn log_file() -> std::path::PathBuf {
    log_dir().join("00000000000000000000.log")
}

#[test]
fn r63_short_and_interrupted_writes_go_on_where_they_stopped() {
    let world = world(1);
    let mut driver = Driver::fresh(&world, with("group"));
    world.faults(|faults| {
        faults.script_writes(".log", &[4096, 1]);
        faults.fail_write(".log", 1, Errno::EAGAIN);
        faults.fail_write(".log", 1, Errno::EINTR);
    });
    let sent = sized(10_000);
    let ack = driver.append_acked(&sent, AckLevel::Durable).unwrap();
    assert_eq!(ack.result, Ok(()));
    let stored = world.durable_file(log_file()).unwrap();
    assert_eq!(stored.len(), sent.len());
    assert_eq!(stored[16..], sent[16..], "byte for byte behind offset and epoch");
}

#[test]
fn r63_no_progress_is_an_error() {
    let world = world(1);
    let mut driver = Driver::fresh(&world, with("os"));
    world.faults(|faults| faults.script_writes(".log", &[4096, 0]));
    let ack = driver.append_acked(&sized(10_000), AckLevel::Policy).unwrap();
    assert_eq!(ack.result, Err(AckError::Poisoned));
    let PartitionState::Poisoned { pos, errno, .. } = driver.log.state() else { panic!() };
    assert_eq!((*pos, *errno), (4096, Errno::EIO));
}

#[test]
fn writes_that_finish_out_of_order_count_in_order() {
    for seed in 0..20 {
        let world = world(seed);
        let config = LogConfig { writes_in_flight_max: 4, group_bytes_max: 1, ..with("os") };
        let mut driver = Driver::fresh(&world, config);
        world.faults(|faults| faults.plan(On::Write, ".log", 1, Effect::DelayUs(10_000)));
        let waiters: Vec<_> = (0..4)
            .map(|i| driver.append(&one(&[b'a' + i; 50]), AckLevel::Policy).unwrap().0)
            .collect();
        driver.submit();
        world.advance(Micros(5_000));
        driver.tick().unwrap();
        assert_eq!(driver.log.written_end(), offset(0), "nothing passes the slow first one");
        driver.tick_until(|d| d.acks.len() == 4).unwrap();
        let order: Vec<_> = driver.acks.iter().map(|ack| ack.waiter).collect();
        assert_eq!(order, waiters);
        let got = driver.consume(offset(0), 1000).unwrap();
        assert_eq!(got.len(), 4);
    }
}

#[test]
fn a_flush_settles_only_what_was_written_when_it_was_submitted() {
    let world = world(3);
    let mut driver = Driver::fresh(&world, with("group"));
    world.faults(|faults| faults.fdatasync_us = 5_000);
    let (first, _) = driver.append(&one(b"first"), AckLevel::Durable).unwrap();
    driver.tick_until(|d| d.log.written_end() == offset(1)).unwrap();
    driver.submit();
    let (second, _) = driver.append(&one(b"second"), AckLevel::Durable).unwrap();
    driver.tick_until(|d| d.ack_of(first).is_some()).unwrap();
    assert_eq!(driver.log.written_end(), offset(2), "written while the flush was in flight");
    assert_eq!(driver.log.durable_end(), offset(1));
    assert_eq!(driver.ack_of(second), None);
    driver.tick_until(|d| d.ack_of(second).is_some()).unwrap();
    let ack = driver.ack_of(second).unwrap();
    assert!(ack.stamps.settled > driver.ack_of(first).unwrap().stamps.settled);
}

#[test]
fn r29_readers_do_not_see_what_a_crash_can_take() {
    let world = world(4);
    let mut driver = Driver::fresh(&world, with("group"));
    world.faults(|faults| faults.stall_fdatasync(".log", 1, 2_000_000));
    driver.append(&one(b"v"), AckLevel::Written).unwrap();
    driver.tick_until(|d| !d.acks.is_empty()).unwrap();
    driver.submit();
    assert_eq!(driver.log.written_end(), offset(1));
    assert_eq!(driver.log.high_watermark(), offset(0));
    assert_eq!(driver.locate(offset(0), 1000).unwrap(), Located::AtEnd);
    world.power_cut();
    let driver = Driver::start(&world, with("group")).unwrap();
    assert!(driver.log.high_watermark() <= offset(1));
}

#[test]
fn r41_one_flush_serves_many_waiters() {
    let world = world(5);
    let mut driver = Driver::fresh(&world, with("group"));
    world.faults(|faults| faults.fdatasync_us = 5_000);
    let mut acked = 0;
    for _ in 0..64 {
        driver.append(&one(b"v"), AckLevel::Policy).unwrap();
    }
    let start = driver.io.now();
    while acked < 64 * 20 {
        driver.tick().unwrap();
        for ack in std::mem::take(&mut driver.acks) {
            acked += 1;
            assert!(ack.stamps.settled > ack.stamps.written, "{ack:?}");
            driver.append(&one(b"v"), AckLevel::Policy).unwrap();
        }
    }
    let counters = driver.log.counters();
    assert!(counters.flushes * 30 < acked, "{} flushes for {acked} acks", counters.flushes);
    let each = 64 * 20 * 5_000;
    assert!(driver.io.now().since(start).0 * 10 < each, "as slow as a flush each");
}

#[test]
fn each_flushes_once_an_append() {
    let world = world(5);
    let mut driver = Driver::fresh(&world, with("each"));
    for _ in 0..10 {
        driver.append(&one(b"v"), AckLevel::Policy).unwrap();
    }
    driver.tick_until(|d| d.acks.len() == 10).unwrap();
    let counters = driver.log.counters();
    assert_eq!((counters.writes, counters.flushes), (10, 10));
}

#[test]
fn every_write_asks_for_a_flush_under_a_policy_that_promises() {
    for policy in ["each", "group", "group:100us"] {
        let world = world(6);
        let mut driver = Driver::fresh(&world, with(policy));
        driver.append(&one(b"nobody waits"), AckLevel::None).unwrap();
        driver.settle().unwrap();
        driver.tick_until(|d| d.log.durable_end() == offset(1)).unwrap();
        assert_eq!(driver.log.high_watermark(), offset(1), "{policy}");
    }
    let world = world(6);
    let mut driver = Driver::fresh(&world, with("os"));
    driver.append(&one(b"v"), AckLevel::Policy).unwrap();
    driver.settle().unwrap();
    assert_eq!((driver.log.written_end(), driver.log.durable_end()), (offset(1), offset(0)));
    let flush = driver.flush();
    driver.tick_until(|d| d.ack_of(flush).is_some()).unwrap();
    assert_eq!(driver.log.durable_end(), offset(1));
}

#[test]
fn acks_wait_at_the_bound() {
    for policy in ["bytes:300", "records:3", "interval:1ms"] {
        let world = world(7);
        let mut driver = Driver::fresh(&world, with(policy));
        world.faults(|faults| faults.stall_fdatasync(".log", 1, 50_000));
        for _ in 0..30 {
            driver.append(&one(b"v"), AckLevel::Policy).unwrap();
            world.advance(Micros(200));
            driver.tick().unwrap();
            driver.submit();
        }
        let early = driver.acks.len() as i64;
        assert!(early > 0, "{policy}: acks leave ahead of the disk");
        assert!(early < 15, "{policy}: {early} acks left past the bound");
        assert_eq!(driver.log.durable_end(), offset(0), "{policy}");
        driver.tick_until(|d| d.acks.len() == 30).unwrap();
    }
}

#[test]
fn a_failed_flush_poisons_and_is_never_tried_again() {
    for policy in ["group", "each", "os"] {
        let world = world(8);
        let mut driver = Driver::fresh(&world, with(policy));
        driver.append_acked(&one(b"first"), AckLevel::Durable).unwrap();
        let flushes = driver.log.counters().flushes;
        world.faults(|faults| faults.fail_fdatasync(".log", 1, Errno::EIO));
        let ack = driver.append_acked(&one(b"second"), AckLevel::Durable).unwrap();
        assert_eq!(ack.result, Err(AckError::Poisoned));
        assert_eq!(driver.append(&one(b"x"), AckLevel::None).unwrap_err(), Refusal::Poisoned);
        let flush = driver.flush();
        driver.settle().unwrap();
        assert_eq!(driver.ack_of(flush).unwrap().result, Err(AckError::Poisoned));
        assert_eq!(driver.log.counters().flushes, flushes + 1, "{policy}: never again");
        assert_eq!(driver.log.durable_end(), offset(1));
        assert_eq!(driver.consume(offset(0), 1000).unwrap()[0].1, b"first", "reads go on");
        driver.log.close(driver.io.now());
        driver.tick_until(|d| d.log.is_closed()).unwrap();
        assert!(!driver.log.closed_clean(), "no clean marker for a poisoned partition (D9)");
        // What the page cache still shows of it must not be believed (D8).
        world.kill();
        let driver = Driver::start(&world, with(policy)).unwrap();
        let end = driver.log.durable_end();
        world.power_cut();
        let mut driver = Driver::start(&world, with(policy)).unwrap();
        assert!(driver.log.staged_end() >= end, "{policy}: {end} was called durable");
        assert_eq!(driver.consume(offset(0), 1000).unwrap()[0].1, b"first");
    }
}

#[test]
fn a_failed_write_poisons_one_partition() {
    let world = world(9);
    let mut driver = Driver::fresh(&world, with("group"));
    driver.append_acked(&one(b"first"), AckLevel::Durable).unwrap();
    world.faults(|faults| faults.fail_write(".log", 1, Errno::EIO));
    let ack = driver.append_acked(&one(b"second"), AckLevel::Written).unwrap();
    assert_eq!(ack.result, Err(AckError::Poisoned));
    let PartitionState::Poisoned { path, pos, errno } = driver.log.state() else { panic!() };
    assert_eq!((path, *errno), (&log_file(), Errno::EIO));
    assert!(*pos > 0);
    assert_eq!(driver.log.staged_end(), offset(1));
}

#[test]
fn r38_r39_a_full_disk_refuses_and_goes_on_by_itself() {
    for (seed, in_flight) in [(1, 1), (2, 3), (3, 3)] {
        let world = world(seed);
        let config =
            LogConfig { writes_in_flight_max: in_flight, group_bytes_max: 10_000, ..with("group") };
        let mut driver = Driver::fresh(&world, config.clone());
        driver.append_acked(&sized(10_000), AckLevel::Durable).unwrap();
        world.faults(|faults| faults.space_bytes = Some(23_000));
        let waiters: Vec<_> =
            (0..6).map(|_| driver.append(&sized(10_000), AckLevel::Durable).unwrap().0).collect();
        driver.tick_until(|d| d.acks.len() == 7).unwrap();
        let results: Vec<_> =
            waiters.iter().map(|waiter| driver.ack_of(*waiter).unwrap().result).collect();
        let stored = results.iter().take_while(|result| result.is_ok()).count();
        assert!(stored < 6, "seed {seed}: {results:?} {:?}", driver.log);
        assert!(results[stored..].iter().all(|r| *r == Err(AckError::NoSpace)), "{results:?}");
        assert_eq!(driver.log.state(), &PartitionState::NoSpace);
        driver.tick_until(|d| d.io.in_flight() == 0 && !d.log.has_work()).unwrap();
        let end = 1 + stored as i64;
        let log = world.read_file(log_file()).unwrap();
        assert_eq!(log.len() as i64, 10_000 * end, "torn bytes are cut");
        assert_eq!(driver.append(&one(b"x"), AckLevel::None).unwrap_err(), Refusal::NoSpace);
        assert_eq!(driver.consume(offset(0), 20_000).unwrap().len() as i64, end, "reads go on");
        // Still full: a trial fails again, and says so.
        world.faults(|faults| faults.space_bytes = Some(100));
        let again = driver.append_retrying(&sized(10_000), AckLevel::Durable);
        assert_eq!(again.result, Err(AckError::NoSpace));
        driver.tick_until(|d| d.io.in_flight() == 0 && !d.log.has_work()).unwrap();
        world.faults(|faults| faults.space_bytes = None);
        let ack = driver.append_retrying(&one(b"again"), AckLevel::Durable);
        assert_eq!((ack.result, ack.base_offset), (Ok(()), offset(end)), "no offset is skipped");
        assert_eq!(driver.log.state(), &PartitionState::Open);
        world.power_cut();
        let mut driver = Driver::start(&world, config).unwrap();
        let got = driver.consume(offset(0), 20_000).unwrap();
        assert_eq!(got.len() as i64, end + 1);
        assert_eq!(got.last().unwrap().1, b"again");
    }
}

#[test]
fn no_space_in_the_middle_of_a_roll_takes_the_new_segment_back() {
    for seed in 0..10 {
        let world = world(seed);
        let config = LogConfig { segment_bytes: 2_500, writes_in_flight_max: 2, ..with("group") };
        let mut driver = Driver::fresh(&world, config.clone());
        world.faults(|faults| faults.space_bytes = Some(3_300));
        let mut sent = 0;
        for _ in 0..3 {
            for _ in 0..4 {
                if driver.append(&sized(1_000), AckLevel::Durable).is_ok() {
                    sent += 1;
                }
            }
            driver.tick_until(|d| d.acks.len() == sent).unwrap();
            world.advance(Micros(2_000_000));
            driver.tick().unwrap();
        }
        world.faults(|faults| faults.space_bytes = None);
        driver.append_retrying(&sized(1_000), AckLevel::Durable).result.unwrap();
        let good = driver.acks.iter().filter(|ack| ack.result.is_ok()).count();
        let got = driver.consume(offset(0), 5_000).unwrap();
        assert_eq!(got.len(), good, "seed {seed}");
        assert!(got.iter().enumerate().all(|(i, (at, _))| *at == i as i64), "seed {seed}");
        world.power_cut();
        let mut driver = Driver::start(&world, config).unwrap();
        assert_eq!(driver.consume(offset(0), 5_000).unwrap().len(), good, "seed {seed}");
    }
}

#[test]
fn no_space_at_a_flush_poisons() {
    let world = world(11);
    let mut driver = Driver::fresh(&world, with("group"));
    world.faults(|faults| faults.fail_fdatasync(".log", 1, Errno::ENOSPC));
    let ack = driver.append_acked(&one(b"v"), AckLevel::Durable).unwrap();
    assert_eq!(ack.result, Err(AckError::Poisoned));
}

#[test]
fn r42_a_roll_does_not_stall_appends_and_keeps_the_order() {
    let world = world(12);
    let config = LogConfig { segment_bytes: 1_000, ..with("os") };
    let mut driver = Driver::fresh(&world, config);
    world.faults(|faults| faults.fdatasync_us = 50_000);
    for i in 0..12 {
        let start = driver.io.now();
        let ack = driver.append_acked(&sized(400), AckLevel::Written).unwrap();
        let took = driver.io.now().since(start);
        assert!(took < Micros(5_000), "append {i} waited {took:?} for a flush of 50 ms");
        assert_eq!(ack.result, Ok(()));
    }
    assert!(driver.log.segment_count() > 3);
    let (newest, staged) = driver.append(&one(b"v"), AckLevel::Durable).unwrap();
    driver
        .tick_until(|d| {
            let first = d.world.durable_file(log_file()).map_or(0, |bytes| bytes.len());
            assert!(d.ack_of(newest).is_none() || first >= 800, "acked before the first segment");
            d.ack_of(newest).is_some()
        })
        .unwrap();
    assert!(driver.log.durable_end() > staged.base_offset);
}

#[test]
fn r42_a_slow_old_segment_holds_durable_acks_of_the_new_one() {
    let world = world(13);
    let config = LogConfig { segment_bytes: 1_000, ..with("group") };
    let mut driver = Driver::fresh(&world, config.clone());
    driver.append_acked(&sized(400), AckLevel::Durable).unwrap();
    world.faults(|faults| faults.stall_fdatasync("00.log", 1, 200_000));
    let (old, _) = driver.append(&sized(400), AckLevel::Durable).unwrap();
    driver.tick_until(|d| d.log.written_end() == offset(2)).unwrap();
    let (new, _) = driver.append(&sized(400), AckLevel::Durable).unwrap();
    let (newer, _) = driver.append(&sized(400), AckLevel::Written).unwrap();
    driver.tick_until(|d| d.ack_of(newer).is_some()).unwrap();
    for _ in 0..20 {
        world.advance(Micros(2_000));
        driver.poll().unwrap();
    }
    assert_eq!(driver.ack_of(new), None, "N before N+1 (D10, R16)");
    assert_eq!(driver.log.high_watermark(), offset(1));
    driver.tick_until(|d| d.ack_of(new).is_some()).unwrap();
    assert!(
        driver.ack_of(old).unwrap().stamps.settled <= driver.ack_of(new).unwrap().stamps.settled
    );
}

#[test]
fn a_failed_name_sync_poisons() {
    let world = world(14);
    let config = LogConfig { segment_bytes: 1_000, ..with("group") };
    let mut driver = Driver::fresh(&world, config);
    driver.append_acked(&sized(800), AckLevel::Durable).unwrap();
    world.faults(|faults| faults.plan(On::SyncDir, "t-0", 1, Effect::Fail(Errno::EIO)));
    let ack = driver.append_acked(&sized(800), AckLevel::Durable).unwrap();
    assert_eq!(ack.result, Err(AckError::Poisoned), "its name may never reach the disk (D10)");
}

#[test]
fn r21_recovery_on_a_full_disk_serves_up_to_the_cut_and_changes_nothing() {
    let world = world(15);
    let mut driver = Driver::fresh(&world, with("os"));
    driver.append_acked(&sized(1_000), AckLevel::Written).unwrap();
    driver.append_acked(&sized(1_000), AckLevel::Written).unwrap();
    let log = world.read_file(log_file()).unwrap();
    drop(driver);
    world.kill();
    world.write_file_durably(log_file(), &log[..1_500]);
    world.faults(|faults| faults.space_bytes = Some(0));
    let mut driver = Driver::start(&world, with("os")).unwrap();
    assert!(driver.report.read_only);
    assert_eq!(driver.log.state(), &PartitionState::ReadOnly);
    assert_eq!(driver.consume(offset(0), 5_000).unwrap().len(), 1);
    assert_eq!(driver.append(&one(b"x"), AckLevel::None).unwrap_err(), Refusal::ReadOnly);
    assert_eq!(world.read_file(log_file()).unwrap().len(), 1_500, "nothing is lost");
    driver.log.close(driver.io.now());
    driver.tick_until(|d| d.log.is_closed()).unwrap();
    assert!(!driver.log.closed_clean());
    drop(driver);
    world.faults(|faults| faults.space_bytes = None);
    let mut driver = Driver::start(&world, with("os")).unwrap();
    assert!(!driver.report.read_only);
    let side = driver.report.cuts[0].side_file.clone().unwrap();
    assert_eq!(world.durable_file(side).unwrap(), &log[1_000..1_500]);
    driver.append_acked(&one(b"again"), AckLevel::Durable).unwrap().result.unwrap();
}

#[test]
fn what_is_staged_is_bounded() {
    let world = world(16);
    for policy in [FlushPolicy::Os, FlushPolicy::default(), FlushPolicy::Bytes(1 << 20)] {
        let config = LogConfig { unsettled_bytes_max: 5_000, flush: policy, ..with("os") };
        let world = world.clone();
        world.kill();
        let mut driver = match Driver::start(&world, config.clone()) {
            Ok(driver) => driver,
            Err(_) => Driver::fresh(&world, config),
        };
        let mut taken = 0;
        while driver.append(&sized(1_000), AckLevel::None).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 5, "{policy}");
        assert!(!driver.log.can_accept(1_000));
        driver.settle().unwrap();
        assert!(driver.log.can_accept(1_000), "{policy}: settled bytes are let go");
    }
}

#[test]
fn d1_altering_never_lowers_what_readers_see() {
    let world = world(17);
    let mut driver = Driver::fresh(&world, with("os"));
    driver.append_acked(&one(b"seen"), AckLevel::Written).unwrap();
    assert_eq!(driver.log.high_watermark(), offset(1));
    world.faults(|faults| faults.stall_fdatasync(".log", 1, 100_000));
    let waiter = driver.waiter();
    driver.log.set_policy(FlushPolicy::default(), waiter, driver.io.now());
    // What is written meanwhile is shown once it is durable: the new policy promises that.
    let (late, _) = driver.append(&one(b"late"), AckLevel::Written).unwrap();
    for _ in 0..20 {
        driver.poll().unwrap();
        assert_eq!(driver.log.high_watermark(), offset(1));
        assert_eq!(driver.ack_of(waiter), None, "not before the flush");
        world.advance(Micros(1_000));
    }
    assert!(driver.ack_of(late).is_some());
    driver.tick_until(|d| d.ack_of(waiter).is_some()).unwrap();
    driver.tick_until(|d| d.log.high_watermark() == offset(2)).unwrap();
    assert_eq!(driver.log.policy(), FlushPolicy::default());
}

/// Space comes and goes at random while appends, rolls and flushes go on.
fn run_without_space(seed: u64) {
    let mut dice = Prng::new(seed);
    let world = world(seed);
    let policies = ["os", "each", "group", "group:200us", "bytes:900"];
    let config = LogConfig {
        segment_bytes: 1_500,
        writes_in_flight_max: 1 + dice.below(3) as usize,
        index_interval_bytes: 1,
        tail_batches_max: dice.below(3) as usize,
        group_bytes_max: 1_000,
        ..with(policies[dice.below(5) as usize])
    };
    let mut driver = Driver::fresh(&world, config.clone());
    let (mut values, mut acked) = (Vec::new(), 0);
    let mut sent = 0;
    for _ in 0..60 {
        match dice.below(8) {
            0 => world.faults(|faults| faults.space_bytes = Some(dice.below(3_000))),
            1 => world.faults(|faults| faults.space_bytes = None),
            2 => world.advance(Micros(700_000)),
            3 => driver.settle().unwrap(),
            4 => driver.tick().unwrap(),
            _ => {
                sent += 1;
                let value = format!("{sent}-{}", "x".repeat(dice.below(400) as usize)).into_bytes();
                let level = if dice.coin() { AckLevel::Durable } else { AckLevel::Policy };
                if let Ok((_, staged)) = driver.append(&one(&value), level) {
                    let base = staged.base_offset.get();
                    assert!(base >= acked, "seed {seed}: {base} was acked before");
                    values.truncate(base as usize);
                    values.push(value);
                }
            }
        }
        for ack in driver.acks.drain(..).filter(|ack| ack.result.is_ok()) {
            acked = acked.max(ack.base_offset.get() + 1);
        }
        assert!(driver.log.high_watermark() <= driver.log.written_end());
    }
    world.faults(|faults| faults.space_bytes = None);
    driver.settle().unwrap();
    if matches!(driver.log.state(), PartitionState::Poisoned { .. }) {
        panic!("seed {seed}: {:?}", driver.log);
    }
    let ack = driver.append_retrying(&one(b"last"), AckLevel::Durable);
    assert_eq!(ack.result, Ok(()), "seed {seed}");
    let last = ack.base_offset.get();
    values.truncate(last as usize);
    values.push(b"last".to_vec());
    assert!(last >= acked, "seed {seed}");
    let want: Vec<_> = values.into_iter().enumerate().map(|(i, v)| (i as i64, v)).collect();
    assert_eq!(driver.consume(offset(0), 1).unwrap(), want, "seed {seed}");
    let stop = dice.coin();
    match stop {
        true => driver.stop().unwrap(),
        false => world.power_cut(),
    }
    let mut driver = Driver::start(&world, config).unwrap();
    assert!(!stop || driver.report.cuts.is_empty(), "seed {seed}: {:?}", driver.report);
    assert_eq!(driver.consume(offset(0), 2_000).unwrap(), want, "seed {seed}");
}

#[test]
fn d12_space_may_come_and_go() {
    let seeds = match std::env::var("RINGLOG_SEED") {
        Ok(seed) => vec![seed.parse().expect("RINGLOG_SEED is a number")],
        Err(_) => (0..200).collect::<Vec<u64>>(),
    };
    for seed in seeds {
        run_without_space(seed);
    }
}

#[test]
fn d1_until_the_flush_the_stricter_policy_holds() {
    let world = world(18);
    let mut driver = Driver::fresh(&world, with("group"));
    world.faults(|faults| faults.stall_fdatasync(".log", 1, 100_000));
    driver.append(&one(b"before"), AckLevel::Policy).unwrap();
    driver.tick_until(|d| d.log.written_end() == offset(1)).unwrap();
    driver.poll().unwrap();
    let waiter = driver.waiter();
    driver.log.set_policy(FlushPolicy::Os, waiter, driver.io.now());
    let (during, _) = driver.append(&one(b"during"), AckLevel::Policy).unwrap();
    for _ in 0..20 {
        driver.poll().unwrap();
        world.advance(Micros(1_000));
        assert_eq!(driver.log.high_watermark(), offset(0), "readers were promised what stays");
    }
    assert_eq!(driver.ack_of(during), None);
    driver.tick_until(|d| d.ack_of(during).is_some()).unwrap();
    assert_eq!(driver.ack_of(during).unwrap().level, AckLevel::Durable);
    assert!(driver.ack_of(waiter).is_some(), "the alteration is answered after its flush");
    let ack = driver.append_acked(&one(b"after"), AckLevel::Policy).unwrap();
    assert_eq!(ack.level, AckLevel::Written);
}

#[test]
fn d10_no_durable_ack_before_the_name_of_its_segment_is_on_the_disk() {
    let world = world(19);
    let config = LogConfig { segment_bytes: 1_000, ..with("group") };
    let mut driver = Driver::fresh(&world, config.clone());
    driver.append_acked(&sized(800), AckLevel::Durable).unwrap();
    world.faults(|faults| faults.plan(On::SyncDir, "t-0", 1, Effect::DelayUs(100_000)));
    let (waiter, _) = driver.append(&sized(800), AckLevel::Durable).unwrap();
    for _ in 0..30 {
        driver.poll().unwrap();
        world.advance(Micros(1_000));
    }
    assert_eq!(driver.log.written_end(), offset(2), "written meanwhile (R42)");
    assert_eq!(driver.ack_of(waiter), None);
    assert_eq!(driver.log.high_watermark(), offset(1));
    driver.tick_until(|d| d.ack_of(waiter).is_some()).unwrap();
    world.power_cut();
    let mut driver = Driver::start(&world, config).unwrap();
    assert_eq!(driver.consume(offset(0), 5_000).unwrap().len(), 2);
}
