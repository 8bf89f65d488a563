//! `ringlog verify` and `ringlog cuts`, over what a broker wrote and over made damage (R59).

use std::fs;
use std::path::{Path, PathBuf};

use ringlog::format::batch;
use serde_json::Value;
use tempfile::TempDir;

use super::fixtures::copy_dir;
use super::server::Server;
use super::{golden, ringlog, told};

const LOG: &str = "00000000000000000000.log";

fn verify(dir: &Path, args: &[&str]) -> (i32, String, String) {
    told(&ringlog().arg("verify").arg(dir).args(args).output().expect("runs"))
}

/// Findings by kind, from the JSON lines.
fn findings(dir: &Path) -> Vec<Value> {
    let (code, stdout, stderr) = verify(dir, &["--json"]);
    let lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let found: Vec<Value> =
        lines.iter().filter(|line| line["type"] == "finding").cloned().collect();
    assert_eq!(code, i32::from(!found.is_empty()), "{stderr}");
    let totals = lines.last().expect("totals");
    assert_eq!(totals["findings"].as_u64(), Some(found.len() as u64));
    found
}

fn copy(state: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let to = dir.path().join("d");
    copy_dir(&golden(state), &to);
    (dir, to)
}

#[test]
fn what_a_broker_wrote_is_sound() {
    for state in ["clean", "killed"] {
        let (code, stdout, stderr) = verify(&golden(state), &[]);
        assert_eq!(code, 0, "{state}: {stdout}{stderr}");
        assert!(stdout.contains("partitions: 12, segments: 2"), "{stdout}");
    }
}

#[test]
fn rebuilt_indexes_are_as_sound() {
    let (_dir, to) = copy("clean");
    for entry in fs::read_dir(golden("rebuilt")).expect("listed") {
        let entry = entry.expect("readable");
        if entry.file_type().expect("a type").is_dir() {
            copy_dir(&entry.path(), &to.join(entry.file_name()));
        }
    }
    assert_eq!(findings(&to), Vec::<Value>::new());
}

/// R59: a torn tail, a flipped bit, a bad index and a foreign file, each with file, place, effect
/// and next step.
#[test]
fn r59_each_fault_is_explained() {
    let (_dir, to) = copy("killed");
    let at = |topic: &str, name: &str| to.join(format!("gold-{topic}-0")).join(name);
    let points = to.join("recovery-point-offset-checkpoint");
    fs::write(&points, "0\n1\ngold-segments 0 480\n").expect("written");

    let torn = at("zstd", LOG);
    let bytes = fs::read(&torn).expect("a log");
    let last = batch::scan(&bytes).last().expect("batches");
    let (last_pos, last_base) = (last.pos, last.header.base_offset);
    fs::write(&torn, &bytes[..bytes.len() - 5]).expect("written");

    let flipped = at("segments", LOG);
    let mut bytes = fs::read(&flipped).expect("a log");
    let found: Vec<_> = batch::scan(&bytes).map(|found| (found.pos, found.header)).collect();
    bytes[found[1].0 + 70] ^= 1;
    fs::write(&flipped, &bytes).expect("written");

    let index = at("producers", "00000000000000000000.index");
    let mut bytes = fs::read(&index).expect("an index");
    bytes[7] ^= 1; // a position
    fs::write(&index, &bytes).expect("written");

    let foreign = at("gzip", "notes.txt");
    fs::write(&foreign, "mine").expect("written");

    let found_now = findings(&to);
    let of = |path: &Path| {
        let mut of = found_now.iter().filter(|f| f["path"] == path.display().to_string());
        let one = of.next().unwrap_or_else(|| panic!("{}: {found_now:?}", path.display()));
        assert!(of.next().is_none(), "one finding a fault");
        assert!(!one["effect"].as_str().expect("text").is_empty());
        one
    };
    assert_eq!(of(&torn)["kind"], "torn tail");
    assert_eq!(of(&torn)["position"], last_pos);
    assert_eq!(of(&torn)["first_offset"], last_base);
    assert_eq!(of(&flipped)["kind"], "damage");
    assert_eq!(of(&flipped)["position"], found[1].0);
    assert_eq!(of(&flipped)["first_offset"], found[1].1.base_offset);
    assert_eq!(of(&flipped)["next_offset"], found[2].1.base_offset);
    assert_eq!(of(&index)["kind"], "offset index");
    let next = of(&index)["next_step"].as_str().expect("text").to_owned();
    assert!(next.contains("ringlog index-rebuild ") && next.contains("gold-producers-0"), "{next}");
    assert_eq!(of(&foreign)["kind"], "foreign file");
    // Readers had been shown the batch that is torn now.
    assert_eq!(of(&to.join("replication-offset-checkpoint"))["kind"], "log end");
    assert_eq!(found_now.len(), 5, "{found_now:?}");

    let (code, stdout, stderr) = verify(&to, &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("5 findings"), "{stderr}");
    for word in ["torn tail", "damage", "offset index", "foreign file", "  effect  ", "  next    "]
    {
        assert!(stdout.contains(word), "{word}: {stdout}");
    }
    assert_eq!(
        fs::read(&torn).expect("a log").len(),
        fs::metadata(&torn).expect("it").len() as usize
    );
}

