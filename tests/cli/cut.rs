//! A reader at the command line, and a log that lost something under it.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use super::server::Server;

fn log(server: &Server) -> std::path::PathBuf {
    server.path("data").join("t-0").join("00000000000000000000.log")
}

/// A topic of ten batches; where the seventh begins.
fn ten_batches() -> (Server, u64) {
    let server = Server::start();
    server.ok(&["topic", "create", "t"]);
    let mut kept = 0;
    for at in 0..10 {
        if at == 6 {
            kept = std::fs::metadata(log(&server)).expect("a log").len();
        }
        let (code, ..) = server.fed(&["produce", "t"], format!("line {at}\n").as_bytes());
        assert_eq!(code, 0);
    }
    (server, kept)
}

/// R11: the file is shorter after the crash, as where the power went before it was flushed. A
/// reader that follows the log across the restart says what is lost, and does not go on.
#[test]
fn r11_a_reader_that_follows_says_what_a_cut_took() {
    let (mut server, kept) = ten_batches();
    let mut reading = server
        .command(&["consume", "t", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    let mut lines = BufReader::new(reading.stdout.take().expect("piped")).lines();
    for at in 0..10 {
        assert_eq!(lines.next().expect("a line").expect("text"), format!("line {at}"));
    }
    server.kill();
    let file = std::fs::File::options().write(true).open(log(&server)).expect("opens");
    file.set_len(kept).expect("cut");
    server.restart();
    let code = reading.wait().expect("ends").code();
    let mut error = String::new();
    reading.stderr.take().expect("piped").read_to_string(&mut error).expect("text");
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("t-0 was cut: what was read at offsets 6 to 9"), "{error}");
    assert!(error.contains("go on at offset 6"), "{error}");
    assert!(lines.next().is_none(), "nothing more is printed");

    server.fed(&["produce", "t"], b"new 6\nnew 7\nnew 8\nnew 9\n");
    let told = server.ok(&["offsets", "t", "--epoch", "0"]);
    assert!(told.starts_with("t-0: 6 "), "{told}");
    // Whoever wrote the epoch down is told too, also where offsets look as if nothing had happened.
    let (code, out, error) = server.run(&["consume", "t", "--offset", "10", "--epoch", "0"]);
    assert_eq!((code, out.as_str()), (1, ""), "{error}");
    assert!(error.contains("offsets 6 to 9 in leader epoch 0"), "{error}");
    assert_eq!(
        server.ok(&["consume", "t", "--offset", "6", "--epoch", "0"]),
        "new 6\nnew 7\nnew 8\nnew 9\n"
    );
}

/// R17: damage on the disk ends the reading with an error, or is skipped and said.
#[test]
fn r17_damage_is_skipped_only_when_that_is_asked_for() {
    let (mut server, seventh) = ten_batches();
    server.kill();
    let mut bytes = std::fs::read(log(&server)).expect("a log");
    server.restart();
    // While the server runs, so that no recovery sees it.
    bytes[seventh as usize - 1] ^= 1;
    std::fs::write(log(&server), &bytes).expect("written");
    let (code, out, error) = server.run(&["consume", "t"]);
    assert_eq!(code, 1);
    assert!(out.ends_with("line 4\n"), "{out}");
    assert!(error.contains("batch at offset 5"), "{error}");
    let (code, out, error) = server.run(&["consume", "t", "--skip-damage"]);
    assert_eq!(code, 0, "{error}");
    let all: String = (0..10).filter(|at| *at != 5).map(|at| format!("line {at}\n")).collect();
    assert_eq!(out, all);
    assert!(error.contains("t-0: offsets 5 to 5 are damaged: skipped"), "{error}");
}
