//! One file per command.

mod actor;
mod check;
mod completions;
mod demo;
mod enqueue;
mod messages;
mod migrate;
mod outbox;
mod reconcile;
mod run;
mod stats;
mod stop;
mod work;

use crate::args::{Cli, Command, Common};
use crate::config::Origin;
use crate::failure::Failure;
use crate::log;
use std::future::Future;

/// Runs the command that was asked for.
pub(crate) fn execute(cli: Cli) -> Result<(), Failure> {
    let Cli { command, common } = cli;
    let origin = Origin {
        file: common.config.as_deref(),
        database: common.database.as_deref(),
        environment: &|name| std::env::var(name).ok(),
    };
    // A relay tells what it does; a tool prints its result, and only troubles are worth a line.
    let log = match &command {
        Command::Run(args) if !args.once => log::OF_A_RELAY,
        Command::Work => log::OF_A_RELAY,
        // A large table takes its time, and the operator wants to see it go on.
        Command::Migrate(_) => "warn,postroom_store=info",
        // What goes wrong is the demo's plot, not news.
        Command::Demo(_) => "error",
        _ => "warn",
    };
    match command {
        Command::Completions { shell } => completions::run(shell),
        Command::Migrate(args) => started(&common, log, migrate::run(&args, &origin)),
        Command::Enqueue(args) => started(&common, log, enqueue::run(&args, &origin)),
        Command::Messages(args) => started(&common, log, messages::run(&args, &origin)),
        Command::Stats(args) => started(&common, log, stats::run(&args, &origin)),
        Command::Check(args) => started(&common, log, check::run(&args, &origin)),
        Command::Reconcile(args) => started(&common, log, reconcile::run(&args, &origin)),
        Command::Run(args) => started(&common, log, run::run(&args, &origin)),
        Command::Work => started(&common, log, work::run(&origin)),
        Command::Demo(args) => started(&common, log, demo::run(&args, &common)),
    }
}

fn started(
    common: &Common,
    log: &str,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    log::start(common.log_format, log);
    if common.database.as_deref().is_some_and(outbox::has_password) {
        tracing::warn!(
            "--database holds a password, which every user of this machine can see in the list of \
             processes: put the URL into the configuration, with ${{NAME}} for the password"
        );
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}
