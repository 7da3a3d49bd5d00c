//! One file per command.

mod actor;
mod adopt;
mod check;
mod completions;
mod demo;
mod each;
mod enqueue;
mod eventlog;
mod fleet;
mod messages;
mod migrate;
mod outbox;
mod reconcile;
mod relays;
mod run;
mod stats;
mod stop;
mod work;

use crate::args::{Cli, Command, Common, Eventlog, Messages};
use crate::config::Origin;
use crate::failure::Failure;
use crate::log;
use std::future::Future;
use std::time::Duration;
use stop::OnSignal;

/// How long a batch that is under way when Ctrl-C comes may take to finish: that is usually a matter of
/// milliseconds, and its result is worth a line.
const BATCH_GRACE: Duration = Duration::from_secs(1);

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
        Command::Work | Command::Eventlog(Eventlog::Serve(_)) => log::OF_A_RELAY,
        // A large table takes its time, and the operator wants to see it go on.
        Command::Migrate(_) => "warn,postroom_store=info",
        // What goes wrong is the demo's plot, not news.
        Command::Demo(_) => "error",
        _ => "warn",
    };
    let on_signal = on_signal(&command);
    let started = Started { common: &common, log, on_signal };
    match command {
        Command::Completions { shell } => completions::run(shell),
        Command::Migrate(args) => started.run(migrate::run(&args, &origin)),
        Command::Adopt(args) => started.run(adopt::run(&args, &origin)),
        Command::Enqueue(args) => started.run(enqueue::run(&args, &origin)),
        Command::Messages(args) => started.run(messages::run(&args, &origin)),
        Command::Stats(args) => started.run(stats::run(&args, &origin)),
        Command::Relays(args) => started.run(relays::run(&args, &origin)),
        Command::Check(args) => started.run(check::run(&args, &origin)),
        Command::Reconcile(args) => started.run(reconcile::run(&args, &origin)),
        Command::Eventlog(args) => started.run(eventlog::run(&args)),
        Command::Run(args) => started.run(run::run(&args, &origin)),
        Command::Work => started.run(work::run(&origin)),
        Command::Demo(args) => started.run(demo::run(&args, &common)),
    }
}

/// What Ctrl-C and SIGTERM mean to a command.
fn on_signal(command: &Command) -> OnSignal {
    match command {
        Command::Run(_)
        | Command::Work
        | Command::Demo(_)
        | Command::Eventlog(Eventlog::Serve(_)) => OnSignal::Handled,
        Command::Messages(messages) => match **messages {
            Messages::Redrive(_)
            | Messages::Replay(_)
            | Messages::Release(_)
            | Messages::Cancel(_)
            | Messages::Prune(_) => OnSignal::EndAfter(BATCH_GRACE),
            Messages::List(_) | Messages::Show(_) | Messages::Actions(_) => OnSignal::End,
            Messages::Watch(_) | Messages::Tail(_) => OnSignal::Done,
        },
        Command::Completions { .. }
        | Command::Migrate(_)
        | Command::Adopt(_)
        | Command::Enqueue(_)
        | Command::Stats(_)
        | Command::Relays(_)
        | Command::Check(_)
        | Command::Eventlog(_)
        | Command::Reconcile(_) => OnSignal::End,
    }
}

/// What a command needs before it begins.
struct Started<'a> {
    common: &'a Common,
    log: &'a str,
    on_signal: OnSignal,
}

impl Started<'_> {
    fn run(self, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        let Self { common, log, on_signal } = self;
        log::start(common.log_format, log);
        if common.database.as_deref().is_some_and(outbox::has_password) {
            tracing::warn!(
                "--database holds a password, which every user of this machine can see in the list \
                 of processes: put the URL into the configuration, with ${{NAME}} for the password"
            );
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let done = runtime.block_on(stop::interruptible(on_signal, work));
        if matches!(done, Err(Failure::Interrupted(_))) || matches!(on_signal, OnSignal::Done) {
            // Nor does it wait for a thread that looks up a host's name.
            runtime.shutdown_background();
        }
        done
    }
}
