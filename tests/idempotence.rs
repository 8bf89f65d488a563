//! Idempotent producers at one log: which batches are new, which are repeats, which are refused;
//! when a repeat is acked; what a failed write, a restart and a long silence leave of it.
//!
//! The model keeps every batch that was accepted, in a list; the log must agree with it on every
//! verdict. `RINGLOG_SEED=n` replays one seed.

mod support;

use std::collections::BTreeMap;

use ringlog::format::batch::{Attributes, Codec, assign};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::snapshot;
use ringlog::io::sim::{Prng, World};
use ringlog::log::{AckError, LogConfig, OpenParams, REMEMBERED_MAX, Refusal, Staged};
use ringlog::policy::FlushPolicy;
use ringlog::types::{AckLevel, Micros};
use support::{Driver, log_dir, offset, params, sequenced, world};

const TIME: i64 = 1_700_000_000_000;

fn config(policy: &str) -> LogConfig {
    let flush: FlushPolicy = policy.parse().unwrap();
    LogConfig { flush, segment_bytes: 3000, group_bytes_max: 600, ..LogConfig::default() }
}

/// What a batch asks: producer, epoch, first sequence, records.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Ask {
    id: i64,
    epoch: i16,
    first: i32,
    records: i32,
}

impl Ask {
    fn bytes(&self) -> Vec<u8> {
        let value = format!("{}-{}-{}", self.id, self.epoch, self.first);
        let values = vec![value.as_bytes(); self.records as usize];
        sequenced(self.id, self.epoch, self.first, &values, TIME)
    }

    /// Sequences go from 2147483647 on to 0.
    fn next(&self) -> i32 {
        ((i64::from(self.first) + i64::from(self.records)) % (1 << 31)) as i32
    }
}

/// Every batch accepted, with its base offset, by producer, of its newest epoch.
#[derive(Clone, Debug, Default)]
struct Model {
    producers: BTreeMap<i64, Vec<(Ask, i64)>>,
    end: i64,
    /// Of a producer's batches, so many of the newest must be known; of the older ones a log that
    /// was opened again may have kept some.
    certain: BTreeMap<i64, usize>,
}

#[derive(Debug, PartialEq, Eq)]
enum Says {
    New,
    Repeat(i64),
    /// Kafka would not know it any more; we may.
    RepeatOrGap(i64),
    Gap,
    Stale,
}

impl Model {
    fn judge(&self, ask: &Ask) -> Says {
        let Some(batches) = self.producers.get(&ask.id) else { return Says::New };
        let (last, _) = batches.last().expect("a producer has a batch");
        if let Some(at) = batches.iter().rposition(|(known, _)| known == ask) {
            let age = batches.len() - at;
            let base = batches[at].1;
            return match age <= self.certain.get(&ask.id).copied().unwrap_or(REMEMBERED_MAX) {
                true => Says::Repeat(base),
                false if age > REMEMBERED_MAX => Says::Gap,
                false => Says::RepeatOrGap(base),
            };
        }
        match ask.epoch.cmp(&last.epoch) {
            std::cmp::Ordering::Less => Says::Stale,
            std::cmp::Ordering::Equal if ask.first == last.next() => Says::New,
            std::cmp::Ordering::Greater if ask.first == 0 => Says::New,
            _ => Says::Gap,
        }
    }

    fn accept(&mut self, ask: Ask) {
        let batches = self.producers.entry(ask.id).or_default();
        batches.retain(|(known, _)| known.epoch == ask.epoch);
        if batches.is_empty() {
            self.certain.remove(&ask.id);
        }
        batches.push((ask, self.end));
        self.certain.entry(ask.id).and_modify(|known| *known += 1);
        self.end += i64::from(ask.records);
    }

    fn reopened(&mut self) {
        for id in self.producers.keys() {
            self.certain.insert(*id, 1);
        }
    }
}

