//! `ringlog produce`: lines of a file or of standard input become records.
//!
//! Owns: the flags, the input, the progress bar, the summary. Never does: hold more than the
//! batches on their way.
//! Left: [`super::feed`], [`super::lines`], [`super::render`]. Right: `cli`.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::Failure;
use super::connect::Server;
use super::feed::{Feed, Settings};
use super::lane::{Acked, Lane};
use super::lines::Lines;
use super::output::print_line;
use super::{partitions, render};
use crate::client::{Backoff, Client, ProducerOptions};
use crate::format::batch::{Codec, HEADER_LEN};
use crate::format::builder::BatchBuilder;
use crate::policy::units::{parse_size, parse_time};
use crate::types::AckLevel;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog produce events --file access.log --compression zstd --acks durable
  tail -f app.log | ringlog produce events --linger 50ms
  printf 'kitchen:20.5\\nhall:19\\n' | ringlog produce readings --key-separator :

Lines may hold any bytes; the newline is not sent. A last line needs none. Into a topic of several
partitions whole batches go in turn; keys do not choose the partition.

When the connection is lost, or the server starts again, it connects anew and sends again what is
unacked: every batch carries a producer id and sequences, so none is stored twice. When that fails
it ends with exit code 1 and says from which line to resume. Its last line of output, failed or
not, says what was acked.

With --no-idempotence a producer that is alone on one partition compares what it sent with the
log's end and goes on there; any other ends as above.")]
pub struct Produce {
    topic: String,
    /// Read this file; without it, standard input.
    #[arg(long, value_name = "F")]
    file: Option<PathBuf>,
    /// Send to this partition only.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// What stands before the first S in a line becomes the key.
    #[arg(long, value_name = "S", value_parser = separator)]
    key_separator: Option<String>,
    #[arg(long, default_value = "none", value_name = "CODEC", value_parser = codec,
          help = "none, gzip, snappy, lz4 or zstd")]
    compression: Codec,
    #[arg(long, default_value = "policy", value_name = "LEVEL", value_parser = ack_level,
          help = "What an ack waits for: none, written, durable, or policy (the topic's)")]
    acks: AckLevel,
    /// A batch is sent before it grows past this.
    #[arg(long, default_value = "256KiB", value_name = "SIZE", value_parser = size)]
    batch_bytes: usize,
    /// A batch is sent when it is this old.
    #[arg(long, default_value = "5ms", value_name = "TIME", value_parser = time)]
    linger: Duration,
    /// Batches that may be unacked at once, a partition (64 count, but for --no-idempotence).
    #[arg(long, default_value_t = 16, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    in_flight: u16,
    /// Begin with this line of the input.
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    from_line: u64,
    /// Send batches without a producer id: after a lost connection the fate of what was unacked is
    /// not known, and only a producer that is alone on one partition goes on by itself.
    #[arg(long)]
    no_idempotence: bool,
    /// Attempts to reconnect before giving up, as long as nothing is acked in between.
    #[arg(long, default_value_t = 30, value_name = "N")]
    retries: u32,
    /// The summary as one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

fn separator(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a separator has at least one character".to_owned()),
        text if text.contains('\n') => Err("a line holds no newline".to_owned()),
        text => Ok(text.to_owned()),
    }
}

fn codec(name: &str) -> Result<Codec, String> {
    Codec::from_name(name).ok_or_else(|| "one of none, gzip, snappy, lz4, zstd".to_owned())
}

