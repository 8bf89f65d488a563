//! The client commands against a server that runs.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use super::server::Server;

/// Empty lines, binary ones, long ones, carriage returns, and a last line without its newline.
fn awkward() -> Vec<u8> {
    let mut bytes = b"plain\n\n\n\xff\xfe\x00binary\r\n".to_vec();
    for len in [1usize, 127, 128, 8191, 300_000, 1_000_000] {
        bytes.extend((0..len).map(|i| match (i * 31 + len) as u8 {
            b'\n' => b'_',
            byte => byte,
        }));
        bytes.push(b'\n');
    }
    for number in 0..20_000 {
        bytes.extend_from_slice(format!("line {number}\n").as_bytes());
    }
    bytes.extend_from_slice(b"\nlast");
    bytes
}

fn with_newline(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.push(b'\n');
    bytes
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn any_lines_come_back_through_every_codec() {
    let server = Server::start();
    let sent = awkward();
    let path = server.path("sent");
    std::fs::write(&path, &sent).expect("written");
    let file = path.to_str().expect("UTF-8");
    let lines = sent.split(|byte| *byte == b'\n').count();
    for (codec, acks) in [
        ("none", "policy"),
        ("gzip", "written"),
        ("snappy", "durable"),
        ("lz4", "none"),
        ("zstd", "policy"),
    ] {
        server.ok(&["topic", "create", codec]);
        let args = ["produce", codec, "--file", file, "--compression", codec, "--acks", acks];
        let told = server.ok(&args);
        assert!(told.contains(&format!("records acked: {lines}, ")), "{told}");
        assert!(told.contains(&format!("last offset: {}", lines - 1)), "{told}");
        server.wait_for(codec, lines as u64);
        assert!(server.consumed(codec) == with_newline(sent.clone()), "{codec}");
    }
    let (code, told, _) = server.fed(&["produce", "none", "--batch-bytes", "1KiB"], &sent);
    assert_eq!(code, 0, "{told}");
    let both = [with_newline(sent.clone()), with_newline(sent)].concat();
    assert!(server.consumed("none") == both, "appended behind, from a pipe, in small batches");
}

#[test]
fn an_empty_input_is_no_record() {
    let server = Server::start();
    server.ok(&["topic", "create", "t"]);
    let (code, told, _) = server.fed(&["produce", "t"], b"");
    assert_eq!(code, 0);
    assert!(told.contains("records acked: 0, bytes: 0") && told.contains("last offset: none"));
    assert_eq!(server.consumed("t"), b"");
}

#[test]
fn keys_null_and_binary_values_stay_apart_in_json() {
    let server = Server::start();
    server.ok(&["topic", "create", "t"]);
    let (code, ..) =
        server.fed(&["produce", "t", "--key-separator", "=>"], b"k=>v=>w\n=>\n\xff=>\xfe");
    assert_eq!(code, 0);
    let (code, ..) = server.fed(&["produce", "t"], b"no key\n");
    assert_eq!(code, 0);
    let records = json_lines(&server.ok(&["consume", "t", "--json"]));
    let fields = |at: usize| (records[at]["key"].clone(), records[at]["value"].clone());
    assert_eq!(fields(0), ("k".into(), "v=>w".into()));
    assert_eq!(fields(1), ("".into(), "".into()));
    let binary = |text: &str| serde_json::json!({ "base64": text });
    assert_eq!(fields(2), (binary("/w=="), binary("/g==")));
    assert_eq!(fields(3), (Value::Null, "no key".into()));
    assert_eq!(records[3]["offset"], 3);
    assert_eq!(records[3]["headers"], serde_json::json!([]));

    let (code, told, error) =
        server.fed(&["produce", "t", "--key-separator", "=>"], b"a=>b\nbad\n");
    assert_eq!(code, 1);
    assert!(told.contains("records acked: 1, "), "what stood before is sent: {told}");
    assert!(error.contains("line 2 ") && error.contains("--from-line 3"), "{error}");
}

#[test]
fn a_line_that_no_batch_can_hold_is_named() {
    let server = Server::start();
    server.ok(&["topic", "create", "t", "--config", "max.message.bytes=2000"]);
    let long = format!("first\n{}\nthird\n", "x".repeat(2000));
    for codec in ["none", "zstd"] {
        let (code, told, error) =
            server.fed(&["produce", "t", "--compression", codec], long.as_bytes());
        assert_eq!(code, 1);
        assert!(told.contains("records acked: 1, "), "{told}");
        assert!(error.contains("line 2 is longer than "), "{error}");
        assert!(error.contains("--from-line 3"), "{error}");
    }
    let (code, told, _) = server.fed(&["produce", "t", "--from-line", "3"], long.as_bytes());
    assert_eq!(code, 0);
    assert!(told.contains("records acked: 1, "), "{told}");
    assert_eq!(server.consumed("t"), b"first\nfirst\nthird\n");
}

#[test]
fn reading_begins_and_ends_where_it_is_told() {
    let server = Server::start();
    server.ok(&["topic", "create", "t"]);
    server.fed(&["produce", "t"], b"a\nb\nc\n");
    std::thread::sleep(std::time::Duration::from_millis(20));
    server.fed(&["produce", "t"], b"d\ne\n");
    let read = |args: &[&str]| server.ok(&[&["consume", "t"], args].concat());
    assert_eq!(read(&["--offset", "2"]), "c\nd\ne\n");
    assert_eq!(read(&["--offset", "1", "--count", "2"]), "b\nc\n");
    assert_eq!(read(&["--count", "0"]), "");
    assert_eq!(read(&["--offset", "latest"]), "");
    assert_eq!(read(&["--offset", "5"]), "");
    let (code, _, error) = server.run(&["consume", "t", "--offset", "6"]);
    assert_eq!(code, 1);
    assert!(error.contains("behind the log's end, which is 5"), "{error}");

    let records = json_lines(&server.ok(&["consume", "t", "--json"]));
    let of_d = records[3]["timestamp"].as_i64().expect("a time");
    assert_eq!(read(&["--time", &of_d.to_string()]), "d\ne\n");
    assert_eq!(read(&["--time", "2099-01-01T00:00:00Z"]), "");
    let offset = |time: &str| {
        let line = server.ok(&["offsets", "t", "--time", time, "--json"]);
        json_lines(&line)[0]["offset"].clone()
    };
    assert_eq!(offset("earliest"), 0);
    assert_eq!(offset("latest"), 5);
    assert_eq!(offset("max"), 3);
    assert_eq!(offset(&of_d.to_string()), 3);
    assert_eq!(offset("2000-01-01T00:00:00Z"), 0);
    assert_eq!(offset("2099-01-01"), Value::Null);
}

#[test]
fn several_partitions_share_the_batches_and_are_all_read() {
    let server = Server::start();
    server.ok(&["topic", "create", "t", "--partitions", "3"]);
    let sent: String = (0..3000).map(|number| format!("{number}\n")).collect();
    let args = ["produce", "t", "--batch-bytes", "1KiB"];
    let (code, told, note) = server.fed(&args, sent.as_bytes());
    assert_eq!(code, 0, "{note}");
    assert!(note.contains("3 partitions: batches go to them in turn"), "{note}");
    assert!(told.contains("records acked: 3000, ") && told.contains("last offsets: 0:"), "{told}");
    let all = String::from_utf8(server.consumed("t")).expect("text");
    let mut numbers: Vec<u32> = all.lines().map(|line| line.parse().expect("a number")).collect();
    for partition in ["0", "1", "2"] {
        let one = server.ok(&["consume", "t", "--partition", partition]);
        assert!(one.lines().count() > 500, "partition {partition} got its share");
    }
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..3000));
    let (code, _, error) = server.run(&["consume", "t", "--partition", "3"]);
    assert_eq!(code, 1);
    assert!(error.contains("no partition 3: it has 3"), "{error}");
}

