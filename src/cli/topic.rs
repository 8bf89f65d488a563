//! `ringlog topic`: make, list, describe, alter, delete; `records` has two more.
//!
//! Owns: the five orders and how answers are shown. Never does: judge a setting (the server does).
//! Left: `client`, [`super::connect`], [`super::render`]. Right: `cli`.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::Failure;
use super::connect::Server;
use super::log_dirs;
use super::output::print_line;
use super::records;
use super::render;
use crate::client::admin::{Config, PartitionDescription, TopicDescription};
use crate::format::identity::render_uuid;
use crate::protocol::topics::ConfigSource;

#[derive(Args, Debug)]
pub struct Topic {
    #[command(subcommand)]
    order: Order,
}

#[derive(Subcommand, Debug)]
enum Order {
    /// Make a topic.
    Create(Create),
    /// Names, partitions and sizes of all topics.
    List(List),
    /// A topic's settings and where its partitions stand; with --dirs the data directories.
    Describe(Describe),
    /// Change a topic's settings.
    Alter(Alter),
    /// Delete a topic and its records.
    Delete(Delete),
    /// Delete the records before an offset.
    DeleteRecords(records::DeleteRecords),
    /// End the active segments and begin new ones.
    Roll(records::Roll),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog topic create events
  ringlog topic create events --partitions 2 --config flush.policy=group
  ringlog topic create log --config retention.ms=7days --config compression.type=zstd
  ringlog topic create small --config segment.bytes=16777216 --config segment.ms=86400000")]
struct Create {
    name: String,
    #[arg(long, default_value_t = 1, value_name = "N")]
    partitions: u32,
    /// A setting of the topic; may be given many times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    config: Vec<(String, String)>,
    #[command(flatten)]
    server: Server,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog topic list
  ringlog topic list --json")]
struct List {
    /// A JSON object a line and topic.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog topic describe events
  ringlog topic describe events --json
  ringlog topic describe --dirs              (all topics, by data directory)
  ringlog topic describe events --dirs")]
struct Describe {
    #[arg(required_unless_present = "dirs")]
    name: Option<String>,
    /// The data directories instead: state, space, and each partition's size and offset lag.
    #[arg(long)]
    dirs: bool,
    /// One JSON object; with --dirs one a line and directory.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog topic alter events --config flush.policy=each
  ringlog topic alter events --config segment.ms=3600000 --delete-config flush.policy")]
struct Alter {
    name: String,
    /// Set this; may be given many times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value,
          required_unless_present = "delete_config")]
    config: Vec<(String, String)>,
    /// Take this one away, so that the server's default holds again; may be given many times.
    #[arg(long, value_name = "KEY")]
    delete_config: Vec<String>,
    #[command(flatten)]
    server: Server,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  ringlog topic delete events")]
struct Delete {
    name: String,
    #[command(flatten)]
    server: Server,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give KEY=VALUE, segment.ms=3600000 for one".to_owned()),
    }
}

pub fn run(args: &Topic) -> Result<(), Failure> {
    match &args.order {
        Order::Create(args) => create(args),
        Order::List(args) => list(args),
        Order::Describe(args) => describe(args),
        Order::Alter(args) => alter(args),
        Order::Delete(args) => delete(args),
        Order::DeleteRecords(args) => records::delete(args),
        Order::Roll(args) => records::roll(args),
    }
}

fn create(args: &Create) -> Result<(), Failure> {
    let configs: Vec<(&str, &str)> =
        args.config.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut client = args.server.connect()?;
    let (id, notices) = client.create_topic(&args.name, args.partitions, &configs)?;
    notes(&notices);
    let id = render_uuid(uuid::Uuid::from_bytes(id));
    print_line(&format!("created {}, partitions: {}, id: {id}", args.name, args.partitions))
}

/// On standard error, so that what is asked for stays alone on standard output.
fn notes(notices: &[String]) {
    for notice in notices {
        eprintln!("note: {notice}");
    }
}

fn delete(args: &Delete) -> Result<(), Failure> {
    args.server.connect()?.delete_topic(&args.name)?;
    print_line(&format!("deleted {}", args.name))
}

#[derive(Serialize)]
struct Listed {
    topic: String,
    id: String,
    partitions: usize,
}

fn list(args: &List) -> Result<(), Failure> {
    let topics = args.server.connect()?.list_topics()?;
    let topics = topics.into_iter().map(|(topic, known)| Listed {
        topic,
        id: render_uuid(uuid::Uuid::from_bytes(known.id)),
        partitions: known.partitions.len(),
    });
    if args.json {
        for topic in topics {
            print_line(&serde_json::to_string(&topic)?)?;
        }
        return Ok(());
    }
    let mut table = render::left_table(&["topic", "partitions", "id"]);
    for topic in topics {
        table.add_row([topic.topic, topic.partitions.to_string(), topic.id]);
    }
    print_line(&render::lines(&table))
}

#[derive(Serialize)]
struct Described<'a> {
    topic: &'a str,
    id: String,
    configs: Vec<Setting<'a>>,
    partitions: Vec<Place<'a>>,
    notices: &'a [String],
}

#[derive(Serialize)]
struct Setting<'a> {
    key: &'a str,
    value: &'a str,
    source: &'static str,
    default: &'a str,
}

