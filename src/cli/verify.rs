//! `ringlog verify`: whether a data directory or a partition is sound, and what to do if not (R59).
//!
//! Owns: how findings are told, the exit code. Never does: look (`tools::verify` does); repair.
//! Left: `tools::verify`, `tools::findings`. Right: `cli`.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;

use super::Failure;
use super::output::Output;
use super::render::{bytes, progress};
use crate::tools::findings::{Finding, Kind, Watch};
use crate::tools::verify::{self, Totals};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog verify d
  ringlog verify d/events-0
  ringlog verify d --json | jq -r .path

Reads every log from its first byte to its last: checksums, records, the order of offsets; then
indexes, snapshots, leader epochs, checkpoints and names against it. Changes nothing, of a running
server's directory either.

Exit code 0: sound. 1: findings, each with where it is, what it does and what to do next.
2: bad usage.")]
pub struct Verify {
    /// A data directory, or the directory of one partition.
    #[arg(value_name = "DIR", value_parser = directory)]
    dir: PathBuf,
    /// A JSON object a finding and line, the totals last.
    #[arg(long)]
    json: bool,
}

/// A directory that is there: one that is not is bad usage.
pub fn directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match std::fs::metadata(&path) {
        Ok(found) if found.is_dir() => Ok(path),
        Ok(_) => Err("it is not a directory".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub fn run(args: &Verify) -> Result<(), Failure> {
    let bar = progress(verify::log_bytes(&args.dir)?);
    let out = Output::stdout()?;
    let dir = args.dir.display().to_string();
    let mut teller = Teller { out, bar, json: args.json, dir, findings: 0 };
    let totals = verify::run(&args.dir, &mut teller)?;
    teller.bar.finish_and_clear();
    teller.totals(&totals);
    let findings = teller.findings;
    teller.out.finish()?;
    match findings {
        0 => Ok(()),
        1 => Err(Failure("one finding: see above".to_owned())),
        findings => Err(Failure(format!("{findings} findings: see above"))),
    }
}

struct Teller {
    out: Output,
    bar: ProgressBar,
    json: bool,
    dir: String,
    findings: u64,
}

impl Watch for Teller {
    fn finding(&mut self, finding: Finding) {
        self.findings += 1;
        let next_step = finding.kind.next_step(&partition_of(&finding, &self.dir));
        if self.json {
            self.line(&json!({
                "type": "finding",
                "kind": finding.kind.name(),
                "path": finding.path.display().to_string(),
                "position": finding.pos,
                "first_offset": finding.offsets.map(|(first, _)| first),
                "next_offset": finding.offsets.and_then(|(_, next)| next),
                "fault": finding.fault,
                "effect": finding.kind.effect(),
                "next_step": next_step,
            }));
            return;
        }
        let mut text = format!("{}: {}\n", finding.path.display(), finding.kind.name());
        text += &paragraph("what", &finding.fault);
        text += &paragraph("where", &place(&finding));
        text += &paragraph("effect", finding.kind.effect());
        text += &paragraph("next", &next_step);
        self.bar.suspend(|| {
            self.out.bytes(text.as_bytes());
            self.out.flush();
        });
    }

    fn note(&mut self, path: &Path, text: String) {
        if self.json {
            let path = path.display().to_string();
            return self.line(&json!({"type": "note", "path": path, "note": text}));
        }
        self.out.line(format!("{}: {text}", path.display()).as_bytes());
    }

    fn progress(&mut self, bytes: u64) {
        self.bar.inc(bytes);
    }
}

impl Teller {
    fn line(&mut self, value: &serde_json::Value) {
        self.out.json(value);
        self.out.bytes(b"\n");
    }

    fn totals(&mut self, totals: &Totals) {
        let Totals { partitions, segments, batches, records, bytes: count } = *totals;
        let findings = self.findings;
        if self.json {
            self.line(&json!({"type": "totals", "partitions": partitions, "segments": segments,
                "batches": batches, "records": records, "bytes": count, "findings": findings}));
            return;
        }
        let what = format!(
            "partitions: {partitions}, segments: {segments}, batches: {batches}, \
             records: {records}, {}",
            bytes(count)
        );
        self.out.line(format!("{what}; findings: {findings}").as_bytes());
    }
}

/// The directory that a command against the finding would be given.
fn partition_of(finding: &Finding, dir: &str) -> String {
    match finding.path.parent() {
        Some(parent) if finding.kind != Kind::Foreign => parent.display().to_string(),
        _ => dir.to_owned(),
    }
}

fn place(finding: &Finding) -> String {
    let pos = finding.pos.map(|pos| format!("position {pos}"));
    let offsets = finding.offsets.map(|(first, next)| match next {
        Some(next) if next > first => format!("offsets {first} to {}", next - 1),
        _ => format!("offset {first} on"),
    });
    let place: Vec<String> = pos.into_iter().chain(offsets).collect();
    place.join(", ")
}

/// `  what    ...`, wrapped to 80 columns; nothing for no text.
fn paragraph(name: &str, text: &str) -> String {
    const WIDTH: usize = 80 - 10;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    names.zip(lines).map(|(name, line)| format!("  {name:8}{line}\n")).collect()
}
