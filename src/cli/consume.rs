//! `ringlog consume`: records on standard output.
//!
//! Owns: which partitions are read, in which order, where reading ends, how a record is written.
//! Never does: keep a group's offsets.
//! Left: `client`, [`super::output`], [`super::json`]. Right: `cli`.

use std::time::Duration;

use clap::Args;

use super::Failure;
use super::connect::Server;
use super::json::RecordJson;
use super::output::Output;
use super::{offsets, partitions, when};
use crate::client::{Backoff, Client, Consumer, ConsumerOptions, OutOfRange, Polled, Start};
use crate::format::record::Record;
use crate::protocol::offsets::special;

/// Bytes a fetch asks for.
const FETCH_BYTES: u32 = 4 << 20;
/// How long a round over all partitions may wait when none has anything new.
const ROUND_WAIT: Duration = Duration::from_millis(500);
const WAIT_MIN: Duration = Duration::from_millis(5);

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog consume events > events.txt
  ringlog consume events --offset latest --follow
  ringlog consume events --partition 1 --offset 1000 --count 10 --json
  ringlog consume events --time 2026-01-01T00:00:00Z

Prints each value and a newline. Without --partition all partitions are read, one after the other;
with --follow, in turn. Reading ends where the log ended at the start, unless --follow.

With --json a line is an object: partition, offset, timestamp, key, value, headers. Bytes that are
not UTF-8 are {\"base64\": \"..\"}; null is null, which is not the empty string.")]
pub struct Consume {
    topic: String,
    /// One partition only.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// earliest, latest, or an offset.
    #[arg(long, default_value = "earliest", value_name = "WHERE", value_parser = offset)]
    offset: Start,
    /// From the first record at or after it: milliseconds since 1970, or an RFC 3339 time.
    #[arg(long, value_name = "T", value_parser = when::time, conflicts_with = "offset")]
    time: Option<i64>,
    /// End after this many records.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Wait for more at the log's end.
    #[arg(long)]
    follow: bool,
    /// Leader epoch of the record before --offset: reading ends with an error if it was cut since.
    #[arg(long, value_name = "E", requires = "offset", value_parser = offsets::epoch())]
    epoch: Option<i32>,
    /// Go on behind records that are damaged on the disk, saying which offsets they had.
    #[arg(long)]
    skip_damage: bool,
    /// A JSON object a line and record.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

fn offset(text: &str) -> Result<Start, String> {
    match text {
        "earliest" => Ok(Start::Earliest),
        "latest" => Ok(Start::Latest),
        number => match number.parse() {
            Ok(offset) if offset >= 0 => Ok(Start::Offset(offset)),
            _ => Err("give earliest, latest, or an offset from 0 up".to_owned()),
        },
    }
}

pub fn run(args: &Consume) -> Result<(), Failure> {
    let backoff = match args.follow {
        true => Backoff::default(),
        false => Backoff { attempts_max: 3, ..Backoff::default() },
    };
    let mut client = args.server.connect_with(backoff)?;
    let partitions = partitions::chosen(&mut client, &args.topic, args.partition)?;
    let printer =
        Printer { out: Output::stdout()?, json: args.json, left: args.count.unwrap_or(u64::MAX) };
    let mut reader = Reader { args, client, printer };
    let read = match args.follow {
        true => reader.follow(&partitions),
        false => partitions.iter().try_for_each(|partition| reader.up_to_end(*partition)),
    };
    let written = reader.printer.out.finish();
    read.and(written)
}

struct Reader<'a> {
    args: &'a Consume,
    client: Client,
    printer: Printer,
}

impl Reader<'_> {
    fn consumer(&mut self, partition: u32, max_wait: Duration) -> Result<Consumer, Failure> {
        let start = self.args.time.map_or(self.args.offset, Start::Time);
        let options = ConsumerOptions {
            max_bytes: FETCH_BYTES,
            max_wait,
            out_of_range: OutOfRange::Fail,
            skip_damage: self.args.skip_damage,
            ..ConsumerOptions::default()
        };
        let topic = &self.args.topic;
        let mut consumer = Consumer::new(&mut self.client, topic, partition, start, options)?;
        if let Some(epoch) = self.args.epoch {
            consumer.seek_in_epoch(consumer.position(), epoch);
        }
        Ok(consumer)
    }

    /// One partition, up to where it ends now.
    fn up_to_end(&mut self, partition: u32) -> Result<(), Failure> {
        if self.printer.is_done() {
            return Ok(());
        }
        let topic = &self.args.topic;
        let (end, _) = self.client.list_offsets(topic, partition, special::LATEST)?;
        let mut consumer = self.consumer(partition, ROUND_WAIT)?;
        if consumer.position() > end && self.args.epoch.is_none() {
            return Err(Failure(format!(
                "{}-{partition}: offset {} is behind the log's end, which is {end}",
                self.args.topic,
                consumer.position()
            )));
        }
        // Whoever knows an epoch is told of a cut, also where there is nothing to read.
        let mut asks = self.args.epoch.is_some();
        while (asks || consumer.position() < end) && !self.printer.is_done() {
            asks = false;
            let printer = &mut self.printer;
            let polled = consumer.poll_through(&mut self.client, |record| {
                if record.offset < end {
                    printer.record(partition, record);
                }
            })?;
            say_skipped(topic, partition, &polled);
        }
        Ok(())
    }

    /// All partitions in turn, until enough is printed or nobody reads it any more.
    fn follow(&mut self, partitions: &[u32]) -> Result<(), Failure> {
        let share = u32::try_from(partitions.len()).unwrap_or(u32::MAX).max(1);
        let max_wait = (ROUND_WAIT / share).max(WAIT_MIN);
        let consumers: Result<Vec<(u32, Consumer)>, Failure> =
            partitions.iter().map(|at| Ok((*at, self.consumer(*at, max_wait)?))).collect();
        let mut consumers = consumers?;
        loop {
            for (partition, consumer) in &mut consumers {
                if self.printer.is_done() {
                    return Ok(());
                }
                let printer = &mut self.printer;
                let polled = consumer.poll_through(&mut self.client, |record| {
                    printer.record(*partition, record);
                })?;
                say_skipped(&self.args.topic, *partition, &polled);
                if polled.at_end() || share > 1 {
                    self.printer.out.flush();
                }
            }
        }
    }
}

/// On standard error: which offsets are not among the records.
fn say_skipped(topic: &str, partition: u32, polled: &Polled) {
    if let Some((first, next)) = polled.skipped {
        let last = next - 1;
        eprintln!("{topic}-{partition}: offsets {first} to {last} are damaged: skipped");
    }
}

struct Printer {
    out: Output,
    json: bool,
    /// Records that may still be printed.
    left: u64,
}

impl Printer {
    fn is_done(&self) -> bool {
        self.left == 0 || self.out.is_closed()
    }

    fn record(&mut self, partition: u32, record: &Record<'_>) {
        if self.is_done() {
            return;
        }
        self.left -= 1;
        if self.json {
            self.out.json(&RecordJson { partition, record });
        } else {
            self.out.bytes(record.value.unwrap_or_default());
        }
        self.out.bytes(b"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_to_begin() {
        assert_eq!(offset("earliest"), Ok(Start::Earliest));
        assert_eq!(offset("latest"), Ok(Start::Latest));
        assert_eq!(offset("12"), Ok(Start::Offset(12)));
        for wrong in ["", "-1", "first", "1.5"] {
            assert!(offset(wrong).is_err(), "{wrong}");
        }
    }
}
