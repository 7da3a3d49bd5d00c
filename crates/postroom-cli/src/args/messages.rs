//! What the commands under `messages` take.

use super::time;
use crate::config::units;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use postroom_core::Status;
use std::num::NonZeroU32;
use std::time::Duration;
use uuid::Uuid;

#[derive(Debug, Subcommand)]
pub(crate) enum Messages {
    /// List messages, newest first
    List(List),
    /// Show one message with its payload and its failed attempts
    Show(ShowMessage),
    /// Deliver dead messages again: DEAD becomes PENDING, with all attempts
    Redrive(Change),
    /// Send sent messages again, as new ones
    Replay(Replay),
    /// Take claimed messages from their relay, so that another delivers them
    Release(Change),
    /// Give up waiting messages: PENDING and FAILED become DEAD
    Cancel(Change),
    /// Delete old messages
    Prune(Prune),
    /// Show who did what: the record of all of the above
    Actions(Actions),
    /// Show what waits, live
    Watch(Watch),
}

/// Which messages.
#[derive(Args, Debug)]
pub(crate) struct Which {
    /// Only to this integration
    #[arg(long, value_name = "INTEGRATION")]
    pub(crate) integration: Option<String>,

    /// Only of this tenant
    #[arg(long, value_name = "T")]
    pub(crate) tenant: Option<String>,

    /// Only of this type
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) event_type: Option<String>,

    /// Only with this correlation id
    #[arg(long, value_name = "C")]
    pub(crate) correlation: Option<String>,

    /// Only of this event
    #[arg(long, value_name = "E")]
    pub(crate) event_id: Option<String>,

    /// Only created then or later: a time in RFC 3339, or how long ago, e.g. 2h
    #[arg(long, value_name = "TIME", value_parser = when)]
    pub(crate) since: Option<When>,

    /// Only created before: a time in RFC 3339, or how long ago, e.g. 2h
    #[arg(long, value_name = "TIME", value_parser = when)]
    pub(crate) until: Option<When>,
}

impl Which {
    /// Whether it leaves anything out.
    pub(crate) fn is_any(&self) -> bool {
        let Self { integration, tenant, event_type, correlation, event_id, since, until } = self;
        [integration, tenant, event_type, correlation, event_id].iter().all(|one| one.is_none())
            && since.is_none()
            && until.is_none()
    }
}

/// A moment, by itself or before now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    At(DateTime<Utc>),
    Ago(Duration),
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Only with this status: PENDING, CLAIMED, SENT, FAILED or DEAD
    #[arg(long, value_parser = status)]
    pub(crate) status: Option<Status>,

    #[command(flatten)]
    pub(crate) which: Which,

    /// The most messages
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) limit: u64,

    /// Only older ones than this: the number under the list before
    #[arg(long, value_name = "SEQ")]
    pub(crate) before: Option<i64>,

    /// Print them as a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ShowMessage {
    /// The message's id
    #[arg(value_parser = id)]
    pub(crate) id: Uuid,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An operation on one message, or on all that are found.
#[derive(Args, Debug)]
pub(crate) struct Change {
    /// One message, by its id
    #[arg(value_parser = id, conflicts_with_all = ["Which", "all", "rate", "dry_run"])]
    pub(crate) id: Option<Uuid>,

    #[command(flatten)]
    pub(crate) which: Which,

    /// All of them, whatever they are
    #[arg(long, conflicts_with = "Which")]
    pub(crate) all: bool,

    /// The most messages per second
    #[arg(long, value_name = "PER_S")]
    pub(crate) rate: Option<NonZeroU32>,

    /// Only count what it would be done to
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) actor: Actor,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) change: Change,

    /// Give them event ids of their own: receivers then repeat the effect
    #[arg(long)]
    pub(crate) fresh_id: bool,
}

/// Who does it.
#[derive(Args, Debug)]
pub(crate) struct Actor {
    /// Who does it, for the record [default: the user and host of this process]
    #[arg(long, value_name = "NAME")]
    pub(crate) actor: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Prune {
    /// Only those that became SENT, or DEAD, longer ago than this, e.g. 7d
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) older_than: Duration,

    /// Which: SENT or DEAD
    #[arg(long, default_value = "SENT", value_parser = settled)]
    pub(crate) status: Status,

    /// Only count what would be deleted
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) actor: Actor,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Actions {
    /// The most actions
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) limit: u64,

    /// Only older ones than this: the number under the list before
    #[arg(long, value_name = "ID")]
    pub(crate) before: Option<i64>,

    /// Print them as a JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// How often to look
    #[arg(long, value_name = "D", default_value = "1s", value_parser = duration)]
    pub(crate) interval: Duration,

    /// Look this often, then end [default: until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Print each look as one JSON object on a line of its own
    #[arg(long)]
    pub(crate) json: bool,
}

fn status(name: &str) -> Result<Status, String> {
    Status::parse(name).ok_or_else(|| {
        let names: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn settled(name: &str) -> Result<Status, String> {
    Status::parse(name)
        .filter(|status| matches!(status, Status::Sent | Status::Dead))
        .ok_or_else(|| "expected SENT or DEAD: what is open is still to be delivered".to_owned())
}

fn id(text: &str) -> Result<Uuid, String> {
    Uuid::parse_str(text).map_err(|_| {
        "this is no message id: expected a UUID, as `postroom messages list` shows them".to_owned()
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    units::duration(text)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("expected {}", units::DURATION_FORM))
}

fn when(text: &str) -> Result<When, String> {
    if let Some(ago) = units::duration(text) {
        return Ok(When::Ago(ago));
    }
    time(text).map(When::At).map_err(|error| format!("{error}, or how long ago, such as 2h"))
}
