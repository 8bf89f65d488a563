//! ringlog: an append-log server on io_uring that keeps Kafka's partition logs, byte for byte.
//!
//! Modules stand in dependency order; `ARCHITECTURE.md` has the flows.

pub mod errors;
pub mod types;

pub mod format;
pub mod io;
pub mod policy;
pub mod protocol;

pub mod log;

pub mod shard;

pub mod server;

pub mod client;

pub mod tools;

pub mod cli;
