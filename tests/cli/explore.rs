//! `ringlog explore`: the picture, and lookups against the batches themselves.

use std::fs;
use std::path::Path;

use ringlog::format::batch;
use serde_json::Value;

use super::fixtures::{TOPICS, copy_dir};
use super::{golden, ringlog, told};

fn explore(dir: &Path, args: &[&str]) -> (i32, String, String) {
    told(&ringlog().arg("explore").arg(dir).args(args).output().expect("runs"))
}

fn json(dir: &Path, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let (code, stdout, stderr) = explore(dir, &args);
    assert_eq!(code, 0, "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

#[test]
fn the_picture_of_a_partition_in_80_columns() {
    let dir = golden("clean/gold-segments-0");
    let (code, stdout, _) = explore(&dir, &["--lookup", "300", "--lookup-time", "2023-11-14"]);
    assert_eq!(code, 0);
    for wanted in ["stopped cleanly", "0 up to 500", "7 segments", "lookup by offset", "found: "] {
        assert!(stdout.contains(wanted), "{wanted}: {stdout}");
    }
    // Only the directory's own name may be longer.
    for line in stdout.lines().skip(1) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let picture = &json(&dir, &[])["partition"];
    assert_eq!(picture["recovery_point"], 500);
    assert_eq!(picture["high_watermark"], 500);
    assert_eq!(picture["segments"][1]["base_offset"], 80);
    assert_eq!(picture["snapshots"].as_array().map(Vec::len), Some(7));
    let deleted = &json(&golden("clean/gold-deleted-0"), &[])["partition"];
    assert_eq!(deleted["log_start"], 55);
    let killed = &json(&golden("killed/gold-zstd-0"), &[])["partition"];
    assert_eq!(killed["clean"], false);
}

/// Each offset leads to the batch that holds it, or to the first behind it.
#[test]
fn lookups_by_offset_find_the_batch() {
    for topic in ["segments", "compacted", "deleted", "zstd"] {
        let dir = golden(&format!("clean/gold-{topic}-0"));
        let mut names: Vec<_> = fs::read_dir(&dir)
            .expect("a partition")
            .map(|entry| entry.expect("readable").path())
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect();
        names.sort();
        let logs: Vec<Vec<u8>> = names.iter().map(|path| fs::read(path).expect("a log")).collect();
        let ends: Vec<(i64, u64)> = logs
            .iter()
            .flat_map(|log| batch::scan(log))
            .map(|found| (found.header.last_offset(), found.pos as u64))
            .collect();
        let end = ends.last().expect("batches").0;
        for offset in (ends[0].0..=end).step_by(37).chain([end]) {
            let lookup = &json(&dir, &["--lookup", &offset.to_string()])["lookup"];
            let wanted = ends.iter().find(|(last, _)| *last >= offset).expect("one");
            let found = &lookup["found"];
            assert_eq!(
                (found["last_offset"].as_i64(), found["position"].as_u64()),
                (Some(wanted.0), Some(wanted.1)),
                "{topic} {offset}: {lookup}"
            );
        }
        let behind = &json(&dir, &["--lookup", &(end + 1).to_string()])["lookup"];
        assert_eq!(behind["found"], Value::Null, "{behind}");
    }
}

/// What Kafka's list-offsets answered for many times.
#[test]
fn lookups_by_time_find_what_the_broker_found() {
    let mut asked = 0;
    for topic in TOPICS {
        let path = golden(&format!("consumed/gold-{topic}.offsets.json"));
        let answers: Value =
            serde_json::from_slice(&fs::read(path).expect("answers")).expect("JSON");
        // Before the log start a broker shows nothing; the files still hold it.
        let answers = answers.as_object().expect("answers").iter().filter_map(|(ask, answer)| {
            let time = ask.strip_prefix("ts:")?.strip_suffix("/read_uncommitted")?;
            Some((time.to_owned(), answer["offset"].as_i64()?))
        });
        for (time, offset) in answers.filter(|_| topic != "deleted").take(12) {
            let dir = golden(&format!("clean/gold-{topic}-0"));
            let found = &json(&dir, &["--lookup-time", &time])["lookup_time"]["found"]["offset"];
            assert_eq!(found.as_i64().unwrap_or(-1), offset, "{topic} {time}");
            asked += 1;
        }
    }
    assert!(asked > 50, "{asked}");
}

#[test]
fn damaged_and_lone_directories_are_shown_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let lone = dir.path().join("gold-segments-0");
    copy_dir(&golden("clean/gold-segments-0"), &lone);
    fs::write(lone.join("leader-epoch-checkpoint"), "x").expect("written");
    fs::remove_file(lone.join("00000000000000000080.index")).expect("removed");
    fs::write(lone.join("cut-00000000000000000240-7-checksum"), [1; 30]).expect("written");
    fs::write(lone.join("00000000000000000000.timeindex.deleted"), "").expect("written");
    let (code, stdout, _) = explore(&lone, &["--lookup", "100"]);
    assert_eq!(code, 0);
    for wanted in [
        "no checkpoints",
        "cut-00000000000000000240-7-checksum",
        "position 7",
        "timeindex.deleted",
        "none",
    ] {
        assert!(stdout.contains(wanted), "{wanted}: {stdout}");
    }
    assert!(stdout.contains("no offset index: the scan begins at position 0"), "{stdout}");
    let (code, _, stderr) = explore(dir.path(), &[]);
    assert!(code == 1 && stderr.contains("holds no segment"), "{stderr}");
}
