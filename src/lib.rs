//! ringlog: an append-log server on io_uring that keeps Kafka's partition logs, byte for byte.

pub mod errors;
pub mod types;

pub mod format;
pub mod io;
pub mod protocol;
