//! The binary as people run it: arguments, exit codes, what it prints.

mod cut;
mod dirs;
mod dump;
mod explore;
#[path = "../support/golden.rs"]
mod fixtures;
mod live;
mod loss;
mod memory;
mod rebuild;
mod server;
mod shell;
mod usage;
mod verify;

use std::process::{Command, Output};

use fixtures::golden;

/// The binary, with a clean environment of its own settings.
fn ringlog() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringlog"));
    command.env_remove("RINGLOG_SERVER").env_remove("RINGLOG_LOG");
    command
}

/// The exit code, and both outputs as text.
fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("ended by itself");
    (code, text(&output.stdout), text(&output.stderr))
}

fn run(args: &[&str]) -> (i32, String, String) {
    told(&ringlog().args(args).output().expect("runs"))
}
