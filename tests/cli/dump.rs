//! `ringlog dump` against what Kafka's tool printed, and over damage.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ringlog::format::batch;
use ringlog::format::name::{FileKind, FileState, SegmentFile};

use super::fixtures::TOPICS;
use super::{golden, ringlog, told};

/// A partition's segment files in name order, as arguments from the data directory; of these
/// kinds.
fn files(state: &str, topic: &str, kinds: &[FileKind]) -> Vec<String> {
    let dir = golden(&format!("{state}/gold-{topic}-0"));
    let mut files: Vec<String> = fs::read_dir(dir)
        .expect("a partition")
        .filter_map(|entry| {
            let name = entry.expect("readable").file_name().into_string().expect("UTF-8");
            let file = SegmentFile::parse(&name)?;
            let wanted = file.state == FileState::Live && kinds.contains(&file.kind);
            wanted.then(|| format!("./gold-{topic}-0/{name}"))
        })
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Kafka's tool takes the first record of a log that does not start at 0 for a gap.
fn without_false_alarms(text: &str) -> String {
    let lines: Vec<&str> = text
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("  -1 is followed by"))
        .collect();
    let heads_nothing = |i: usize| !lines.get(i + 1).is_some_and(|next| next.starts_with("  "));
    let kept = lines
        .iter()
        .enumerate()
        .filter(|(i, line)| !line.starts_with("Non-consecutive offsets in ") || !heads_nothing(*i));
    kept.map(|(_, line)| *line).collect()
}

/// What Kafka's tool would have said: both outputs, paths as in the golden files, without the
/// counts, which it does not have.
fn as_kafka(root: &Path, stdout: &str, stderr: &str) -> String {
    let root = format!("{}/", root.display());
    let remarks: String = stderr
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("logs: "))
        .map(|line| line.replace(&root, "./"))
        .collect();
    format!("{stdout}{remarks}")
}

fn compare(state: &str, flag: &str, args: &[&str], kinds: &[FileKind]) {
    for topic in TOPICS {
        let mut ours = String::new();
        for file in files(state, topic, kinds) {
            let mut command = ringlog();
            command.current_dir(golden(state)).args(["dump", &file]).args(args);
            let (code, stdout, stderr) = told(&command.output().expect("runs"));
            assert_eq!(code, 0, "{file}: {stderr}");
            ours += &as_kafka(&golden(state), &stdout, &stderr);
        }
        let tools = fs::read(golden(&format!("dump/{state}/gold-{topic}-0.{flag}.txt")));
        let tools = String::from_utf8_lossy(&tools.expect("a dump")).into_owned();
        let tools = without_false_alarms(&tools);
        for (ours, tools) in ours.split('\n').zip(tools.split('\n')) {
            assert_eq!(ours, tools, "{topic}");
        }
        assert_eq!(ours.len(), tools.len(), "{topic}");
    }
}

const INDEXES: &[FileKind] = &[FileKind::OffsetIndex, FileKind::TimeIndex];

#[test]
fn all_files_print_as_kafkas_tool_prints_them() {
    compare("clean", "shallow", &[], &FileKind::ALL);
}

#[test]
fn untrimmed_files_of_a_killed_broker_print_as_kafkas_tool_prints_them() {
    compare("killed", "shallow", &[], &FileKind::ALL);
}

#[test]
fn records_print_as_kafkas_tool_prints_them() {
    compare("clean", "records", &["--records"], &[FileKind::Log]);
    compare("clean", "records", &["--print-data-log"], &[FileKind::Log]);
}

#[test]
fn index_checks_print_as_kafkas_tool_prints_them() {
    compare("clean", "sanity", &["--index-sanity-check"], INDEXES);
    compare("clean", "verify", &["--verify-index-only"], INDEXES);
}

fn clean_log(topic: &str) -> Vec<u8> {
    fs::read(golden(&format!("clean/gold-{topic}-0/00000000000000000000.log"))).expect("a log")
}

fn damaged(dir: &Path, bytes: &[u8]) -> PathBuf {
    let path = dir.join("00000000000000000000.log");
    fs::write(&path, bytes).expect("written");
    path
}

fn dump(path: &Path, args: &[&str]) -> (i32, String, String) {
    told(&ringlog().arg("dump").arg(path).args(args).output().expect("runs"))
}