fn draw(model: &Model, dice: &mut Prng) -> Ask {
    let id = 5 + dice.below(3) as i64;
    let records = 1 + dice.below(3) as i32;
    let Some(batches) = model.producers.get(&id) else {
        // Unknown: any sequence will do; here near the wrap.
        let first = i32::MAX - dice.below(20) as i32;
        return Ask { id, epoch: dice.below(3) as i16, first, records };
    };
    let last = batches.last().unwrap().0;
    let following = Ask { id, epoch: last.epoch, first: last.next(), records };
    let back = (dice.below(80) as usize).min(dice.below(batches.len() as u64) as usize);
    match dice.below(12) {
        0..6 => following,
        6 | 7 => batches[batches.len() - 1 - back].0,
        8 => Ask { first: last.next().wrapping_add(1) & i32::MAX, ..following },
        9 => Ask { epoch: last.epoch - 1, ..following },
        10 => Ask { records: last.records + 1, ..last },
        _ if dice.below(12) == 0 => {
            let first = if dice.below(2) == 0 { 0 } else { 3 };
            Ask { epoch: last.epoch + 1, first, ..following }
        }
        _ => following,
    }
}

fn agree(says: &Says, got: &Result<Staged, Refusal>, model: &Model) -> Result<(), String> {
    let fits = match (says, got) {
        (Says::New, Ok(staged)) => {
            staged.repeats.is_none() && staged.base_offset.get() == model.end
        }
        (Says::Repeat(base) | Says::RepeatOrGap(base), Ok(staged)) => {
            staged.repeats == Some(TIME) && staged.base_offset.get() == *base
        }
        (Says::Gap | Says::RepeatOrGap(_), Err(Refusal::OutOfOrder { .. })) => true,
        (Says::Stale, Err(Refusal::StaleEpoch { .. })) => true,
        _ => false,
    };
    if fits { Ok(()) } else { Err(format!("{says:?}, but {got:?}")) }
}

/// Whatever is acked as durable is.
fn check_acks(driver: &mut Driver, ends: &mut BTreeMap<u64, i64>) {
    for ack in driver.acks.drain(..) {
        let end = ends.remove(&ack.waiter.0).expect("one ack a request");
        assert_eq!(ack.result, Ok(()));
        assert!(driver.log.written_end().get() >= end, "{ack:?} before {end} is written");
        if ack.level == AckLevel::Durable {
            assert!(driver.log.durable_end().get() >= end, "{ack:?} before {end} is durable");
        }
    }
}

fn one_life(driver: &mut Driver, model: &mut Model, dice: &mut Prng) {
    let mut ends = BTreeMap::new();
    for _ in 0..150 {
        let ask = draw(model, dice);
        let level =
            [AckLevel::Written, AckLevel::Durable, AckLevel::Policy][dice.below(3) as usize];
        let says = model.judge(&ask);
        let staged = driver.append(&ask.bytes(), level).map(|(waiter, staged)| {
            ends.insert(waiter.0, staged.last_offset.get() + 1);
            staged
        });
        agree(&says, &staged, model).unwrap_or_else(|why| panic!("{ask:?}: {why}"));
        if says == Says::New {
            model.accept(ask);
        }
        match dice.below(4) {
            0 => driver.poll().unwrap(),
            1 => driver.rest().unwrap(),
            _ => {}
        }
        check_acks(driver, &mut ends);
    }
    driver.rest().unwrap();
    check_acks(driver, &mut ends);
    assert_eq!(ends.len(), 0, "acks that never came");
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("RINGLOG_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..count).collect(),
    }
}

#[test]
fn every_verdict_is_that_of_a_list_of_all_batches() {
    for seed in seeds(25) {
        let (world, mut dice, mut model) = (world(seed), Prng::new(seed), Model::default());
        world.set_wall_ms(TIME);
        let config = config(["group", "os", "bytes:400", "each"][seed as usize % 4]);
        let mut driver = Driver::fresh(&world, config.clone());
        for life in 0..4 {
            println!("seed {seed}, life {life}");
            one_life(&mut driver, &mut model, &mut dice);
            match dice.below(2) {
                0 => driver.stop().unwrap(),
                _ => {
                    drop(driver);
                    world.kill();
                }
            }
            model.reopened();
            driver = Driver::start(&world, config.clone()).unwrap();
            assert_eq!(driver.log.staged_end().get(), model.end, "seed {seed}");
        }
    }
}

fn ask(id: i64, epoch: i16, first: i32) -> Ask {
    Ask { id, epoch, first, records: 1 }
}

fn fresh(config: &LogConfig) -> (World, Driver) {
    let world = world(1);
    world.set_wall_ms(TIME);
    let driver = Driver::fresh(&world, config.clone());
    (world, driver)
}

fn is_gap(got: &Result<(ringlog::log::Waiter, Staged), Refusal>) -> bool {
    matches!(got, Err(Refusal::OutOfOrder { .. }))
}

