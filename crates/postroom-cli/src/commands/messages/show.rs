//! `postroom messages show`.

use super::find::{Found, find};
use crate::args::ShowMessage;
use crate::commands::outbox;
use crate::config::{KnownIntegrations, Origin};
use crate::failure::Failure;
use crate::output::{self, Align, Colour, Table};
use postroom_core::{Attempt, AttemptLimit, Record};
use serde::Serialize;
use std::fmt::Write as _;

/// A message with its history.
#[derive(Serialize)]
struct Shown {
    /// Where it is, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
    #[serde(flatten)]
    record: Record,
    failed_attempts: Vec<Attempt>,
    /// How many attempts may fail, and who says so.
    attempts_allowed: Allowed,
}

/// How many attempts may fail.
#[derive(Serialize)]
struct Allowed {
    /// `None`: any number.
    attempts: Option<u32>,
    /// The file whose integration says so; `None` where the message does.
    configuration: Option<String>,
}

impl Allowed {
    /// The integration's setting where the configuration at hand has one, the message's otherwise.
    fn of(record: &Record, known: Option<&KnownIntegrations>) -> Self {
        let message = &record.message;
        let configured = known.and_then(|known| {
            let from = match &known.file {
                Some(file) => file.display().to_string(),
                None => "the environment".to_owned(),
            };
            Some((known.attempts(&message.integration)?, from))
        });
        match configured {
            Some((AttemptLimit::AtMost(most), from)) => {
                Self { attempts: Some(most), configuration: Some(from) }
            }
            Some((AttemptLimit::Forever, from)) => {
                Self { attempts: None, configuration: Some(from) }
            }
            Some((AttemptLimit::Message, _)) | None => {
                Self { attempts: Some(message.max_attempts), configuration: None }
            }
        }
    }

    fn describe(&self, failed: u32) -> String {
        let most = match self.attempts {
            Some(most) => format!("{failed} of {most}"),
            None => format!("{failed}, and any number is allowed"),
        };
        match &self.configuration {
            Some(from) => format!("{most} ({from})"),
            None => most,
        }
    }
}

pub(super) async fn run(args: &ShowMessage, origin: &Origin<'_>) -> Result<(), Failure> {
    let databases = outbox::all(origin, args.json)?;
    let Found { database, store, record } = find(&databases, &args.id, false).await?;
    let shown = Shown {
        database,
        failed_attempts: store.attempts(&record.message.id).await?,
        attempts_allowed: Allowed::of(&record, origin.known_integrations().as_ref()),
        record,
    };
    if args.json {
        return Ok(output::print_json(&shown)?);
    }
    output::print(&describe(&shown))?;
    if shown.failed_attempts.is_empty() {
        return Ok(());
    }
    output::print("\n")?;
    output::print_table(&history(&shown.failed_attempts))?;
    Ok(output::print(&responses(&shown.failed_attempts))?)
}

/// What receivers answered, where that was kept.
fn responses(attempts: &[Attempt]) -> String {
    let mut text = String::new();
    for attempt in attempts {
        let Some(response) = &attempt.response else { continue };
        let lines: Vec<String> = response.lines().map(output::printable).collect();
        let at = output::time(attempt.at);
        let _ = writeln!(text, "\nresponse at {at}\n  {}", lines.join("\n  "));
    }
    text
}

fn history(attempts: &[Attempt]) -> Table {
    let mut table = Table::new()
        .column("FAILED AT", Align::Left)
        .column("TOOK", Align::Right)
        .column("OUTCOME", Align::Left)
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
fn describe(shown: &Shown) -> String {
    let record = &shown.record;
    let message = &record.message;
    let time = |time: Option<_>| time.map(output::time);
    let lines = [
        ("database", shown.database.clone()),
        ("id", Some(message.id.to_string())),
        ("seq", Some(message.seq.to_string())),
        ("status", Some(coloured(&record.status))),
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
        ("failed attempts", Some(shown.attempts_allowed.describe(message.attempts))),
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

fn coloured(status: &str) -> String {
    let colour = Colour::of(status).filter(|_| output::wants_colour());
    colour.map_or_else(|| status.to_owned(), |colour| colour.paint(status))
}

/// JSON on several lines; what is none is shown as it stands.
fn pretty(json: &str) -> String {
    serde_json::from_str::<serde_json::Value>(json)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| json.to_owned())
}
