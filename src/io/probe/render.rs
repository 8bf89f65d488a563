//! The probe as text, at most 80 columns wide.
//!
//! Owns: the layout. Never does: find anything out. Left: `probe`, `dir`, `paths`. Right: `cli`.

use std::fmt::Write;

use super::dir::{Device, DirFacts};
use super::{Features, Report};
use crate::io::kernel::Limit;

/// Columns of a line, and where the values begin.
const WIDTH: usize = 80;
const LABEL: usize = 18;

/// All of it.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    kernel(&mut out, &report.features);
    let engine = &report.engine;
    line(&mut out, "engine", &format!("{} ({})", engine.kind, engine.why));
    if let Some(dir) = &report.dir {
        out.push('\n');
        directory(&mut out, dir);
        out.push('\n');
    }
    for row in &report.paths {
        fold(&mut out, format!("{:<23}{:<14}", row.operation, row.path.name()), &row.why);
    }
    out
}

fn kernel(out: &mut String, features: &Features) {
    let ring = &features.io_uring;
    line(out, "kernel", &format!("Linux {}", features.kernel));
    match &ring.refused {
        None => line(out, "io_uring", "works"),
        Some(why) => line(out, "io_uring", &format!("refused: {why}")),
    }
    if ring.refused.is_none() {
        line(out, "set-up flags", &ring.flags.join(" "));
        let yes_no = |yes| if yes { "yes" } else { "no" };
        line(out, "fixed files", yes_no(ring.fixed_files));
        line(out, "registered ring", yes_no(ring.registered_ring));
        line(out, "entries", &ring.opcodes.join(" "));
        if !ring.opcodes_missing.is_empty() {
            line(out, "entries missing", &ring.opcodes_missing.join(" "));
        }
    }
    line(out, "locked memory", &limit(features.memlock_bytes, bytes));
    line(out, "open files", &limit(features.open_files, |count| count.to_string()));
    let cores: Vec<String> = features.cores.iter().map(usize::to_string).collect();
    line(out, "cores allowed", &cores.join(" "));
}

fn directory(out: &mut String, dir: &DirFacts) {
    line(out, "directory", &dir.path.display().to_string());
    let on = format!("{} on {} at {}", dir.fs, dir.source, dir.mount_point.display());
    line(out, "file system", &on);
    line(out, "mount options", &dir.options.join(" "));
    let holds = if dir.durable.holds { "can hold" } else { "CANNOT HOLD" };
    line(out, "durable", &format!("{holds}: {}", dir.durable.why));
    let works = if dir.direct.works { "works" } else { "does not work" };
    line(out, "direct I/O", &format!("{works}: {}", dir.direct.why));
    if let (Some(memory), Some(offset)) = (dir.direct.memory_align, dir.direct.offset_align) {
        line(out, "direct alignment", &format!("memory {memory}, offset {offset}"));
    }
    if dir.copies_on_write {
        line(out, "pre-writing", "off: this file system copies on write");
    }
    match &dir.device {
        Some(disk) => device(out, disk),
        None => line(out, "device", "unknown to sysfs"),
    }
}

fn device(out: &mut String, disk: &Device) {
    let model = disk.model.as_deref().unwrap_or("no model name");
    line(out, "device", &format!("{} ({model})", disk.name));
    let mut facts = Vec::new();
    let mut say = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| format!("{name} {value}")));
    };
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let flag = |value: Option<bool>| value.map(|value| u8::from(value).to_string());
    say("write cache:", disk.write_cache.clone());
    say("fua", flag(disk.fua));
    say("rotational", flag(disk.rotational));
    say("scheduler", disk.scheduler.clone());
    say("max_sectors_kb", number(disk.max_sectors_kb));
    say("max_segments", number(disk.max_segments));
    say("nr_requests", number(disk.nr_requests));
    say("logical block", number(disk.logical_block_bytes));
    say("physical block", number(disk.physical_block_bytes));
    line(out, "device queue", &facts.join(", "));
}

fn bytes(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 && b % (1 << 30) == 0 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b => format!("{} KiB", b >> 10),
    }
}

fn limit(limit: Limit, show: impl Fn(u64) -> String) -> String {
    let show = |value: Option<u64>| value.map_or("unlimited".to_string(), &show);
    format!("{} (hard limit {})", show(limit.soft), show(limit.hard))
}

/// A label and its value.
fn line(out: &mut String, label: &str, value: &str) {
    fold(out, format!("{label:<LABEL$}"), value);
}

/// A value behind its head, folded at words, each further line under the value.
fn fold(out: &mut String, head: String, value: &str) {
    let indent = head.len();
    let mut row = head;
    for word in value.split_whitespace() {
        if row.len() > indent && row.len() + word.len() > WIDTH {
            writeln!(out, "{}", row.trim_end()).expect("strings take writes");
            row = " ".repeat(indent);
        }
        row.push_str(word);
        row.push(' ');
    }
    writeln!(out, "{}", row.trim_end()).expect("strings take writes");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::engine::{EngineKind, choose};
    use crate::io::probe::paths;

    #[test]
    fn every_line_fits_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::probe(Some(dir.path())).unwrap();
        let dir = report.dir.clone().unwrap();
        for refused in [None, Some("a reason that is long enough to be folded ".repeat(5))] {
            report.features.io_uring.refused = refused;
            report.engine = choose(EngineKind::Auto, &report.features).unwrap();
            report.paths = paths::table(report.engine.kind, &report.features, &dir);
            let text = render(&report);
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.len());
            }
            let whole: String = text.split_whitespace().collect();
            let whys = report.paths.iter().map(|row| &row.why);
            for why in whys.chain([&report.engine.why, &dir.durable.why]) {
                let why: String = why.split_whitespace().collect();
                assert!(whole.contains(&why), "{why} is lost in:\n{text}");
            }
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["paths"].as_array().unwrap().len(), report.paths.len());
    }
}
