//! Recovery destroys nothing and forgets nothing: what is cut lies aside and is bounded, what is
//! damaged is answered for at every start, and each finding is said once (D4 to D9, R08 to R19).

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ringlog::format::batch::{Codec, assign};
use ringlog::format::checkpoint::EpochCache;
use ringlog::format::cut_name::{CutFile, CutReason};
use ringlog::format::damage;
use ringlog::io::Errno;
use ringlog::io::sim::{Effect, On, World};
use ringlog::log::{Fault, Located, LogConfig, OpenParams, PartitionState, Refusal};
use ringlog::types::AckLevel;
use support::{Driver, batch, log_dir, offset, params, world};

fn config() -> LogConfig {
    LogConfig { index_interval_bytes: 100, ..LogConfig::default() }
}

fn file(base: i64, kind: &str) -> PathBuf {
    log_dir().join(format!("{base:020}.{kind}"))
}

fn stored(base: i64, epoch: i32, values: &[&[u8]]) -> Vec<u8> {
    let mut bytes = batch(values, Codec::None, 1000 + base);
    assign(&mut bytes, base, epoch).unwrap();
    bytes
}

fn plant(world: &World, base: i64, log: Vec<u8>) {
    world.write_file_durably(file(base, "log"), log);
    world.write_file_durably(log_dir().join("leader-epoch-checkpoint"), b"0\n1\n0 0\n".to_vec());
}

fn open(world: &World, params: OpenParams) -> Driver {
    Driver::open_with(world, world.engine(), params).unwrap()
}

fn at_point(point: i64) -> OpenParams {
    OpenParams { recovery_point: Some(offset(point)), ..params(config()) }
}

fn clean() -> OpenParams {
    OpenParams { clean: true, ..at_point(1000) }
}

fn values(driver: &mut Driver) -> Vec<String> {
    let from = driver.log.log_start();
    let got = driver.consume(from, 10_000).unwrap();
    got.into_iter().map(|(_, value)| String::from_utf8(value).unwrap()).collect()
}

/// The side files, by name.
fn side_files(world: &World) -> Vec<(CutFile, Vec<u8>)> {
    let names = world.list(log_dir());
    let side =
        |name: &String| Some((CutFile::parse(name)?, world.read_file(log_dir().join(name))?));
    names.iter().filter_map(side).collect()
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What `act` logs at WARN and above, line by line.
fn warnings<T>(act: impl FnOnce() -> T) -> (T, Vec<String>) {
    let lines = Lines::default();
    let into = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || into.clone())
        .finish();
    let done = tracing::subscriber::with_default(subscriber, act);
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    (done, text.lines().map(String::from).collect())
}

/// R08, whole: sound indexes, one warning that names the partition and the bytes, and afterwards
/// indexes that say what the log does.
#[test]
fn r08_sound_indexes_hide_no_tear_and_one_warning_tells_of_it() {
    let last = stored(6, 0, &[b"lost"]);
    for keep in [last.len() - 1, 5, 61] {
        let world = world(1);
        let mut driver = Driver::fresh(&world, config());
        for _ in 0..6 {
            driver.append_acked(&batch(&[&[b'v'; 90]], Codec::None, 7), AckLevel::Durable).unwrap();
        }
        driver.stop().unwrap();
        let index = world.read_file(file(0, "index")).unwrap();
        assert!(!index.is_empty());
        let whole = world.read_file(file(0, "log")).unwrap();
        world.write_file_durably(file(0, "log"), [&whole, &last[..keep]].concat());
        let (driver, said) = warnings(|| open(&world, at_point(0)));
        assert_eq!(said.len(), 1, "{said:#?}");
        let dir = log_dir().display().to_string();
        assert!(said[0].contains(&dir) && said[0].contains(&format!("bytes={keep}")), "{said:?}");
        assert_eq!(driver.log.staged_end(), offset(6));
        driver.stop().unwrap();
        assert_eq!(world.read_file(file(0, "index")).unwrap(), index, "as before the tear");
        assert_eq!(world.read_file(file(0, "log")).unwrap(), whole);
        let [(side, bytes)] = &side_files(&world)[..] else { panic!("one side file") };
        assert_eq!((side.base_offset, side.pos), (0, whole.len() as u64));
        assert_eq!((side.reason, &bytes[..]), (CutReason::Short, &last[..keep]));
    }
}

