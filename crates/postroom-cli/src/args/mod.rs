//! The command line. Parsing has no side effects.

mod eventlog;
mod messages;
mod named;

pub(crate) use eventlog::Eventlog;
#[cfg(feature = "eventlog")]
pub(crate) use eventlog::{Backup, Look, Scavenge, Serve};
pub(crate) use messages::{
    Actions, Actor, Change, GroupBy, List, Messages, Prune, ShowMessage, Tail, Watch, When, Which,
};
pub(crate) use named::Named;

use crate::config::units;
use chrono::{DateTime, Utc};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;
use std::time::Duration;

/// The heading of what every command takes.
const GLOBAL: &str = "Global options";

/// Postroom delivers what your application has committed.
#[derive(Debug, Parser)]
#[command(name = "postroom", version, propagate_version = true)]
#[command(after_help = "New here? `postroom demo` shows the whole of it in ten seconds.\n\
    Exit code 0: done; 1: it failed; 2: the command line or the configuration is wrong.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// What every command takes.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// The outbox: postgres://…, mysql://…, sqlite://PATH or memory:, or the NAME of one in
    /// [databases] [default: DATABASE_URL, then the configuration's, then sqlite://postroom.db]
    #[arg(long, value_name = "URL", global = true, help_heading = GLOBAL)]
    pub(crate) database: Option<String>,

    /// The configuration file [default: postroom.toml, if there is one]
    #[arg(long, value_name = "FILE", global = true, help_heading = GLOBAL)]
    pub(crate) config: Option<PathBuf>,

    /// How to write the log to standard error; RUST_LOG says how much
    #[arg(long, value_name = "FORMAT", global = true, default_value = "text", help_heading = GLOBAL)]
    pub(crate) log_format: LogFormat,
}

/// Lines for people, or one JSON object per line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the whole of it: a producer, an outbox, a relay and a receiver that misbehaves
    #[command(after_help = "Examples:
  postroom demo
  postroom demo --messages 20000
  postroom demo --database postgres://app@localhost/shop")]
    Demo(Demo),
    /// Run the relay: deliver what is due until stopped
    #[command(after_help = "Examples:
  postroom run
  postroom run --config relay.toml --log-format json
  postroom run --once --limit 500")]
    Run(Run),
    /// Run a worker: deliver the jobs of integrations that go through BullMQ, until stopped
    #[command(after_help = "Example:
  postroom work --config worker.toml")]
    Work,
    /// Make or upgrade the tables of the outbox
    #[command(after_help = "Examples:
  postroom migrate
  postroom migrate --dry-run --database postgres://owner@db/shop
  postroom migrate --print-grants --database postgres://owner@db/shop")]
    Migrate(Migrate),
    /// Propose how to read a table that is there already, or leave it again (PostgreSQL)
    #[command(after_help = "Examples:
  postroom adopt outbox_events --database postgres://owner@db/shop
  postroom adopt shop.events > postroom.toml
  postroom adopt outbox_events --remove")]
    Adopt(Adopt),
    /// Enqueue one message by hand
    #[command(after_help = "Examples:
  postroom enqueue --to webhook:partnerX --type order.created.v1 --payload '{\"orderId\": 1}'
  postroom enqueue --to stdout --type order.created.v1 --payload @order.json
  jq .order events.json | postroom enqueue --to stdout --type order.created.v1 --payload -")]
    Enqueue(Box<Enqueue>),
    /// Look at messages, and operate on them
    #[command(subcommand)]
    Messages(Box<Messages>),
    /// Count messages by status and integration
    #[command(after_help = "Examples:
  postroom stats
  postroom stats --json")]
    Stats(Show),
    /// List the relays: who lives, since when, and what each holds
    #[command(after_help = "Examples:
  postroom relays
  postroom relays --json")]
    Relays(Show),
    /// Check the configuration, then probe every database and sink
    #[command(after_help = "Examples:
  postroom check
  postroom check --config relay.toml --json")]
    Check(Show),
    /// Make messages and deliveries agree, after a restore or a load with triggers off
    #[command(after_help = "Example:
  postroom reconcile --actor ann")]
    Reconcile(Reconcile),
    /// Run and look after an event log that speaks KurrentDB's protocol
    #[command(subcommand)]
    Eventlog(Eventlog),
    /// Print a completion script for a shell
    #[command(after_help = "Example:
  postroom completions bash > ~/.local/share/bash-completion/completions/postroom")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// How many orders to place [default: 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) messages: Option<u64>,

    /// The most orders per second [default: 200, or no limit with --messages]
    #[arg(long, value_name = "PER_S", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,

    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Do one pass over what is due, then end
    #[arg(long)]
    pub(crate) once: bool,

    /// The most messages of that pass
    #[arg(long, value_name = "N", requires = "once", default_value_t = 1_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) limit: u64,

    /// Print the result of that pass as JSON
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Migrate {
    /// Print what would be run, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print the statements for a producer's and a relay's role (PostgreSQL, MariaDB); connects to
    /// nothing
    #[arg(long, conflicts_with_all = ["dry_run", "notify", "replace_fence", "claimed_grace"])]
    pub(crate) print_grants: bool,

    /// Drop the unique index on stream and event that an adopted table came with (PostgreSQL);
    /// producers that name it in ON CONFLICT fail from then on
    #[arg(long)]
    pub(crate) replace_fence: bool,

    /// When what an older dispatcher had claimed is due, e.g. 10m (PostgreSQL) [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) claimed_grace: Option<Duration>,

    /// Whether new messages signal an idle relay (PostgreSQL); off allows PREPARE TRANSACTION
    #[arg(long, value_name = "WHETHER", conflicts_with = "dry_run")]
    pub(crate) notify: Option<Switch>,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Adopt {
    /// The table, with its schema where that is not the first of the search path
    #[arg(value_name = "TABLE")]
    pub(crate) table: String,

    /// Remove the ledger and the triggers of a table that the configuration describes; its rows stay
    #[arg(long)]
    pub(crate) remove: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Args, Debug)]