/// Appends `first..end` of one producer, a record a batch, and settles.
fn send(driver: &mut Driver, id: i64, range: std::ops::Range<i32>) {
    for first in range {
        let (_, staged) = driver.append(&ask(id, 0, first).bytes(), AckLevel::Written).unwrap();
        assert_eq!(staged.repeats, None);
        driver.rest().unwrap();
    }
}

fn base_of_repeat(driver: &mut Driver, what: Ask) -> Option<i64> {
    let (_, staged) = driver.append(&what.bytes(), AckLevel::Written).ok()?;
    driver.rest().unwrap();
    staged.repeats.map(|_| staged.base_offset.get())
}

#[test]
fn d13_a_repeat_is_acked_when_its_original_meets_the_level_it_asks_for() {
    let (world, mut driver) = fresh(&config("os"));
    let one = ask(7, 0, 0).bytes();
    let (first, _) = driver.append(&one, AckLevel::Written).unwrap();
    let (second, staged) = driver.append(&one, AckLevel::Written).unwrap();
    assert_eq!((staged.base_offset, staged.repeats), (offset(0), Some(TIME)));
    assert!(driver.acks.is_empty(), "the original is not written");
    driver.tick_until(|d| d.ack_of(second).is_some()).unwrap();
    assert!(driver.ack_of(first).is_some() && driver.log.written_end() == offset(1));
    driver.rest().unwrap();
    assert_eq!(driver.log.durable_end(), offset(0), "nobody asked for a flush");
    // The third asks for more than the first did.
    let (third, _) = driver.append(&one, AckLevel::Durable).unwrap();
    driver.poll().unwrap();
    assert!(driver.ack_of(third).is_none());
    driver.tick_until(|d| d.ack_of(third).is_some()).unwrap();
    let ack = driver.ack_of(third).unwrap();
    assert_eq!((ack.base_offset, ack.level, ack.result), (offset(0), AckLevel::Durable, Ok(())));
    assert_eq!(driver.log.durable_end(), offset(1));
    assert_eq!(driver.log.counters().duplicates, 2);
    assert_eq!(driver.log.staged_end(), offset(1), "nothing was written twice");
    drop(world);
}

#[test]
fn d13_a_repeat_does_not_wait_for_what_came_behind_its_original() {
    let (world, mut driver) = fresh(&config("group"));
    send(&mut driver, 7, 0..1);
    driver.acks.clear();
    world.faults(|faults| faults.stall_fdatasync(".log", 1, 1_000_000));
    let (waits, _) = driver.append(&ask(7, 0, 1).bytes(), AckLevel::Durable).unwrap();
    driver.poll().unwrap();
    // What it repeats is durable: it is answered at once, though others wait.
    let flushed = driver.flush();
    driver.tick_until(|d| d.ack_of(flushed).is_some()).unwrap();
    let (repeat, _) = driver.append(&ask(7, 0, 0).bytes(), AckLevel::Durable).unwrap();
    driver.poll().unwrap();
    assert!(driver.ack_of(repeat).is_some() && driver.ack_of(waits).is_some());
}

/// D12, D13: what was never written has never been sent, for each way in which it changed what is
/// known of its producer.
#[test]
fn d12_a_failed_write_puts_producers_back_and_fails_the_repeats_of_its_batches() {
    let (world, mut driver) = fresh(&config("group"));
    send(&mut driver, 1, 0..7);
    send(&mut driver, 2, 0..2);
    driver.acks.clear();
    world.faults(|faults| faults.space_bytes = Some(0));
    let lost = [ask(1, 0, 7), ask(2, 1, 0), ask(2, 1, 1), ask(3, 0, 40), ask(1, 0, 8)];
    let mut waiters: Vec<_> =
        lost.iter().map(|one| driver.append(&one.bytes(), AckLevel::Durable).unwrap().0).collect();
    // A repeat of a batch that will fail, and one of a batch that is there.
    waiters.push(driver.append(&lost[0].bytes(), AckLevel::Durable).unwrap().0);
    let (there, _) = driver.append(&ask(1, 0, 6).bytes(), AckLevel::Durable).unwrap();
    driver.tick_until(|d| d.acks.len() == waiters.len() + 1).unwrap();
    for waiter in waiters {
        assert_eq!(driver.ack_of(waiter).unwrap().result, Err(AckError::NoSpace));
    }
    assert_eq!(driver.ack_of(there).unwrap().result, Ok(()));
    world.faults(|faults| faults.space_bytes = None);
    driver.rest().unwrap();
    world.advance(Micros(1_500_000));
    driver.rest().unwrap();
    assert_eq!(driver.log.producers_known(), 2, "the third was never there");
    for back in 0..7 {
        assert_eq!(base_of_repeat(&mut driver, ask(1, 0, back)), Some(i64::from(back)));
    }
    assert_eq!(base_of_repeat(&mut driver, ask(2, 0, 1)), Some(8), "its epoch is the old one");
    for one in lost {
        let (_, staged) = driver.append(&one.bytes(), AckLevel::Written).unwrap();
        assert_eq!(staged.repeats, None, "{one:?}");
    }
}

