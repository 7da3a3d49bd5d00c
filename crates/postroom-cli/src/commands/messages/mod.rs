//! `postroom messages`: what is in the outbox, and what operators do to it.

mod actions;
mod change;
mod find;
mod list;
mod progress;
mod prune;
mod show;
mod tail;
mod watch;

use crate::args::{Messages, When, Which};
use crate::config::Origin;
use crate::failure::Failure;
use chrono::{DateTime, Utc};
use postroom_core::{Admin, Filter, StoreResult};
use postroom_store::bulk;

pub(super) async fn run(args: &Messages, origin: &Origin<'_>) -> Result<(), Failure> {
    match args {
        Messages::List(args) => list::run(args, origin).await,
        Messages::Show(args) => show::run(args, origin).await,
        Messages::Redrive(args) => change::run(bulk::Change::Redrive, args, origin).await,
        Messages::Replay(args) => {
            let change = bulk::Change::Replay { fresh_ids: args.fresh_id };
            change::run(change, &args.change, origin).await
        }
        Messages::Release(args) => change::run(bulk::Change::Release, args, origin).await,
        Messages::Cancel(args) => change::run(bulk::Change::Cancel, args, origin).await,
        Messages::Prune(args) => prune::run(args, origin).await,
        Messages::Actions(args) => actions::run(args, origin).await,
        Messages::Watch(args) => watch::run(args, origin).await,
        Messages::Tail(args) => tail::run(args, origin).await,
    }
}

/// The filter that was asked for. What was so long ago is so by the database's clock.
async fn filter(which: &Which, store: &dyn Admin) -> StoreResult<Filter> {
    Ok(Filter {
        integration: which.integration.clone(),
        tenant: which.tenant.clone(),
        event_type: which.event_type.clone(),
        correlation: which.correlation.clone(),
        event_id: which.event_id.clone(),
        stream: which.stream.clone(),
        error: which.error.clone(),
        since: moment(which.since, store).await?,
        until: moment(which.until, store).await?,
        ..Filter::default()
    })
}

async fn moment(when: Option<When>, store: &dyn Admin) -> StoreResult<Option<DateTime<Utc>>> {
    Ok(match when {
        None => None,
        Some(When::At(time)) => Some(time),
        Some(When::Ago(ago)) => {
            let ago = chrono::TimeDelta::from_std(ago).unwrap_or(chrono::TimeDelta::MAX);
            let now = store.now().await?;
            Some(now.checked_sub_signed(ago).unwrap_or(DateTime::UNIX_EPOCH))
        }
    })
}
