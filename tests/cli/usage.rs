//! Wrong usage is exit code 2, with nothing done; help shows examples.

use super::run;

#[test]
fn wrong_usage_exits_2_and_names_the_argument() {
    for (args, named) in [
        (&["dump"][..], "<FILE>"),
        (&["dump", "x.log", "--max-bytes", "many"], "--max-bytes"),
        (&["dump", "x.log", "--offset-range", "9..3"], "A..B"),
        (&["verify", "/no/such/directory"], "No such file"),
        (&["verify", "Cargo.toml"], "not a directory"),
        (&["explore", ".", "--lookup=-1"], "--lookup"),
        (&["completions", "cmd.exe"], "bash"),
        (&["no-such-command"], "no-such-command"),
        (&["topic", "create"], "<NAME>"),
        (&["topic", "create", "t", "--config", "noequals"], "KEY=VALUE"),
        (&["topic", "alter", "t"], "--config"),
        (&["produce", "t", "--compression", "brotli"], "zstd"),
        (&["produce", "t", "--acks", "all"], "durable"),
        (&["produce", "t", "--batch-bytes", "0"], "64KiB"),
        (&["produce", "t", "--linger", "5"], "5ms"),
        (&["produce", "t", "--in-flight", "0"], "--in-flight"),
        (&["produce", "t", "--from-line", "0"], "--from-line"),
        (&["produce", "t", "--key-separator", ""], "--key-separator"),
        (&["consume", "t", "--offset=-1"], "--offset"),
        (&["consume", "t", "--offset", "3", "--time", "4"], "--time"),
        (&["consume", "t", "--server", "nowhere"], "HOST:PORT"),
        (&["offsets", "t", "--time", "late"], "earliest, latest, max"),
        (&["stats", "--watch", "0"], "--watch"),
    ] {
        let (code, stdout, stderr) = run(args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert_eq!(stdout, "", "{args:?}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
    }
}

#[test]
fn every_command_has_help_with_examples_in_80_columns() {
    for command in [
        "topic create",
        "topic list",
        "topic describe",
        "topic alter",
        "topic delete",
        "produce",
        "consume",
        "offsets",
        "dump",
        "explore",
        "verify",
        "index-rebuild",
        "cuts list",
        "cuts remove",
        "stats",
        "probe",
        "completions",
        "man",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let (code, stdout, _) = run(&words);
        assert_eq!(code, 0, "{command}");
        assert!(stdout.contains(&format!("ringlog {command} ")), "{command}: {stdout}");
        assert!(stdout.contains("Example"), "{command}: {stdout}");
        for line in stdout.lines() {
            assert!(line.chars().count() <= 80, "{command}: {line}");
        }
    }
}

#[test]
fn probe_tells_the_engine_and_the_path_of_each_operation() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("UTF-8");
    let (code, text, error) = run(&["probe", "--dir", path]);
    assert_eq!(code, 0, "{error}");
    for wanted in ["kernel", "engine", "file system", "locked memory"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let (code, json, _) = run(&["probe", "--dir", path, "--json"]);
    assert_eq!(code, 0);
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(report["paths"].as_array().is_some_and(|paths| !paths.is_empty()), "{json}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0, "nothing is left");
    let (code, _, error) = run(&["probe", "--dir", &format!("{path}/none")]);
    assert_eq!(code, 1);
    assert!(error.contains("/none: ") && error.contains("must be a directory"), "{error}");
}
