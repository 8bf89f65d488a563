//! `ringlog cuts`: the side files in which recovery keeps what it cut; listing and removing them.
//!
//! Owns: the flags, the text. Never does: remove anything unasked.
//! Left: `tools::cuts`. Right: `cli`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::output::print_line;
use super::render::bytes;
use super::verify::directory;
use super::{Failure, when};
use crate::tools::cuts::{self, SideFile};

#[derive(Args, Debug)]
pub struct Cuts {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// What was cut, from where, when and why.
    List(List),
    /// Remove side files.
    Remove(Remove),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog cuts list d
  ringlog cuts list d/events-0 --json

What a start takes out of a log is kept beside it as cut-<segment>-<position>-<reason>.
`ringlog dump` shows what is in one when it is copied to <segment>.log elsewhere.")]
struct List {
    /// A data directory, or the directory of one partition.
    #[arg(value_name = "DIR", value_parser = directory)]
    dir: PathBuf,
    /// A JSON object a file and line.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog cuts remove d/events-0
  ringlog cuts remove d --file d/events-0/cut-00000000000000000000-4096-short

They are nobody's but yours: no server reads them again.")]
struct Remove {
    /// A data directory, or the directory of one partition.
    #[arg(value_name = "DIR", value_parser = directory)]
    dir: PathBuf,
    /// Only this one; again for more. Without it: all.
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
}

pub fn run(args: &Cuts) -> Result<(), Failure> {
    match &args.command {
        Command::List(list) => {
            for file in cuts::list(&list.dir)? {
                print_line(&if list.json { as_json(&file) } else { as_text(&file) })?;
            }
            Ok(())
        }
        Command::Remove(remove) => {
            let mut files = cuts::list(&remove.dir)?;
            if let Some(other) =
                remove.file.iter().find(|path| !files.iter().any(|file| file.path == **path))
            {
                let (other, dir) = (other.display(), remove.dir.display());
                return Err(Failure(format!("{other}: not a side file that {dir} holds")));
            }
            files.retain(|file| remove.file.is_empty() || remove.file.contains(&file.path));
            cuts::remove(&files)?;
            let freed: u64 = files.iter().map(|file| file.bytes).sum();
            print_line(&format!("files removed: {}, {}", files.len(), bytes(freed)))
        }
    }
}

fn since_1970_ms(file: &SideFile) -> Option<i64> {
    let since = file.modified?.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok()
}

fn as_text(file: &SideFile) -> String {
    let when = since_1970_ms(file).map_or("at an unknown time".to_owned(), when::show);
    let holds = match file.offsets {
        Some((first, next)) => {
            format!("{} whole batches in it, offsets {first} to {}", file.batches, next - 1)
        }
        None => "no whole batch in it".to_owned(),
    };
    format!(
        "{}\n  {}, from position {} of segment {}, {when}\n  {}\n  {holds}",
        file.path.display(),
        bytes(file.bytes),
        file.pos,
        file.segment,
        file.reason
    )
}

fn as_json(file: &SideFile) -> String {
    json!({
        "path": file.path.display().to_string(),
        "segment": file.segment,
        "position": file.pos,
        "bytes": file.bytes,
        "cut_at": since_1970_ms(file),
        "reason": file.reason.name(),
        "batches": file.batches,
        "first_offset": file.offsets.map(|(first, _)| first),
        "next_offset": file.offsets.map(|(_, next)| next),
    })
    .to_string()
}