#[test]
fn a_deep_pipeline_is_remembered_and_many_of_them_only_in_part() {
    let (_world, mut driver) = fresh(&config("os"));
    let deep = REMEMBERED_MAX as i32;
    send(&mut driver, 7, 0..deep + 1);
    assert_eq!(base_of_repeat(&mut driver, ask(7, 0, 1)), Some(1));
    assert!(is_gap(&driver.append(&ask(7, 0, 0).bytes(), AckLevel::Written)), "one too old");
    // A hundred others go deep: those who wrote longest ago remember Kafka's five.
    (100..200).for_each(|id| send(&mut driver, id, 0..6));
    assert!(is_gap(&driver.append(&ask(7, 0, deep - 5).bytes(), AckLevel::Written)));
    let fifth = deep - 4;
    assert_eq!(base_of_repeat(&mut driver, ask(7, 0, fifth)), Some(i64::from(fifth)));
    let newest = driver.log.staged_end().get() - 6;
    assert_eq!(base_of_repeat(&mut driver, ask(199, 0, 0)), Some(newest), "a late one has all");
}

#[test]
fn several_batches_in_one_append_are_judged_in_order_and_taken_whole_or_not() {
    let (_world, mut driver) = fresh(&config("os"));
    let join = |asks: &[Ask]| asks.iter().flat_map(Ask::bytes).collect::<Vec<u8>>();
    let all = join(&[ask(7, 0, 0), ask(7, 0, 1), ask(8, 0, 0)]);
    let refused = driver.append(&join(&[ask(7, 0, 0), ask(7, 0, 2)]), AckLevel::Written);
    assert!(is_gap(&refused), "{refused:?}");
    assert_eq!((driver.log.staged_end(), driver.log.producers_known()), (offset(0), 0));
    let (_, staged) = driver.append(&all, AckLevel::Written).unwrap();
    assert_eq!((staged.base_offset, staged.last_offset), (offset(0), offset(2)));
    let (_, again) = driver.append(&all, AckLevel::Written).unwrap();
    assert_eq!((again.base_offset, again.last_offset), (offset(0), offset(2)));
    assert_eq!(again.repeats, Some(TIME));
    let plain = support::batch(&[b"x"], Codec::None, TIME);
    for mixed in [
        join(&[ask(7, 0, 1), ask(7, 0, 2)]),
        join(&[ask(7, 0, 2), ask(7, 0, 1)]),
        join(&[ask(8, 0, 0), ask(7, 0, 0)]),
        [ask(7, 0, 0).bytes(), plain].concat(),
    ] {
        let refused = driver.append(&mixed, AckLevel::Written);
        assert!(matches!(refused, Err(Refusal::MixedRepeats)), "{refused:?}");
    }
    driver.append(&ask(7, 0, 2).bytes(), AckLevel::Written).expect("no trace of the refused");
}

fn transactional(id: i64, first: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    builder.producer(id, 0, first);
    builder.attributes(Attributes(1 << 4));
    builder.append(None, Some(b"x"), &[], TIME);
    builder.finish(Codec::None, None).unwrap().to_vec()
}

