//! Keeping the outbox right.

use super::{RelayId, StoreResult};
use async_trait::async_trait;
use std::time::Duration;

/// How much is waiting, for one integration.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct LaneBacklog {
    /// The integration.
    pub integration: String,
    /// Never tried, not claimed.
    pub pending: u64,
    /// Claimed by some relay.
    pub claimed: u64,
    /// Tried, to be tried again.
    pub failed: u64,
    /// Dead.
    pub dead: u64,
    /// How long ago the first of them that nobody holds, and that is neither delivered nor dead, was
    /// due for the first time, in milliseconds. A failed attempt does not make it younger.
    pub lag_ms: u64,
}

/// How much is waiting, over all integrations.
#[derive(Clone, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct Backlog {
    /// By integration, ordered by name.
    pub lanes: Vec<LaneBacklog>,
}

impl Backlog {
    /// The sum of one count over all lanes.
    pub fn total(&self, count: impl Fn(&LaneBacklog) -> u64) -> u64 {
        self.lanes.iter().map(count).sum()
    }

    /// The longest lag.
    #[must_use]
    pub fn lag(&self) -> Duration {
        Duration::from_millis(self.lanes.iter().map(|lane| lane.lag_ms).max().unwrap_or(0))
    }
}

/// What a reconciliation mended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, serde::Serialize)]
pub struct Reconciled {
    /// Open messages that got their delivery.
    pub made: u64,
    /// Deliveries without an open message, and parcels none of whose messages exists, that were removed.
    pub removed: u64,
    /// Deliveries that were freed from a claim that does not exist.
    pub freed: u64,
    /// Deliveries that said something else than their open message, and now say the same; changes by hand that
    /// nobody had followed yet.
    pub followed: u64,
    /// Sequences that were behind the numbers in use, and were moved on.
    pub advanced: u64,
    /// Messages that shared their number with another, and got one of their own; or that were in two
    /// parcels, and have one delivery now.
    pub numbered: u64,
}

impl Reconciled {
    /// How many changes that were.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { made, removed, freed, followed, advanced, numbered } = self;
        made + removed + freed + followed + advanced + numbered
    }
}

/// How bad something is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Messages are not delivered, or later than they could be.
    Fault,
    /// It costs something, or may cost something one day.
    Warning,
}

/// Something that is wrong with an outbox.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub problem: String,
    /// What the operator should do.
    pub remedy: String,
}

impl Finding {
    /// What keeps messages from being delivered.
    pub fn fault(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Fault, problem: problem.into(), remedy: remedy.into() }
    }

    /// What can be lived with.
    pub fn warning(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, problem: problem.into(), remedy: remedy.into() }
    }

    /// What [`Upkeep::reconcile`] would mend, counted as if it had.
    #[must_use]
    pub fn disagreements(found: &Reconciled) -> Vec<Self> {
        const REMEDY: &str = "run `postroom reconcile`";
        let Reconciled { made, removed, freed, followed, advanced, numbered } = found;
        let mut findings = Vec::new();
        if *made > 0 {
            let problem =
                format!("{made} open messages are missing in the ledger: no relay sees them");
            findings.push(Self::fault(problem, REMEDY));
        }
        if *freed > 0 {
            let problem =
                format!("{freed} deliveries are under a claim that does not exist: they are stuck");
            findings.push(Self::fault(problem, REMEDY));
        }
        if *followed > 0 {
            let problem = format!(
                "{followed} deliveries do not say what their messages say: they are made at \
                 another time, to another integration, or never"
            );
            findings.push(Self::fault(problem, REMEDY));
        }
        if *advanced > 0 {
            let problem = "a sequence of numbers is behind the numbers in use, as a restore or a \
                           switchover leaves it: new messages may be found late, or share their \
                           number with another";
            findings.push(Self::fault(problem, REMEDY));
        }
        if *numbered > 0 {
            let problem = format!(
                "{numbered} messages share their number with another, or are in two parcels"
            );
            findings.push(Self::warning(problem, REMEDY));
        }
        if *removed > 0 {
            let problem = format!("{removed} deliveries or parcels have no open message");
            findings.push(Self::warning(problem, REMEDY));
        }
        findings
    }
}

/// Keeping the outbox right while relays come and go.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Frees messages whose claim has expired, of at most `limit` claims at once, and leaves the
    /// claims of `relay` alone, which is the caller: after an outage it may know outcomes that it could
    /// not record yet, and under a claim that nobody has rescued they still count. What it does not
    /// know it gives up by its next heartbeat, and then it may rescue that too. A message that was
    /// lost alone has an attempt counted. Returns how many were freed: none only when no other
    /// expired claim holds anything that can be freed now.
    async fn rescue_except(&self, relay: RelayId, limit: usize) -> StoreResult<u64>;

    /// Frees messages whose claim has expired, for a caller that is no relay.
    async fn rescue(&self, limit: usize) -> StoreResult<u64> {
        self.rescue_except(RelayId::random(), limit).await
    }

    /// Writes SENT into messages that were delivered at least `noted_before` ago and do not say so
    /// yet, because their integration has that recorded in the background: of at most `limit`
    /// settlements. Returns how many messages that were. A message that somebody is changing is left
    /// for the next time.
    async fn record_sent(&self, _noted_before: Duration, _limit: usize) -> StoreResult<u64> {
        Ok(0)
    }

    /// Deletes SENT messages older than `older_than` (`Duration::MAX`: none), at most `limit`. Returns how many. Dead
    /// deliveries whose message was deleted go too, as no claim ever comes by to find them: each
    /// call looks at the next of them, at most `limit`.
    async fn prune(&self, older_than: Duration, limit: usize) -> StoreResult<u64>;

    /// Counts what is waiting; its cost follows the backlog, never the history.
    async fn backlog(&self) -> StoreResult<Backlog>;

    /// Whether the database answers and has the schema this program needs.
    async fn ready(&self) -> StoreResult<()>;

    /// Mends what triggers could not see (a restore or replication with triggers off, a table
    /// restored alone): a sequence that is behind the numbers in use is moved on, messages that
    /// share a number get one each, open messages without a delivery get one, deliveries without an
    /// open message go, deliveries under a claim that does not exist are freed, deliveries that
    /// nobody holds say what their messages say. Once is enough. What somebody is changing at this moment may be left.
    async fn reconcile(&self) -> StoreResult<Reconciled>;

    /// Looks for what is wrong with the outbox and does not mend itself, for `postroom check`.
    /// Its cost may follow the history.
    async fn diagnose(&self) -> StoreResult<Vec<Finding>>;

    /// Whether the outbox was restored, or replicated from another server, in a way that hides messages or
    /// doubles them until it is reconciled. Relays ask before they take anything, and once a minute, so its
    /// cost must not follow the history. It may miss a restore of some tables alone.
    async fn looks_restored(&self) -> StoreResult<bool> {
        Ok(false)
    }

    /// Whether a relay reconciles when it starts, because the database lets a producer override
    /// what the triggers do.
    fn reconciles_at_start(&self) -> bool {
        false
    }
}
