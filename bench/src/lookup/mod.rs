//! `lookup`: what finding an offset or a time in a large segment costs.
//!
//! Question: in a sealed segment of small records, how long does a lookup take, hot and cold, and
//! how much does it read? Guess: hot, a binary search in memory and one window of 8 KiB out of the
//! page cache: microseconds; cold, one read of the device; at the first touch the indexes too.
//! Method: one thread, closed loop, the library's lookups over plain system calls on that thread
//! (no network, no server); random places, the seed is kept; every answer is checked. Cold: before
//! each lookup the files are dropped and shown to be out of memory (M11). First: the log is also
//! opened anew, so nothing of its indexes is in the process.
//! Command: `ringlog-bench lookup`. One pass: a screening (M10).
//!
//! Owns: the rows, their order, their judgement, the output. Never does: drive the log.
//! Left: `segment`, `cold`, `device`, `env`. Right: `main`.

mod segment;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cold::{self, Before, Below};
use crate::device::{Device, Patience};
use crate::env::{Cores, Env};
use crate::histogram::{Latencies, Summary};
use crate::meter::{OTHERS_CORE_MAX, Others};
use crate::table::push_wrapped;
use crate::{cli, quick, sys};
use segment::{FIRST_TIME_MS, Reads, Segment, Shape};

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    Offset,
    Time,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// Files in the page cache, indexes in the process.
    Hot,
    /// No page of the files cached, indexes in the process.
    Cold,
    /// No page cached, and the log just opened.
    First,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Hot => "hot",
            State::Cold => "cold",
            State::First => "first",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Row {
    by: By,
    state: State,
    latency: Summary,
    reads_per_lookup: f64,
    /// Bytes that the lookup asked for and got.
    bytes_per_lookup: f64,
    /// Bytes that the device read; read-ahead makes it more.
    device_bytes_per_lookup: Option<f64>,
    /// Why the row does not count.
    invalid: Vec<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    experiment: &'static str,
    label: &'static str,
    settings: &'a cli::Lookup,
    records: i64,
    log_bytes: u64,
    index_bytes: [u64; 2],
    write_seconds: f64,
    below: Option<Below>,
    env: &'a Env,
    interrupted: bool,
    rows: &'a [Row],
}

pub fn main(flags: &cli::Lookup) -> Result<(), String> {
    let parent =
        flags.dir.clone().map_or_else(quick::default_dir, Ok).map_err(|e| e.to_string())?;
    let why = |error: io::Error| format!("{}: {error}", parent.display());
    std::fs::create_dir_all(&parent).map_err(why)?;
    sys::catch_stop_signals().map_err(|error| format!("signals: {error}"))?;
    let folder =
        tempfile::Builder::new().prefix("ringlog-bench-").tempdir_in(&parent).map_err(why)?;
    let outcome = run(flags, folder.path()).map_err(why);
    folder.close().map_err(why)?;
    outcome
}

fn run(flags: &cli::Lookup, dir: &Path) -> io::Result<()> {
    let patience = Patience { clean: Duration::from_secs(10), sentinel_tries: 1 };
    let mut device = Device::open(dir, patience)?;
    let cores = Cores::choose(&sys::allowed_cpus()?);
    let uring = sys::ring_available().map_err(|error| error.to_string());
    let mut env = Env::collect(&device, cores, uring);
    if let Some(core) = cores.server {
        sys::pin_to(core)?;
    }
    eprintln!("directory  {}", device.dir().display());
    eprintln!("writes     {} MiB", flags.segment >> 20);
    env.warnings.iter().for_each(|warning| eprintln!("warning    {warning}"));
    let began = Instant::now();
    let mut segment = write(flags, dir)?;
    let write_seconds = began.elapsed().as_secs_f64();
    let start = device.clean_start(None)?;
    env.warnings.extend(start.reason);
    let files = segment.files()?;
    let below = cold::look_below(&segment.log_path(), flags.segment.min(BELOW_BYTES));
    if below.is_some_and(|below| below.cached()) {
        env.warnings.push("cached below: a second direct pass was faster".to_string());
    }
    let mut rows = Vec::new();
    for state in [State::Hot, State::Cold, State::First] {
        for by in [By::Offset, By::Time] {
            rows.push(measure(flags, &device, &mut segment, &files, by, state)?);
        }
    }
    let sizes: Vec<u64> =
        files.iter().map(|file| Ok(file.metadata()?.len())).collect::<io::Result<_>>()?;
    let report = Report {
        experiment: "lookup",
        label: "screening",
        settings: flags,
        records: segment.records(),
        log_bytes: sizes[0],
        index_bytes: [sizes[1], sizes[2]],
        write_seconds,
        below,
        env: &env,
        interrupted: sys::stopped(),
        rows: &rows,
    };
    print(flags, &report)
}

/// Read twice with `O_DIRECT` to look for a cache below.
const BELOW_BYTES: u64 = 256 << 20;

fn write(flags: &cli::Lookup, dir: &Path) -> io::Result<Segment> {
    let shape = Shape {
        segment_bytes: flags.segment,
        record_bytes: flags.record as usize,
        batch_bytes: flags.batch as usize,
    };
    let bar = ProgressBar::new(flags.segment);
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} writing the segment");
    bar.set_style(style.map_err(io::Error::other)?);
    let segment = Segment::write(dir, shape, |bytes| bar.inc(bytes))?;
    bar.finish_and_clear();
    Ok(segment)
}

