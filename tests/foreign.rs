//! Directories as brokers leave them in the middle of things: interrupted compactions and splits,
//! deletions, missing and stray files.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringlog::format::batch::{self, Codec};
use ringlog::format::index;
use ringlog::format::name::{FileKind, FileState, SegmentFile};
use ringlog::io::sim::World;
use ringlog::log::{Fault, Located, LogConfig, OpenError, OpenParams, When};
use support::{Driver, log_dir, offset, params, world};

/// Files by name.
type Files = BTreeMap<PathBuf, Vec<u8>>;

const T: i64 = 1_700_000_000_000;

/// A batch of one record at an offset.
fn at(offset: i64, value: &str) -> Vec<u8> {
    let mut bytes = support::batch(&[value.as_bytes()], Codec::None, T + offset);
    batch::assign(&mut bytes, offset, 0).unwrap();
    bytes
}

fn segment(offsets: impl IntoIterator<Item = i64>, value: &str) -> Vec<u8> {
    offsets.into_iter().flat_map(|offset| at(offset, value)).collect()
}

fn name(offset: i64, kind: FileKind, state: FileState) -> PathBuf {
    log_dir().join(SegmentFile { offset, kind, state }.to_string())
}

/// Every step of a compaction of the segments 0 and 10 into one at 0, with the active one at 20:
/// files by name, before the step.
fn compaction() -> Vec<Files> {
    use FileState::{Cleaned, Deleted, Live, Swap};
    let kinds = [FileKind::Log, FileKind::OffsetIndex, FileKind::TimeIndex];
    let mut files = Files::new();
    for (base, value) in [(0, "old"), (10, "old"), (20, "active")] {
        files.insert(name(base, FileKind::Log, Live), segment(base..base + 10, value));
        files.insert(name(base, FileKind::OffsetIndex, Live), Vec::new());
        files.insert(name(base, FileKind::TimeIndex, Live), Vec::new());
    }
    files.insert(name(10, FileKind::Snapshot, Live), b"none".to_vec());
    let mut states = vec![files.clone()];
    let mut step = |change: &mut dyn FnMut(&mut Files)| {
        change(&mut files);
        states.push(files.clone());
    };
    let new = segment([3, 9, 14, 19], "new");
    step(&mut |files| drop(files.insert(name(0, FileKind::Log, Cleaned), new[..50].to_vec())));
    step(&mut |files| drop(files.insert(name(0, FileKind::Log, Cleaned), new.clone())));
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
        step(&mut |files| drop(files.insert(name(0, kind, Cleaned), Vec::new())));
    }
    let rename = |files: &mut Files, base, kind, from, to| {
        let bytes = files.remove(&name(base, kind, from)).expect("there");
        files.insert(name(base, kind, to), bytes);
    };
    for kind in kinds {
        step(&mut |files| rename(files, 0, kind, Cleaned, Swap));
    }
    for (base, kind) in [0, 10].into_iter().flat_map(|base| kinds.map(|kind| (base, kind))) {
        step(&mut |files| rename(files, base, kind, Live, Deleted));
    }
    for kind in kinds {
        step(&mut |files| rename(files, 0, kind, Swap, Live));
    }
    step(&mut |files| files.retain(|path, _| !path.to_str().unwrap().ends_with("deleted")));
    states
}

fn plant(files: &Files) -> World {
    let world = world(3);
    for (path, bytes) in files {
        world.write_file_durably(path, bytes.clone());
    }
    world
}

fn config() -> LogConfig {
    LogConfig { compacted: true, ..LogConfig::default() }
}

fn open(world: &World) -> Result<Driver, OpenError> {
    Driver::open_with(world, world.engine(), params(config()))
}

fn old() -> Vec<(i64, Vec<u8>)> {
    (0..20).map(|at| (at, b"old".to_vec())).chain(active()).collect()
}

fn new() -> Vec<(i64, Vec<u8>)> {
    [3, 9, 14, 19].map(|at| (at, b"new".to_vec())).into_iter().chain(active()).collect()
}

