//! Decisions, and nothing else: pure functions of a state, a configuration and the time.
//!
//! Owns: the flush policies and what they promise; when to write, flush, roll, ack, admit, remove;
//! where a partition lives. Never does: I/O, mutation, clock reads.
//! Left: [`crate::types`]. Right: `log` and `shard`, which carry the decisions out.

pub mod ack;
pub mod admit;
pub mod flush;
pub mod group;
pub mod place;
pub mod retention;
pub mod roll;
pub mod units;

pub use flush::FlushPolicy;
