//! `ringlog dump` against what Kafka's tool printed, and over damage.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use ringlog::format::batch::{self, Attributes, BatchHeader, Codec, HEADER_LEN, TimestampType};
use ringlog::format::builder::BatchBuilder;
use ringlog::format::codec::{Workspace, decompress};
use ringlog::format::index::{IndexBuilder, IndexLimits};
use ringlog::format::name::{FileKind, FileState, SegmentFile};

use serde_json::Value;

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

#[test]
fn old_formats_print_as_kafkas_tool_prints_them() {
    for entry in fs::read_dir(golden("dump/legacy")).expect("dumps") {
        let name = entry.expect("readable").file_name().into_string().expect("UTF-8");
        let (set, flag) = name.strip_suffix(".txt").and_then(|n| n.split_once('.')).expect("names");
        let args: &[&str] = if flag == "records" { &["--records"] } else { &[] };
        let root = golden("legacy");
        let file = format!("./{set}/00000000000000000000.log");
        let mut command = ringlog();
        command.current_dir(&root).args(["dump", &file]).args(args);
        let (code, stdout, stderr) = told(&command.output().expect("runs"));
        assert_eq!(code, 0, "{set}: {stderr}");
        let tools = fs::read_to_string(golden("dump/legacy").join(&name)).expect("a dump");
        assert_eq!(as_kafka(&root, &stdout, &stderr), without_false_alarms(&tools), "{name}");
    }
}

#[test]
fn deep_lines_without_data_and_data_without_metadata() {
    let path = golden("clean/gold-shapes-0/00000000000000000000.log");
    let (_, records, _) = dump(&path, &["--records"]);
    let (_, deep, _) = dump(&path, &["--deep-iteration"]);
    let count = |text: &str| text.matches("\n| offset: ").count();
    assert!(count(&deep) > 40 && count(&deep) == count(&records));
    assert!(!deep.contains(" payload: ") && records.contains(" payload: "));
    let (_, bare, _) = dump(&path, &["--records", "--skip-record-metadata"]);
    assert!(bare.contains("\n| key: ") && !bare.contains("keySize"), "{bare}");
    assert!(bare.lines().any(|line| line.starts_with(" payload: ")), "a null key has no bar");
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

/// R56: a part begins where the index says, ends at a batch boundary, reads about what it shows,
/// and says that it stopped by request.
#[test]
fn an_offset_range_begins_via_the_index_and_says_where_it_stopped() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("00000000000000000000.log");
    let limits = IndexLimits { interval_bytes: 4096, index_bytes_max: 10 << 20 };
    let mut index = IndexBuilder::new(0, limits);
    let (mut log, mut entries) = (Vec::new(), Vec::new());
    for i in 0..20_000i64 {
        let mut builder = BatchBuilder::new();
        builder.append(None, Some(&[i as u8; 1024]), &[], i);
        let mut made = builder.finish(Codec::None, None).expect("plain").to_vec();
        batch::assign(&mut made, i, 0).expect("a batch");
        if let Some((entry, _)) = index.on_batch(log.len() as u64, i, i) {
            entries.extend(entry.encode());
        }
        log.extend(made);
    }
    fs::write(&path, &log).expect("written");
    fs::write(dir.path().join("00000000000000000000.index"), &entries).expect("written");
    let bases = |stdout: &str| -> Vec<i64> {
        let bases = stdout.lines().filter_map(|line| line.strip_prefix("baseOffset: "));
        bases.map(|line| line.split(' ').next().expect("a number").parse().expect("one")).collect()
    };
    let read = |stderr: &str| -> usize {
        let (before, _) = stderr.split_once(" bytes were read").expect("told");
        before.rsplit(' ').next().expect("a number").parse().expect("one")
    };
    let (code, stdout, stderr) = dump(&path, &["--offset-range", "10000..10100"]);
    assert_eq!((code, bases(&stdout)), (0, (10_000..10_100).collect()));
    assert!(stderr.contains("as --offset-range asks"), "{stderr}");
    assert!(read(&stderr) < 1 << 20, "{stderr}");

    let (_, stdout, stderr) = dump(&path, &["--offset-range", "10000..", "--max-bytes", "1048576"]);
    assert_eq!(bases(&stdout)[0], 10_000);
    assert!(stderr.contains("as --max-bytes asks") && read(&stderr) <= 1 << 20, "{stderr}");
    assert!(bases(&stdout).len() > 900);
    let (_, stdout, _) = dump(&path, &["--offset-range", "..3"]);
    assert_eq!(bases(&stdout), [0, 1, 2]);

    entries[7] ^= 1; // an index that lies is said to, and not followed
    fs::write(dir.path().join("00000000000000000000.index"), &entries).expect("written");
    let (code, stdout, stderr) = dump(&path, &["--offset-range", "5..7"]);
    assert_eq!((code, bases(&stdout)), (1, vec![5, 6]), "{stderr}");
    fs::remove_file(dir.path().join("00000000000000000000.index")).expect("removed");
    let (code, stdout, stderr) = dump(&path, &["--offset-range", "5..7"]);
    assert_eq!((code, bases(&stdout)), (0, vec![5, 6]));
    assert!(stderr.contains("begun at the first byte"), "{stderr}");
}