#[test]
fn following_sees_what_comes_later_in_every_partition() {
    let server = Server::start();
    server.ok(&["topic", "create", "t", "--partitions", "2"]);
    let mut follower = server
        .command(&["consume", "t", "--offset", "latest", "--follow", "--count", "3"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut lines = BufReader::new(follower.stdout.take().expect("piped")).lines();
    // It may not have asked for the end yet: lines are sent until it has seen enough.
    let done = AtomicBool::new(false);
    let seen: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for partition in ["0", "1"] {
                    server.fed(&["produce", "t", "--partition", partition], partition.as_bytes());
                }
            }
        });
        let seen = (0..3).map(|_| lines.next().expect("a line").expect("text")).collect();
        done.store(true, Ordering::Relaxed);
        seen
    });
    assert!(seen.contains(&"0".to_owned()) && seen.contains(&"1".to_owned()), "{seen:?}");
    assert!(lines.next().is_none(), "three and no more");
    assert_eq!(follower.wait().expect("ends").code(), Some(0));
}

#[test]
fn a_slow_pipe_is_sent_as_it_comes() {
    let server = Server::start();
    server.ok(&["topic", "create", "t"]);
    let mut producer = server
        .command(&["produce", "t"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut input = producer.stdin.take().expect("piped");
    for number in 1..=3 {
        writeln!(input, "line {number}").expect("room");
        server.wait_for("t", number); // without the end of the input, nor a full batch
    }
    drop(input);
    assert_eq!(producer.wait().expect("ends").code(), Some(0));
    assert_eq!(server.consumed("t"), b"line 1\nline 2\nline 3\n");
}

#[test]
fn a_reader_that_has_enough_is_no_failure() {
    let server = Server::start();
    server.ok(&["topic", "create", "t"]);
    server.fed(&["produce", "t"], "many lines\n".repeat(200_000).as_bytes());
    let mut consumer = server
        .command(&["consume", "t"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(consumer.stdout.take());
    let output = consumer.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn topics_are_made_described_altered_and_deleted() {
    let server = Server::start();
    let args = ["topic", "create", "t", "--partitions", "2", "--config", "segment.bytes=2097152"];
    server.ok(&[&args[..], &["--config", "max.message.bytes=1000"]].concat());
    let listed = json_lines(&server.ok(&["topic", "list", "--json"]));
    assert_eq!((listed.len(), &listed[0]["topic"]), (1, &"t".into()));
    let setting = |key: &str| {
        let told = server.ok(&["topic", "describe", "t", "--json"]);
        let json: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(json["partitions"].as_array().map(Vec::len), Some(2));
        let configs = json["configs"].as_array().expect("settings").clone();
        let one = configs.into_iter().find(|config| config["key"] == key).expect("the setting");
        (one["value"].as_str().expect("text").to_owned(), one["source"].clone())
    };
    assert_eq!(setting("max.message.bytes"), ("1000".to_owned(), "topic".into()));
    let alter = ["topic", "alter", "t", "--config", "flush.policy=each"];
    server.ok(&[&alter[..], &["--delete-config", "max.message.bytes"]].concat());
    assert_eq!(setting("flush.policy"), ("each".to_owned(), "topic".into()));
    assert_eq!(setting("max.message.bytes").1, "default");
    for told in [server.ok(&["topic", "describe", "t"]), server.ok(&["topic", "list"])] {
        assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    }
    let (code, _, error) = server.run(&["topic", "create", "t"]);
    assert_eq!(code, 1);
    assert!(error.contains("TOPIC_ALREADY_EXISTS"), "{error}");
    server.ok(&["topic", "delete", "t"]);
    for args in [&["consume", "t"][..], &["offsets", "t"], &["produce", "t"]] {
        let (code, _, error) = server.run(args);
        assert_eq!(code, 1);
        assert!(error.contains("topic t: there is none of this name"), "{error}");
    }
}

/// Set at create, altered live, kept over a crash: with what each does not do told, and what cannot
/// be refused with what would.
#[test]
fn settings_take_effect_live_and_outlive_a_crash() {
    let mut server = Server::start();
    let set = |order: &'static str, settings: &[&'static str]| {
        let settings = settings.iter().flat_map(|one| ["--config", one]);
        ["topic", order, "t"].into_iter().chain(settings).collect::<Vec<_>>()
    };
    let (_, _, notes) =
        server.run(&set("create", &["retention.ms=7days", "min.insync.replicas=2"]));
    assert!(notes.contains("note: min.insync.replicas=2 has no effect"), "{notes}");
    for (wrong, hint) in [
        ("segment.byte=1", "\"segment.bytes\""),
        ("segment.bytes=4KiB", "max.message.bytes 1048588 (default)"),
        ("flush.ms=0.5", "milliseconds"),
        ("message.format.version=2.8", "removed in Kafka 4.0"),
    ] {
        let (code, _, error) = server.run(&set("alter", &[wrong]));
        assert!(code == 1 && error.contains(hint) && error.contains("INVALID_CONFIG"), "{error}");
    }
    // Bits 0 to 2 of a batch's attributes: 22 bytes behind its begin.
    let codec_at_end = |server: &Server| {
        let log = std::fs::read(server.path("data/t-0/00000000000000000000.log")).expect("a log");
        let last = ringlog::format::batch::scan(&log).last().expect("a batch");
        last.header.codec().expect("a codec").name()
    };
    server.fed(&["produce", "t"], b"as it came\n");
    assert_eq!(codec_at_end(&server), "none");
    let (_, _, notes) = server.run(&set("alter", &["compression.type=zstd", "flush.messages=10"]));
    assert!(notes.contains("min.insync.replicas=2"), "{notes}");
    server.fed(&["produce", "t"], b"as the topic has it\n");
    assert_eq!(codec_at_end(&server), "zstd");

    server.kill();
    server.restart();
    server.fed(&["produce", "t"], b"still\n");
    assert_eq!(codec_at_end(&server), "zstd");
    assert_eq!(server.consumed("t"), b"as it came\nas the topic has it\nstill\n");
    let told = server.ok(&["topic", "describe", "t"]);
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{told}");
    let rows: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        ["compression.type", "zstd", "topic", "producer"],
        ["flush.policy", "records:10", "topic", "group"],
        ["retention.ms", "604800000", "topic", "604800000"],
    ] {
        assert!(rows.iter().any(|told| *told == row), "{row:?}: {told}");
    }
    assert!(rows.iter().any(|row| *row == ["segment.ms", "604800000"]), "{told}");
}

#[test]
fn stats_show_what_was_done() {
    let server = Server::start();
    server.ok(&["topic", "create", "t"]);
    server.fed(&["produce", "t", "--batch-bytes", "100"], "some line\n".repeat(2000).as_bytes());
    let text = server.ok(&["stats"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for wanted in ["produce.total", "batches a write: ", "waiters a flush: ", "enters a request: "]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let json: Value = serde_json::from_str(&server.ok(&["stats", "--json"])).expect("JSON");
    assert_eq!(json["counters"]["records"], 2000);
    let latencies = json["latencies"].as_array().expect("stages");
    let total = latencies.iter().find(|one| one["stage"] == "produce.total").expect("timed");
    let count = total["count"].as_u64().expect("a count");
    assert!((200..10_000).contains(&count), "{count} batches");
    assert!(total["p50"].is_u64() && total["p99"].is_null(), "{total}");
}
