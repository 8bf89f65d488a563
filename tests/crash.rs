//! Crash sweeps: the same seeded workload is cut after every single step of the simulated
//! machine, and whatever the cut leaves is recovered and judged.
//!
//! For each policy: nothing acked as durable is lost; nothing is served that was never sent,
//! nothing twice; nothing that a reader saw under a policy that promises has vanished; a bounded
//! policy loses no more than its bound; the log goes on, and a clean restart agrees.
//! `RINGLOG_SEED=n` replays one seed.

mod support;

use std::path::Path;

use ringlog::format::batch::Codec;
use ringlog::format::name::{FileKind, FileState, SegmentFile};
use ringlog::format::snapshot;
use ringlog::io::Errno;
use ringlog::io::Io;
use ringlog::io::sim::{Effect, On, Prng, World};
use ringlog::log::{LogConfig, When};
use ringlog::policy::FlushPolicy;
use ringlog::types::{AckLevel, Micros};
use support::{Driver, Stopped, batch, create_topic, log_dir, offset, world};

/// The record at offset n has this time plus n.
const FIRST_TIME: i64 = 1000;

/// What a cut does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Cut {
    Power,
    Kill,
    /// The next process recovers from the page cache; then the power goes.
    KillServePower,
    /// The power goes again while recovery is under way.
    PowerTwice,
}

const CUTS: [Cut; 4] = [Cut::Power, Cut::KillServePower, Cut::PowerTwice, Cut::Kill];

#[derive(Clone, Debug)]
struct Plan {
    policy: FlushPolicy,
    /// Half way the topic is altered to this one.
    then: Option<FlushPolicy>,
    /// Of all acks asked for, so many of 1000 are explicitly durable.
    durable_per_mille: u32,
    /// The log's front moves: rolls, retention passes, deleted records.
    front: bool,
}

impl Plan {
    fn of(policy: &str, then: Option<&str>, durable_per_mille: u32) -> Plan {
        let parse = |text: &str| text.parse().unwrap();
        let (policy, then) = (parse(policy), then.map(parse));
        Plan { policy, then, durable_per_mille, front: false }
    }

    fn with_front(policy: &str) -> Plan {
        Plan { front: true, ..Plan::of(policy, None, 200) }
    }

    fn config(&self) -> LogConfig {
        LogConfig {
            // The dice of the plans without a front make no append that this does not hold.
            segment_bytes: if self.front { 1100 } else { 700 },
            index_interval_bytes: 100,
            segment_index_bytes: 200,
            flush: self.policy,
            writes_in_flight_max: 2,
            group_bytes_max: 600,
            file_delete_delay_ms: 1,
            ..LogConfig::default()
        }
    }
}

/// What the outside knows.
#[derive(Clone, Debug, Default)]
struct History {
    created: bool,
    /// Values by offset, as they were last given out.
    values: Vec<Vec<u8>>,
    /// Bytes of the log behind each value.
    bytes: Vec<u64>,
    /// Ends of acks: durable ones, and all of them.
    durable: i64,
    acked: i64,
    /// Acks at the policy's own level: (end, time).
    policy_acks: Vec<(i64, Micros)>,
    /// The furthest that a reader saw while the policy promised that it stays.
    visible: i64,
    epoch: i32,
    /// The start that deleted records were acked with, and the furthest it was ever asked to be.
    deleted: i64,
    start_max: i64,
    /// An append or a flush was refused or failed.
    failed: bool,
}

impl History {
    /// Offsets from `end` on were never given out, or are forgotten.
    fn truncate(&mut self, end: i64) {
        self.values.truncate(end as usize);
        self.bytes.truncate(end as usize);
        self.policy_acks.retain(|(acked, _)| *acked <= end);
        self.acked = self.acked.min(end);
    }

    /// Err when an ack says that the partition is poisoned.
    fn note(&mut self, driver: &mut Driver, promises: bool) -> Result<(), Stopped> {
        for ack in driver.acks.drain(..) {
            if ack.result.is_err() {
                self.failed = true;
                continue;
            }
            let (base, records) = (ack.base_offset.get(), ack.waiter.0 & 0xff);
            let end = base + records as i64;
            self.acked = self.acked.max(end);
            if ack.level == AckLevel::Durable {
                self.durable = self.durable.max(end);
            }
            if ack.waiter.0 & 0x100 != 0 {
                self.policy_acks.push((end, ack.stamps.settled));
            }
        }
        if promises {
            self.visible = self.visible.max(driver.log.high_watermark().get());
        }
        self.epoch = self.epoch.max(driver.log.leader_epoch());
        if self.failed { Err(Stopped) } else { Ok(()) }
    }
}

