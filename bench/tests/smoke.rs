//! The whole of `quick` at tiny sizes: it runs, every row is there, and what it prints parses.
//!
//! Says nothing about figures: rows this small are noise.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const ROWS: usize = 31;

fn quick(extra: &[&str]) -> (Output, tempfile::TempDir) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ringlog-bench"))
        .args(["quick", "--smoke", "--dir"])
        .arg(dir.path())
        .args(extra)
        .output()
        .unwrap();
    (output, dir)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn json_holds_every_row_of_both_passes_and_nothing_stays_behind() {
    let (output, dir) = quick(&["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * ROWS);
    let names: HashSet<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), ROWS);
    for row in rows {
        assert!(row["bytes"].as_u64().unwrap() > 0, "{row}");
        assert!(row["seconds"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["accepted"]["bytes_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(!row["setup"].as_str().unwrap().is_empty(), "{row}");
        let buffered =
            row["name"] == "raw append 64K" || row["name"].as_str().unwrap().ends_with(" os 64K");
        assert_eq!(row["drained"].is_object(), buffered, "{row}");
    }
    for row in rows.iter().filter(|row| row["arm"] == "server") {
        assert!(["uring", "syscall"].contains(&row["engine"].as_str().unwrap()), "{row}");
        let produces = row["name"].as_str().unwrap().starts_with("produce");
        assert_eq!(row["exposure"].is_string(), produces, "{row}");
    }
    // The second pass runs in opposite order.
    assert_eq!(rows[0]["name"], rows[rows.len() - 1]["name"]);
    assert_eq!(report["label"], "screening");
    assert!(report["env"]["facts"]["kernel"].is_string());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn the_table_fits_and_says_beforehand_where_and_how_much_it_writes() {
    let (output, _dir) = quick(&["--passes", "1", "--engine", "syscall"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    assert!(table.contains("min hot sendfile"), "{table}");
    let names_the_ring = |line: &str| line.trim_start().starts_with("uring");
    assert!(!table.lines().any(names_the_ring), "{table}");
    let said = stderr(&output);
    assert!(["directory", "device", "writes"].iter().all(|word| said.contains(word)), "{said}");
}

#[test]
fn ceilings_alone_start_no_server_and_keep_keeps() {
    let (output, dir) = quick(&["--ceilings", "--passes", "1", "--keep"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_of_the_server = |line: &str| line.trim_start().starts_with("produce ");
    assert!(!table.lines().any(is_of_the_server), "{table}");
    let kept = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    assert!(kept.join("p1-min-os-64K").is_file());
    assert!(stderr(&output).contains(&format!("kept: {}", kept.display())));
}

#[test]
fn too_small_a_budget_is_refused_by_name() {
    let (output, _dir) = quick(&["--ceilings", "--max-write", "1MiB"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("--max-write"), "{}", stderr(&output));
}

#[test]
fn a_signal_ends_it_in_order() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringlog-bench"))
        .args(["quick", "--ceilings", "--seconds-per-row", "5", "--max-write", "512MiB", "--dir"])
        .arg(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Announced: the folder is there and the first row is about to run.
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    while !said.contains("writes") {
        assert!(lines.read_line(&mut said).unwrap() > 0, "ended early: {said}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let drained = std::thread::spawn(move || std::io::read_to_string(lines).unwrap());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(drained.join().unwrap().contains("stopped by a signal"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn lookups_hot_and_cold_say_what_they_read() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = |extra: &[&str]| {
        let small = ["--segment", "2MiB", "--lookups", "300", "--cold-lookups", "20"];
        let output = Command::new(env!("CARGO_BIN_EXE_ringlog-bench"))
            .args(["lookup", "--first-lookups", "3", "--dir"])
            .arg(dir.path())
            .args(small)
            .args(extra)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let report: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        assert!(row["latency"]["max_us"].as_f64().unwrap() > 0.0, "{row}");
        let (reads, bytes) = (&row["reads_per_lookup"], &row["bytes_per_lookup"]);
        assert!(reads.as_f64().unwrap() >= 1.0 && bytes.as_f64().unwrap() > 61.0, "{row}");
    }
    let read = |at: usize| rows[at]["bytes_per_lookup"].as_f64().unwrap();
    assert!(read(4) > read(2) && read(5) > read(3), "the first lookup reads the indexes too");
    let table = run(&[]);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let is_row = |line: &&str| line.starts_with("offset, ") || line.starts_with("time, ");
    assert_eq!(table.lines().filter(is_row).count(), 6, "{table}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}
