//! `ringlog index-rebuild` against what a broker's recovery made of the same logs.

use std::fs;
use std::path::{Path, PathBuf};

use ringlog::format::name::{FileKind, SegmentFile};
use ringlog::format::snapshot;
use ringlog::io::lock::{DirLock, WithoutLocks};
use tempfile::TempDir;

use super::fixtures::{TOPICS, copy_dir};
use super::{golden, ringlog, told};

fn rebuild(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = ringlog();
    command.arg("index-rebuild").arg(dir).args(["--index-interval-bytes", "512"]);
    told(&command.args(["--segment-index-bytes", "1200"]).args(args).output().expect("runs"))
}

fn copy() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("d");
    copy_dir(&golden("clean"), &to);
    (dir, to)
}

/// Files by name; only derived ones.
fn derived(dir: &Path) -> Vec<(String, FileKind, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("a partition")
        .filter_map(|entry| {
            let entry = entry.expect("readable");
            let name = entry.file_name().into_string().expect("UTF-8");
            let kind = SegmentFile::parse(&name)?.kind;
            let bytes = fs::read(entry.path()).expect("a file");
            (kind != FileKind::Log).then_some((name, kind, bytes))
        })
        .collect();
    files.sort();
    files
}

/// Brokers write producers in the order of a hash map, and leave those out that had been silent
/// for a day when it started; an offline tool keeps them.
fn same_producers(ours: &[u8], brokers: &[u8]) -> bool {
    let ours = snapshot::parse(ours).expect("sound");
    let brokers = snapshot::parse(brokers).expect("sound");
    brokers.iter().all(|entry| ours.contains(entry))
}

#[test]
fn everything_rebuilt_from_nothing_equals_the_brokers_bytes() {
    let (_dir, to) = copy();
    for topic in TOPICS {
        let partition = to.join(format!("gold-{topic}-0"));
        for (name, _, _) in derived(&partition) {
            fs::remove_file(partition.join(name)).expect("removed");
        }
        let logs = fs::read(partition.join("partition.metadata")).expect("metadata");
        let (code, _, stderr) = rebuild(&partition, &["--all"]);
        assert_eq!(code, 0, "{topic}: {stderr}");
        let ours = derived(&partition);
        let brokers = derived(&golden(&format!("rebuilt/gold-{topic}-0")));
        let names = |files: &[(String, FileKind, Vec<u8>)]| {
            files.iter().map(|(name, _, _)| name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&ours), names(&brokers), "{topic}");
        for ((name, kind, ours), (_, _, brokers)) in ours.iter().zip(&brokers) {
            match kind {
                FileKind::Snapshot => assert!(same_producers(ours, brokers), "{topic} {name}"),
                _ => assert_eq!(ours, brokers, "{topic} {name}"),
            }
        }
        assert_eq!(fs::read(partition.join("partition.metadata")).expect("it"), logs);
    }
    let verified = told(&ringlog().arg("verify").arg(&to).output().expect("runs"));
    assert_eq!(verified.0, 0, "{}", verified.1);
}

#[test]
fn only_what_is_wrong_is_changed_and_a_dry_run_changes_nothing() {
    let (_dir, to) = copy();
    let partition = to.join("gold-segments-0");
    let (code, stdout, _) = rebuild(&partition, &[]);
    assert!(code == 0 && stdout.contains("files changed: 0"), "{stdout}");
    let before = derived(&partition);
    let index = partition.join("00000000000000000080.index");
    let mut bytes = fs::read(&index).expect("an index");
    bytes[7] ^= 1;
    fs::write(&index, &bytes).expect("written");
    let snapshot = partition.join("00000000000000000160.snapshot");
    fs::write(&snapshot, "broken").expect("written");
    let damaged = derived(&partition);

    let (code, stdout, _) = rebuild(&partition, &["--dry-run"]);
    assert!(code == 0 && stdout.contains("files would change: 2"), "{stdout}");
    assert!(stdout.contains("00000000000000000080.index: "), "{stdout}");
    assert_eq!(derived(&partition), damaged);

    let (code, stdout, _) = rebuild(&partition, &[]);
    assert!(code == 0 && stdout.contains("files changed: 2"), "{stdout}");
    assert_eq!(derived(&partition), before);
    assert!(!partition.join("00000000000000000080.index.tmp").exists());
}

#[test]
fn it_refuses_while_a_server_holds_the_directory() {
    let (_dir, to) = copy();
    let partition = to.join("gold-segments-0");
    fs::remove_file(partition.join("00000000000000000080.index")).expect("removed");
    let lock = DirLock::acquire(&to, WithoutLocks::Refuse).expect("free");
    let (code, _, stderr) = rebuild(&partition, &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("stop the server first"), "{stderr}");
    assert!(!partition.join("00000000000000000080.index").exists());
    assert_eq!(rebuild(&partition, &["--dry-run"]).0, 0, "looking is allowed");
    drop(lock);
    assert_eq!(rebuild(&partition, &[]).0, 0);
    assert!(partition.join("00000000000000000080.index").exists());
}

/// The topic's own settings count where the topic file is; a flag wins over them.
#[test]
fn the_topics_settings_are_used() {
    let (_dir, to) = copy();
    let partition = to.join("gold-shapes-0");
    let index = partition.join("00000000000000000000.index");
    fs::remove_file(&index).expect("removed");
    let text = "version = 1\ngeneration = 1\n[[topic]]\nname = \"gold-shapes\"\nid = \"x\"\n\
                partitions = 1\n[topic.configs]\n\"index.interval.bytes\" = \"512\"\n\
                \"segment.index.bytes\" = \"1200\"\n";
    fs::write(to.join("ringlog-topics.toml"), text).expect("written");
    let run = |args: &[&str]| {
        let mut command = ringlog();
        told(&command.arg("index-rebuild").arg(&partition).args(args).output().expect("runs"))
    };
    let (code, _, stderr) = run(&[]);
    assert_eq!(code, 0, "{stderr}");
    let wanted = fs::read(golden("rebuilt/gold-shapes-0/00000000000000000000.index"));
    assert_eq!(fs::read(&index).expect("made"), wanted.expect("the broker's"));
    assert_eq!(run(&["--all", "--index-interval-bytes", "1000000"]).0, 0);
    assert_eq!(fs::read(&index).expect("made"), b"");
}
