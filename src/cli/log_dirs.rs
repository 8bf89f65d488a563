//! The data directories of a server, for `ringlog topic describe --dirs`.
//!
//! Owns: how they are shown. Never does: ask. Left: `client`, [`super::render`]. Right: `topic`.

use serde::Serialize;

use super::Failure;
use super::output::print_line;
use super::render;
use crate::client::log_dirs::LogDirDescription;
use crate::format::identity::render_uuid;

#[derive(Serialize)]
struct Shown<'a> {
    path: &'a str,
    id: String,
    state: &'static str,
    why: Option<&'a str>,
    total_bytes: Option<u64>,
    usable_bytes: Option<u64>,
    partitions: Vec<Held<'a>>,
}

#[derive(Serialize)]
struct Held<'a> {
    topic: &'a str,
    partition: u32,
    bytes: u64,
    lag: Option<u64>,
}

/// A JSON object a line and directory.
pub fn print_json(dirs: &[LogDirDescription]) -> Result<(), Failure> {
    for dir in dirs {
        let partitions = dir.partitions.iter().map(|one| Held {
            topic: &one.topic,
            partition: one.index,
            bytes: one.bytes,
            lag: one.lag,
        });
        let shown = Shown {
            path: &dir.path,
            id: id(dir),
            state: state(dir),
            why: dir.offline.as_deref(),
            total_bytes: dir.total_bytes,
            usable_bytes: dir.usable_bytes,
            partitions: partitions.collect(),
        };
        print_line(&serde_json::to_string(&shown)?)?;
    }
    Ok(())
}

pub fn print_text(dirs: &[LogDirDescription]) -> Result<(), Failure> {
    let texts: Vec<String> = dirs.iter().map(text).collect();
    print_line(&texts.join("\n\n"))
}

fn state(dir: &LogDirDescription) -> &'static str {
    if dir.offline.is_some() { "offline" } else { "online" }
}

/// A directory that could not be read has none.
fn id(dir: &LogDirDescription) -> String {
    match dir.id {
        [0, ..] if dir.id == [0; 16] => "unknown".to_owned(),
        id => render_uuid(uuid::Uuid::from_bytes(id)),
    }
}

fn text(dir: &LogDirDescription) -> String {
    let size = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), render::bytes);
    let mut text = format!(
        "directory {}\nid {}, {}, {} of {} usable",
        dir.path,
        id(dir),
        state(dir),
        size(dir.usable_bytes),
        size(dir.total_bytes)
    );
    if let Some(why) = &dir.offline {
        text.push('\n');
        text.push_str(why);
    }
    if dir.partitions.is_empty() {
        return text + "\nno partitions";
    }
    let mut table = render::table(&["topic", "partition", "size", "lag"]);
    for one in &dir.partitions {
        table.add_row([
            one.topic.clone(),
            one.index.to_string(),
            render::bytes(one.bytes),
            one.lag.map_or("-".to_owned(), |lag| lag.to_string()),
        ]);
    }
    format!("{text}\n{}", render::lines(&table))
}