/// One life of the log, from nothing; ends early when the world stops.
fn live(world: &World, plan: &Plan, seed: u64, history: &mut History) -> Result<(), Stopped> {
    let mut dice = Prng::new(seed ^ 0x5eed);
    let mut io = world.engine();
    if !create_topic(world, &mut io) {
        return Err(Stopped);
    }
    history.created = true;
    drop(io);
    let mut config = plan.config();
    for part in 0..2 {
        let mut driver = Driver::start(world, config.clone()).map_err(|_| Stopped)?;
        append_some(&mut driver, plan, &mut dice, history, config.flush)?;
        if part == 0 {
            if let Some(policy) = plan.then {
                alter(&mut driver, policy, history, config.flush)?;
                config.flush = policy;
            }
            append_some(&mut driver, plan, &mut dice, history, config.flush)?;
            driver.stop()?;
        }
    }
    Ok(())
}

fn alter(
    driver: &mut Driver,
    policy: FlushPolicy,
    history: &mut History,
    old: FlushPolicy,
) -> Result<(), Stopped> {
    let waiter = driver.waiter();
    driver.log.set_policy(policy, waiter, driver.io.now());
    while driver.ack_of(waiter).is_none() {
        driver.tick()?;
        driver.acks.retain(|ack| ack.waiter == waiter || ack.result.is_ok());
    }
    let at = driver.acks.iter().position(|ack| ack.waiter == waiter).unwrap();
    let ack = driver.acks.remove(at);
    history.durable = history.durable.max(ack.base_offset.get());
    history.note(driver, old.promises_durable() || policy.promises_durable())
}

fn append_some(
    driver: &mut Driver,
    plan: &Plan,
    dice: &mut Prng,
    history: &mut History,
    policy: FlushPolicy,
) -> Result<(), Stopped> {
    let promises = policy.promises_durable();
    for round in 0..6 {
        for _ in 0..1 + dice.below(3) {
            append_one(driver, plan, dice, history)?;
        }
        if plan.front {
            move_front(driver, plan, dice, history)?;
        }
        driver.tick()?;
        history.note(driver, promises)?;
        match dice.below(6) {
            0 => drop(driver.flush_counted()),
            1 => {
                let seen = driver.consume(driver.log.log_start(), 500)?;
                assert!(seen.len() <= history.values.len());
            }
            2 | 3 => {
                driver.settle()?;
                history.note(driver, promises)?;
            }
            _ => {}
        }
        if round % 2 == 1 {
            driver.checkpoint()?;
        }
    }
    driver.settle()?;
    history.note(driver, promises)
}

/// A roll, a retention pass or deleted records.
fn move_front(
    driver: &mut Driver,
    plan: &Plan,
    dice: &mut Prng,
    history: &mut History,
) -> Result<(), Stopped> {
    match dice.below(4) {
        0 => drop(driver.log.roll(driver.io.wall_ms())),
        1 | 2 => {
            let retention_bytes = [0, 700, 1500][dice.below(3) as usize];
            let flush = driver.log.config().flush;
            driver.log.set_config(LogConfig { retention_bytes, flush, ..plan.config() });
            driver.log.retain(driver.io.wall_ms());
            history.start_max = history.values.len() as i64;
        }
        _ => {
            let (start, high) = (driver.log.log_start(), driver.log.high_watermark());
            let before = start.get() + dice.below(1 + high.since(start) as u64) as i64;
            let waiter = driver.waiter();
            history.start_max = history.start_max.max(before);
            driver.log.delete_records(before, waiter, driver.io.now()).unwrap();
            driver.save_start()?;
            let at = driver.acks.iter().position(|ack| ack.waiter == waiter).expect("saved");
            let ack = driver.acks.remove(at);
            assert_eq!(ack.result, Ok(()));
            history.deleted = history.deleted.max(ack.base_offset.get());
        }
    }
    Ok(())
}

