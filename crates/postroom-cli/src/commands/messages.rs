//! `postroom messages`: what is in the outbox.

use super::outbox;
use crate::args::{List, Messages};
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align, Table};
use anyhow::anyhow;
use postroom_core::{Filter, Record};
use std::fmt::Write as _;
use uuid::Uuid;

pub(super) async fn run(args: &Messages, origin: &Origin<'_>) -> Result<(), Failure> {
    match args {
        Messages::List(args) => list(args, origin).await,
        Messages::Show { id, json } => show(*id, *json, origin).await,
    }
}

async fn list(args: &List, origin: &Origin<'_>) -> Result<(), Failure> {
    let store = outbox::open(&origin.database()?).await?;
    let filter = Filter {
        status: args.status,
        integration: args.integration.clone(),
        before: args.before,
        limit: usize::try_from(args.limit).unwrap_or(usize::MAX),
        ..Filter::default()
    };
    let records = store.list(&filter).await?;
    if args.json {
        return Ok(output::print_json(&records)?);
    }
    if records.is_empty() {
        return Ok(output::print("no messages\n")?);
    }
    let mut table = Table::new()
        .column("ID", Align::Left)
        .column("STATUS", Align::Left)
        .dispensable("TRIED", Align::Right, 2)
        .dispensable("INTEGRATION", Align::Left, 1)
        .dispensable("TYPE", Align::Left, 3)
        .dispensable("DUE", Align::Left, 4);
    for record in &records {
        let message = &record.message;
        table.row(vec![
            message.id.to_string(),
            record.status.clone(),
            message.attempts.to_string(),
            message.integration.clone(),
            message.event_type.clone(),
            output::time(message.due_at),
        ]);
    }
    output::print_table(&table)?;
    if let Some(last) = records.last().filter(|_| records.len() == filter.limit) {
        output::print(&format!("older ones: --before {}\n", last.message.seq))?;
    }
    Ok(())
}

async fn show(id: Uuid, json: bool, origin: &Origin<'_>) -> Result<(), Failure> {
    let store = outbox::open(&origin.database()?).await?;
    let Some(record) = store.find(id).await? else {
        return Err(Failure::Failed(anyhow!(
            "there is no message {id}: `postroom messages list` shows those there are"
        )));
    };
    if json {
        return Ok(output::print_json(&record)?);
    }
    Ok(output::print(&describe(&record))?)
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
