//! Reading a data directory from the outside: what lies in it, whether it is sound, where a lookup
//! goes. For files of a live server as for lone ones.
//!
//! Owns: reading in bounded memory, whatever the files say. Never does: serve, print; change a
//! file, but for `rebuild` and `cuts`, which are asked to. Left: `format`, `std::fs`. Right: `cli`.

pub mod cuts;
pub mod explore;
pub mod findings;
pub mod index_check;
pub mod index_file;
pub mod lookup;
pub mod partition;
mod producers;
pub mod rebuild;
pub mod records;
pub mod source;
pub mod verify;
pub mod walk;