/// What a program makes of bytes in the JSON.
fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.as_bytes().to_vec()),
        object => Some(BASE64.decode(object["base64"].as_str().expect("base64")).expect("sound")),
    }
}

/// The batch without its compression, from its line alone.
fn rebuilt(line: &Value) -> Vec<u8> {
    let int = |name: &str| line[name].as_i64().unwrap_or_else(|| panic!("{name}: {line}"));
    let mut builder = BatchBuilder::new();
    for record in line["records"].as_array().expect("records") {
        let headers: Vec<(Vec<u8>, Option<Vec<u8>>)> = record["headers"]
            .as_array()
            .expect("headers")
            .iter()
            .map(|one| (bytes_of(&one["key"]).expect("a key"), bytes_of(&one["value"])))
            .collect();
        let headers: Vec<_> =
            headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
        let (key, value) = (bytes_of(&record["key"]), bytes_of(&record["value"]));
        let time = record["timestamp"].as_i64().expect("a time");
        builder.append(key.as_deref(), value.as_deref(), &headers, time);
    }
    let made = builder.finish(Codec::None, None).expect("plain");
    let mut bytes = made.to_vec();
    let header = BatchHeader {
        base_offset: int("base_offset"),
        leader_epoch: int("leader_epoch") as i32,
        attributes: Attributes(int("attributes") as i16).with_codec(Codec::None),
        last_offset_delta: int("last_offset_delta") as i32,
        base_timestamp: int("base_timestamp"),
        max_timestamp: int("max_timestamp"),
        producer_id: int("producer_id"),
        producer_epoch: int("producer_epoch") as i16,
        base_sequence: int("base_sequence") as i32,
        records_count: int("records_count") as i32,
        ..batch::parse_header(made).expect("made")
    };
    batch::write_header(&mut bytes, &header).expect("long enough");
    batch::reseal(&mut bytes).expect("whole");
    bytes
}

/// The same from the file.
fn unpacked(found: &batch::Found<'_>) -> Vec<u8> {
    let codec = found.header.codec().expect("known");
    let mut bytes = found.bytes[..HEADER_LEN].to_vec();
    decompress(codec, found.payload(), 1 << 24, &mut Workspace::new(), &mut bytes).expect("sound");
    let attributes = found.header.attributes.with_codec(Codec::None);
    let batch_length = bytes.len() as i32 - 12;
    let header = BatchHeader { attributes, batch_length, ..found.header };
    batch::write_header(&mut bytes, &header).expect("long enough");
    batch::reseal(&mut bytes).expect("whole");
    bytes
}