fn active() -> Vec<(i64, Vec<u8>)> {
    (20..30).map(|at| (at, b"active".to_vec())).collect()
}

fn leftovers(world: &World) -> Vec<String> {
    let names = world.list(log_dir());
    let left =
        |name: &String| SegmentFile::parse(name).is_some_and(|file| file.state != FileState::Live);
    names.into_iter().filter(left).collect()
}

/// A broker dies at any step of its swap: old content whole up to the last rename to `.swap`, new
/// content whole from then on, nothing stray.
#[test]
fn r53_a_brokers_swap_is_finished_or_undone() {
    let states = compaction();
    let mut seen = Vec::new();
    for (step, files) in states.iter().enumerate() {
        let world = plant(files);
        let mut driver = open(&world).unwrap_or_else(|error| panic!("step {step}: {error}"));
        let got = driver.consume(offset(0), 1 << 20).unwrap();
        assert!(got == old() || got == new(), "step {step}: {got:?}");
        seen.push(got == new());
        assert_eq!(driver.log.staged_end(), offset(30));
        driver.stop().unwrap();
        assert_eq!(leftovers(&world), Vec::<String>::new(), "step {step}");
    }
    assert!(seen.is_sorted() && !seen[0] && seen[seen.len() - 1], "{seen:?}");
    assert_eq!(seen.iter().position(|new| *new), Some(7), "the last .cleaned is gone: committed");
}

/// Our own recovery dies at any step of that, by kill and by power cut, and again: the next one
/// comes to the same end.
#[test]
fn r53_recovery_of_a_swap_may_be_killed_at_any_step() {
    for (step, files) in compaction().iter().enumerate() {
        let wanted = {
            let mut driver = open(&plant(files)).unwrap();
            driver.consume(offset(0), 1 << 20).unwrap()
        };
        for cut in [false, true] {
            for after in 0.. {
                let world = plant(files);
                world.cut_after(after);
                let finished = open(&world).is_ok() && !world.stopped();
                match cut {
                    true => world.power_cut(),
                    false => world.kill(),
                }
                let mut driver = open(&world).unwrap_or_else(|e| panic!("{step} {after}: {e}"));
                let got = driver.consume(offset(0), 1 << 20).unwrap();
                assert_eq!(got, wanted, "step {step}, after {after}, cut {cut}");
                driver.stop().unwrap();
                assert_eq!(leftovers(&world), Vec::<String>::new(), "step {step} {after} {cut}");
                if finished {
                    break;
                }
            }
        }
    }
}

/// A split (KAFKA-6264) whose second half was already renamed when the broker died: undone.
#[test]
fn a_split_that_was_not_whole_is_undone() {
    let mut files = compaction().swap_remove(0);
    files.insert(name(0, FileKind::Log, FileState::Cleaned), segment(0..5, "old"));
    files.insert(name(5, FileKind::Log, FileState::Swap), segment(5..10, "old"));
    let world = plant(&files);
    let mut driver = open(&world).unwrap();
    assert_eq!(driver.consume(offset(0), 1 << 20).unwrap(), old());
    // And finished where both halves were.
    files.remove(&name(0, FileKind::Log, FileState::Cleaned));
    files.insert(name(0, FileKind::Log, FileState::Swap), segment(0..5, "old"));
    let world = plant(&files);
    let mut driver = open(&world).unwrap();
    assert_eq!(driver.consume(offset(0), 1 << 20).unwrap(), old());
    assert_eq!(driver.log.segment_count(), 4);
}

/// What a new segment replaces is not removed on the strength of a name alone.
#[test]
fn a_new_segment_that_is_not_sound_replaces_nothing() {
    let mut files = compaction().swap_remove(7);
    let swap = name(0, FileKind::Log, FileState::Swap);
    files.get_mut(&swap).unwrap()[100] ^= 1;
    let world = plant(&files);
    let error = open(&world).err().expect("refused");
    assert!(matches!(error, OpenError::Swap { pos, .. } if pos == at(3, "new").len() as u64));
    assert!(error.to_string().contains("move it away"), "{error}");
    for (path, bytes) in &files {
        assert_eq!(world.read_file(path).as_ref(), Some(bytes), "{}", path.display());
    }
}

