//! `postroom completions`: a script for the shell.

use crate::args::Cli;
use crate::failure::Failure;
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;

pub(super) fn run(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "postroom", &mut script);
    Ok(output::print(&String::from_utf8_lossy(&script))?)
}
