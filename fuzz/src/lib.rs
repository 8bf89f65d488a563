//! What is done with hostile bytes, a module a target; libFuzzer feeds them (`targets/`), and
//! `tests/fuzz_corpus.rs` replays the committed corpus through the same functions on stable.
//!
//! Owns: the promises that no bytes may break. Never does: make bytes. Left: `ringlog`, the tests'
//! small shard. Right: `targets/`, `tests/fuzz_corpus.rs`.

pub mod batch;
pub mod checkpoint;
pub mod frame;
pub mod index;
pub mod record;
pub mod recovery;

#[path = "../../tests/support/mod.rs"]
mod support;
