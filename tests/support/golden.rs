//! Where the golden files are, and which topics they are of.

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

pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(path)
}

/// A copy that may be damaged; in name order.
#[allow(dead_code, reason = "each test file uses its part of this")]
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
