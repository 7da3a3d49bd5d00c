//! `postroom eventlog`: an event log that speaks KurrentDB's protocol.

#[cfg(feature = "eventlog")]
mod serve;
#[cfg(feature = "eventlog")]
mod upkeep;

use crate::args::Eventlog;
use crate::failure::Failure;

#[cfg(feature = "eventlog")]
pub(super) async fn run(args: &Eventlog) -> Result<(), Failure> {
    match args {
        Eventlog::Serve(args) => serve::run(args).await,
        Eventlog::Check(args) => upkeep::check(args).await,
        Eventlog::Repair(args) => upkeep::repair(args).await,
        Eventlog::Scavenge(args) => upkeep::scavenge(args).await,
        Eventlog::Backup(args) => upkeep::backup(args).await,
    }
}

#[cfg(not(feature = "eventlog"))]
#[allow(clippy::unused_async, reason = "as where the feature is there")]
pub(super) async fn run(_: &Eventlog) -> Result<(), Failure> {
    Err(Failure::Usage(
        "this build was made without the event log: build Postroom with `--features eventlog`, or \
         with `--features full` for everything"
            .to_owned(),
    ))
}