/// What verify says of one changed file; and that it changes nothing.
fn finding_of(topic: &str, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> Vec<String> {
    let (_dir, to) = copy("clean");
    let dir = to.join(format!("gold-{topic}-0"));
    let path = dir.join(name);
    let mut bytes = fs::read(&path).unwrap_or_default();
    change(&mut bytes);
    fs::write(&path, &bytes).expect("written");
    let found = findings(&dir);
    assert_eq!(fs::read(&path).expect("still there"), bytes);
    found.iter().map(|found| found["kind"].as_str().expect("text").to_owned()).collect()
}

type Change = fn(&mut Vec<u8>);

#[test]
fn faults_of_every_derived_file_are_found() {
    let index = "00000000000000000000.index";
    let times = "00000000000000000000.timeindex";
    let cases: [(&str, &str, Change, &[&str]); 13] = [
        ("segments", index, |b| b.truncate(b.len() - 3), &["offset index"]),
        ("segments", index, |b| b[6] = 0x7f, &["offset index"]),
        ("segments", index, |b| b.extend([0; 8]), &["offset index"]),
        ("segments", index, |b| b.copy_within(0..8, 8), &["offset index"]),
        ("segments", times, |b| b.truncate(b.len() - 12), &["time index"]),
        ("segments", times, |b| b[7] ^= 1, &["time index"]),
        ("segments", times, |b| b.extend([0x7f; 12]), &["time index"]),
        ("transactions", "00000000000000000011.txnindex", |b| b[25] ^= 1, &["transaction index"]),
        ("transactions", "00000000000000000011.txnindex", |b| b.push(0), &["transaction index"]),
        ("segments", "00000000000000000080.snapshot", |b| b[9] ^= 1, &["producer snapshot"]),
        (
            "segments",
            "00000000000000000900.snapshot",
            |b| {
                b.extend([0, 1, 0x48, 0x67, 0x4b, 0xc7, 0, 0, 0, 0]);
            },
            &["producer snapshot"],
        ),
        ("shapes", "leader-epoch-checkpoint", |b| *b = b"0\n1\n0 0\n".to_vec(), &["leader epochs"]),
        ("shapes", "partition.metadata", |b| b.truncate(14), &["partition metadata"]),
    ];
    for (topic, name, change, kinds) in cases {
        assert_eq!(finding_of(topic, name, change), kinds, "{topic} {name}");
    }
}

#[test]
fn faults_of_order_and_records_are_found() {
    let twice = |bytes: &mut Vec<u8>| {
        let last = batch::scan(bytes).last().expect("batches").bytes.to_vec();
        bytes.extend(last);
    };
    assert_eq!(finding_of("segments", "00000000000000000480.log", twice), ["offset order"]);
    // A checksum that holds over records that do not.
    let records = |bytes: &mut Vec<u8>| {
        let (pos, len) = batch::scan(bytes).map(|f| (f.pos, f.bytes.len())).nth(1).expect("two");
        bytes[pos + 61] ^= 2;
        batch::reseal(&mut bytes[pos..pos + len]).expect("whole");
    };
    assert_eq!(finding_of("segments", LOG, records), ["records"]);
    let jump = |bytes: &mut Vec<u8>| {
        let pos = batch::scan(bytes).nth(1).expect("two").pos;
        bytes[pos + 5] = 1; // 65536 offsets ahead: one finding for the batch, one for its effect
    };
    let found = finding_of("producers", "00000000000000000180.log", jump);
    assert!(found.iter().filter(|kind| *kind == "offset order").count() >= 1, "{found:?}");
}

/// Every damaged log of the golden files: a finding, and an end.
#[test]
fn torn_logs_are_found_and_dumped_to_their_end() {
    for entry in fs::read_dir(golden("torn")).expect("listed") {
        let entry = entry.expect("readable");
        if !entry.file_type().expect("a type").is_dir() {
            continue;
        }
        let (_dir, to) = copy("clean");
        fs::remove_file(to.join(".kafka_cleanshutdown")).expect("removed");
        let partition = to.join(entry.file_name());
        for log in fs::read_dir(entry.path()).expect("listed") {
            let log = log.expect("readable");
            fs::copy(log.path(), partition.join(log.file_name())).expect("copied");
            if log.path().extension().is_some_and(|e| e == "log") {
                let dump = ringlog().arg("dump").arg(log.path()).output().expect("runs");
                let (_, stdout, stderr) = told(&dump);
                assert!(stderr.contains("logs: 1"), "{stderr}");
                assert!(stdout.lines().count() > 2);
            }
        }
        let found = findings(&partition);
        let logs = found.iter().filter(|f| f["path"].as_str().is_some_and(|p| p.ends_with(".log")));
        // What was never written is no fault: preallocated files end like this.
        let zeros = verify(&partition, &[]).1.contains("bytes of zeros, prepared");
        assert!(logs.count() >= 1 || zeros, "{:?}: {found:?}", entry.file_name());
    }
}

#[test]
fn cuts_are_listed_and_removed_on_demand() {
    let (_dir, to) = copy("clean");
    let partition = to.join("gold-segments-0");
    let log = fs::read(partition.join(LOG)).expect("a log");
    let torn = partition.join("cut-00000000000000000480-4096-short");
    fs::write(&torn, &log[7..200]).expect("written");
    let whole = partition.join("cut-00000000000000000560-0-behind");
    fs::write(&whole, &log).expect("written");
    let other = to.join("gold-zstd-0").join("cut-00000000000000000000-12-header-3");
    fs::write(&other, [0; 10]).expect("written");

    let cuts = |args: &[&str]| {
        let mut command = ringlog();
        told(&command.current_dir(&to).arg("cuts").args(args).output().expect("runs"))
    };
    let (code, stdout, _) = cuts(&["list", "."]);
    assert_eq!(code, 0);
    assert!(stdout.contains("193 B, from position 4096 of segment 480"), "{stdout}");
    let (_, stdout, _) = cuts(&["list", "gold-segments-0", "--json"]);
    let lines: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((lines.len(), &lines[1]["batches"]), (2, &batch::scan(&log).count().into()));
    assert_eq!(lines[1]["next_offset"], 80);
    assert_eq!(findings(&to), Vec::<Value>::new(), "they are no fault");

    let name = "gold-segments-0/cut-00000000000000000560-0-behind";
    let (code, _, stderr) = cuts(&["remove", "gold-zstd-0", "--file", name]);
    assert!(code == 1 && whole.exists(), "{stderr}");
    let (code, stdout, _) = cuts(&["remove", "gold-segments-0", "--file", name]);
    assert!(code == 0 && stdout.contains("files removed: 1"), "{stdout}");
    assert!(!whole.exists() && torn.exists());
    assert_eq!(cuts(&["remove", "."]).0, 0);
    assert!(!torn.exists() && !other.exists());
    assert_eq!(fs::read(partition.join(LOG)).expect("a log"), log);
}

/// Whatever a server leaves behind, and while it runs: nothing is wrong, and the offline command
/// keeps away from it.
#[test]
fn a_servers_own_directory_is_sound_while_it_runs_and_after_a_kill() {
    let mut server = Server::start();
    let dir = server.path("data");
    server.ok(&["topic", "create", "t", "--config", "segment.bytes=1048588"]);
    let lines: String = (0..60_000).map(|number| format!("line {number} of many\n")).collect();
    for codec in ["none", "zstd"] {
        let args = ["produce", "t", "--compression", codec];
        assert_eq!(server.fed(&args, lines.as_bytes()).0, 0);
    }
    assert_eq!(findings(&dir), Vec::<Value>::new(), "running");
    let (code, _, stderr) =
        told(&ringlog().arg("index-rebuild").arg(dir.join("t-0")).output().expect("runs"));
    assert!(code == 1 && stderr.contains("stop the server first"), "{stderr}");
    let mut explored = ringlog();
    explored.arg("explore").arg(dir.join("t-0")).args(["--lookup", "70000"]);
    assert!(told(&explored.output().expect("runs")).1.contains("found: batch "));
    server.kill();
    let after_kill = findings(&dir);
    assert!(after_kill.iter().all(|found| found["kind"] == "torn tail"), "{after_kill:?}");
    server.restart();
    assert_eq!(findings(&dir), Vec::<Value>::new(), "recovered");
}
