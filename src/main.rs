//! The `ringlog` binary: all of it is [`ringlog::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    ringlog::cli::main()
}
