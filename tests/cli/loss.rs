//! A producer whose server is killed: it goes on where the log ends, or says exactly where to.

use std::io::Write;
use std::process::{Child, Stdio};

use super::server::Server;
use super::told;

fn lines(from: u64, to: u64) -> String {
    (from..to).map(|number| format!("line {number} of a file that is sent\n")).collect()
}

/// A producer with its input held open.
fn producer(server: &Server, args: &[&str]) -> Child {
    let mut command = server.command(&[&["produce", "t"], args].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("runs")
}

fn put(producer: &mut Child, text: &str) {
    producer.stdin.as_mut().expect("piped").write_all(text.as_bytes()).expect("it reads");
}

fn ended(mut producer: Child) -> (i32, String, String) {
    drop(producer.stdin.take());
    told(&producer.wait_with_output().expect("ends"))
}

/// The number behind `what` in a text.
fn number(text: &str, what: &str) -> u64 {
    let (_, rest) = text.split_once(what).unwrap_or_else(|| panic!("{what:?} in {text:?}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("a number behind {what:?} in {text:?}"))
}

/// Two producers of two partitions each, and the server killed in their midst: every line of both
/// is there once, and those of one partition in order.
#[test]
fn producers_go_on_by_themselves_after_a_kill() {
    let mut server = Server::start();
    server.ok(&["topic", "create", "t", "--partitions", "2"]);
    let all = lines(0, 30_000);
    let sending: Vec<_> = ["none", "lz4"]
        .map(|compression| {
            let args = ["--acks", "durable", "--batch-bytes", "2KiB", "--in-flight", "64"];
            let mut sending =
                producer(&server, &[&args[..], &["--compression", compression]].concat());
            let (mut input, text) = (sending.stdin.take().expect("piped"), all.clone());
            let feeding = std::thread::spawn(move || input.write_all(text.as_bytes()));
            (sending, feeding)
        })
        .into_iter()
        .collect();
    for at in [2_000, 15_000, 30_000] {
        server.wait_for("t", at);
        server.kill();
        server.restart();
    }
    let mut told = String::new();
    for (sending, feeding) in sending {
        feeding.join().expect("ends").expect("it reads to the end");
        let (code, summary, error) = ended(sending);
        assert_eq!(code, 0, "{error}");
        assert!(summary.contains("records acked: 30000, "), "{summary}");
        told.push_str(&error);
    }
    assert!(told.contains("connected again for partition "), "{told}");
    let held = String::from_utf8(server.consumed("t")).expect("text");
    let mut counts = vec![0; 30_000];
    for line in held.lines() {
        counts[number(line, "line ") as usize] += 1;
    }
    assert!(counts.iter().all(|count| *count == 2), "no gap, no repeat");
}

#[test]
fn without_idempotence_a_lone_producer_goes_on_where_the_log_ends() {
    for compression in ["none", "lz4"] {
        let mut server = Server::start();
        server.ok(&["topic", "create", "t"]);
        server.fed(&["produce", "t"], b"before\n");
        let all = lines(0, 60_000);
        let args = ["--no-idempotence", "--acks", "durable", "--batch-bytes", "2KiB"];
        let args = [&args[..], &["--compression", compression]].concat();
        let mut sending = producer(&server, &args);
        let mut input = sending.stdin.take().expect("piped");
        let text = all.clone();
        let feeding = std::thread::spawn(move || input.write_all(text.as_bytes()));
        // In the midst of it, with batches unacked; twice.
        for at in [2_000, 30_000] {
            server.wait_for("t", at);
            server.kill();
            server.restart();
        }
        feeding.join().expect("ends").expect("it reads to the end");
        let (code, summary, error) = ended(sending);
        assert_eq!(code, 0, "{error}");
        assert!(summary.contains("records acked: 60000, "), "{summary}");
        assert!(summary.contains("last offset: 60000, level met: durable"), "{summary}");
        assert!(error.contains("connected again: the log ends at "), "{error}");
        let held = server.consumed("t");
        assert!(held == format!("before\n{all}").into_bytes(), "no gap, no repeat");
    }
}

#[test]
fn what_a_pipe_brought_before_the_loss_is_not_read_again() {
    let mut server = Server::start();
    server.ok(&["topic", "create", "t"]);
    let mut sending = producer(&server, &[]);
    put(&mut sending, &lines(0, 10));
    server.wait_for("t", 10);
    server.kill();
    put(&mut sending, &lines(10, 20));
    server.restart();
    server.wait_for("t", 20);
    put(&mut sending, &lines(20, 30));
    let (code, summary, error) = ended(sending);
    assert_eq!(code, 0, "{error}");
    assert!(summary.contains("records acked: 30, "), "{summary}");
    assert!(server.consumed("t") == lines(0, 30).into_bytes());
}

#[test]
fn without_retries_it_ends_and_says_how_to_resume() {
    let mut server = Server::start();
    server.ok(&["topic", "create", "t"]);
    server.fed(&["produce", "t"], b"one\ntwo\nthree\n");
    let all = lines(0, 40_000);
    let path = server.path("all");
    std::fs::write(&path, &all).expect("written");
    let sending = server
        .command(&["produce", "t", "--retries", "0", "--batch-bytes", "1KiB", "--file"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    server.wait_for("t", 3_000);
    server.kill();
    let (code, summary, error) = ended(sending);
    assert_eq!(code, 1);
    let acked = number(&summary, "records acked: ");
    assert!((2_000..40_000).contains(&acked), "{summary}");
    assert_eq!(number(&error, "Every line before "), acked + 1, "{error}");
    assert!(error.contains("the log's end (`ringlog offsets`) - 2"), "{error}");
    server.restart();
    let held = server.end("t") - 3;
    assert!(held >= acked, "{held} held, {acked} acked");
    let from = (held + 3 - 2).to_string();
    let file = path.to_str().expect("UTF-8");
    server.ok(&["produce", "t", "--file", file, "--from-line", &from]);
    assert!(server.consumed("t") == format!("one\ntwo\nthree\n{all}").into_bytes());
}

#[test]
fn who_is_not_alone_does_not_guess() {
    let mut server = Server::start();
    server.ok(&["topic", "create", "t"]);
    let mut sending = producer(&server, &["--no-idempotence"]);
    put(&mut sending, &lines(0, 5));
    server.wait_for("t", 5);
    server.fed(&["produce", "t"], b"somebody else\n");
    put(&mut sending, &lines(5, 10));
    server.wait_for("t", 11);
    server.kill();
    put(&mut sending, &lines(10, 15));
    server.restart();
    let (code, summary, error) = ended(sending);
    assert_eq!(code, 1, "{error}");
    assert!(summary.contains("records acked: 10, "), "{summary}");
    assert!(error.contains("Every line before 11 is in the log"), "{error}");
    assert!(error.contains("--from-line 11, which may repeat"), "{error}");
    assert_eq!(server.end("t"), 11);
}

#[test]
fn over_several_partitions_it_says_from_which_line_to_resume() {
    let mut server = Server::start();
    server.ok(&["topic", "create", "t", "--partitions", "2"]);
    let mut sending = producer(&server, &["--no-idempotence"]);
    put(&mut sending, &lines(0, 4));
    server.wait_for("t", 4);
    server.kill();
    put(&mut sending, &lines(4, 8));
    let (code, summary, error) = ended(sending);
    assert_eq!(code, 1);
    assert!(summary.contains("records acked: 4, "), "{summary}");
    assert!(error.contains("Every line before 5 is in the log"), "{error}");
    assert!(error.contains("--from-line 5"), "{error}");
}

#[test]
fn a_refused_batch_ends_the_run_and_is_named() {
    let server = Server::start();
    server.ok(&["topic", "create", "t"]);
    let mut sending = producer(&server, &[]);
    put(&mut sending, &lines(0, 3));
    server.wait_for("t", 3);
    server.ok(&["topic", "alter", "t", "--config", "max.message.bytes=100"]);
    put(&mut sending, &lines(3, 20));
    let (code, summary, error) = ended(sending);
    assert_eq!(code, 1);
    assert!(summary.contains("records acked: 3, "), "{summary}");
    assert!(error.contains("lines 4 to ") && error.contains("MESSAGE_TOO_LARGE"), "{error}");
    assert!(error.contains("--from-line 4"), "{error}");
    assert!(server.consumed("t") == lines(0, 3).into_bytes());
}

#[test]
fn nothing_listening_says_where_and_what_to_do() {
    let mut server = Server::start();
    server.ok(&["topic", "create", "t"]);
    server.kill();
    for args in [
        &["topic", "list"][..],
        &["produce", "t"],
        &["consume", "t"],
        &["offsets", "t"],
        &["stats"],
    ] {
        let (code, _, error) = server.run(args);
        assert_eq!(code, 1, "{args:?}");
        assert!(error.contains(&server.address), "{error}");
        assert!(error.contains("ringlog serve"), "{error}");
    }
}