/// Later segments that a tear takes with it are kept too, and nothing of any is lost.
#[test]
fn a_cut_keeps_every_byte_aside_under_a_name_that_says_why() {
    let world = world(1);
    let torn = stored(1, 0, &[b"torn"]);
    let old = stored(0, 0, &[b"old"]);
    plant(&world, 0, [stored(0, 0, &[b"a"]), old.clone(), torn.clone()].concat());
    let later = stored(2, 0, &[b"later"]);
    world.write_file_durably(file(2, "log"), later.clone());
    let driver = open(&world, at_point(0));
    assert_eq!(driver.report.cuts.len(), 2);
    let side = side_files(&world);
    let found: Vec<_> = side.iter().map(|(f, b)| (f.base_offset, f.reason, b.clone())).collect();
    let tail = [old, torn].concat();
    assert_eq!(found, [(0, CutReason::Order, tail), (2, CutReason::Behind, later)]);
}

/// At the bound nothing is thrown away: the partition is read-only until there is room.
#[test]
fn what_does_not_fit_below_the_bound_is_not_cut() {
    let torn = stored(1, 0, &[b"torn"]);
    let half = torn[..torn.len() / 2].to_vec();
    let world = world(1);
    plant(&world, 0, [stored(0, 0, &[b"a"]), half.clone()].concat());
    world.write_file_durably(file(2, "log"), stored(2, 0, &[b"later"]));
    let bound = LogConfig { cut_bytes_max: half.len() as u64 + 10, ..config() };
    let earlier = CutFile { base_offset: 0, pos: 9, reason: CutReason::Short, number: 0 };
    world.write_file_durably(log_dir().join(earlier.to_string()), vec![1; 11]);
    let before = world.list(log_dir());
    for _ in 0..2 {
        let (mut driver, said) = warnings(|| open(&world, params(bound.clone())));
        assert!(driver.report.aside_full && driver.report.read_only);
        assert!(said.iter().any(|line| line.contains("ringlog cuts")), "{said:#?}");
        assert_eq!(driver.log.state(), &PartitionState::ReadOnly);
        assert_eq!(values(&mut driver), ["a"], "what counts is served");
        let refused = driver.append(&batch(&[b"x"], Codec::None, 1), AckLevel::None);
        assert_eq!(refused.unwrap_err(), Refusal::ReadOnly);
        assert_eq!(world.list(log_dir()), before, "everything is in place");
        world.kill();
    }
    // Room for all of it: what recovery kept aside earlier was looked at and removed.
    let roomy = LogConfig { cut_bytes_max: 1000, ..config() };
    let driver = open(&world, params(roomy));
    assert!(!driver.report.read_only);
    assert_eq!(side_files(&world).len(), 3);
}

/// Five batches of two records each, one bit of the second one flipped, and one more segment.
fn damaged(world: &World) -> (Vec<u8>, Vec<u8>) {
    let mut batches: Vec<_> = (0..5).map(|i| stored(i * 2, 0, &[b"one", b"two"])).collect();
    let sound = batches.concat();
    *batches[1].last_mut().unwrap() ^= 4;
    plant(world, 0, batches.concat());
    world.write_file_durably(file(10, "log"), stored(10, 0, &[b"last"]));
    (sound, batches.concat())
}

fn lost(driver: &mut Driver) -> Vec<i64> {
    let mut lost = Vec::new();
    for at in 0..11 {
        match driver.locate(offset(at), 1_000).unwrap() {
            Located::Corrupt { first, next, path, .. } => {
                assert_eq!((first, next), (offset(2), offset(4)));
                assert!(path.ends_with("00000000000000000000.log"), "{}", path.display());
                lost.push(at);
            }
            Located::Range(_) => {}
            other => panic!("{at}: {other:?}"),
        }
    }
    lost
}

