//! Bytes at rest: Kafka's record batches, indexes, file names, checkpoints and producer snapshots.
//!
//! Pure: no I/O, no clock, no state that outlives a call's arguments. Every slice that comes in may
//! be hostile: nothing here panics on it, allocates by a number it contains, or loops longer than
//! it is. `log` and `shard` stand on the left (they bring bytes), nothing stands on the right.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

pub mod batch;
pub mod builder;
pub mod checkpoint;
pub mod checksum;
pub mod codec;
pub mod cut_name;
pub mod damage;
pub mod dump;
mod gzip;
pub mod identity;
pub mod index;
mod legacy;
mod lz4;
pub mod name;
pub mod record;
pub mod reencode;
mod snappy;
pub mod snapshot;
pub mod stored;
pub mod txn_index;
pub mod unpack;
pub mod validate;
pub mod varint;
