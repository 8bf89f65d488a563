//! The `ringlog-bench` binary: flags to experiment to exit code (0 done, 1 failed, 2 bad usage).

mod ceiling;
mod cli;
mod cold;
mod device;
mod env;
mod histogram;
mod load;
mod lookup;
mod meter;
mod quick;
mod row;
mod server;
mod sys;
mod table;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Quick(quick) => quick::main(&quick),
        cli::Command::Lookup(lookup) => lookup::main(&lookup),
        cli::Command::Man => page(),
        cli::Command::Serve(serve) => server::serve(*serve),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("ringlog-bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Made from the flag definitions.
fn page() -> Result<(), String> {
    let page = clap_mangen::Man::new(cli::Cli::command());
    match page.render(&mut std::io::stdout()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}