#[test]
fn transactions_of_a_foreign_log_are_kept_and_clients_begin_none() {
    let (world, driver) = fresh(&config("group"));
    drop(driver);
    world.kill();
    let mut bytes = transactional(7, 0);
    assign(&mut bytes, 0, 0).unwrap();
    world.write_file_durably(log_dir().join("00000000000000000000.log"), bytes);
    let day = LogConfig { producer_expiration_ms: 1000, ..config("group") };
    let mut driver = Driver::open_with(&world, world.engine(), params(day.clone())).unwrap();
    world.advance(Micros::from_ms(700_000));
    driver.tick().unwrap();
    assert_eq!(driver.log.producers_known(), 1, "an open transaction never expires");
    let plain = driver.append(&ask(7, 0, 1).bytes(), AckLevel::Written);
    assert!(matches!(plain, Err(Refusal::Transaction { open: true, .. })), "{plain:?}");
    let more = driver.append(&transactional(8, 0), AckLevel::Written);
    assert!(matches!(more, Err(Refusal::Transaction { open: false, .. })), "{more:?}");
    let repeat = driver.append(&transactional(7, 0), AckLevel::Written).unwrap().1;
    assert_eq!(repeat.repeats, Some(TIME), "the duplicate test comes first");
    driver.stop().unwrap();
    let name = log_dir().join("00000000000000000001.snapshot");
    let entries = snapshot::parse(&world.read_file(name).unwrap()).unwrap();
    assert_eq!(entries[0].current_txn_first_offset, 0);
}

const TEN_MINUTES: i64 = 600_000;

#[test]
fn r37_a_producer_idle_longer_than_its_expiry_is_taken_again() {
    let config = LogConfig {
        producer_expiration_ms: TEN_MINUTES,
        producer_check_interval_ms: 60_000,
        ..config("group")
    };
    for restart in [false, true] {
        let (world, mut driver) = fresh(&config);
        send(&mut driver, 7, 0..7);
        let eleven = Micros::from_ms(11 * 60_000);
        match restart {
            false => {
                world.advance(Micros::from_ms(9 * 60_000));
                driver.tick().unwrap();
                assert_eq!(driver.log.producers_known(), 1, "not yet");
                world.advance(Micros::from_ms(2 * 60_000));
                driver.tick().unwrap();
                assert_eq!(driver.log.counters().producers_expired, 1);
            }
            true => {
                driver.stop().unwrap();
                world.advance(eleven);
                driver = Driver::start(&world, config.clone()).unwrap();
            }
        }
        assert_eq!(driver.log.producers_known(), 0, "restart {restart}");
        let (_, staged) = driver.append(&ask(7, 0, 7).bytes(), AckLevel::Written).unwrap();
        assert_eq!((staged.base_offset, staged.repeats), (offset(7), None));
    }
}

/// The time of records is theirs: who loads old ones is no silent producer, also for a start,
/// which looks at when the segments were written.
#[test]
fn a_start_forgets_whose_segment_was_written_long_ago() {
    let (world, driver) = fresh(&small());
    driver.stop().unwrap();
    world.set_wall_ms(TIME + 2 * DAY);
    stopped_with_segments(&world, &small());
    let mut driver = Driver::start(&world, small()).unwrap();
    assert_eq!(driver.log.producers_known(), 2, "records of the day before yesterday");
    world.set_wall_ms(TIME + 4 * DAY);
    for first in 190..230 {
        send(&mut driver, 9, first..first + 1);
    }
    driver.stop().unwrap();
    let mut driver = Driver::start(&world, small()).unwrap();
    assert_eq!(driver.log.producers_known(), 2, "the one whose segment went on, and the new one");
    assert!(driver.append(&ask(8, 0, 77).bytes(), AckLevel::Written).is_ok(), "unknown again");
}

const DAY: i64 = 24 * 3600 * 1000;

#[test]
fn many_silent_producers_are_forgotten_in_bounded_steps() {
    let config = LogConfig { producer_expiration_ms: 1000, ..config("os") };
    let (world, mut driver) = fresh(&config);
    (0..3000).for_each(|id| send(&mut driver, id, 0..1));
    world.advance(Micros::from_ms(600_000));
    let mut before = 3000;
    while before > 0 {
        driver.poll().unwrap();
        let now = driver.log.producers_known();
        assert!(before - now <= 512, "{before} then {now}");
        assert!(now < before, "the round goes on without a pause");
        before = now;
    }
}

fn snapshots(world: &World) -> Vec<i64> {
    let names = world.list(log_dir());
    names.iter().filter_map(|name| name.strip_suffix(".snapshot")?.parse().ok()).collect()
}

/// Twenty batches of 10 records in several segments, then a clean stop; the segments' bases.
fn stopped_with_segments(world: &World, config: &LogConfig) -> Vec<i64> {
    let mut driver = Driver::start(world, config.clone()).unwrap();
    for at in 0..20 {
        // The first one is of a producer that then falls silent.
        let id = if at == 0 { 8 } else { 7 };
        let one = Ask { id, epoch: 0, first: at * 10, records: 10 };
        driver.append_acked(&one.bytes(), AckLevel::Written).unwrap();
    }
    driver.rest().unwrap();
    driver.stop().unwrap();
    let names = world.list(log_dir());
    names.iter().filter_map(|name| name.strip_suffix(".log")?.parse().ok()).collect()
}

