//! What a relay says of itself.

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;

/// A relay's state, for `/readyz` and operators.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// Whether it can do its work: the database answers and has the right schema.
    pub ready: bool,
    /// `ok`, or why the database cannot be used.
    pub database: String,
    /// Every lane.
    pub lanes: Vec<LaneHealth>,
    /// Integrations with open messages that no lane of this relay serves.
    pub unrouted: Vec<String>,
    /// How long the oldest due message has been due, in milliseconds.
    pub lag_ms: u64,
}

/// One lane's state.
#[derive(Clone, Debug, Serialize)]
pub struct LaneHealth {
    /// The integration.
    pub integration: String,
    /// Whether it runs.
    pub state: LaneState,
    /// Why it is paused, or the last failure of a lane that fails.
    pub error: Option<String>,
    /// Messages taken and not settled.
    pub in_flight: usize,
}

/// Whether a lane runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneState {
    /// It takes messages.
    Running,
    /// Its destination refuses everything for now; it tries again by itself.
    Paused,
}

/// What is shown of a process at `/readyz` and `/metrics`.
pub trait Observed: Send + Sync + 'static {
    /// How it is.
    fn health(&self) -> Health;

    /// What it has counted, in Prometheus' text format.
    fn metrics(&self) -> String;
}

/// What the stages know of the database and the backlog.
#[derive(Debug)]
pub(crate) struct Board(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    fault: Option<String>,
    /// Since when the database has been away, once the log has said so.
    away_since: Option<Instant>,
    unrouted: BTreeMap<String, u64>,
    lag_ms: u64,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Seen {
            fault: Some("not connected yet".to_owned()),
            away_since: None,
            unrouted: BTreeMap::new(),
            lag_ms: 0,
        }))
    }

    /// Notes that the database answered; says so in the log when it had been away.
    pub(crate) fn database_answers(&self) {
        let mut seen = self.seen();
        seen.fault = None;
        if let Some(since) = seen.away_since.take() {
            tracing::info!(after = ?since.elapsed(), "the database answers again");
        }
    }

    /// Notes that the database does not; says so once.
    pub(crate) fn database_fails(&self, error: &postroom_core::StoreError) {
        let mut seen = self.seen();
        let text = describe(error);
        seen.away_since.get_or_insert_with(Instant::now);
        if seen.fault.as_deref() != Some(text.as_str()) {
            tracing::warn!(
                error = text,
                "the database cannot be used; the relay pauses and tries again"
            );
        }
        seen.fault = Some(text);
    }

    pub(crate) fn backlog(&self, lag_ms: u64, unrouted: BTreeMap<String, u64>) {
        let mut seen = self.seen();
        for (integration, count) in &unrouted {
            if !seen.unrouted.contains_key(integration) {
                tracing::warn!(
                    integration,
                    count,
                    "unrouted: no lane of this relay serves this integration; its messages wait"
                );
            }
        }
        seen.lag_ms = lag_ms;
        seen.unrouted = unrouted;
    }

    pub(crate) fn health(&self, lanes: Vec<LaneHealth>) -> Health {
        let seen = self.seen();
        Health {
            ready: seen.fault.is_none(),
            database: seen.fault.clone().unwrap_or_else(|| "ok".to_owned()),
            lanes,
            unrouted: seen.unrouted.keys().cloned().collect(),
            lag_ms: seen.lag_ms,
        }
    }

    /// How long the oldest due message had been due at the last look.
    pub(crate) fn lag_ms(&self) -> u64 {
        self.seen().lag_ms
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An error with its causes on one line.
#[must_use]
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
