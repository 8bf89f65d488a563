//! The command line: one file a subcommand, shared flags and exit codes here.
//!
//! Owns: parsing, exit codes (0 done, 1 failed, 2 bad usage), where logs go. Never does: the work.
//! Left: `server`, `client`, `tools`, `format`, `io::probe`. Right: `main`.

mod connect;
mod consume;
mod cuts;
mod dump;
mod dump_index;
mod dump_json;
mod dump_log;
mod dump_small;
mod explore;
mod feed;
mod index_rebuild;
mod json;
mod lane;
mod latency;
mod lines;
mod log_dirs;
mod offsets;
mod output;
mod partitions;
mod probe;
mod produce;
mod records;
mod render;
mod serve;
mod shell;
mod stats;
mod topic;
mod verify;
mod when;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An append-log server on io_uring that keeps Kafka's partition logs, byte for byte.
#[derive(Parser, Debug)]
#[command(name = "ringlog", version, max_term_width = 80)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve partitions from a data directory until SIGTERM or SIGINT.
    Serve(Box<serve::Serve>),
    /// Make, list, describe, alter and delete topics.
    Topic(topic::Topic),
    /// Send the lines of a file or of standard input.
    Produce(produce::Produce),
    /// Print records, up to the log's end or for ever.
    Consume(consume::Consume),
    /// Find the offset of a time, or of an end of the log.
    Offsets(offsets::Offsets),
    /// The server's counters, and its latencies stage by stage.
    Stats(stats::Stats),
    /// Print what is in a log's files, as kafka-dump-log prints it.
    Dump(dump::Dump),
    /// What a partition is made of, and where a lookup goes.
    Explore(explore::Explore),
    /// Whether a data directory or a partition is sound; what to do if not.
    Verify(verify::Verify),
    /// Make the indexes of a partition anew from its log. The server must be stopped.
    IndexRebuild(index_rebuild::IndexRebuild),
    /// What recovery cut out of logs and kept aside.
    Cuts(cuts::Cuts),
    /// What the kernel and a directory's disk allow, and which way each operation goes.
    Probe(probe::Probe),
    /// A completion script for a shell.
    Completions(shell::Completions),
    /// The manual page.
    Man(shell::Pages),
}

/// Why a command failed: what, where, and what to do, in one text for people.
#[derive(Debug)]
pub struct Failure(pub String);

impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure(error.to_string())
    }
}

/// Parses the arguments, runs the command, gives its exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr();
    let done = match cli.command {
        Command::Serve(args) => args.run(),
        Command::Topic(args) => topic::run(&args),
        Command::Produce(args) => produce::run(&args),
        Command::Consume(args) => consume::run(&args),
        Command::Offsets(args) => offsets::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Explore(args) => explore::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::IndexRebuild(args) => index_rebuild::run(&args),
        Command::Cuts(args) => cuts::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Completions(args) => shell::completions(&args),
        Command::Man(args) => shell::pages(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(message)) => {
            eprintln!("ringlog: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Log lines go to standard error; `RINGLOG_LOG=debug` (or per module) shows more.
fn log_to_stderr() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_env("RINGLOG_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .with_target(false)
        .init();
}
