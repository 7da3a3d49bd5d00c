//! The relay's heartbeat: one row in the store keeps every claim of this process.

use crate::background::upkeep_failed;
use crate::jitter::Jitter;
use async_trait::async_trait;
use postroom_core::{Heartbeat, RelayId, Relays, StoreResult, Token, with_causes};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How soon a heartbeat that failed is tried again, by part of the claim time: the claims are
/// running out.
const AGAIN: u32 = 20;
const AGAIN_MIN: Duration = Duration::from_millis(200);

/// Whoever holds claims under a process's row.
#[async_trait]
pub trait Holder: Send + Sync {
    /// How many integrations it serves.
    fn lanes(&self) -> usize;

    /// All claims that it holds now.
    fn held(&self) -> Vec<Token>;

    /// These claims are not in the store any more. Some may belong to others, or have ended
    /// regularly meanwhile.
    async fn gone(&self, tokens: &[Token]);
}

/// A process in the eyes of the other relays: its row, and all who hold claims under it. Lanes that
/// deliver directly and lanes that go through a queue share one, so that one heartbeat keeps the
/// claims of both.
pub struct Presence {
    id: RelayId,
    name: String,
    claim_time: Duration,
    holders: Mutex<Vec<Arc<dyn Holder>>>,
    /// When the latest heartbeat was sent that the store has acknowledged.
    beaten: Mutex<Option<Instant>>,
    /// One heartbeat at a time: a second one finds that it is not needed any more.
    turn: tokio::sync::Mutex<()>,
}

impl Presence {
    /// A presence of this name. The store knows nothing of it before its first heartbeat.
    #[must_use]
    pub fn new(name: &str, claim_time: Duration) -> Self {
        Self {
            id: RelayId::random(),
            name: name.to_owned(),
            claim_time,
            holders: Mutex::default(),
            beaten: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// The id that claims name.
    #[must_use]
    pub fn id(&self) -> RelayId {
        self.id
    }

    /// Keeps the claims of one more holder, until the answer is dropped.
    #[must_use]
    pub fn join(self: &Arc<Self>, holder: Arc<dyn Holder>) -> Member {
        self.holders().push(Arc::clone(&holder));
        Member { presence: Arc::clone(self), holder }
    }

    /// Sends a heartbeat. Returns those of the claims held, and of `also`, that are lost; their
    /// holders know it by then.
    ///
    /// # Errors
    /// When the store does not acknowledge it: then the claims last as long as before.
    pub async fn beat(&self, store: &dyn Relays, also: &[Token]) -> StoreResult<Vec<Token>> {
        let _turn = self.turn.lock().await;
        self.beat_now(store, also).await
    }

    /// Sends a heartbeat if one is overdue. To be called before every take, whose claims would be
    /// born expired otherwise; usually it does nothing.
    ///
    /// # Errors
    /// As [`beat`](Self::beat).
    pub async fn beat_if_overdue(&self, store: &dyn Relays) -> StoreResult<()> {
        self.beat_if_older(store, self.claim_time * 2 / 3).await
    }

    /// Sends a heartbeat if the latest is so old that the claims may be anybody's by now: this process was
    /// stopped, or got no turn, and does not know what it has lost. To be called before every delivery; usually
    /// it does nothing. Where the store cannot be asked, deliveries go on: mostly nobody else can reach it
    /// either, and where others can, what they rescued arrives twice. Says whether the store has answered.
    pub async fn beat_if_expired(&self, store: &dyn Relays) -> bool {
        let beaten = self.beat_if_older(store, self.claim_time).await;
        if let Err(error) = &beaten {
            upkeep_failed("sending a heartbeat", error);
        }
        beaten.is_ok()
    }

    /// Whether the latest heartbeat is so old that the claims may be anybody's by now.
    #[must_use]
    pub fn has_expired(&self) -> bool {
        self.beaten().is_none_or(|at| at.elapsed() >= self.claim_time)
    }

    /// Forgets when the latest heartbeat was: the store does not agree that this process lives.
    /// The next take begins with another one.
    pub fn doubt(&self) {
        *self.beaten() = None;
    }

    /// Sends three heartbeats within a claim time. Several holders may call this at once: together
    /// they send no more than one would.
    pub async fn keep(&self, store: &dyn Relays, jitter: &Jitter) {
        let mut pause = Duration::ZERO;
        loop {
            tokio::time::sleep(pause).await;
            // Up to a fifth sooner, so that relays do not act together.
            let interval = jitter.share(self.claim_time / 3, 0.8);
            pause = match self.beat_if_older(store, interval).await {
                Ok(()) => {
                    let age = self.beaten().map_or(interval, |at| at.elapsed());
                    interval.saturating_sub(age).max(Duration::from_millis(1))
                }
                Err(error) => {
                    upkeep_failed("sending a heartbeat", &error);
                    // In a hurry only while there are claims to save: a database that is away is
                    // asked ever less often.
                    let is_over = self.beaten().is_none_or(|at| at.elapsed() >= self.claim_time);
                    if is_over { interval } else { (self.claim_time / AGAIN).max(AGAIN_MIN) }
                }
            };
        }
    }

    async fn beat_if_older(&self, store: &dyn Relays, age: Duration) -> StoreResult<()> {
        let is_fresh = || self.beaten().is_some_and(|at| at.elapsed() < age);
        if is_fresh() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        if is_fresh() {
            return Ok(());
        }
        self.beat_now(store, &[]).await.map(drop)
    }

    async fn beat_now(&self, store: &dyn Relays, also: &[Token]) -> StoreResult<Vec<Token>> {
        let holders = self.holders().clone();
        let mut held: Vec<Token> = holders.iter().flat_map(|holder| holder.held()).collect();
        held.extend(also);
        let sent = Instant::now();
        let beat = Heartbeat {
            relay: self.id,
            name: &self.name,
            lanes: holders.iter().map(|holder| holder.lanes()).sum(),
            held: &held,
            claim_time: self.claim_time,
        };
        let gone = store.beat(&beat).await?;
        *self.beaten() = Some(sent);
        if !gone.is_empty() {
            for holder in holders {
                holder.gone(&gone).await;
            }
        }
        Ok(gone)
    }

    fn holders(&self) -> MutexGuard<'_, Vec<Arc<dyn Holder>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beaten(&self) -> MutexGuard<'_, Option<Instant>> {
        self.beaten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One holder's part in a presence. When it is dropped, its claims are not kept any more: they are
/// given up by the heartbeats of the others, or expire with the row.
pub struct Member {
    presence: Arc<Presence>,
    holder: Arc<dyn Holder>,
}

impl Member {
    /// Ends it, once everything is given back. The last one ends the row, so that another relay need
    /// not wait until it expires; which it does by itself where that cannot be done before `deadline`.
    pub async fn leave(self, store: &dyn Relays, deadline: Instant) {
        let presence = Arc::clone(&self.presence);
        drop(self);
        let left = async {
            let _turn = presence.turn.lock().await;
            if !presence.holders().is_empty() {
                return Ok(());
            }
            presence.doubt();
            store.leave(presence.id).await
        };
        match tokio::time::timeout_at(deadline, left).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error = with_causes(&error);
                tracing::debug!(error, "the relay's row stays until it expires");
            }
            Err(_) => tracing::debug!("the relay's row stays until it expires: no answer in time"),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.presence.holders().retain(|holder| !Arc::ptr_eq(holder, &self.holder));
    }
}
