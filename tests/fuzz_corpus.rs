//! The fuzz targets' corpus, replayed on a stable compiler: every committed input goes through the
//! function that libFuzzer drives.
//!
//! Owns: the replay, and how the seeds are made from the golden files and the protocol's page.
//! Never does: look for new inputs. Left: `fuzz/src/`. Right: nobody.
//!
//! New seeds: `cargo test --workspace --test fuzz_corpus -- --ignored`. An input that broke a
//! promise is put beside them under a name of its own.

#[path = "../fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "there it is a library's root")]
mod fuzz;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fuzz::recovery::{Head, pack};
use ringlog::format::batch::{Codec, HEADER_LEN, scan};
use ringlog::format::checksum::crc32c;

type Target = (&'static str, fn(&[u8]));

const TARGETS: [Target; 6] = [
    ("frame", fuzz::frame::run),
    ("batch", fuzz::batch::run),
    ("record", fuzz::record::run),
    ("index", fuzz::index::run),
    ("checkpoint", fuzz::checkpoint::run),
    ("recovery", fuzz::recovery::run),
];

/// A seed is small: libFuzzer takes the length of the largest for its bound.
const SEED_BYTES_MAX: usize = 6000;
/// Of a log that is too long for a seed.
const LOG_BYTES: usize = 1500;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn corpus(target: &str) -> PathBuf {
    root().join("fuzz/corpus").join(target)
}

/// Files below a folder, in name order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn replay(target: &str) {
    let (_, run) = TARGETS.into_iter().find(|(name, _)| *name == target).expect("a target");
    let inputs = files(&corpus(target));
    assert!(inputs.len() >= 10, "{target}: {} inputs", inputs.len());
    for path in inputs {
        let bytes = fs::read(&path).expect("readable");
        println!("{}", path.display()); // shown when the run below panics
        run(&bytes);
    }
    run(&[]);
}

#[test]
fn hostile_frames_break_nothing() {
    replay("frame");
}

#[test]
fn hostile_batches_break_nothing() {
    replay("batch");
}

#[test]
fn hostile_records_break_nothing() {
    replay("record");
}

#[test]
fn hostile_indexes_break_nothing() {
    replay("index");
}

#[test]
fn hostile_checkpoints_break_nothing() {
    replay("checkpoint");
}

#[test]
fn hostile_directories_break_nothing() {
    replay("recovery");
}

#[test]
fn every_target_has_its_binary_and_its_corpus() {
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).expect("readable");
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("targets/{name}.rs")), "{name}");
        assert!(root().join(format!("fuzz/targets/{name}.rs")).exists(), "{name}");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}

/// Seeds of a target, each once.
struct Seeds(&'static str, BTreeSet<Vec<u8>>);

impl Seeds {
    fn add(&mut self, parts: &[&[u8]]) {
        let seed = parts.concat();
        if seed.len() <= SEED_BYTES_MAX {
            self.1.insert(seed);
        }
    }

    fn write(self) {
        let folder = corpus(self.0);
        fs::create_dir_all(&folder).expect("made");
        for old in files(&folder) {
            let name = old.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("seed-") {
                fs::remove_file(&old).expect("removed");
            }
        }
        for seed in self.1 {
            let name = format!("seed-{:08x}", crc32c(&seed));
            fs::write(folder.join(name), seed).expect("written");
        }
    }
}

#[test]
#[ignore = "writes the seeds anew"]
fn make_the_seeds() {
    let golden = files(&root().join("tests/fixtures/golden"));
    let golden: Vec<(PathBuf, Vec<u8>)> =
        golden.into_iter().map(|path| (path.clone(), fs::read(path).expect("readable"))).collect();
    frames().write();
    batches_and_records(&golden).into_iter().for_each(Seeds::write);
    indexes(&golden).write();
    checkpoints(&golden).write();
    directories().write();
}

/// The examples of the protocol's page.
fn frames() -> Seeds {
    let page = fs::read_to_string(root().join("docs/protocol.md")).expect("readable");
    let mut seeds = Seeds("frame", BTreeSet::new());
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if !line.starts_with("```hex ") {
            continue;
        }
        let digits = lines.by_ref().take_while(|line| *line != "```");
        let digits = digits.flat_map(|line| line.split('#').next().unwrap_or("").split(' '));
        let bytes: Vec<u8> = digits.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect();
        seeds.add(&[&bytes]);
    }
    seeds
}