fn ack_level(name: &str) -> Result<AckLevel, String> {
    [AckLevel::None, AckLevel::Written, AckLevel::Durable, AckLevel::Policy]
        .into_iter()
        .find(|level| level.name() == name)
        .ok_or_else(|| "one of none, written, durable, policy".to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    let size = parse_size(text).and_then(|size| usize::try_from(size).ok());
    size.filter(|size| *size > 0).ok_or_else(|| "a size like 64KiB or 1MiB".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    let time = parse_time(text).map(|time| Duration::from_micros(time.0));
    time.ok_or_else(|| "a time with its unit, like 5ms or 1s".to_owned())
}

pub fn run(args: &Produce) -> Result<(), Failure> {
    let input = Input::open(args)?;
    let mut client = args.server.connect()?;
    let partitions = partitions::chosen(&mut client, &args.topic, args.partition)?;
    if partitions.len() > 1 {
        eprintln!("{} partitions: batches go to them in turn", partitions.len());
    }
    let lanes = open_lanes(args, &mut client, &partitions)?;
    let limit = batch_limit(args, &mut client, &lanes)?;
    let bar = progress(input.len);
    let lines = Lines::new(input.from, limit - lone_record_overhead(), args.from_line);
    let mut feed = Feed::new(settings(args, limit), lanes, args.server.clone(), bar.clone());
    let started = Instant::now();
    let fed = feed.run(lines);
    bar.finish_and_clear();
    let summary = Summary::of(&args.topic, feed.lanes(), started.elapsed());
    let told =
        print_line(&if args.json { serde_json::to_string(&summary)? } else { summary.text() });
    fed.and(told)
}

struct Input {
    from: Box<dyn io::Read + Send>,
    len: Option<u64>,
}

impl Input {
    fn open(args: &Produce) -> Result<Input, Failure> {
        let Some(path) = &args.file else {
            if io::stdin().is_terminal() {
                eprintln!("reading lines from the terminal; end with Ctrl-D");
            }
            return Ok(Input { from: Box::new(io::stdin()), len: None });
        };
        let say = |error| Failure(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(say)?;
        let about = file.metadata().map_err(say)?;
        let len = about.is_file().then_some(about.len());
        Ok(Input { from: Box::new(file), len })
    }
}

fn open_lanes(
    args: &Produce,
    client: &mut Client,
    partitions: &[u32],
) -> Result<Vec<Lane>, Failure> {
    let options = ProducerOptions {
        ack: args.acks,
        in_flight_max: usize::from(args.in_flight),
        idempotent: !args.no_idempotence,
        reconnect: Backoff { attempts_max: args.retries, ..Backoff::default() },
        ..ProducerOptions::default()
    };
    let lanes = partitions
        .iter()
        .map(|at| Lane::open(client, &args.topic, *at, args.compression, &options));
    Ok(lanes.collect::<Result<Vec<Lane>, _>>()?)
}

/// What a batch may be long: a frame holds it, and the topic takes it.
fn batch_limit(args: &Produce, client: &mut Client, lanes: &[Lane]) -> Result<usize, Failure> {
    let topic = client.describe_topic(&args.topic)?;
    let configured = topic
        .configs
        .iter()
        .find(|config| config.key == "max.message.bytes")
        .and_then(|config| config.value.parse::<usize>().ok());
    let frames = lanes.iter().map(Lane::batch_bytes_max);
    let limit = frames.chain(configured).min().unwrap_or(usize::MAX);
    if limit <= lone_record_overhead() {
        return Err(Failure(format!(
            "topic {}: max.message.bytes {limit} leaves no room for a record",
            args.topic
        )));
    }
    Ok(limit)
}

/// What a batch of one record takes beside its key and value, at most.
fn lone_record_overhead() -> usize {
    HEADER_LEN + BatchBuilder::record_len_max(Some(&[]), Some(&[]), &[])
}

fn settings(args: &Produce, limit: usize) -> Settings {
    Settings {
        separator: args.key_separator.clone().map(String::into_bytes),
        batch_bytes: args.batch_bytes.min(limit),
        linger: args.linger,
        from_line: args.from_line,
        retries: args.retries,
    }
}

/// On standard error when that is a terminal, else nowhere.
fn progress(len: Option<u64>) -> ProgressBar {
    let (bar, template) = match len {
        Some(len) => {
            (ProgressBar::new(len), "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        }
        None => (ProgressBar::no_length(), "{spinner} {bytes} {bytes_per_sec}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[derive(Serialize)]
struct Summary<'a> {
    topic: &'a str,
    records_acked: u64,
    bytes: u64,
    seconds: f64,
    /// The weakest level that an ack named; none without acks.
    level_met: Option<&'static str>,
    last_offsets: Vec<LastOffset>,
}

#[derive(Serialize)]
struct LastOffset {
    partition: u32,
    offset: Option<i64>,
}

impl<'a> Summary<'a> {
    fn of(topic: &'a str, lanes: &[Lane], took: Duration) -> Summary<'a> {
        let sum = |of: fn(&Acked) -> u64| lanes.iter().map(|lane| of(&lane.acked)).sum();
        let last =
            |lane: &Lane| LastOffset { partition: lane.partition, offset: lane.acked.last_offset };
        Summary {
            topic,
            records_acked: sum(|acked| acked.records),
            bytes: sum(|acked| acked.bytes),
            seconds: took.as_secs_f64(),
            level_met: lanes.iter().filter_map(|l| l.acked.level).min().map(AckLevel::name),
            last_offsets: lanes.iter().map(last).collect(),
        }
    }

    fn text(&self) -> String {
        let rate = (self.bytes as f64 / self.seconds.max(1e-9)) as u64;
        let mut line = format!(
            "records acked: {}, bytes: {} ({}/s)",
            self.records_acked,
            self.bytes,
            render::bytes(rate)
        );
        let shown = |offset: Option<i64>| offset.map_or("none".to_owned(), |o| o.to_string());
        match self.last_offsets.as_slice() {
            [one] => line.push_str(&format!(", last offset: {}", shown(one.offset))),
            many => {
                let each: Vec<String> =
                    many.iter().map(|l| format!("{}:{}", l.partition, shown(l.offset))).collect();
                line.push_str(&format!(", last offsets: {}", each.join(" ")));
            }
        }
        if let Some(level) = self.level_met {
            line.push_str(&format!(", level met: {level}"));
        }
        line
    }
}
