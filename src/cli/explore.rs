//! `ringlog explore`: what a partition is made of, and where a lookup goes.
//!
//! Owns: the flags, the text in 80 columns. Never does: look (`tools::explore` and `tools::lookup`
//! do). Left: `tools`. Right: `cli`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::output::print_line;
use super::render::{bytes, lines, table};
use super::verify::directory;
use super::{Failure, when};
use crate::tools::explore::{Picture, picture};
use crate::tools::lookup::{self, Lookup};
use crate::tools::partition::Listing;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog explore d/events-0
  ringlog explore d/events-0 --lookup 4711
  ringlog explore d/events-0 --lookup-time 2026-01-01T00:00:00Z
  ringlog explore d/events-0 --json

Reads names, indexes and checkpoints, and of a log only what a lookup reads. Changes nothing, of a
running server either; what that server has only in memory is not seen.")]
pub struct Explore {
    /// The directory of a partition.
    #[arg(value_name = "PARTITION_DIR", value_parser = directory)]
    dir: PathBuf,
    /// The steps that lead to the batch with this offset.
    #[arg(long, value_name = "OFFSET", value_parser = clap::value_parser!(i64).range(0..))]
    lookup: Option<i64>,
    /// The steps that lead to the first record at or after a time: milliseconds since 1970, or an
    /// RFC 3339 time.
    #[arg(long, value_name = "T", value_parser = when::time)]
    lookup_time: Option<i64>,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Explore) -> Result<(), Failure> {
    let failed = |error| Failure(format!("{}: {error}", args.dir.display()));
    let listing = Listing::read(&args.dir).map_err(failed)?;
    if listing.segments.is_empty() {
        let dir = args.dir.display();
        return Err(Failure(format!("{dir}: holds no segment; give the directory of a partition")));
    }
    let by_offset = args
        .lookup
        .map(|offset| lookup::by_offset(&listing, offset))
        .transpose()
        .map_err(failed)?;
    let by_time =
        args.lookup_time.map(|time| lookup::by_time(&listing, time)).transpose().map_err(failed)?;
    let picture = picture(&args.dir, &listing).map_err(failed)?;
    if args.json {
        let value = json!({"partition": picture, "lookup": by_offset, "lookup_time": by_time});
        return print_line(&value.to_string());
    }
    let mut text = overview(&picture);
    for (title, lookup) in [("lookup by offset", by_offset), ("lookup by time", by_time)] {
        text += &lookup.map_or(String::new(), |lookup| steps(title, &lookup));
    }
    print_line(text.trim_end())
}

fn overview(picture: &Picture) -> String {
    let mut text = format!("{}\n", picture.directory);
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:15}{value}"); // a String takes all
    };
    let state = match picture.clean {
        Some(true) => "stopped cleanly",
        Some(false) => "in use, or not stopped cleanly",
        None => "not in a data directory: no checkpoints",
    };
    row("state", state.to_owned());
    row("offsets", format!("{} up to {}", picture.log_start, picture.log_end));
    let known = |offset: Option<i64>| offset.map_or("none".to_owned(), |offset| offset.to_string());
    row("high watermark", known(picture.high_watermark));
    row("recovery point", known(picture.recovery_point));
    let (log, index) = (bytes(picture.bytes), bytes(picture.index_bytes));
    row("size", format!("{log} in {} segments; indexes {index}", picture.segments.len()));
    let list = |items: Vec<String>| match items.len() {
        0 => "none".to_owned(),
        1..=4 => items.join(", "),
        count => format!("{}, .. {} ({count})", items[..3].join(", "), items[count - 1]),
    };
    let epochs = picture.epochs.iter().map(|e| format!("{} from {}", e.epoch, e.start_offset));
    let epochs = list(epochs.collect());
    row("leader epochs", picture.epochs_error.clone().unwrap_or(epochs));
    row("snapshots", list(picture.snapshots.iter().map(|s| s.offset.to_string()).collect()));
    for name in &picture.deleted {
        row("deleted", name.clone());
    }
    for name in &picture.foreign {
        row("foreign", name.clone());
    }
    for cut in &picture.cuts {
        row("cut", cut.file.clone());
        let (size, segment, pos) = (bytes(cut.bytes), cut.segment, cut.position);
        row("", format!("{size} of segment {segment} at position {pos}"));
        row("", cut.reason.clone());
    }
    text.push('\n');
    text += &segments(picture);
    text
}

fn segments(picture: &Picture) -> String {
    let mut rows = table(&["segment", "size", "index", "times", "aborted", "greatest time"]);
    let count = |entries: Option<u64>| entries.map_or("none".to_owned(), |n| n.to_string());
    for segment in &picture.segments {
        rows.add_row([
            segment.base_offset.to_string(),
            segment.bytes.map_or("no log".to_owned(), bytes),
            count(segment.index_entries),
            count(segment.time_index_entries),
            segment.aborted_transactions.to_string(),
            segment.max_timestamp.map_or("-".to_owned(), when::show),
        ]);
    }
    lines(&rows) + "\n"
}

fn steps(title: &str, lookup: &Lookup) -> String {
    let mut text = format!("\n{title}\n");
    let mut read = 0;
    for (number, step) in lookup.steps.iter().enumerate() {
        read += step.read_bytes;
        let _ = writeln!(text, "  {}. {}", number + 1, step.what); // a String takes all
        if let Some(file) = &step.file {
            let _ = writeln!(text, "     {file}, {} bytes read", step.read_bytes);
        }
    }
    let found = match &lookup.found {
        None => "nothing".to_owned(),
        Some(hit) => {
            let record = hit.offset.map_or(String::new(), |offset| format!("offset {offset} in "));
            let (first, last, pos) = (hit.base_offset, hit.last_offset, hit.position);
            format!("{record}batch {first} to {last} at position {pos} of segment {}", hit.segment)
        }
    };
    let _ = writeln!(text, "  found: {found}; {read} bytes read");
    text
}
