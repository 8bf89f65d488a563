//! The process: settings, threads, the control thread's work, start and stop order.
//!
//! Owns: what exists once a server. Never does: the data path. Left: `shard`, `log`, `io`. Right:
//! `cli`, tests and the benchmark, which start servers.

mod assembly;
pub mod config;
pub mod control;
mod datadir;
pub mod homes;
mod keeping;
mod limits;
mod log_dirs;
mod opening;
mod producer_ids;
mod removal;
mod requests;
mod run;
mod topic_config;
pub mod topics;
mod units;
mod window;

pub use run::{RunError, Running, run, start};