#[test]
fn damage_exits_1_names_the_spot_and_the_dump_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = clean_log("producers");
    let found: Vec<_> = batch::scan(&log).collect();
    let (bad, last) = (&found[3], found.last().expect("batches"));
    let (whole, _, _) = dump(&damaged(dir.path(), &log), &[]);
    assert_eq!(whole, 0);

    let mut flipped = log.clone();
    flipped[bad.pos + 70] ^= 4;
    let (code, stdout, stderr) = dump(&damaged(dir.path(), &flipped), &["--records"]);
    assert_eq!(code, 1);
    let line = stdout.lines().find(|line| line.ends_with("isvalid: false")).expect("told");
    assert!(line.contains(&format!("position: {} ", bad.pos)), "{line}");
    assert!(stderr.contains("whose checksum or counts do not hold: 1"), "{stderr}");
    assert!(stdout.contains(&format!("position: {} ", last.pos)), "it goes on to the last batch");

    let mut garbage = log.clone();
    garbage[bad.pos..bad.pos + bad.bytes.len()].fill(0xee);
    let (code, stdout, stderr) = dump(&damaged(dir.path(), &garbage), &[]);
    assert_eq!(code, 1);
    let skipped = format!("Skipped {} invalid bytes at position: {}", bad.bytes.len(), bad.pos);
    assert!(stdout.contains(&skipped), "{stdout}");
    assert!(stderr.contains(&format!("that are none: {}", bad.bytes.len())), "{stderr}");

    let torn = &log[..log.len() - 7];
    let (code, stdout, stderr) = dump(&damaged(dir.path(), torn), &[]);
    assert_eq!(code, 1);
    let invalid = format!("Found {} invalid bytes at the end of", torn.len() - last.pos);
    assert!(stdout.contains(&invalid), "{stdout}");
    assert!(stderr.contains("00000000000000000000.log: bytes at the end"), "{stderr}");
}

#[test]
fn damaged_small_files_exit_1() {
    let dir = tempfile::tempdir().expect("a directory");
    let clean = golden("clean/gold-segments-0");
    for name in [
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000080.snapshot",
        "leader-epoch-checkpoint",
    ] {
        let bytes = fs::read(clean.join(name)).expect("a file");
        let path = dir.path().join(name);
        fs::write(&path, &bytes).expect("written");
        let (code, stdout, stderr) = dump(&path, &[]);
        assert_eq!(code, 0, "{name}: {stderr}");
        assert_eq!(stderr.contains("no .log beside it"), name.ends_with("index"), "{stderr}");
        assert!(stdout.lines().count() >= 2, "{name}: {stdout}");
        fs::write(&path, &bytes[..(bytes.len() / 2) | 1]).expect("written");
        let (code, _, stderr) = dump(&path, &[]);
        assert_eq!(code, 1, "{name}");
        assert!(stderr.contains(&format!("{name}: ")), "{stderr}");
    }
    let (code, _, stderr) = dump(&dir.path().join("00000000000000000005.log"), &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("No such file"), "{stderr}");
}

#[test]
fn an_unknown_file_is_named_and_left_out() {
    let (code, stdout, stderr) = dump(&golden("README.md"), &[]);
    assert_eq!((code, stdout.as_str()), (0, ""));
    assert!(stderr.contains("README.md: no file of a log"), "{stderr}");
}

/// R56: whole batches within the limit, and it says that it stopped by request.
#[test]
fn max_bytes_ends_at_a_batch_boundary() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = clean_log("shapes");
    let found: Vec<_> = batch::scan(&log).collect();
    let path = damaged(dir.path(), &log);
    for limit in [1, found[2].pos, found[2].pos + 1, log.len() - 1, log.len(), log.len() + 1] {
        let (code, stdout, stderr) = dump(&path, &["--max-bytes", &limit.to_string()]);
        assert_eq!(code, 0, "{stderr}");
        let within = found.iter().filter(|batch| batch.pos + batch.bytes.len() <= limit).count();
        let printed = stdout.lines().filter(|line| line.starts_with("baseOffset:")).count();
        assert_eq!(printed, within, "limit {limit}");
        let said = stderr.contains("as --max-bytes asks");
        assert_eq!(said, limit < log.len(), "limit {limit}: {stderr}");
    }
}

/// R58: no record looks lost, in whatever batches they lie.
#[test]
fn the_closing_line_counts_what_was_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = clean_log("zstd");
    let records: i32 = batch::scan(&log).map(|batch| batch.header.records_count).sum();
    let (_, stdout, stderr) = dump(&damaged(dir.path(), &log), &["--records"]);
    let shown = stdout.lines().filter(|line| line.starts_with("| offset: ")).count();
    assert_eq!(i32::try_from(shown), Ok(records));
    assert!(stderr.contains(&format!("records: {records}, corrupt batches: 0")), "{stderr}");
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let path = golden("clean/gold-shapes-0/00000000000000000000.log");
    let mut child = ringlog()
        .arg("dump")
        .args(std::iter::repeat_n(path, 200))
        .arg("--records")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("ends").code(), Some(0));
}

/// A file that grows while it is read is dumped up to a whole batch.
#[test]
fn a_live_file_reads_to_a_batch_boundary() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = clean_log("segments");
    let found: Vec<_> = batch::scan(&log).collect();
    let path = damaged(dir.path(), &log[..found[1].pos]);
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("opens");
    for batch in &found[1..] {
        file.write_all(batch.bytes).expect("appended");
        let (code, stdout, stderr) = dump(&path, &[]);
        assert_eq!(code, 0, "{stderr}");
        assert!(stdout.contains(&format!("position: {} ", batch.pos)), "{stdout}");
    }
}
