//! The `postroom` command.

mod args;
mod commands;
mod config;
mod failure;
mod log;
mod output;

use args::Cli;
use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

/// A relay makes and drops a few dozen small strings per message, on several threads: the system's
/// allocator took a tenth of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Known before the command line is understood: what is wrong with it is told the same way.
    let json = std::env::args_os().any(|word| word == "--json");
    let done = match Cli::try_parse() {
        Ok(cli) => commands::execute(cli),
        Err(error) if json && error.use_stderr() => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            Err(Failure::Usage(text.trim_end().to_owned()))
        }
        Err(error) => error.exit(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(json),
    }
}