/// R57, over every client's batches. Those with holes have other offsets than a builder gives.
#[test]
fn r57_every_batch_can_be_rebuilt_from_its_json_line() {
    let mut seen = 0;
    for topic in TOPICS.iter().filter(|topic| **topic != "compacted") {
        for file in files("clean", topic, &[FileKind::Log]) {
            let path = golden("clean").join(&file);
            let log = fs::read(&path).expect("a log");
            let (code, stdout, stderr) = dump(&path, &["--records", "--json"]);
            assert_eq!(code, 0, "{stderr}");
            let lines: Vec<Value> = stdout
                .lines()
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .filter(|line: &Value| line["type"] == "batch")
                .collect();
            let found: Vec<_> = batch::scan(&log).collect();
            assert_eq!(lines.len(), found.len());
            for (line, found) in lines.iter().zip(&found) {
                assert_eq!(rebuilt(line), unpacked(found), "{file}: {line}");
                assert_eq!(line["crc"].as_u64(), Some(u64::from(found.header.crc)));
                seen += 1;
            }
        }
    }
    assert!(seen > 200);
}

/// R57: a batch that is damaged brings its bytes.
#[test]
fn a_damaged_batch_brings_its_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = clean_log("zstd");
    let found: Vec<_> = batch::scan(&log).map(|f| (f.pos, f.bytes.len())).collect();
    let (pos, len) = found[2];
    log[pos + HEADER_LEN + 9] ^= 0x10;
    let (code, stdout, _) = dump(&damaged(dir.path(), &log), &["--records", "--json"]);
    assert_eq!(code, 1);
    let lines = stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let line: Value = lines.clone().find(|l: &Value| l["position"] == pos).expect("its line");
    assert_eq!(line["valid"], false);
    assert_eq!(bytes_of(&line["bytes"]).as_deref(), Some(&log[pos..pos + len]));
    assert_eq!(lines.filter(|line: &Value| line["type"] == "batch").count(), found.len());
}

/// R02 and R57: what separates records and headers in text may be in them.
#[test]
fn json_keeps_what_text_would_lose() {
    let dir = tempfile::tempdir().expect("a directory");
    let headers: [(&[u8], Option<&[u8]>); 4] =
        [(b"a,b\n", Some(b"")), (b"\xff", None), (b"", Some(b"\x00\xfe")), (b"a,b\n", None)];
    let mut builder = BatchBuilder::new();
    builder.append(None, Some(b""), &headers, 5);
    builder.append(Some(b""), None, &[], 7);
    let made = builder.finish(Codec::Gzip, None).expect("packs").to_vec();
    let (code, stdout, _) = dump(&damaged(dir.path(), &made), &["--records", "--json"]);
    assert_eq!((code, stdout.lines().count()), (0, 2));
    let line: Value = serde_json::from_str(stdout.lines().nth(1).expect("two")).expect("JSON");
    assert_eq!(rebuilt(&line), unpacked(&batch::scan(&made).next().expect("one")));
    assert_eq!(
        (&line["records"][0]["key"], &line["records"][1]["key"]),
        (&Value::Null, &"".into())
    );
}

/// Every kind of file as JSON lines.
#[test]
fn indexes_and_small_files_as_json() {
    let dir = golden("clean/gold-transactions-0");
    for (name, kind, field) in [
        ("00000000000000000011.txnindex", "aborted", "last_stable_offset"),
        ("00000000000000000045.snapshot", "producer", "producer_id"),
        ("00000000000000000011.timeindex", "timeindex", "timestamp"),
        ("leader-epoch-checkpoint", "epoch", "start_offset"),
        ("../recovery-point-offset-checkpoint", "checkpoint", "offset"),
        ("../gold-segments-0/00000000000000000000.index", "index", "position"),
    ] {
        let (code, stdout, stderr) = dump(&dir.join(name), &["--json"]);
        assert_eq!(code, 0, "{stderr}");
        let text = dump(&dir.join(name), &[]).1;
        assert_eq!(stdout.lines().count(), text.lines().count(), "{name}");
        let last: Value = serde_json::from_str(stdout.lines().last().expect("some")).expect("JSON");
        assert_eq!(last["type"], kind, "{name}");
        assert!(last[field].is_i64(), "{name}: {last}");
    }
}

