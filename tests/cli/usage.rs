//! Wrong usage is exit code 2, with nothing done; help shows examples.

use super::run;

#[test]
fn wrong_usage_exits_2_and_names_the_argument() {
    for (args, named) in [
        (&["dump"][..], "<FILE>"),
        (&["dump", "x.log", "--max-bytes", "many"], "--max-bytes"),
        (&["no-such-command"], "no-such-command"),
    ] {
        let (code, stdout, stderr) = run(args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert_eq!(stdout, "", "{args:?}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
    }
}

#[test]
fn every_command_has_help_with_examples_in_80_columns() {
    for command in ["dump"] {
        let (code, stdout, _) = run(&[command, "--help"]);
        assert_eq!(code, 0, "{command}");
        assert!(stdout.contains(&format!("ringlog {command} ")), "{command}: {stdout}");
        assert!(stdout.contains("Example"), "{command}: {stdout}");
        for line in stdout.lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
}
