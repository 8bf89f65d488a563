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
