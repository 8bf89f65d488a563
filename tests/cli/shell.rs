//! Completions and the man page come from the flags.

use super::run;

#[test]
fn completions_and_the_page_name_every_command() {
    let commands = ["serve", "topic", "dump", "explore", "verify", "index-rebuild", "cuts", "man"];
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = run(&["completions", shell]);
        assert_eq!(code, 0, "{shell}");
        for wanted in commands.into_iter().chain(["offset-range"]) {
            assert!(script.contains(wanted), "{shell}: {wanted}");
        }
    }
    let (code, page, _) = run(&["man"]);
    assert_eq!(code, 0);
    assert!(page.starts_with(".ie") || page.contains(".TH ringlog 1"), "{page}");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("UTF-8");
    assert_eq!(run(&["man", "--dir", path]).0, 0);
    for page in ["ringlog.1", "ringlog-dump.1", "ringlog-cuts-list.1"] {
        let text = std::fs::read_to_string(dir.path().join(page)).expect(page);
        assert!(text.contains(".SH"), "{page}");
    }
}