/// R17: found once, answered for at every later start, although the segment is not read again.
#[test]
fn r17_damage_is_answered_for_after_every_restart() {
    let world = world(1);
    let (sound, broken) = damaged(&world);
    let mut driver = open(&world, at_point(5));
    assert_eq!(lost(&mut driver), [2, 3]);
    assert_eq!(driver.log.damage(), (1, offset(2)));
    driver.settle().unwrap();
    driver.stop().unwrap();
    for params in [clean(), at_point(11), clean()] {
        let (mut driver, said) = warnings(|| open(&world, params));
        assert!(driver.report.scanned_bytes < 200, "the damaged segment is not scanned");
        assert_eq!(lost(&mut driver), [2, 3]);
        assert!(said.iter().any(|line| line.contains("damage")), "said at each start");
        driver.settle().unwrap();
        driver.stop().unwrap();
    }
    assert_eq!(world.read_file(file(0, "log")).unwrap(), broken, "never touched");
    // The file is put back from a copy: the damage is gone, and so is the list.
    world.write_file_durably(file(0, "log"), sound);
    let mut driver = open(&world, clean());
    assert!(lost(&mut driver).is_empty());
    assert!(world.read_file(log_dir().join(damage::FILE_NAME)).is_none());
}

#[test]
fn r17_a_garbled_list_of_damage_is_made_anew() {
    let world = world(1);
    damaged(&world);
    let driver = open(&world, at_point(5));
    driver.stop().unwrap();
    let path = log_dir().join(damage::FILE_NAME);
    let list = world.durable_file(&path).expect("written, and synced");
    world.write_file_durably(&path, b"\xffnonsense".to_vec());
    let mut driver = open(&world, at_point(11));
    assert_eq!(lost(&mut driver), [2, 3]);
    assert_eq!(world.durable_file(&path).unwrap(), list);
}

/// The rows of a segment that is gone go with it.
#[test]
fn r17_damage_ends_with_its_segment() {
    let world = world(1);
    damaged(&world);
    let driver = open(&world, at_point(5));
    driver.stop().unwrap();
    for kind in ["log", "index", "timeindex"] {
        world.write_file_durably(file(0, kind), Vec::new());
    }
    let gone = OpenParams { log_start: Some(offset(10)), ..clean() };
    let driver = open(&world, gone);
    assert_eq!(driver.log.damage().0, 0);
    assert!(world.read_file(log_dir().join(damage::FILE_NAME)).is_none());
}

/// A header that went bad while nobody looked: the error says what is lost, up to the next batch
/// that the index knows, and the way behind it works.
#[test]
fn r17_a_header_gone_bad_costs_up_to_the_next_indexed_batch() {
    let world = world(1);
    let config = LogConfig { segment_bytes: 1_500, tail_batches_max: 1, ..config() };
    let mut driver = Driver::fresh(&world, config.clone());
    for _ in 0..24 {
        driver.append_acked(&batch(&[&[b'v'; 60]], Codec::None, 1), AckLevel::Durable).unwrap();
    }
    driver.settle().unwrap();
    driver.stop().unwrap();
    let mut log = world.read_file(file(0, "log")).unwrap();
    let batch_len = log.len() / driver_batches(&log);
    log[3 * batch_len + 16] = 9; // the magic of the fourth one
    world.write_file_durably(file(0, "log"), log);
    let mut driver = Driver::start(&world, config).unwrap();
    let mut next = offset(3);
    let mut answers = 0;
    while let Located::Corrupt { first, next: behind, pos, .. } = driver.locate(next, 99).unwrap() {
        assert_eq!((first, pos), (next, 3 * batch_len as u64));
        (next, answers) = (behind, answers + 1);
    }
    assert_eq!(answers, 1, "one answer leads behind the damage");
    assert!(next <= offset(6), "not the whole segment is given up: {next}");
    assert!(matches!(driver.locate(offset(2), 99).unwrap(), Located::Range(_)));
}

fn driver_batches(log: &[u8]) -> usize {
    ringlog::format::batch::scan(log).count()
}

