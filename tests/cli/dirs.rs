//! `ringlog topic describe --dirs` and `ringlog probe` over several directories.

use serde_json::Value;

use super::server::Server;

#[test]
fn log_dirs_are_shown_within_80_columns_and_as_json() {
    let server = Server::start();
    server.ok(&["topic", "create", "events", "--partitions", "2"]);
    server.ok(&["topic", "create", "other"]);
    let (code, _, _) = server.fed(&["produce", "events"], b"one\ntwo\n");
    assert_eq!(code, 0);
    let text = server.ok(&["topic", "describe", "--dirs"]);
    assert!(text.starts_with("directory "), "{text}");
    let fits = |line: &str| line.len() <= 80 || line.starts_with("directory ");
    assert!(text.lines().all(fits), "{text}");
    assert!(text.contains(", online, ") && text.contains(" usable\n"), "{text}");
    for row in ["events", "other"] {
        assert!(text.lines().any(|line| line.starts_with(row)), "{text}");
    }
    let json: Value =
        serde_json::from_str(&server.ok(&["topic", "describe", "events", "--dirs", "--json"]))
            .expect("one object, for one directory");
    assert_eq!(json["state"], "online");
    assert!(json["total_bytes"].as_u64() >= json["usable_bytes"].as_u64());
    let partitions = json["partitions"].as_array().expect("a list");
    assert_eq!(partitions.len(), 2, "of the topic that was named: {json}");
    let bytes: u64 = partitions.iter().filter_map(|one| one["bytes"].as_u64()).sum();
    assert!(bytes > 0 && partitions.iter().all(|one| one["lag"] == 0), "{json}");
    let (code, _, told) = server.run(&["topic", "describe", "nothing", "--dirs"]);
    assert!(code == 1 && told.contains("nothing"), "{told}");
    let (code, _, told) = server.run(&["topic", "describe"]);
    assert!(code == 2 && told.contains("<NAME>"), "{told}");
}

#[test]
fn probe_takes_several_directories() {
    let server = Server::start();
    let (one, two) = (server.path("one"), server.path("two"));
    for dir in [&one, &two] {
        std::fs::create_dir(dir).expect("made");
    }
    let (one, two) = (one.to_str().expect("UTF-8"), two.to_str().expect("UTF-8"));
    let lines = server.ok(&["probe", "--dir", one, "--dir", two, "--json"]);
    let told: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(told.len(), 2);
    assert_ne!(told[0]["dir"]["path"], told[1]["dir"]["path"]);
}
