//! `ringlog probe`: what the kernel and a directory's disk allow, and why.
//!
//! Owns: the flags, the words when a directory cannot be looked at. Never does: find anything out.
//! Left: `io::probe`. Right: `cli`.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use super::output::print_line;
use crate::io::probe::{Report, render};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog probe
  ringlog probe --dir /var/lib/ringlog
  ringlog probe --dir d --json

With --dir it writes a trial file there that has no name, and leaves nothing behind.")]
pub struct Probe {
    /// The data directory, or where it would be; it must exist.
    #[arg(long, value_name = "D")]
    dir: Option<PathBuf>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Probe) -> Result<(), Failure> {
    let report = Report::probe(args.dir.as_deref()).map_err(|error| {
        let dir = args.dir.as_deref().unwrap_or_else(|| ".".as_ref());
        Failure(format!("{}: {error}; it must be a directory that can be written", dir.display()))
    })?;
    let text = match args.json {
        true => serde_json::to_string(&report)?,
        false => render::render(&report),
    };
    print_line(text.trim_end())
}