/// R12: base 100; (a) is sound and stays as it is, (b), (c) and (d) cost one warning each.
#[test]
fn r12_unsound_indexes_are_rebuilt_with_one_warning_each() {
    let entry = |relative: u32, pos: u32| [relative.to_be_bytes(), pos.to_be_bytes()].concat();
    let log: Vec<_> = (0..8).map(|i| stored(100 + i, 0, &[&[b'v'; 60]])).collect();
    let len = log[0].len() as u32;
    let cases = [
        ("(a)", entry(0, 0), 0),
        ("(b)", entry(3, len * 3)[..3].to_vec(), 1),
        ("(c)", [entry(5, len * 5), entry(4, len * 6), entry(7, len * 7)].concat(), 1),
        ("(d)", [entry(3, len * 3), entry(7, len * 800)].concat(), 1),
    ];
    for (name, index, warned) in cases {
        let world = world(1);
        plant(&world, 100, log.concat());
        world.write_file_durably(file(108, "log"), stored(108, 0, &[b"active"]));
        world.write_file_durably(file(100, "index"), index.clone());
        world.write_file_durably(file(100, "timeindex"), Vec::new());
        let point = OpenParams { log_start: Some(offset(100)), ..at_point(109) };
        let (mut driver, said) = warnings(|| open(&world, point));
        assert_eq!(said.len(), warned, "{name}: {said:#?}");
        assert_eq!(driver.report.rebuilt, warned, "{name}");
        for at in 100..109 {
            assert!(matches!(driver.locate(offset(at), 1).unwrap(), Located::Range(_)), "{name}");
        }
        driver.settle().unwrap();
        driver.stop().unwrap();
        let now = world.read_file(file(100, "index")).unwrap();
        assert_eq!(now == index, warned == 0, "{name}");
    }
}

/// R13: whatever is wrong with the file, the batches say it all.
#[test]
fn r13_leader_epochs_are_rebuilt_from_the_batches() {
    for garbled in [&b""[..], b"0\n2\n0 0\n", b"\x93\x00\xfe random", b"0\n2\n3 0\n1 5\n"] {
        let world = world(1);
        let old = (0..10).map(|at| stored(at, 0, &[b"old"]));
        let new = (10..15).map(|at| stored(at, 1, &[b"new"]));
        plant(&world, 0, old.chain(new).collect::<Vec<_>>().concat());
        let path = log_dir().join("leader-epoch-checkpoint");
        world.write_file_durably(&path, garbled.to_vec());
        let (driver, said) = warnings(|| open(&world, clean()));
        assert_eq!(said.len(), 1, "{said:#?}");
        assert!(said[0].contains("epoch"), "{said:#?}");
        assert_eq!(world.durable_file(&path).unwrap(), b"0\n2\n0 0\n1 10\n");
        assert_eq!(driver.log.end_offset_for_epoch(0), Some((0, offset(10))));
        assert_eq!(driver.log.end_offset_for_epoch(1), Some((1, offset(15))));
        assert_eq!(driver.log.end_offset_for_epoch(2), None);
    }
}

/// R14, second half: a loud error, and nothing of the old epochs and producers is left in force.
#[test]
fn r14_a_log_behind_its_start_begins_again_and_what_was_there_is_aside() {
    let world = world(1);
    let log = stored(0, 3, &[b"v".as_slice(); 10]);
    plant(&world, 0, log.clone());
    world.write_file_durably(file(10, "snapshot"), b"\x00\x01\x48\x67\x4b\xc7\0\0\0\0".to_vec());
    let begin = OpenParams { log_start: Some(offset(100)), ..at_point(100) };
    let (driver, said) = warnings(|| open(&world, begin));
    assert!(said.iter().any(|l| l.contains("ERROR") && l.contains("begins again")), "{said:#?}");
    assert_eq!((driver.log.log_start(), driver.log.staged_end()), (offset(100), offset(100)));
    assert!(world.read_file(file(10, "snapshot")).is_none());
    let text = world.read_file(log_dir().join("leader-epoch-checkpoint")).unwrap();
    let epochs = EpochCache::parse(&text).unwrap();
    assert_eq!(epochs.entries().len(), 1);
    assert_eq!(epochs.latest().unwrap().start_offset, 100);
    let [(side, bytes)] = &side_files(&world)[..] else { panic!("one side file") };
    assert_eq!((side.reason, bytes), (CutReason::Start, &log));
    assert!(matches!(driver.report.cuts[0].fault, Fault::BeforeStart { .. }));
}

