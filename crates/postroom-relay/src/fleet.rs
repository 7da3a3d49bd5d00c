//! One process for several databases: a relay for each, over shared destinations.
//!
//! Whatever happens to one database is of no concern to the others: each is opened, begun and tried
//! again by a task of its own.

use crate::destinations::Destinations;
use crate::health::{DatabaseHealth, Health, LaneHealth, LaneState, Observed};
use crate::jitter::Jitter;
use crate::metrics::Families;
use crate::polling::Backoff;
use crate::relay::{Pass, Relay, RelayError};
use crate::settings::{Lane, Settings};
use futures_util::future::{BoxFuture, join_all};
use postroom_core::{Store, StoreError, StoreResult, with_causes};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

/// How long a database that refuses is left alone: its schema does not fit, or its rights do not
/// suffice, until somebody does something about it.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// Opens an outbox.
pub type Open = Box<dyn Fn() -> BoxFuture<'static, StoreResult<Arc<dyn Store>>> + Send + Sync>;

/// One database of several.
pub struct Source {
    /// What the log, the metrics and operators call it.
    pub name: String,
    /// Opens its outbox. It is called again after a pause where that fails.
    pub open: Open,
    /// How its relay works.
    pub settings: Settings,
}

/// Delivers what is due in several databases through the same destinations.
pub struct Fleet {
    members: Vec<Arc<Member>>,
    families: Arc<Families>,
}

/// One database, and its relay once it is open.
struct Member {
    source: Source,
    destinations: Destinations,
    relay: OnceLock<Relay>,
    /// Why it cannot be opened.
    fault: Mutex<Option<String>>,
    /// Whether it was refused, and waiting does not help by itself.
    is_refused: AtomicBool,
}

impl Member {
    /// Its relay, which is made at the first call that can open the database.
    async fn relay(&self) -> StoreResult<&Relay> {
        if let Some(relay) = self.relay.get() {
            return Ok(relay);
        }
        let store = (self.source.open)().await?;
        let Source { name, settings, .. } = &self.source;
        let relay = || Relay::of_database(name, store, settings.clone(), &self.destinations);
        Ok(self.relay.get_or_init(relay))
    }

    /// Serves the database until `stopped`, and tries again whenever it cannot be used.
    async fn serve(
        self: Arc<Self>,
        stopped: watch::Receiver<bool>,
        refusals: mpsc::UnboundedSender<StoreError>,
    ) -> Result<(), RelayError> {
        let jitter = Jitter::new(self.source.settings.seed);
        let mut backoff = Backoff::new();
        loop {
            let relay = tokio::select! {
                biased;
                () = has_stopped(stopped.clone()) => return Ok(()),
                relay = self.relay() => relay,
            };
            let error = match relay {
                Ok(relay) => {
                    self.set_fault(None);
                    match relay.run(has_stopped(stopped.clone())).await {
                        Ok(()) => return Ok(()),
                        Err(RelayError::Store(error)) => error,
                        Err(defect @ RelayError::Defect { .. }) => return Err(defect),
                    }
                }
                Err(error) => {
                    self.set_fault(Some(&error));
                    tokio::select! {
                        biased;
                        () = has_stopped(stopped.clone()) => return Ok(()),
                        () = tokio::time::sleep(backoff.pause(&jitter)) => continue,
                    }
                }
            };
            // Its relay waits for a database that is away: this is one that refuses.
            if let Some(relay) = self.relay.get() {
                relay.is_refused(&error);
            }
            self.is_refused.store(true, Ordering::Release);
            // Nobody listens any more once the fleet stops.
            let _ = refusals.send(error);
            tokio::select! {
                biased;
                () = has_stopped(stopped.clone()) => return Ok(()),
                () = tokio::time::sleep(jitter.share(REFUSED_PAUSE, 0.5)) => {}
            }
            self.is_refused.store(false, Ordering::Release);
        }
    }

    fn set_fault(&self, error: Option<&StoreError>) {
        let text = error.map(|error| with_causes(error));
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = text.as_deref().filter(|text| fault.as_deref() != Some(*text)) {
            let database = self.source.name.as_str();
            tracing::warn!(database, error, "the outbox cannot be opened; it is tried again");
        }
        *fault = text;
    }

    fn health(&self) -> Health {
        if let Some(relay) = self.relay.get() {
            return relay.health();
        }
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        Health {
            ready: false,
            database: fault.clone().unwrap_or_else(|| "not connected yet".to_owned()),
            databases: Vec::new(),
            lanes: Vec::new(),
            unrouted: Vec::new(),
            lag_ms: 0,
        }
    }
}

