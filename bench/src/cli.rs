//! The command line: what may be asked, and the units it is asked in.
//!
//! Owns: flags and their parsing. Never does: act on them. Left: `clap`. Right: `main`, `quick`,
//! `lookup`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use crate::server::Serve;

#[derive(Parser)]
#[command(name = "ringlog-bench", version, about = "Measures ringlog beside its ceilings")]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// About two minutes: ceilings of this machine, then produce and fetch beside them.
    #[command(
        after_help = "Examples:\n  ringlog-bench quick\n  ringlog-bench quick --dir /mnt/nvme \
                            --json > quick.json"
    )]
    Quick(Quick),
    /// What finding an offset or a time in a large segment costs, hot and cold, and what it reads.
    #[command(after_help = "Examples:\n  ringlog-bench lookup\n  ringlog-bench lookup --dir \
                            /mnt/nvme --segment 256MiB --json > lookup.json")]
    Lookup(Lookup),
    /// The manual page, to standard output.
    #[command(after_help = "Examples:\n  ringlog-bench man | man -l -")]
    Man,
    /// The server under test, started by the benchmark itself.
    #[command(name = "__serve", hide = true)]
    Serve(Box<Serve>),
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    Auto,
    Uring,
    Syscall,
}

impl Engine {
    pub fn name(self) -> &'static str {
        match self {
            Engine::Auto => "auto",
            Engine::Uring => "uring",
            Engine::Syscall => "syscall",
        }
    }
}

#[derive(Args, Clone, Debug, Serialize)]
pub struct Quick {
    /// Where to measure: a temporary folder is made here and removed at the end
    /// [default: the build's target folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print environment and rows as JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Passes over all rows; every second one runs in opposite order
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub passes: u32,
    /// Seconds of load a row; raw device loops take half of it
    #[arg(long, default_value_t = 2.0, value_parser = parse_seconds, value_name = "SECONDS")]
    pub seconds_per_row: f64,
    /// How the server under test does its I/O
    #[arg(long, value_enum, default_value_t = Engine::Auto)]
    pub engine: Engine,
    /// Most bytes to write in all; rows shrink to fit
    #[arg(long, default_value = "16GiB", value_parser = parse_bytes, value_name = "BYTES")]
    pub max_write: u64,
    /// Only rows whose name contains one of these, such as "os 64K,hot"; fetch rows read what
    /// "produce os" wrote
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Measure the ceilings alone, no server
    #[arg(long)]
    pub ceilings: bool,
    /// Keep the temporary folder
    #[arg(long)]
    pub keep: bool,
    /// Tiny sizes, to see that everything runs; its figures mean nothing
    #[arg(long, hide = true)]
    pub smoke: bool,
}

#[derive(Args, Clone, Debug, Serialize)]
pub struct Lookup {
    /// Where to measure: a temporary folder is made here and removed at the end
    /// [default: the build's target folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print environment and rows as JSON instead of a table
    #[arg(long)]
    pub json: bool,
    /// Size of the segment
    #[arg(long, default_value = "1GiB", value_parser = parse_segment, value_name = "BYTES")]
    pub segment: u64,
    /// Size of a record's value
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub record: u32,
    /// Records are written in batches of about this size
    #[arg(long, default_value_t = 16384, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(256..=1_000_000))]
    pub batch: u32,
    /// Lookups of a hot row
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub lookups: u64,
    /// Lookups of a cold row
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub cold_lookups: u64,
    /// Lookups of a row whose log is opened anew each time
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub first_lookups: u64,
    /// Chooses the places
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// A size that a segment may have: its positions are i32.
fn parse_segment(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    match (1 << 20..=i32::MAX as u64).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("'{text}' is not between 1MiB and 2147483647")),
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(seconds) if (0.05..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is not between 0.05 and 600 seconds")),
    }
}

/// `64KiB`, `16GiB`, `1GB`, `4096`: a number and an optional unit.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let wrong = || format!("'{text}' is not a size: try 512MiB or 16GiB");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units() {
        assert_eq!(parse_bytes("64KiB"), Ok(65_536));
        assert_eq!(parse_bytes("2 GB"), Ok(2_000_000_000));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert!(parse_bytes("lots").is_err());
        assert!(parse_bytes("5XB").is_err());
        assert!(parse_bytes("99999999999TiB").is_err());
    }

    #[test]
    fn flags_have_bounds() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        let parse = |args: &[&str]| Cli::try_parse_from(args);
        assert!(parse(&["b", "quick", "--passes", "0"]).is_err());
        assert!(parse(&["b", "quick", "--seconds-per-row", "0"]).is_err());
        assert!(parse(&["b", "lookup", "--segment", "2GiB"]).is_err());
        assert!(parse(&["b", "lookup", "--segment", "1GiB", "--record", "100"]).is_ok());
        assert!(parse(&["b", "quick", "--max-write", "1GiB", "--engine", "syscall"]).is_ok());
    }
}
