//! `ringlog topic delete-records` and `ringlog topic roll`: a log's front and its active segment.
//!
//! Owns: the two orders and how answers are shown. Never does: judge them (the server does).
//! Left: `client`, [`super::connect`], [`super::partitions`]. Right: [`super::topic`].

use clap::Args;

use super::Failure;
use super::connect::Server;
use super::output::print_line;
use super::partitions;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog topic delete-records events --before 1000
  ringlog topic delete-records events --partition 0 --before end

The records before the offset cannot be read any more, also not after a restart; their segments'
files go with the next retention pass. `end` deletes all that can be read now.")]
pub struct DeleteRecords {
    topic: String,
    /// One partition only.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// The first offset that stays, or `end`.
    #[arg(long, value_name = "OFFSET", value_parser = before)]
    before: i64,
    #[command(flatten)]
    server: Server,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog topic roll events
  ringlog topic roll events --partition 0

An active segment that is empty stays.")]
pub struct Roll {
    topic: String,
    /// One partition only.
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    #[command(flatten)]
    server: Server,
}

fn before(text: &str) -> Result<i64, String> {
    match text {
        "end" => Ok(-1),
        text => text.parse().ok().filter(|offset| *offset >= 0).ok_or_else(|| {
            "give the first offset that stays (0 or more), or `end` for all".to_owned()
        }),
    }
}

pub fn delete(args: &DeleteRecords) -> Result<(), Failure> {
    let mut client = args.server.connect()?;
    for partition in partitions::chosen(&mut client, &args.topic, args.partition)? {
        let start = client.delete_records(&args.topic, partition, args.before)?;
        print_line(&format!("{}-{partition}: starts at {start}", args.topic))?;
    }
    Ok(())
}

pub fn roll(args: &Roll) -> Result<(), Failure> {
    let mut client = args.server.connect()?;
    for partition in partitions::chosen(&mut client, &args.topic, args.partition)? {
        let base = client.roll(&args.topic, partition)?;
        print_line(&format!("{}-{partition}: active segment begins at {base}", args.topic))?;
    }
    Ok(())
}
