//! The real binary where the system allows it little.
//!
//! Owns: R60 as a user meets it. Never does: need root or a tool beside the shell. Left: the
//! `ringlog` binary. Right: nobody.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// R60: 64 KiB of locked memory are enough for the first shards' rings and not for eight: all run
/// on plain system calls then, and one warning says what to raise. (Root is not limited.)
#[test]
fn r60_little_locked_memory_serves_with_one_warning_that_names_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -l 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ringlog"), "serve"])
        .args(["--listen", "127.0.0.1:0", "--shards", "8", "--engine", "auto", "--data-dir"])
        .arg(dir.path().join("data"))
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(8);
    let listening =
        lines.filter(|line| line.as_ref().is_ok_and(|l| l.contains("127.0.0.1"))).count();
    child.kill().unwrap();
    child.wait().unwrap();
    let told = std::fs::read_to_string(&log).unwrap();
    assert_eq!(listening, 8, "{told}");
    let warnings: Vec<_> =
        told.lines().filter(|l| l.contains("WARN") && l.contains("engine")).collect();
    assert!(warnings.len() <= 1, "{warnings:#?}");
    let limited = warnings.iter().all(|warning| !warning.contains("locked-memory"));
    assert!(limited || warnings[0].contains("LimitMEMLOCK"), "{warnings:#?}");
    assert!(!told.contains("panicked"), "{told}");
}