fn append_one(
    driver: &mut Driver,
    plan: &Plan,
    dice: &mut Prng,
    history: &mut History,
) -> Result<(), Stopped> {
    let (level, own) = match dice.per_mille(plan.durable_per_mille) {
        true => (AckLevel::Durable, false),
        false => (AckLevel::Policy, true),
    };
    let mut bytes = Vec::new();
    let (mut values, mut lens) = (Vec::new(), Vec::new());
    for _ in 0..1 + dice.below(2) {
        let count = 1 + dice.below(3);
        let batch_values: Vec<Vec<u8>> = (0..count)
            .map(|i| {
                let at = history.values.len() + values.len() + i as usize;
                let mut value = format!("{at}-{:08x}-", dice.draw() as u32).into_bytes();
                value.resize(value.len() + dice.below(120) as usize, b'.');
                value
            })
            .collect();
        let refs: Vec<&[u8]> = batch_values.iter().map(Vec::as_slice).collect();
        let at = history.values.len() + values.len();
        let one = batch(&refs, Codec::None, FIRST_TIME + at as i64);
        lens.extend(std::iter::repeat_n(0, batch_values.len() - 1));
        lens.push(one.len() as u64);
        bytes.extend(one);
        values.extend(batch_values);
    }
    let flags = values.len() as u64 | if own { 0x100 } else { 0 };
    let Ok(staged) = driver.append_flagged(&bytes, level, flags) else {
        history.failed = true;
        return Err(Stopped);
    };
    assert_eq!(staged.base_offset.get(), history.values.len() as i64, "offsets follow on");
    let mut behind = history.bytes.last().copied().unwrap_or(0);
    for (value, len) in values.into_iter().zip(lens) {
        behind += len;
        history.values.push(value);
        history.bytes.push(behind);
    }
    Ok(())
}

/// Starts a process on what is left and judges it.
fn judge(
    world: &World,
    plan: &Plan,
    history: &mut History,
    power: bool,
    what: &str,
) -> Option<Driver> {
    let mut io = world.engine();
    if !history.created && !create_topic(world, &mut io) {
        panic!("{what}: a topic that was not there cannot be created");
    }
    drop(io);
    let policy = plan.then.unwrap_or(plan.policy);
    let config = LogConfig { flush: policy, ..plan.config() };
    let driver = Driver::start(world, config);
    let mut driver = driver.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(driver.report.damage, vec![], "{what}: a torn tail is no damage");
    let end = driver.log.staged_end().get();
    let start = driver.log.log_start().get();
    assert!(start >= history.deleted, "{what}: deleted before {}, back {start}", history.deleted);
    assert!(start <= history.start_max, "{what}: nobody deleted up to {start}");
    let got = driver.consume(offset(start), 400).unwrap();
    assert_eq!(got.len() as i64, end - start, "{what}: served up to the end");
    for (i, (at, value)) in (start..).zip(&got) {
        assert_eq!(*at, i, "{what}: offsets without a hole or a repeat");
        let sent =
            history.values.get(i as usize).unwrap_or_else(|| panic!("{what}: {at} was never sent"));
        assert_eq!(value, sent, "{what}: what is served at {at}");
    }
    assert!(end >= history.durable, "{what}: durable {} lost, ends at {end}", history.durable);
    assert!(end >= history.visible, "{what}: readers saw {}, now {end}", history.visible);
    if !power {
        assert!(end >= history.acked, "{what}: a kill lost acks: {} of {end}", history.acked);
    }
    check_times(&mut driver, (start, end), what);
    check_names(&driver, what);
    check_bound(plan, history, end, what);
    let unclean = history.epoch > 0 || end > 0;
    if unclean && !driver.report.cuts.is_empty() {
        assert!(driver.log.leader_epoch() > history.epoch, "{what}: the epoch rises at a cut");
    }
    history.truncate(end);
    history.epoch = driver.log.leader_epoch();
    Some(driver)
}

/// Time lookups find every record: the time indexes of trusted segments are whole (D7).
fn check_times(driver: &mut Driver, (start, end): (i64, i64), what: &str) {
    for at in (start..end).step_by(9) {
        let found = driver.by_time(When::AtOrAfter(FIRST_TIME + at)).unwrap();
        assert_eq!(found, Some((offset(at), FIRST_TIME + at)), "{what}: by time");
    }
    let newest = (end > start).then(|| (offset(end - 1), FIRST_TIME + end - 1));
    assert_eq!(driver.by_time(When::Max).unwrap(), newest, "{what}: the newest");
}

/// No file of a segment that is gone, none that waits to be removed, and every snapshot whole.
fn check_names(driver: &Driver, what: &str) {
    let names = driver.world.list(log_dir());
    let files: Vec<SegmentFile> =
        names.iter().filter_map(|name| SegmentFile::parse(name)).collect();
    assert!(files.iter().all(|file| file.state == FileState::Live), "{what}: {names:?}");
    let logs = files.iter().filter(|file| file.kind == FileKind::Log);
    assert_eq!(logs.count(), driver.log.segment_count(), "{what}: {names:?}");
    let end = driver.log.staged_end().get();
    for file in &files {
        match file.kind {
            FileKind::Snapshot => {
                let bytes = driver.world.read_file(log_dir().join(file.to_string())).unwrap();
                assert!(snapshot::parse(&bytes).is_ok() && file.offset <= end, "{what}: {file}");
            }
            _ => {
                let log = SegmentFile::live(file.offset, FileKind::Log);
                assert!(files.contains(&log), "{what}: {file} without its log");
            }
        }
    }
}