fn measure(
    flags: &cli::Lookup,
    device: &Device,
    segment: &mut Segment,
    files: &[File],
    by: By,
    state: State,
) -> io::Result<Row> {
    let mut dice = Dice(flags.seed ^ (state as u64) << 8 ^ by as u64);
    let (mut latencies, mut all) = (Latencies::default(), Reads::default());
    let mut before = Before::Cold;
    let mut invalid = Vec::new();
    if state == State::Hot && cold::warm(files)?.is_none_or(|share| share < 0.99) {
        invalid.push("not hot: the files do not stay in the page cache".to_string());
    }
    let count = match state {
        State::Hot => flags.lookups,
        State::Cold => flags.cold_lookups,
        State::First => flags.first_lookups,
    };
    // The indexes come into the process, except where their coming is what is measured.
    find(segment, by, dice.below(segment.records()))?;
    let (counters, others) = (device.counters(), Others::watch());
    for _ in 0..count {
        if sys::stopped() {
            invalid.push("cut short by a signal".to_string());
            break;
        }
        if state == State::First {
            segment.reopen()?;
        }
        if state != State::Hot && before == Before::Cold {
            before = cold::make(files)?;
        }
        let at = dice.below(segment.records());
        let start = Instant::now();
        let reads = find(segment, by, at)?;
        latencies.record(start.elapsed());
        all.reads += reads.reads;
        all.bytes += reads.bytes;
    }
    let read = counters.zip(device.counters()).map(|(before, now)| now.since(&before).read_bytes);
    if state != State::Hot {
        invalid.extend(cold::doubt(&before, all.bytes, read));
    }
    let share = others.share().filter(|share| *share > OTHERS_CORE_MAX);
    invalid.extend(share.map(|share| format!("other programs used {share:.2} cores")));
    let latency = latencies.summary();
    let mean = |sum: u64| sum as f64 / latency.n.max(1) as f64;
    Ok(Row {
        by,
        state,
        reads_per_lookup: mean(all.reads),
        bytes_per_lookup: mean(all.bytes),
        device_bytes_per_lookup: read.map(mean),
        latency,
        invalid,
    })
}

fn find(segment: &mut Segment, by: By, record: i64) -> io::Result<Reads> {
    match by {
        By::Offset => segment.by_offset(record),
        By::Time => segment.by_time(FIRST_TIME_MS + record),
    }
}

/// Places to look at: the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.max(1).cast_unsigned()).cast_signed()
    }
}

fn print(flags: &cli::Lookup, report: &Report<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match flags.json {
        true => {
            serde_json::to_writer_pretty(&mut out, report).map_err(io::Error::other)?;
            writeln!(out)
        }
        false => out.write_all(table(report).as_bytes()),
    }
}

fn table(report: &Report<'_>) -> String {
    let mut out = String::new();
    let mut heading = report.env.heading();
    heading.push(format!(
        "a segment of {} MiB, {} records of {} bytes in batches of {}; indexes {} KiB and {} KiB; \
         seed {}",
        report.log_bytes >> 20,
        report.records,
        report.settings.record,
        report.settings.batch,
        report.index_bytes[0] >> 10,
        report.index_bytes[1] >> 10,
        report.settings.seed
    ));
    heading.iter().for_each(|line| push_wrapped(&mut out, line, "  "));
    let _ = writeln!(
        out,
        "\n{:<14}{:>8}{:>11}{:>11}{:>11}{:>8}{:>8}{:>8}",
        "lookup by", "n", "p50 us", "p99 us", "max us", "reads", "KiB", "dev KiB"
    );
    for row in report.rows {
        let by = if row.by == By::Offset { "offset" } else { "time" };
        let mark = if row.invalid.is_empty() { "" } else { " !" };
        let us = |value: Option<f64>| value.map_or("-".to_string(), |us| format!("{us:.1}"));
        let kib = |bytes: f64| format!("{:.1}", bytes / 1024.0);
        let _ = writeln!(
            out,
            "{:<14}{:>8}{:>11}{:>11}{:>11}{:>8.2}{:>8}{:>8}",
            format!("{by}, {}{mark}", row.state.name()),
            row.latency.n,
            us(row.latency.p50_us),
            us(row.latency.p99_us),
            us(row.latency.max_us),
            row.reads_per_lookup,
            kib(row.bytes_per_lookup),
            row.device_bytes_per_lookup.map_or("-".to_string(), kib),
        );
    }
    out.push('\n');
    for row in report.rows.iter().filter(|row| !row.invalid.is_empty()) {
        let note = format!("! {:?}, {}: {}", row.by, row.state.name(), row.invalid.join("; "));
        push_wrapped(&mut out, &note, "  ");
    }
    for warning in &report.env.warnings {
        push_wrapped(&mut out, &format!("warning: {warning}"), "  ");
    }
    push_wrapped(
        &mut out,
        "Screening: one pass, closed loop, one thread, plain system calls. hot: files in the page \
         cache; cold: cold in this kernel, before each lookup; first: cold, and the log just \
         opened, so its indexes are read too. KiB: what a lookup asked for; dev KiB: what the \
         device read for it, read-ahead included.",
        "",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_lie_inside_and_repeat_with_their_seed() {
        let draw = |seed| {
            let mut dice = Dice(seed);
            (0..1000).map(|_| dice.below(77)).collect::<Vec<_>>()
        };
        assert!(draw(1).iter().all(|at| (0..77).contains(at)));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