pub(crate) struct Enqueue {
    /// Where it goes, e.g. webhook:partnerX
    #[arg(long, value_name = "INTEGRATION")]
    pub(crate) to: String,

    /// What happened, e.g. order.created.v1
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) event_type: String,

    /// The body, as JSON: the text itself, @FILE, or - for standard input
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) payload: String,

    /// The aggregate or stream it comes from [default: the event id]
    #[arg(long, value_name = "S")]
    pub(crate) stream: Option<String>,

    /// The event id, by which repeats are recognised [default: a new UUIDv7]
    #[arg(long, value_name = "E")]
    pub(crate) event_id: Option<String>,

    /// The ordering key
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,

    /// The tenant
    #[arg(long, value_name = "T")]
    pub(crate) tenant: Option<String>,

    /// Who caused it
    #[arg(long, value_name = "U")]
    pub(crate) user: Option<String>,

    /// The correlation id
    #[arg(long, value_name = "C")]
    pub(crate) correlation: Option<String>,

    /// When it may be delivered, in RFC 3339, e.g. 2030-01-31T12:00:00Z [default: at once]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) due_at: Option<DateTime<Utc>>,

    /// How many attempts may fail
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_attempts: Option<i32>,

    /// Extra headers, as a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) headers: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What commands that only show something take.
#[derive(Args, Debug)]
pub(crate) struct Show {
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    units::duration(text).ok_or_else(|| format!("expected {}", units::DURATION_FORM))
}

#[derive(Args, Debug)]
pub(crate) struct Reconcile {
    #[command(flatten)]
    pub(crate) actor: Actor,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn time(text: &str) -> Result<DateTime<Utc>, String> {
    DateTime::parse_from_rfc3339(text)
        .map(|time| time.with_timezone(&Utc))
        .map_err(|_| "expected a time in RFC 3339, such as 2030-01-31T12:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