/// Acks of the policy's own level, lost, are within what it may lose.
fn check_bound(plan: &Plan, history: &History, end: i64, what: &str) {
    if plan.then.is_some() {
        return;
    }
    let lost: Vec<_> = history.policy_acks.iter().filter(|(acked, _)| *acked > end).collect();
    let (Some((_, first)), Some((last_end, last))) = (lost.first(), lost.last()) else { return };
    let bytes = |end: i64| if end == 0 { 0 } else { history.bytes[end as usize - 1] };
    match plan.policy {
        FlushPolicy::Os => {}
        FlushPolicy::Records(n) => assert!((*last_end - end) as u64 <= n, "{what}: past the bound"),
        FlushPolicy::RecordsOrInterval { records, time } => {
            assert!((*last_end - end) as u64 <= records, "{what}: past the bound");
            assert!(last.since(*first) < time, "{what}: past the bound");
        }
        FlushPolicy::Bytes(n) => {
            assert!(bytes(*last_end) - bytes(end) <= n, "{what}: past the bound");
        }
        FlushPolicy::Interval(time) => assert!(last.since(*first) < time, "{what}: past the bound"),
        FlushPolicy::Each | FlushPolicy::Group { .. } => panic!("{what}: acked and lost"),
    }
}

/// The log takes more, and two clean restarts agree on it.
fn go_on(mut driver: Driver, plan: &Plan, history: &mut History, what: &str) {
    let world = driver.world.clone();
    for i in 0..3 {
        let value = format!("after {what} {i}").into_bytes();
        let ack = driver.append_acked(&batch(&[&value], Codec::None, 5000), AckLevel::Durable);
        let ack = ack.unwrap_or_else(|_| panic!("{what}: stopped"));
        ack.result.unwrap();
        assert_eq!(ack.base_offset.get(), history.values.len() as i64, "{what}: goes on");
        history.values.push(value);
    }
    let policy = plan.then.unwrap_or(plan.policy);
    let config = LogConfig { flush: policy, ..plan.config() };
    for _ in 0..2 {
        driver.stop().unwrap_or_else(|_| panic!("{what}: the stop stopped"));
        driver = Driver::start(&world, config.clone()).unwrap();
        assert!(driver.report.cuts.is_empty(), "{what}: {:?}", driver.report);
        let start = driver.log.log_start();
        let got: Vec<_> = driver.consume(start, 900).unwrap();
        let got: Vec<_> = got.into_iter().map(|(_, value)| value).collect();
        let kept = &history.values[start.get() as usize..];
        assert_eq!(got, kept, "{what}: clean restarts agree");
    }
}

/// Cuts one workload after each of its steps; gives how many cuts that were.
fn sweep(plan: &Plan, seed: u64) -> usize {
    let steps = {
        let world = world(seed);
        let mut history = History::default();
        live(&world, plan, seed, &mut history).expect("nothing stops the first run");
        world.ops()
    };
    for n in 0..steps {
        let mut dice = Prng::new(seed.wrapping_mul(31).wrapping_add(n));
        let cut = CUTS[dice.below(CUTS.len() as u64) as usize];
        let what = format!("{plan:?} seed {seed} step {n} {cut:?}");
        let world = world(seed);
        world.cut_after(n);
        let mut history = History::default();
        let lived = live(&world, plan, seed, &mut history);
        assert_eq!(lived, Err(Stopped), "{what}: the same seed takes the same steps");
        let driver = match cut {
            Cut::Power => {
                world.power_cut();
                judge(&world, plan, &mut history, true, &what)
            }
            Cut::Kill => {
                world.kill();
                judge(&world, plan, &mut history, false, &what)
            }
            Cut::KillServePower => {
                world.kill();
                let mut driver = judge(&world, plan, &mut history, false, &what).unwrap();
                // What a started log shows as durable must stay (D8).
                history.created = true;
                history.durable = driver.log.durable_end().get();
                driver.tick().unwrap();
                world.power_cut();
                judge(&world, plan, &mut history, true, &what)
            }
            Cut::PowerTwice => {
                world.power_cut();
                world.cut_after(1 + dice.below(20));
                let started = Driver::start(&world, plan.config());
                drop(started);
                world.power_cut();
                judge(&world, plan, &mut history, true, &what)
            }
        };
        if n % 3 == 0 {
            go_on(driver.unwrap(), plan, &mut history, &what);
        }
    }
    steps as usize
}

