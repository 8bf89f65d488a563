//! `ringlog probe`: what the kernel and a directory's disk allow, and why.
//!
//! Owns: the flags, the words when a directory cannot be looked at. Never does: find anything out.
//! Left: `io::probe`. Right: `cli`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::Failure;
use super::output::print_line;
use crate::io::probe::{Report, render};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog probe
  ringlog probe --dir /var/lib/ringlog
  ringlog probe --dir /mnt/a/ringlog --dir /mnt/b/ringlog
  ringlog probe --dir d --json

With --dir it writes a trial file there that has no name, and leaves nothing behind.")]
pub struct Probe {
    /// A data directory, or where it would be; it must exist. May be given many times.
    #[arg(long, value_name = "D")]
    dir: Vec<PathBuf>,
    /// A JSON object; with several directories one a line and directory.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Probe) -> Result<(), Failure> {
    if args.dir.is_empty() {
        return show(args, &probe(None)?);
    }
    let reports: Vec<Report> =
        args.dir.iter().map(|dir| probe(Some(dir))).collect::<Result<_, _>>()?;
    for (at, report) in reports.iter().enumerate() {
        if at > 0 && !args.json {
            print_line("")?;
        }
        show(args, report)?;
    }
    Ok(())
}

fn probe(dir: Option<&Path>) -> Result<Report, Failure> {
    Report::probe(dir).map_err(|error| {
        let dir = dir.unwrap_or_else(|| ".".as_ref());
        Failure(format!("{}: {error}; it must be a directory that can be written", dir.display()))
    })
}

fn show(args: &Probe, report: &Report) -> Result<(), Failure> {
    let text = match args.json {
        true => serde_json::to_string(report)?,
        false => render::render(report),
    };
    print_line(text.trim_end())
}