/// A few batches of each codec and kind; the records of those that are not compressed.
fn batches_and_records(golden: &[(PathBuf, Vec<u8>)]) -> [Seeds; 2] {
    let mut batches = Seeds("batch", BTreeSet::new());
    let mut payloads = Seeds("record", BTreeSet::new());
    let mut kinds = BTreeSet::new();
    for (_, log) in golden.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "log")) {
        for found in scan(log) {
            let header = found.header;
            let size = found.bytes.len().ilog2();
            if !kinds.insert((header.attributes.0, size, header.producer_id >= 0)) {
                continue;
            }
            batches.add(&[&[0], found.bytes]);
            batches.add(&[&[16], &[0; 8], &found.bytes[8..]]);
            if header.codec() == Some(Codec::None) {
                let count = header.records_count as i16;
                payloads.add(&[&count.to_be_bytes(), &found.bytes[HEADER_LEN..]]);
            }
        }
    }
    [batches, payloads]
}

fn indexes(golden: &[(PathBuf, Vec<u8>)]) -> Seeds {
    let mut seeds = Seeds("index", BTreeSet::new());
    for (path, bytes) in golden {
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        let wanted: i64 = match kind {
            "index" => 50,
            "timeindex" => 1_764_500_000_000,
            "txnindex" => 0,
            _ => continue,
        };
        seeds.add(&[&wanted.to_be_bytes(), bytes]);
    }
    seeds
}

fn checkpoints(golden: &[(PathBuf, Vec<u8>)]) -> Seeds {
    let mut seeds = Seeds("checkpoint", BTreeSet::new());
    for (path, bytes) in golden {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let small = ["-checkpoint", ".snapshot", "partition.metadata", "meta.properties"];
        if small.iter().any(|end| name.ends_with(end)) {
            seeds.add(&[bytes]);
        }
    }
    for text in [
        "00000000000000000042.log",
        "00000000000000000042.timeindex.deleted",
        "events-0",
        "events-0.0123456789abcdef0123456789abcdef-delete",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        r#"{"version":0,"brokerEpoch":5}"#,
    ] {
        seeds.add(&[text.as_bytes()]);
    }
    seeds
}

/// Partition directories, whole where they are small, else with short logs and no indexes.
fn directories() -> Seeds {
    let mut seeds = Seeds("recovery", BTreeSet::new());
    for state in ["clean", "killed", "torn"] {
        let golden = root().join("tests/fixtures/golden").join(state);
        for partition in fs::read_dir(golden).expect("fixtures").flatten() {
            let whole: Vec<(String, Vec<u8>)> = files(&partition.path())
                .into_iter()
                .map(|path| {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    (name.into_owned(), fs::read(&path).expect("readable"))
                })
                .collect();
            let short = shortened(&whole);
            for (bits, recovery_point) in [(0, 255), (1, 255), (2, 0), (6, 4)] {
                let head = Head { bits, recovery_point, log_start: 255 };
                let packed = [&whole, &short].into_iter().filter_map(|files| pack(&head, files));
                if let Some(packed) = packed.into_iter().find(|p| p.len() <= SEED_BYTES_MAX) {
                    seeds.add(&[&packed]);
                }
            }
        }
    }
    seeds
}

/// The first two logs, each cut to whole batches, and the small files.
fn shortened(files: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let mut logs = 0;
    let mut kept = Vec::new();
    for (name, bytes) in files {
        if name.ends_with(".log") {
            logs += 1;
            let ends = scan(bytes).map(|found| found.pos + found.bytes.len());
            let end = ends.take_while(|end| *end <= LOG_BYTES).last().unwrap_or(0);
            if logs <= 2 {
                kept.push((name.clone(), bytes[..end].to_vec()));
            }
        } else if !name.ends_with("index") {
            kept.push((name.clone(), bytes.clone()));
        }
    }
    kept
}
