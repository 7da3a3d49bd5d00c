//! What the commands under `messages` take.

use super::{Named, time};
use crate::config::units;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use postroom_core::Status;
use std::num::NonZeroU32;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Messages {
    /// List messages, newest first
    #[command(after_help = "Examples:
  postroom messages list --status dead --since 2h
  postroom messages list --error \"timed out\" --integration webhook:partnerX
  postroom messages list --group error")]
    List(List),
    /// Show one message with its payload and its failed attempts
    #[command(after_help = "Examples:
  postroom messages show 01a1e1ac-b8ca
  postroom messages show ord_1-created --json")]
    Show(ShowMessage),
    /// Deliver dead messages again: DEAD becomes PENDING, with all attempts
    #[command(after_help = "Examples:
  postroom messages redrive 01a1e1ac-b8ca
  postroom messages redrive --integration webhook:partnerX --since 2h --dry-run
  postroom messages redrive --error \"answered 503\" --rate 50")]
    Redrive(Change),
    /// Send sent messages again, as new ones
    #[command(after_help = "Examples:
  postroom messages replay 01a1e1ac-b8ca
  postroom messages replay --tenant acme --since 2026-11-16T08:00:00Z --until 2026-11-16T09:00:00Z")]
    Replay(Replay),
    /// Take claimed messages from their relay, so that another delivers them
    #[command(after_help = "Examples:
  postroom messages release 01a1e1ac-b8ca
  postroom messages release --integration webhook:partnerX")]
    Release(Change),
    /// Give up waiting messages: PENDING and FAILED become DEAD
    #[command(after_help = "Examples:
  postroom messages cancel 01a1e1ac-b8ca
  postroom messages cancel --stream order-7 --dry-run")]
    Cancel(Change),
    /// Delete old messages
    #[command(after_help = "Examples:
  postroom messages prune --older-than 30d --dry-run
  postroom messages prune --older-than 90d --status dead")]
    Prune(Prune),
    /// Show who did what: the record of all of the above
    Actions(Actions),
    /// Show what waits and how fast it goes, live
    #[command(after_help = "Examples:
  postroom messages watch
  postroom messages watch --interval 5s --json")]
    Watch(Watch),
    /// Follow what is delivered and what fails, live
    #[command(after_help = "Examples:
  postroom messages tail
  postroom messages tail --integration webhook:partnerX --status failed
  postroom messages tail --json --count 100")]
    Tail(Tail),
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

    /// Only of this stream
    #[arg(long, value_name = "S")]
    pub(crate) stream: Option<String>,

    /// Only whose last error contains this text, in upper or lower case
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,

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
        let Self {
            integration,
            tenant,
            event_type,
            correlation,
            event_id,
            stream,
            error,
            since,
            until,
        } = self;
        [integration, tenant, event_type, correlation, event_id, stream, error]
            .iter()
            .all(|one| one.is_none())
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

    /// Count messages by what they have in common [without --status: FAILED and DEAD ones]
    #[arg(long, value_name = "BY", conflicts_with = "before")]
    pub(crate) group: Option<GroupBy>,

    /// The most messages, or groups
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

/// What messages are counted by.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum GroupBy {
    Error,
}

#[derive(Args, Debug)]
pub(crate) struct ShowMessage {
    /// The message: its id, the beginning of its id, or its event id
    pub(crate) id: Named,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An operation on one message, or on all that are found.
#[derive(Args, Debug)]
pub(crate) struct Change {
    /// One message: its id, the beginning of its id, or its event id
    #[arg(conflicts_with_all = ["Which", "all", "rate", "dry_run"])]
    pub(crate) id: Option<Named>,

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

#[derive(Args, Debug)]
pub(crate) struct Tail {
    /// Only what becomes this: SENT, FAILED or DEAD
    #[arg(long, value_parser = outcome)]
    pub(crate) status: Option<Status>,

    #[command(flatten)]
    pub(crate) which: Which,

    /// How often to look
    #[arg(long, value_name = "D", default_value = "500ms", value_parser = duration)]
    pub(crate) interval: Duration,

    /// Show this many, then end [default: until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Print each as one JSON object on a line of its own
    #[arg(long)]
    pub(crate) json: bool,
}

fn outcome(name: &str) -> Result<Status, String> {
    Status::parse(name)
        .filter(|status| matches!(status, Status::Sent | Status::Failed | Status::Dead))
        .ok_or_else(|| "expected SENT, FAILED or DEAD".to_owned())
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