#[derive(Serialize)]
struct Place<'a> {
    partition: u32,
    shard: u16,
    start: Option<i64>,
    high_watermark: Option<i64>,
    staged: Option<i64>,
    written: Option<i64>,
    durable: Option<i64>,
    leader_epoch: i32,
    bytes: u64,
    segments: u32,
    state: &'a str,
}

fn describe(args: &Describe) -> Result<(), Failure> {
    let named = args.name.as_deref();
    let mut client = args.server.connect()?;
    let Some(name) = named.filter(|_| !args.dirs) else {
        let topics: Vec<&str> = named.into_iter().collect();
        if let [name] = *topics {
            client.describe_topic(name)?; // one that does not exist is an error, not an empty list
        }
        let dirs = client.describe_log_dirs(&topics)?;
        return if args.json { log_dirs::print_json(&dirs) } else { log_dirs::print_text(&dirs) };
    };
    let topic = client.describe_topic(name)?;
    if args.json {
        return print_line(&serde_json::to_string(&described(&topic))?);
    }
    notes(&topic.notices);
    print_line(&text(&topic))
}

fn described(topic: &TopicDescription) -> Described<'_> {
    Described {
        topic: &topic.name,
        id: render_uuid(uuid::Uuid::from_bytes(topic.id)),
        configs: topic.configs.iter().map(setting).collect(),
        partitions: topic.partitions.iter().map(place).collect(),
        notices: &topic.notices,
    }
}

fn setting(config: &Config) -> Setting<'_> {
    Setting {
        key: &config.key,
        value: &config.value,
        source: config.source.name(),
        default: &config.default,
    }
}

fn place(partition: &PartitionDescription) -> Place<'_> {
    let known = |mark: i64| (mark >= 0).then_some(mark);
    Place {
        partition: partition.index,
        shard: partition.shard.0,
        start: known(partition.start),
        high_watermark: known(partition.high_watermark),
        staged: known(partition.staged),
        written: known(partition.written),
        durable: known(partition.durable),
        leader_epoch: partition.leader_epoch,
        bytes: partition.bytes,
        segments: partition.segments,
        state: &partition.state,
    }
}

/// Settings that somebody gave a value, then those at their defaults.
fn settings(configs: &[Config]) -> String {
    let (default, given): (Vec<&Config>, Vec<&Config>) =
        configs.iter().partition(|config| config.source == ConfigSource::Default);
    let mut parts = Vec::new();
    if !given.is_empty() {
        let mut table = render::left_table(&["setting", "value", "from", "default"]);
        for one in given {
            table.add_row([&one.key, &one.value, one.source.name(), shown(&one.default)]);
        }
        parts.push(render::lines(&table));
    }
    let mut table = render::left_table(&["at its default", "value"]);
    for one in default {
        table.add_row([&one.key, shown(&one.value)]);
    }
    parts.push(render::lines(&table));
    parts.join("\n\n")
}

/// An empty text must be seen.
fn shown(value: &str) -> &str {
    if value.is_empty() { "-" } else { value }
}

fn text(topic: &TopicDescription) -> String {
    let header =
        ["partition", "shard", "start", "end", "durable", "epoch", "segments", "size", "state"];
    let mut places = render::table(&header);
    let mark = |mark: i64| if mark < 0 { "-".to_owned() } else { mark.to_string() };
    for partition in &topic.partitions {
        places.add_row([
            partition.index.to_string(),
            partition.shard.to_string(),
            mark(partition.start),
            mark(partition.high_watermark),
            mark(partition.durable),
            partition.leader_epoch.to_string(),
            partition.segments.to_string(),
            render::bytes(partition.bytes),
            partition.state.clone(),
        ]);
    }
    let id = render_uuid(uuid::Uuid::from_bytes(topic.id));
    format!(
        "topic {}, id {id}\n\n{}\n\n{}",
        topic.name,
        settings(&topic.configs),
        render::lines(&places)
    )
}

fn alter(args: &Alter) -> Result<(), Failure> {
    let set = args.config.iter().map(|(key, value)| (key.as_str(), Some(value.as_str())));
    let unset = args.delete_config.iter().map(|key| (key.as_str(), None));
    let changes: Vec<(&str, Option<&str>)> = set.chain(unset).collect();
    let altered = args.server.connect()?.alter_topic(&args.name, &changes)?;
    notes(&altered.notices);
    print_line(&settings(&altered.configs))
}
