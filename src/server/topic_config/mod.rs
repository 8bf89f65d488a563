//! Topic settings: names, bounds, defaults, and what they make of a partition's settings.
//!
//! Owns: which value holds and where it comes from (topic, server, default), which values go
//! together, what is said of those without effect. Never does: keep or publish them. Left:
//! `shard::mailbox::Settings`, `policy`. Right: `config` (the server's defaults), `control`.

mod checks;
mod layers;
mod notices;
mod table;
mod value;

pub use layers::{Defaults, Resolved, Row, canonical, known_name};