#[test]
fn an_index_that_disagrees_with_its_log_is_told_as_kafkas_tool_tells_it() {
    let dir = tempfile::tempdir().expect("a directory");
    for kind in ["log", "index", "timeindex"] {
        let name = format!("00000000000000000000.{kind}");
        fs::copy(golden("clean/gold-segments-0").join(&name), dir.path().join(&name)).expect("ok");
    }
    let index = dir.path().join("00000000000000000000.index");
    let mut bytes = fs::read(&index).expect("an index");
    bytes[3] += 1; // the first entry's offset
    fs::write(&index, &bytes).expect("written");
    let (code, _, stderr) = dump(&index, &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains(&format!("Mismatches in :{}\n", index.display())), "{stderr}");
    assert!(stderr.contains("  Index offset: "), "{stderr}");
    let times = dir.path().join("00000000000000000000.timeindex");
    let mut bytes = fs::read(&times).expect("an index");
    bytes[7] ^= 1; // the first entry's time
    bytes[23] += 1; // the second entry's offset
    fs::write(&times, &bytes).expect("written");
    let (code, _, stderr) = dump(&times, &["--verify-index-only"]);
    assert_eq!(code, 1);
    for line in ["Found timestamp mismatch in :", "indexed offsets are not found in the log."] {
        assert!(stderr.contains(line), "{stderr}");
    }
}

fn anything() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        Just(None),
        Just(Some(Vec::new())),
        "[a-z,\n\"\\\\]{0,8}".prop_map(|text| Some(text.into_bytes())),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Some),
    ]
}

type AnyRecord = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(Vec<u8>, Option<Vec<u8>>)>, i64);

fn any_record() -> impl Strategy<Value = AnyRecord> {
    let header = (prop::collection::vec(any::<u8>(), 0..6), anything());
    (anything(), anything(), prop::collection::vec(header, 0..4), 0..1i64 << 45)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// R57: whatever is in a batch and however it is packed, its line rebuilds it.
    #[test]
    fn r57_any_batch_can_be_rebuilt_from_its_json_line(
        batches in prop::collection::vec(
            (prop::collection::vec(any_record(), 1..6), prop::sample::select(&Codec::ALL[..])),
            1..5),
        producer in prop::option::of((0..1i64 << 50, 0..100i16, 0..1000i32)),
        append_time in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut log, mut offset) = (Vec::new(), 0);
        for (records, codec) in &batches {
            let mut builder = BatchBuilder::new();
            if let Some((id, epoch, sequence)) = producer {
                builder.producer(id, epoch, sequence);
            }
            for (key, value, headers, time) in records {
                let headers: Vec<_> =
                    headers.iter().map(|(key, value)| (key.as_slice(), value.as_deref())).collect();
                builder.append(key.as_deref(), value.as_deref(), &headers, *time);
            }
            let mut made = builder.finish(*codec, None).expect("packs").to_vec();
            batch::assign(&mut made, offset, 7).expect("a batch");
            if append_time {
                batch::set_max_timestamp(&mut made, TimestampType::LogAppendTime, 1 << 46)
                    .expect("a batch");
            }
            offset += records.len() as i64;
            log.extend(made);
        }
        let (code, stdout, stderr) =
            dump(&damaged(dir.path(), &log), &["--records", "--json"]);
        prop_assert_eq!(code, 0, "{}", stderr);
        let lines = stdout.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON"));
        let ours: Vec<Vec<u8>> = lines.map(|line: Value| rebuilt(&line)).collect();
        let wanted: Vec<Vec<u8>> = batch::scan(&log).map(|found| unpacked(&found)).collect();
        prop_assert_eq!(ours, wanted);
    }
}