/// R19: what lies before the segment of the recovery point is not read at all: a read of it would
/// fail here.
#[test]
fn r19_nothing_before_the_segment_of_the_recovery_point_is_read() {
    let world = world(1);
    let config = LogConfig { segment_bytes: 2_000, ..config() };
    let mut driver = Driver::fresh(&world, config.clone());
    for _ in 0..60 {
        driver.append_acked(&batch(&[&[b'v'; 300]], Codec::None, 1), AckLevel::Durable).unwrap();
    }
    driver.settle().unwrap();
    driver.checkpoint().unwrap();
    let logs: Vec<String> =
        world.list(log_dir()).into_iter().filter(|name| name.ends_with(".log")).collect();
    let (last, sealed) = logs.split_last().unwrap();
    assert!(sealed.len() > 9);
    world.kill();
    world.faults(|faults| {
        for name in sealed {
            faults.plan(On::Read, name, 1, Effect::Fail(Errno::EIO));
        }
    });
    let driver = Driver::start(&world, config.clone()).unwrap();
    let last = world.read_file(log_dir().join(last)).unwrap().len() as u64;
    assert_eq!(driver.report.scanned_bytes, last);
    assert!(driver.report.log_bytes > 10 * driver.report.scanned_bytes);
    // With one sealed index broken, in the middle and not at its end: that segment, and no other.
    drop(driver);
    world.kill();
    let broken = Path::new(&sealed[4]).with_extension("index");
    let mut index = world.read_file(log_dir().join(&broken)).unwrap();
    index[1] ^= 0x40;
    world.write_file_durably(log_dir().join(&broken), index);
    world.faults(|faults| {
        *faults = Default::default();
        for name in sealed.iter().filter(|name| **name != sealed[4]) {
            faults.plan(On::Read, name, 1, Effect::Fail(Errno::EIO));
        }
    });
    let driver = Driver::start(&world, config).unwrap();
    assert_eq!(driver.report.rebuilt, 1);
}

/// The power goes again and again while recovery is at work; in the end the log is what it would
/// have been, and every byte is in it or aside.
#[test]
fn a_recovery_cut_again_and_again_loses_no_byte() {
    for n in 0..40 {
        let world = world(n);
        let (_, broken) = damaged(&world);
        let torn = stored(11, 0, &[b"torn"]);
        let tail = [stored(10, 0, &[b"last"]), torn[..50].to_vec()].concat();
        world.write_file_durably(file(10, "log"), tail);
        let later = stored(12, 0, &[b"later"]);
        world.write_file_durably(file(12, "log"), later.clone());
        for again in 0..4 {
            world.cut_after(1 + (n * 7 + again * 5) % 23);
            drop(Driver::open_with(&world, world.engine(), at_point(5)));
            world.power_cut();
        }
        let mut driver = open(&world, at_point(5));
        assert_eq!(driver.log.staged_end(), offset(11), "{n}");
        assert_eq!(lost(&mut driver), [2, 3], "{n}");
        assert_eq!(world.read_file(file(0, "log")).unwrap(), broken);
        let kept: Vec<_> = side_files(&world).into_iter().map(|(_, bytes)| bytes).collect();
        assert!(kept.iter().any(|bytes| *bytes == torn[..50]), "{n}: the tail is aside");
        assert!(kept.contains(&later), "{n}: the later segment is aside");
        driver.append_acked(&batch(&[b"new"], Codec::None, 1), AckLevel::Durable).unwrap();
        world.power_cut();
        let mut driver = open(&world, at_point(5));
        assert_eq!(driver.log.staged_end(), offset(12), "{n}");
        assert_eq!(lost(&mut driver), [2, 3], "{n}");
    }
}