impl Fleet {
    /// A fleet that serves `lanes` from all of these databases. Nothing is connected to yet.
    #[must_use]
    pub fn new(sources: Vec<Source>, lanes: Vec<Lane>) -> Self {
        let destinations = Destinations::new(lanes);
        let member = |source| {
            Arc::new(Member {
                source,
                destinations: destinations.clone(),
                relay: OnceLock::new(),
                fault: Mutex::default(),
                is_refused: AtomicBool::new(false),
            })
        };
        let members = sources.into_iter().map(member).collect();
        Self { members, families: Arc::clone(&destinations.families) }
    }

    /// Delivers until `stop` resolves, each database as [`Relay::run`] does. A database that cannot be
    /// used, whatever the reason, is tried again, and the others go on meanwhile.
    ///
    /// # Errors
    /// When no database is left: the schema of each does not fit this program, or its rights do not
    /// suffice. And when a stage of any relay panics.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send) -> Result<(), RelayError> {
        let (stopping, stopped) = watch::channel(false);
        let (refusals, mut refused) = mpsc::unbounded_channel();
        // In a set, which ends what it holds when this future is dropped.
        let mut serving = JoinSet::new();
        for member in &self.members {
            serving.spawn(Arc::clone(member).serve(stopped.clone(), refusals.clone()));
        }
        let mut stop = std::pin::pin!(stop);
        let outcome = loop {
            tokio::select! {
                biased;
                () = &mut stop => break Ok(()),
                Some(ended) = serving.join_next() => break outcome_of(ended),
                Some(error) = refused.recv() => {
                    let is_refused =
                        |member: &Arc<Member>| member.is_refused.load(Ordering::Acquire);
                    if self.members.iter().all(is_refused) {
                        break Err(RelayError::Store(error));
                    }
                }
            }
        };
        stopping.send_replace(true);
        let mut outcome = outcome;
        while let Some(ended) = serving.join_next().await {
            outcome = outcome.and(outcome_of(ended));
        }
        outcome
    }

    /// One pass over each database, all at once, each as [`Relay::tick`] does: what became of it, by the
    /// database's name.
    pub async fn tick(&self, limit: usize) -> Vec<(String, Result<Pass, RelayError>)> {
        let passes = self.members.iter().map(|member| async move {
            let pass = async { member.relay().await?.tick(limit).await };
            (member.source.name.clone(), pass.await)
        });
        join_all(passes).await
    }

    /// How the fleet is: well when every database is.
    #[must_use]
    pub fn health(&self) -> Health {
        let mut databases = Vec::with_capacity(self.members.len());
        let mut lanes: BTreeMap<String, LaneHealth> = BTreeMap::new();
        let mut unrouted = BTreeSet::new();
        for member in &self.members {
            let health = member.health();
            for lane in &health.lanes {
                match lanes.get_mut(&lane.integration) {
                    Some(known) => merge(known, lane),
                    None => drop(lanes.insert(lane.integration.clone(), lane.clone())),
                }
            }
            unrouted.extend(health.unrouted.iter().cloned());
            databases.push(DatabaseHealth {
                name: member.source.name.clone(),
                ready: health.ready,
                state: health.database,
                in_flight: health.lanes.iter().map(|lane| lane.in_flight).sum(),
                unrouted: health.unrouted,
                lag_ms: health.lag_ms,
            });
        }
        let unwell = databases.iter().filter(|database| !database.ready);
        let unwell: Vec<String> =
            unwell.map(|database| format!("{}: {}", database.name, database.state)).collect();
        Health {
            ready: unwell.is_empty(),
            database: if unwell.is_empty() { "ok".to_owned() } else { unwell.join("; ") },
            lanes: lanes.into_values().collect(),
            unrouted: unrouted.into_iter().collect(),
            lag_ms: databases.iter().map(|database| database.lag_ms).max().unwrap_or(0),
            databases,
        }
    }

    /// What it has counted, in Prometheus' text format.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.members.iter().filter_map(|member| member.relay.get()).for_each(Relay::age_metrics);
        self.families.text()
    }
}

impl Observed for Fleet {
    fn health(&self) -> Health {
        Self::health(self)
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }
}

/// Adds what one more database has in flight for a destination.
fn merge(known: &mut LaneHealth, lane: &LaneHealth) {
    known.in_flight += lane.in_flight;
    if lane.state == LaneState::Paused {
        known.state = LaneState::Paused;
    }
    if known.error.is_none() {
        known.error.clone_from(&lane.error);
    }
}

fn outcome_of(ended: Result<Result<(), RelayError>, JoinError>) -> Result<(), RelayError> {
    ended.unwrap_or_else(|error| {
        Err(RelayError::Defect { stage: "relay of a database", cause: error.to_string() })
    })
}

async fn has_stopped(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone has stopped too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
