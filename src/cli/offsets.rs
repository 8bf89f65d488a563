//! `ringlog offsets`: where in a topic's partitions a time lies, or a leader epoch ends.
//!
//! Owns: the question and how its answer is shown. Never does: search.
//! Left: `client`, [`super::connect`], [`super::when`]. Right: `cli`.

use clap::Args;
use serde::Serialize;

use super::Failure;
use super::connect::Server;
use super::output::print_line;
use super::partitions;
use super::when::{self, When};
use crate::client::Client;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog offsets events
  ringlog offsets events --time 2026-01-01T00:00:00Z
  ringlog offsets events --partition 0 --time earliest --json
  ringlog offsets events --epoch 3

A time gives the first record at or after it; `max` the record with the greatest timestamp. Where
there is no such record the offset is `none` (null with --json). With --epoch the offset is the end
of what was written in that leader epoch, or in the last one before it that wrote.")]
pub struct Offsets {
    topic: String,
    /// One partition only.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// earliest, latest, max, milliseconds since 1970, or an RFC 3339 time.
    #[arg(long, default_value = "latest", value_name = "T", value_parser = When::parse)]
    time: When,
    /// Where the records of this leader epoch end.
    #[arg(long, value_name = "E", conflicts_with = "time", value_parser = epoch())]
    epoch: Option<i32>,
    /// A JSON object a line and partition.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Serialize)]
struct Found<'a> {
    topic: &'a str,
    partition: u32,
    offset: Option<i64>,
    timestamp: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<i32>,
}

/// A leader epoch, from 0 up.
pub fn epoch() -> clap::builder::RangedI64ValueParser<i32> {
    clap::value_parser!(i32).range(0..)
}

pub fn run(args: &Offsets) -> Result<(), Failure> {
    let mut client = args.server.connect()?;
    for partition in partitions::chosen(&mut client, &args.topic, args.partition)? {
        let found = match args.epoch {
            Some(epoch) => epoch_end(&mut client, &args.topic, partition, epoch)?,
            None => by_time(&mut client, &args.topic, partition, args.time)?,
        };
        let line = if args.json { serde_json::to_string(&found)? } else { text(&found) };
        print_line(&line)?;
    }
    Ok(())
}

fn by_time<'a>(
    client: &mut Client,
    topic: &'a str,
    partition: u32,
    time: When,
) -> Result<Found<'a>, Failure> {
    let (offset, timestamp) = client.list_offsets(topic, partition, time.to_wire())?;
    Ok(Found {
        topic,
        partition,
        offset: Some(offset).filter(|offset| *offset >= 0),
        timestamp: Some(timestamp).filter(|timestamp| *timestamp >= 0),
        epoch: None,
    })
}

fn epoch_end<'a>(
    client: &mut Client,
    topic: &'a str,
    partition: u32,
    epoch: i32,
) -> Result<Found<'a>, Failure> {
    let found = client.end_offset_for_epoch(topic, partition, epoch)?;
    let (epoch, offset) = found.unzip();
    Ok(Found { topic, partition, offset, timestamp: None, epoch })
}

fn text(found: &Found<'_>) -> String {
    let offset = found.offset.map_or("none".to_owned(), |offset| offset.to_string());
    let mut line = format!("{}-{}: {offset}", found.topic, found.partition);
    if let Some(timestamp) = found.timestamp {
        line.push_str(&format!(" at {}", when::show(timestamp)));
    }
    if let Some(epoch) = found.epoch {
        line.push_str(&format!(" is where epoch {epoch} ends"));
    }
    line
}