fn knows_all(driver: &mut Driver) {
    let last = Ask { id: 7, epoch: 0, first: 190, records: 10 };
    assert_eq!(base_of_repeat(driver, last), Some(190));
    let first = Ask { id: 8, epoch: 0, first: 0, records: 10 };
    assert_eq!(base_of_repeat(driver, first), Some(0));
    assert!(is_gap(&driver.append(&ask(7, 0, 999).bytes(), AckLevel::Written)));
}

fn small() -> LogConfig {
    LogConfig { segment_bytes: 1200, ..config("group") }
}

fn remove_snapshots(world: &World) {
    let mut io = world.engine();
    let mut b =
        ringlog::io::blocking::Blocking::new(&mut io, ringlog::io::buffers::Pool::new(1 << 20));
    for at in snapshots(world) {
        b.unlink(&log_dir().join(format!("{at:020}.snapshot"))).unwrap();
    }
    b.sync_dir(&log_dir()).unwrap();
}

#[test]
fn a_snapshot_lies_at_every_base_and_at_the_end() {
    let (world, driver) = fresh(&small());
    driver.stop().unwrap();
    let bases = stopped_with_segments(&world, &small());
    assert!(bases.len() > 3, "{bases:?}");
    assert_eq!(snapshots(&world), [&bases[1..], &[200]].concat());
    // One at an offset that no segment begins at, below the last segment, is a leftover.
    let path = |at: i64| log_dir().join(format!("{at:020}.snapshot"));
    world.write_file_durably(path(17), snapshot::render(&[]));
    world.write_file_durably(path(999), snapshot::render(&[]));
    let newest = world.read_file(path(200)).unwrap();
    let mut driver = Driver::start(&world, small()).unwrap();
    knows_all(&mut driver);
    driver.stop().unwrap();
    assert_eq!(snapshots(&world), [&bases[1..], &[200]].concat());
    assert_eq!(world.read_file(path(200)).unwrap(), newest);
}

#[test]
fn a_broken_snapshot_goes_and_the_next_older_one_leads_on() {
    let (world, driver) = fresh(&small());
    driver.stop().unwrap();
    let bases = stopped_with_segments(&world, &small());
    for broken in 1..=bases.len() {
        let all = snapshots(&world);
        for at in all.iter().rev().take(broken) {
            let path = log_dir().join(format!("{at:020}.snapshot"));
            let mut bytes = world.read_file(&path).unwrap();
            bytes[7] ^= 1;
            world.write_file_durably(&path, bytes);
        }
        let mut driver = Driver::start(&world, small()).unwrap();
        knows_all(&mut driver);
        driver.stop().unwrap();
        let left = snapshots(&world);
        assert!(left.ends_with(&[*bases.last().unwrap(), 200]), "{broken}: {left:?}");
    }
}

#[test]
fn without_any_snapshot_a_clean_start_reads_no_batch_for_them() {
    let (world, driver) = fresh(&small());
    driver.stop().unwrap();
    let bases = stopped_with_segments(&world, &small());
    remove_snapshots(&world);
    let mut driver = Driver::start(&world, small()).unwrap();
    assert_eq!(driver.log.producers_known(), 0);
    let [.., before, last] = bases[..] else { panic!("{bases:?}") };
    assert_eq!(snapshots(&world), [before, last, 200]);
    assert_eq!(base_of_repeat(&mut driver, ask(7, 0, 999)), None, "unknown: any will do");
    assert_eq!(driver.log.staged_end(), offset(201));
}

#[test]
fn a_missing_snapshot_is_replayed_from_below_the_recovery_point() {
    let (world, driver) = fresh(&small());
    driver.stop().unwrap();
    let bases = stopped_with_segments(&world, &small());
    remove_snapshots(&world);
    let unclean = OpenParams { recovery_point: Some(offset(200)), ..params(small()) };
    let mut driver = Driver::open_with(&world, world.engine(), unclean).unwrap();
    knows_all(&mut driver);
    let [.., before, last] = bases[..] else { panic!("{bases:?}") };
    assert_eq!(snapshots(&world), [before, last, 200], "{bases:?}");
}
