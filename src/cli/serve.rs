//! `ringlog serve`: the server, until it is told to stop.
//!
//! Owns: where its settings come from. Never does: resolve or act on them. Left:
//! `server::config`, `server::run`. Right: `cli`.

use std::path::PathBuf;

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::Failure;
use crate::server::RunError;
use crate::server::config::{Flags, read_file};

#[derive(clap::Args, Debug)]
#[command(after_help = "\
Every flag may also come from its RINGLOG_* variable or the TOML file of --config;
a flag wins over the variable, the variable over the file.

Examples:
  ringlog serve --data-dir /var/lib/ringlog
  ringlog serve --data-dir d --flush each --shards 1 --engine syscall
  ringlog serve --data-dir d --listen 127.0.0.1:0     (free ports, printed)")]
pub struct Serve {
    /// TOML file of settings, named as the flags
    #[arg(long, env = "RINGLOG_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

impl Serve {
    pub fn run(self) -> Result<(), Failure> {
        let flags = match &self.config {
            Some(path) => self.flags.or(read_file(path)?),
            None => self.flags,
        };
        match crate::server::run(flags) {
            // A setting out of its bounds is bad usage, wherever it was given: exit code 2.
            Err(RunError::Config(error)) => {
                super::Cli::command().error(ErrorKind::ValueValidation, error).exit()
            }
            done => Ok(done?),
        }
    }
}
