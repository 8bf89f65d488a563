//! A real server for the tests, on free ports, with a folder of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{ringlog, told};

pub struct Server {
    child: Child,
    pub address: String,
    dir: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Server {
        let dir = tempfile::tempdir().expect("a directory");
        let (child, address) = spawn(&dir.path().join("data"), "127.0.0.1:0");
        Server { child, address, dir }
    }

    /// As a crash does it.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// At the same address, over the same data.
    pub fn restart(&mut self) {
        (self.child, self.address) = spawn(&self.dir.path().join("data"), &self.address);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = ringlog();
        command.args(args).env("RINGLOG_SERVER", &self.address);
        command
    }

    pub fn run(&self, args: &[&str]) -> (i32, String, String) {
        told(&self.command(args).output().expect("runs"))
    }

    /// Standard output of a command that must succeed.
    pub fn ok(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {stdout}{stderr}");
        stdout
    }

    /// A command with `input` on its standard input.
    pub fn fed(&self, args: &[&str], input: &[u8]) -> (i32, String, String) {
        let path = self.path("input");
        std::fs::write(&path, input).expect("written");
        let file = std::fs::File::open(&path).expect("opens");
        told(&self.command(args).stdin(file).output().expect("runs"))
    }

    /// All values of a topic, each with a newline.
    pub fn consumed(&self, topic: &str) -> Vec<u8> {
        let output = self.command(&["consume", topic]).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// The end of partition 0.
    pub fn end(&self, topic: &str) -> u64 {
        let line = self.ok(&["offsets", topic, "--partition", "0", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        json["offset"].as_u64().expect("an end")
    }

    /// Waits until partition 0 ends at or behind `offset`; gives up where a test would hang.
    pub fn wait_for(&self, topic: &str, offset: u64) {
        for _ in 0..5_000 {
            if self.end(topic) >= offset {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("{topic} ends at {}, never at {offset}", self.end(topic));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have been killed before
        let _ = self.child.wait();
    }
}

/// Starts it. The sockets of a killed server close a moment after it is gone: its ring is torn down
/// in the background.
fn spawn(data: &Path, listen: &str) -> (Child, String) {
    for _ in 0..200 {
        if let Some(started) = try_spawn(data, listen) {
            return started;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{listen} stays in use");
}

/// `None`: the address is in use.
fn try_spawn(data: &Path, listen: &str) -> Option<(Child, String)> {
    let log = data.with_extension("log");
    let mut child = ringlog()
        .args(["serve", "--listen", listen, "--shards", "1", "--data-dir"])
        .arg(data)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    while let Some(line) = lines.next() {
        let line = line.expect("text");
        if let Some(address) = line.strip_prefix("listening on ") {
            let address = address.to_owned();
            // It may print more, and must not find the pipe closed.
            std::thread::spawn(move || lines.for_each(drop));
            return Some((child, address));
        }
    }
    child.wait().expect("it ends");
    let told = std::fs::read_to_string(&log).expect("a log");
    assert!(told.contains("Address already in use"), "it did not start: {told}");
    None
}