/// KAFKA-6264: a segment whose offsets go beyond what its index can hold is served to its end, by
/// offset and by time, with and without its files; no entry is ever negative.
#[test]
fn r05_a_segment_that_overflows_its_index_is_served_without_it() {
    const FAR: i64 = 1 << 31;
    let offsets = [0, 7, FAR - 1, FAR, FAR + 5, FAR + 90];
    let next = FAR + 91;
    let mut files = Files::new();
    files.insert(name(0, FileKind::Log, FileState::Live), segment(offsets, "far"));
    files.insert(name(next, FileKind::Log, FileState::Live), at(next, "next"));
    let config = LogConfig { index_interval_bytes: 1, ..config() };
    let world = plant(&files);
    for point in [None, Some(offset(next))] {
        let recovery_point = point;
        let opened = OpenParams { recovery_point, ..params(config.clone()) };
        let mut driver = Driver::open_with(&world, world.engine(), opened).unwrap();
        assert!(driver.report.cuts.is_empty() && driver.report.damage.is_empty());
        let values = driver.consume(offset(0), 100).unwrap();
        let wanted: Vec<_> = offsets.iter().map(|at| (*at, b"far".to_vec())).collect();
        assert_eq!(values[..6], wanted);
        for wanted in offsets.into_iter().chain([next]) {
            assert!(matches!(driver.locate(offset(wanted), 1).unwrap(), Located::Range(_)));
            let found = driver.by_time(When::AtOrAfter(T + wanted)).unwrap();
            assert_eq!(found, Some((offset(wanted), T + wanted)));
        }
        driver.stop().unwrap();
        let index = world.read_file(name(0, FileKind::OffsetIndex, FileState::Live)).unwrap();
        let entries: Vec<_> = index::offset_entries(&index).map(|e| e.relative_offset).collect();
        assert_eq!(entries, [7, (FAR - 1) as u32]);
    }
    // Without room before the next segment such an offset is no offset but damage.
    let (path, bytes) = files.pop_last().unwrap();
    let world = plant(&files);
    let driver = Driver::open_with(&world, world.engine(), params(config)).unwrap();
    assert_eq!(driver.log.staged_end(), offset(FAR), "{} {}", path.display(), bytes.len());
    let fault = driver.report.cuts[0].fault;
    assert!(matches!(fault, Fault::OffsetRange { .. }), "{fault}");
}

/// A missing `.index` costs its own segment a scan, an index without a log goes.
#[test]
fn missing_indexes_are_made_and_orphans_go() {
    let mut files = compaction().swap_remove(0);
    files.remove(&name(10, FileKind::OffsetIndex, FileState::Live));
    files.remove(&name(0, FileKind::TimeIndex, FileState::Live));
    for kind in [FileKind::OffsetIndex, FileKind::TimeIndex, FileKind::TxnIndex] {
        files.insert(name(7, kind, FileState::Live), vec![0; 34]);
    }
    files.insert(log_dir().join("leader-epoch-checkpoint"), b"0\n1\n0 0\n".to_vec());
    let world = plant(&files);
    let params = OpenParams { clean: false, recovery_point: Some(offset(30)), ..params(config()) };
    let mut driver = Driver::open_with(&world, world.engine(), params).unwrap();
    assert_eq!(driver.report.rebuilt, 2);
    assert_eq!(driver.consume(offset(0), 1 << 20).unwrap(), old());
    driver.stop().unwrap();
    let names = world.list(log_dir());
    assert!(names.iter().all(|name| !name.starts_with("00000000000000000007")), "{names:?}");
    for base in [0, 10, 20] {
        for kind in [FileKind::OffsetIndex, FileKind::TimeIndex] {
            assert!(world.read_file(name(base, kind, FileState::Live)).is_some());
        }
    }
}