fn sweep_all(plans: &[Plan]) {
    let seeds = match std::env::var("RINGLOG_SEED") {
        Ok(seed) => vec![seed.parse().expect("RINGLOG_SEED is a number")],
        Err(_) => vec![1, 2],
    };
    for plan in plans {
        for seed in &seeds {
            let cuts = sweep(plan, *seed);
            println!("{} then {:?}, seed {seed}: {cuts} cuts", plan.policy, plan.then);
            assert!(cuts > 60, "a workload of {cuts} steps tests little");
        }
    }
}

/// The n-th write or flush of a log fails, for every n; then the process is killed, and what its
/// page cache still shows of it is not believed.
fn fail_each(plan: &Plan, seed: u64, on: On) -> u32 {
    for n in 2.. {
        let what = format!("{plan:?} seed {seed} {on:?} {n} fails");
        let world = world(seed);
        world.faults(|faults| faults.plan(on, ".log", n, Effect::Fail(Errno::EIO)));
        let mut history = History::default();
        if live(&world, plan, seed, &mut history).is_ok() {
            return n - 2;
        }
        world.kill();
        let driver = judge(&world, plan, &mut history, false, &what).unwrap();
        history.durable = history.durable.max(driver.log.durable_end().get());
        world.power_cut();
        let driver = judge(&world, plan, &mut history, true, &what).unwrap();
        go_on(driver, plan, &mut history, &what);
    }
    unreachable!("some run has no n-th op");
}

#[test]
fn failed_writes_and_flushes_lose_nothing_acked() {
    let mut failed = 0;
    for plan in [Plan::of("each", None, 200), Plan::of("group", None, 200)] {
        for seed in 1..5 {
            failed += fail_each(&plan, seed, On::Fdatasync);
            failed += fail_each(&plan, seed, On::Write);
        }
    }
    println!("{failed} failures");
    assert!(failed > 100, "{failed} failures test little");
}

#[test]
fn each_loses_nothing() {
    sweep_all(&[Plan::of("each", None, 200)]);
}

#[test]
fn group_loses_nothing() {
    sweep_all(&[Plan::of("group", None, 200)]);
}

#[test]
fn group_with_a_linger_loses_nothing() {
    sweep_all(&[Plan::of("group:300us", None, 200)]);
}

#[test]
fn durable_acks_hold_under_os_and_interval() {
    sweep_all(&[Plan::of("os", None, 300), Plan::of("interval:2ms", None, 200)]);
}

#[test]
fn durable_acks_hold_under_bytes_and_records() {
    sweep_all(&[
        Plan::of("bytes:600", None, 200),
        Plan::of("records:5", None, 200),
        Plan::of("records:5,interval:2ms", None, 100),
    ]);
}

#[test]
fn altering_a_policy_flushes_first() {
    sweep_all(&[Plan::of("os", Some("group"), 100), Plan::of("group", Some("os"), 100)]);
}

/// Rolls, retention passes and deleted records, in every order with all else.
#[test]
fn the_logs_front_moves_and_nothing_else_is_lost() {
    sweep_all(&[Plan::with_front("group"), Plan::with_front("os"), Plan::with_front("bytes:600")]);
    for seed in 1..4 {
        let plan = Plan::with_front("group");
        for on in [On::Rename, On::SyncDir, On::Unlink] {
            fail_removals(&plan, seed, on);
        }
    }
}

/// The n-th op of this kind on a segment's files fails: what is left has no hole.
fn fail_removals(plan: &Plan, seed: u64, on: On) {
    for n in 1..12 {
        let what = format!("{plan:?} seed {seed} {on:?} {n} fails");
        let world = world(seed);
        world.faults(|faults| faults.plan(on, "/t-0/0", n, Effect::Fail(Errno::EIO)));
        let mut history = History::default();
        let lived = live(&world, plan, seed, &mut history);
        world.power_cut();
        let driver = judge(&world, plan, &mut history, true, &what).unwrap();
        if lived.is_ok() {
            go_on(driver, plan, &mut history, &what);
        }
    }
}

#[test]
fn the_data_directory_is_where_the_tests_think() {
    let world = world(9);
    let mut io = world.engine();
    assert!(create_topic(&world, &mut io));
    assert!(world.read_file(Path::new("/data/t-0/partition.metadata")).is_some());
}
