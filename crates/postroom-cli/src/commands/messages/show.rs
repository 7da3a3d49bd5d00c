//! `postroom messages show`.

use crate::args::ShowMessage;
use crate::commands::outbox;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align, Table};
use anyhow::anyhow;
use postroom_core::{Attempt, Record, Store};
use serde::Serialize;
use std::fmt::Write as _;
use uuid::Uuid;

/// A message with its history.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    record: Record,
    failed_attempts: Vec<Attempt>,
}

pub(super) async fn run(args: &ShowMessage, origin: &Origin<'_>) -> Result<(), Failure> {
    let store = outbox::open(&origin.database()?).await?;
    let record = find(&*store, args.id).await?;
    let shown = Shown { failed_attempts: store.attempts(args.id).await?, record };
    if args.json {
        return Ok(output::print_json(&shown)?);
    }
    output::print(&describe(&shown.record))?;
    if shown.failed_attempts.is_empty() {
        return Ok(());
    }
    output::print("\n")?;
    Ok(output::print_table(&history(&shown.failed_attempts))?)
}

/// A message that must be there.
pub(super) async fn find(store: &dyn Store, id: Uuid) -> Result<Record, Failure> {
    store.find(id).await?.ok_or_else(|| {
        Failure::Failed(anyhow!(
            "there is no message {id}: `postroom messages list` shows those there are"
        ))
    })
}

fn history(attempts: &[Attempt]) -> Table {
    let mut table = Table::new()
        .column("FAILED AT", Align::Left)
        .dispensable("TOOK", Align::Right, 2)
        .dispensable("OUTCOME", Align::Left, 1)
        .column("ERROR", Align::Left);
    for attempt in attempts {
        table.row(vec![
            output::time(attempt.at),
            output::span(attempt.took_ms),
            attempt.outcome.as_str().to_owned(),
            attempt.error.clone(),
        ]);
    }
    table
}

/// Everything about one message, a line each, its content last.
fn describe(record: &Record) -> String {
    let message = &record.message;
    let time = |time: Option<_>| time.map(output::time);
    let lines = [
        ("id", Some(message.id.to_string())),
        ("seq", Some(message.seq.to_string())),
        ("status", Some(record.status.clone())),
        ("integration", Some(message.integration.clone())),
        ("event type", Some(message.event_type.clone())),
        ("event id", Some(message.event_id.clone())),
        ("stream", Some(message.stream_id.clone())),
        ("ordering key", message.ordering_key.clone()),
        ("tenant", message.tenant_id.clone()),
        ("user", message.user_id.clone()),
        ("correlation", message.correlation_id.clone()),
        ("causation", message.causation_id.clone()),
        ("source", message.source.clone()),
        ("schema version", Some(message.schema_version.to_string())),
        ("copy", Some(message.copy.to_string()).filter(|_| message.copy > 0)),
        ("failed attempts", Some(format!("{} of {}", message.attempts, message.max_attempts))),
        ("last error", record.last_error.clone()),
        ("occurred", time(message.occurred_at)),
        ("created", time(Some(message.created_at))),
        ("due", time(Some(message.due_at))),
        ("claimed", time(record.locked_at)),
        ("claimed by", record.locked_by.clone()),
        ("updated", time(Some(record.updated_at))),
        ("sent", time(record.sent_at)),
        ("headers", message.headers.as_ref().map(|headers| pretty(headers.as_str()))),
        ("payload", Some(pretty(message.payload.as_str()))),
    ];
    let mut text = String::new();
    for (name, value) in lines {
        let Some(value) = value else { continue };
        // Content with lines of its own stands under its name.
        if value.contains('\n') {
            let _ = writeln!(text, "{name}\n  {}", value.replace('\n', "\n  "));
        } else {
            let _ = writeln!(text, "{name:<16} {value}");
        }
    }
    text
}

/// JSON on several lines; what is none is shown as it stands.
fn pretty(json: &str) -> String {
    serde_json::from_str::<serde_json::Value>(json)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| json.to_owned())
}
