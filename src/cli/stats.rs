//! `ringlog stats`: the server's counters, and its latencies stage by stage.
//!
//! Owns: asking, repeating, what is derived from the counters. Never does: measure.
//! Left: `client`, [`super::latency`], [`super::render`]. Right: `cli`.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::Failure;
use super::connect::Server;
use super::latency::Latency;
use super::output::print_line;
use super::render;
use crate::client::admin;
use crate::protocol::stats::flags;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog stats
  ringlog stats --watch 5
  ringlog stats --json | jq .counters

Latencies are in microseconds, from the server's start. A percentile is shown where at least 100
samples lie beyond it; `-` elsewhere (null with --json). With --watch the counters also show what
each second added.")]
pub struct Stats {
    /// Ask again every so many seconds, until interrupted.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    watch: Option<u64>,
    /// One JSON object (with --watch, one a line).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

pub fn run(args: &Stats) -> Result<(), Failure> {
    let mut client = args.server.connect()?;
    let mut before: Option<(Instant, admin::Stats)> = None;
    loop {
        let stats = client.stats(flags::COUNTERS | flags::HISTOGRAMS)?;
        let latencies = latencies(&stats)?;
        let at = Instant::now();
        let shown = if args.json {
            serde_json::to_string(&report(&stats, &latencies))?
        } else {
            let since = before.as_ref().map(|(then, stats)| (at.duration_since(*then), stats));
            text(&stats, &latencies, since)
        };
        print_line(&shown)?;
        let Some(seconds) = args.watch else { return Ok(()) };
        if !args.json {
            print_line("")?;
        }
        before = Some((at, stats));
        thread::sleep(Duration::from_secs(seconds));
    }
}

fn latencies(stats: &admin::Stats) -> Result<Vec<Latency>, Failure> {
    let read = stats.histograms.iter().map(|export| {
        Latency::read(&export.name, &export.unit, &export.data)
            .map_err(|error| Failure(format!("histogram {}: {error}", export.name)))
    });
    read.collect()
}

/// One counter over another: name, what is counted, by what.
const DERIVED: [(&str, &str, &str); 3] = [
    ("batches a write", "batches", "writes"),
    ("waiters a flush", "flush_waiters", "flushes"),
    ("enters a request", "io_enters", "requests"),
];

fn counter(stats: &admin::Stats, name: &str) -> Option<u64> {
    stats.counters.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}

/// Those whose counters the server has, and whose divisor is not 0.
fn derived(stats: &admin::Stats) -> impl Iterator<Item = (&'static str, u64, u64)> + '_ {
    DERIVED.iter().filter_map(|(label, part, whole)| {
        let (part, whole) = (counter(stats, part)?, counter(stats, whole)?);
        (whole > 0).then_some((*label, part, whole))
    })
}

#[derive(Serialize)]
struct Report<'a> {
    uptime_ms: u64,
    shards: u16,
    counters: BTreeMap<&'a str, u64>,
    derived: BTreeMap<&'static str, f64>,
    latencies: &'a [Latency],
}

fn report<'a>(stats: &'a admin::Stats, latencies: &'a [Latency]) -> Report<'a> {
    Report {
        uptime_ms: stats.uptime_ms,
        shards: stats.shards,
        counters: stats.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect(),
        derived: derived(stats)
            .map(|(label, part, whole)| (label, part as f64 / whole as f64))
            .collect(),
        latencies,
    }
}

fn text(
    stats: &admin::Stats,
    latencies: &[Latency],
    since: Option<(Duration, &admin::Stats)>,
) -> String {
    let uptime = Duration::from_secs(stats.uptime_ms / 1000);
    let uptime = humantime::format_duration(uptime);
    let mut stages = render::table(&["stage", "unit", "count", "p50", "p99", "p99.9", "max"]);
    for latency in latencies {
        let mut row = vec![latency.stage.clone(), latency.unit.clone(), latency.count.to_string()];
        let shown = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
        row.extend([latency.p50, latency.p99, latency.p99_9, latency.max].map(shown));
        stages.add_row(row);
    }
    let mut lines = vec![
        format!("up {uptime}, shards: {}", stats.shards),
        String::new(),
        render::lines(&stages),
        String::new(),
        render::lines(&counters(stats, since)),
        String::new(),
    ];
    lines.extend(
        derived(stats)
            .map(|(label, part, whole)| format!("{label}: {}", render::ratio(part, whole))),
    );
    lines.join("\n")
}

fn counters(stats: &admin::Stats, since: Option<(Duration, &admin::Stats)>) -> comfy_table::Table {
    let Some((elapsed, before)) = since else {
        let mut table = render::table(&["counter", "total"]);
        table
            .add_rows(stats.counters.iter().map(|(name, value)| [name.clone(), value.to_string()]));
        return table;
    };
    let mut table = render::table(&["counter", "total", "a second"]);
    for (name, value) in &stats.counters {
        // A server that was restarted counts from 0 again.
        let added = value.saturating_sub(counter(before, name).unwrap_or(0));
        let rate = added as f64 / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        table.add_row([name.clone(), value.to_string(), format!("{rate:.0}")]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(counters: &[(&str, u64)]) -> admin::Stats {
        let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        admin::Stats { uptime_ms: 61_000, shards: 2, counters, histograms: Vec::new() }
    }

    #[test]
    fn quotients_come_only_from_counters_that_are_there() {
        let given = stats(&[("batches", 30), ("writes", 10), ("flushes", 0), ("flush_waiters", 0)]);
        let shown: Vec<_> = derived(&given).collect();
        assert_eq!(shown, [("batches a write", 30, 10)]);
        let text = text(&given, &[], None);
        assert!(text.contains("batches a write: 3.00"), "{text}");
        assert!(text.contains("up 1m 1s, shards: 2"), "{text}");
    }

    #[test]
    fn a_watch_shows_what_a_second_added() {
        let (before, now) = (stats(&[("records", 100)]), stats(&[("records", 700)]));
        let table = counters(&now, Some((Duration::from_secs(2), &before)));
        assert!(render::lines(&table).contains("300"), "{table}");
    }
}
