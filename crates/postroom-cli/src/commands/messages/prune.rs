//! `postroom messages prune`.

use super::change::{report, report_dry_run};
use super::progress::Progress;
use crate::args;
use crate::commands::outbox;
use crate::commands::stop::StopSignals;
use crate::config::Origin;
use crate::failure::Failure;
use postroom_core::Operation;
use postroom_store::bulk::Prune;

pub(super) async fn run(args: &args::Prune, origin: &Origin<'_>) -> Result<(), Failure> {
    let actor = args.actor.name()?;
    let store = outbox::open(&outbox::named(origin, args.json)?).await?;
    let prune = Prune { actor: &actor, status: args.status, older_than: args.older_than };
    let operation = Operation::Prune.as_str();
    if args.dry_run {
        let found = prune.count(&*store).await?;
        return report_dry_run(operation, &[args.status], found, args.json);
    }
    let mut signals = StopSignals::listen()?;
    let mut progress = Progress::new("pruned", args.json);
    let finished = prune.run(&*store, signals.next(), |messages| progress.tell(messages)).await;
    report(operation, "pruned", finished, &progress, args.json)
}
