//! `ringlog completions` and `ringlog man`: made from the flag definitions, so that they are never
//! behind them.
//!
//! Owns: which shells and pages there are. Never does: install them.
//! Left: `clap_complete`, `clap_mangen`. Right: `cli`.

use std::path::PathBuf;

use clap::{Args, CommandFactory, ValueEnum};
use clap_mangen::Man;

use super::output::Output;
use super::verify::directory;
use super::{Cli, Failure};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog completions bash > ~/.local/share/bash-completion/completions/ringlog
  ringlog completions zsh > ~/.zfunc/_ringlog
  ringlog completions fish > ~/.config/fish/completions/ringlog.fish")]
pub struct Completions {
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ringlog man | man -l -
  ringlog man --dir ~/.local/share/man/man1

Without --dir the page of ringlog itself is printed; with it there is a page a command as well.")]
pub struct Pages {
    /// Write ringlog.1 and a page a command there.
    #[arg(long, value_name = "D", value_parser = directory)]
    dir: Option<PathBuf>,
}

pub fn completions(args: &Completions) -> Result<(), Failure> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ringlog", &mut script);
    print(&script)
}

pub fn pages(args: &Pages) -> Result<(), Failure> {
    if let Some(dir) = &args.dir {
        return Ok(clap_mangen::generate_to(Cli::command(), dir)?);
    }
    let mut page = Vec::new();
    Man::new(Cli::command()).render(&mut page)?;
    print(&page)
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = Output::stdout()?;
    out.bytes(bytes);
    out.finish()
}
