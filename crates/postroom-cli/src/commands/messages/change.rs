//! `postroom messages redrive`, `replay`, `release` and `cancel`.

use super::find::{Found, find};
use super::progress::Progress;
use crate::args;
use crate::commands::each::Named;
use crate::commands::outbox;
use crate::commands::stop::StopSignals;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output;
use anyhow::anyhow;
use postroom_core::{Status, Store, StoreError};
use postroom_store::bulk::{Bulk, Change, Finished, change_one};
use serde_json::json;

/// What was done, as people say it.
fn done(change: Change) -> &'static str {
    match change {
        Change::Redrive => "redriven",
        Change::Replay { .. } => "replayed",
        Change::Release => "released",
        Change::Cancel => "cancelled",
    }
}

pub(super) async fn run(
    change: Change,
    args: &args::Change,
    origin: &Origin<'_>,
) -> Result<(), Failure> {
    let actor = args.actor.name()?;
    if args.id.is_none() && args.which.is_any() && !args.all {
        return Err(Failure::Usage(
            "which messages? name one by its id, filter them (see --help), or say --all".to_owned(),
        ));
    }
    let Some(name) = &args.id else {
        let store = outbox::open(&outbox::named(origin, args.json)?).await?;
        return many(change, args, &actor, &*store).await;
    };
    let databases = outbox::all(origin, args.json)?;
    let found = find(&databases, name, true).await?;
    one(change, found, &actor, args.json).await
}

async fn one(change: Change, found: Found, actor: &str, json: bool) -> Result<(), Failure> {
    let Found { database, store, record } = found;
    let id = &record.message.id;
    let (action, changed) = change_one(&*store, actor, change, record.key()).await?;
    let done = done(change);
    if changed.messages == 0 {
        // It may have changed since it was looked at.
        let status = store.find(id).await?.map_or("gone".to_owned(), |record| record.status);
        let wanted: Vec<&str> = change.statuses().iter().map(|status| status.as_str()).collect();
        return Err(Failure::Failed(anyhow!(
            "message {id} is {status}, and only {} messages are {done}: nothing was changed",
            wanted.join(" or ")
        )));
    }
    if json {
        let object = json!({
            "action": action.0,
            "operation": change.operation().as_str(),
            "messages": changed.messages,
            "made": changed.made,
        });
        return Ok(output::print_json(&Named { database: database.as_deref(), object })?);
    }
    let place = database.map_or_else(String::new, |name| format!("{name}: "));
    let text = match (change, changed.made.first()) {
        (_, Some(new)) => format!("{done} {id} as {new}\n"),
        (Change::Redrive | Change::Release, _) => format!("{done} {id}: it is due now\n"),
        (Change::Cancel | Change::Replay { .. }, _) => format!("{done} {id}: it is DEAD now\n"),
    };
    Ok(output::print(&(place + &text))?)
}

async fn many(
    change: Change,
    args: &args::Change,
    actor: &str,
    store: &dyn Store,
) -> Result<(), Failure> {
    let filter = super::filter(&args.which, store).await?;
    let bulk = Bulk { actor, change, filter: &filter, per_second: args.rate };
    let operation = change.operation().as_str();
    if args.dry_run {
        let found = bulk.count(store).await?;
        return report_dry_run(operation, change.statuses(), found, args.json);
    }
    let mut signals = StopSignals::listen()?;
    let mut progress = Progress::new(done(change), args.json);
    let finished = bulk.run(store, signals.next(), |messages| progress.tell(messages)).await;
    report(operation, done(change), finished, &progress, args.json)
}

/// What an operation over many messages would do.
pub(super) fn report_dry_run(
    operation: &str,
    statuses: &[Status],
    messages: u64,
    json: bool,
) -> Result<(), Failure> {
    if json {
        return Ok(output::print_json(
            &json!({ "operation": operation, "messages": messages, "dry_run": true }),
        )?);
    }
    let statuses: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
    let what = counted(messages, &statuses.join(" or "));
    Ok(output::print(&format!("would {operation} {what}; nothing was changed\n"))?)
}

/// What an operation over many messages did.
pub(super) fn report(
    operation: &str,
    done: &str,
    finished: Result<Finished, StoreError>,
    progress: &Progress,
    json: bool,
) -> Result<(), Failure> {
    progress.end();
    let finished = finished.map_err(|error| {
        let so_far = counted(progress.messages, "");
        anyhow::Error::new(error).context(format!("{so_far} {done}, then it failed"))
    })?;
    let Finished { action, messages, locked, is_stopped } = finished;
    if json {
        output::print_json(&json!({
            "action": action.0,
            "operation": operation,
            "messages": messages,
            "locked": locked,
            "stopped": is_stopped,
        }))?;
    } else {
        let mut end = String::new();
        if locked > 0 {
            end = format!(
                "; {} left alone, locked by another session: run this again later",
                counted(locked, "")
            );
        }
        if is_stopped {
            end.push_str("; stopped before the end");
        }
        output::print(&format!(
            "{} {done}, on record as action {}{end}\n",
            counted(messages, ""),
            action.0
        ))?;
    }
    if is_stopped || locked > 0 { Err(Failure::Told) } else { Ok(()) }
}

/// How many messages, of a kind where there is one.
fn counted(messages: u64, kind: &str) -> String {
    let space = if kind.is_empty() { "" } else { " " };
    let plural = if messages == 1 { "" } else { "s" };
    format!("{}{space}{kind} message{plural}", output::count(messages))
}
