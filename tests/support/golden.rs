//! Where the golden files are, and which topics and legacy sets they are of.

#![allow(dead_code, reason = "each test file uses its part of this")]

use std::path::{Path, PathBuf};

pub const TOPICS: [&str; 12] = [
    "appendtime",
    "compacted",
    "deleted",
    "gzip",
    "lz4",
    "producers",
    "recompressed",
    "segments",
    "shapes",
    "snappy",
    "transactions",
    "zstd",
];

/// The logs of magic 0 and 1.
pub const LEGACY_SETS: [&str; 8] = [
    "magic0-gzip",
    "magic0-lz4",
    "magic0-none",
    "magic0-snappy",
    "magic1-gzip",
    "magic1-lz4",
    "magic1-none",
    "magic1-snappy",
];

pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(path)
}

/// A file of a legacy set.
pub fn legacy(set: &str, name: &str) -> Vec<u8> {
    std::fs::read(golden(&format!("legacy/{set}-0/{name}"))).expect("a fixture")
}

/// A copy that may be damaged; in name order.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("readable");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_dir(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).expect("copied")),
        }
    }
}
