//! What a relay says of itself.

use postroom_core::{StoreError, StoreErrorKind, with_causes};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A database that leaves its callers without an answer for longer is not there. The schema alone is
/// asked for every two seconds.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// A relay's state, for `/readyz` and operators.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// Whether it can do its work: the database answers and has the right schema.
    pub ready: bool,
    /// `ok`, or why the database cannot be used. Of several, those that cannot, by their names.
    pub database: String,
    /// Every database, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<DatabaseHealth>,
    /// Every lane.
    pub lanes: Vec<LaneHealth>,
    /// Integrations with open messages that no lane of this relay serves.
    pub unrouted: Vec<String>,
    /// How long the oldest due message has been due, in milliseconds. While nobody can count, it
    /// grows with the time since the last count.
    pub lag_ms: u64,
}

/// The state of one database of several.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseHealth {
    /// What the configuration calls it.
    pub name: String,
    /// Whether its relay can do its work.
    pub ready: bool,
    /// `ok`, or why it cannot be used.
    pub state: String,
    /// Messages taken from it and not settled.
    pub in_flight: usize,
    /// Integrations with open messages there that no lane of this relay serves.
    pub unrouted: Vec<String>,
    /// How long its oldest due message has been due, in milliseconds.
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
    /// Since when it has let others win, and answered nothing else.
    losing_since: Option<Instant>,
    unrouted: BTreeMap<String, u64>,
    lag_ms: u64,
    /// When that was counted, and until when it counts as fresh.
    counted: Option<Counted>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    at: Instant,
    fresh_until: Instant,
}

impl Board {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Seen {
            fault: Some("not connected yet".to_owned()),
            away_since: None,
            losing_since: None,
            unrouted: BTreeMap::new(),
            lag_ms: 0,
            counted: None,
        }))
    }

    /// Notes that the database answered; says so in the log when it had been away.
    pub(crate) fn database_answers(&self) {
        let mut seen = self.seen();
        seen.fault = None;
        seen.losing_since = None;
        // From its first answer on a count is expected.
        let at = Instant::now();
        seen.counted.get_or_insert(Counted { at, fresh_until: at + SILENCE_MAX });
        if let Some(since) = seen.away_since.take() {
            tracing::info!(after = ?since.elapsed(), "the database answers again");
        }
    }

    /// Notes that the database does not; says so once. One that lets a concurrent transaction win
    /// does answer: that is tried again, and is nobody's concern unless nothing else happens for a
    /// while. Somebody has locked a whole table then.
    pub(crate) fn database_fails(&self, error: &StoreError) {
        let mut seen = self.seen();
        let text = with_causes(error);
        match error.kind {
            StoreErrorKind::Unavailable | StoreErrorKind::Schema | StoreErrorKind::Refused => {}
            StoreErrorKind::Conflict => {
                let since = *seen.losing_since.get_or_insert_with(Instant::now);
                if since.elapsed() <= SILENCE_MAX {
                    tracing::debug!(error = text, "lost to a concurrent transaction");
                    return;
                }
            }
        }
        seen.away_since.get_or_insert_with(Instant::now);
        if seen.fault.as_deref() != Some(text.as_str()) {
            tracing::warn!(
                error = text,
                "the database cannot be used; the relay pauses and tries again"
            );
        }
        seen.fault = Some(text);
    }

    /// Notes what waits. The next count is expected within `next`.
    pub(crate) fn backlog(&self, lag_ms: u64, unrouted: BTreeMap<String, u64>, next: Duration) {
        let mut seen = self.seen();
        let at = Instant::now();
        seen.counted = Some(Counted { at, fresh_until: at + next + SILENCE_MAX });
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

    /// The relay's state, with how long the database has left it without an answer.
    pub(crate) fn health(&self, lanes: Vec<LaneHealth>, silent_for: Option<Duration>) -> Health {
        let age = self.lag_age(silent_for);
        let seen = self.seen();
        let problem = problem(seen.fault.as_deref(), silent_for);
        Health {
            ready: problem.is_none(),
            database: problem.unwrap_or_else(|| "ok".to_owned()),
            databases: Vec::new(),
            lanes,
            unrouted: seen.unrouted.keys().cloned().collect(),
            lag_ms: seen.lag_ms.saturating_add(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// How much older than it should be the last count of the backlog is: what was due then has been
    /// due for so much longer. Zero while counts come in time, and the database answers.
    pub(crate) fn lag_age(&self, silent_for: Option<Duration>) -> Duration {
        let now = Instant::now();
        let is_silent = silent_for.is_some_and(|silence| silence > SILENCE_MAX);
        match self.seen().counted {
            Some(counted) if is_silent || now > counted.fresh_until => now - counted.at,
            Some(_) | None => Duration::ZERO,
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

/// Why the database cannot be used, if so: what failed last, or that it does not answer.
#[must_use]
pub fn problem(fault: Option<&str>, silent_for: Option<Duration>) -> Option<String> {
    let silent_for = silent_for.filter(|silence| *silence > SILENCE_MAX);
    let silence = silent_for
        .map(|silence| format!("no answer from the database for {} s", silence.as_secs()));
    match (silence, fault) {
        (Some(silence), Some(fault)) => Some(format!("{silence}: {fault}")),
        (Some(silence), None) => Some(silence),
        (None, fault) => fault.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_core::{StoreError, StoreErrorKind};

    #[tokio::test(start_paused = true)]
    async fn a_lag_that_nobody_can_count_grows_with_its_age() {
        let board = Board::new();
        board.backlog(700, BTreeMap::new(), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(board.health(Vec::new(), None).lag_ms, 700, "the next count may be under way");
        tokio::time::advance(Duration::from_secs(35)).await;
        assert_eq!(board.health(Vec::new(), None).lag_ms, 40_700);
        board.backlog(0, BTreeMap::new(), Duration::from_secs(1));
        assert_eq!(board.health(Vec::new(), None).lag_ms, 0);
        let board = Board::new();
        board.database_answers();
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(board.health(Vec::new(), None).lag_ms, 40_000, "not even the first came");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lag_grows_while_the_database_is_silent_however_late_the_next_count_is_due() {
        let board = Board::new();
        board.backlog(700, BTreeMap::new(), Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(board.health(Vec::new(), Some(Duration::from_secs(1))).lag_ms, 700);
        assert_eq!(board.health(Vec::new(), Some(Duration::from_secs(8))).lag_ms, 9_700);
    }

    #[test]
    fn a_silent_database_is_not_ready_whatever_it_answered_before() {
        let board = Board::new();
        board.database_answers();
        assert!(board.health(Vec::new(), Some(Duration::from_secs(4))).ready);
        let health = board.health(Vec::new(), Some(Duration::from_secs(9)));
        assert!(!health.ready);
        assert_eq!(health.database, "no answer from the database for 9 s");
        board.database_fails(&StoreError::plain(StoreErrorKind::Unavailable, "it is away"));
        let health = board.health(Vec::new(), Some(Duration::from_secs(9)));
        assert_eq!(health.database, "no answer from the database for 9 s: it is away");
    }
}
