//! Relays, and how long their claims last.
//!
//! A relay has one row, which it keeps alive by a heartbeat. Its claims name that row and have no
//! time of their own: they expire together when the heartbeat ends. So one small write keeps any
//! number of claims.

use super::{StoreResult, Token};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use std::time::Duration;
use uuid::Uuid;

/// How long an expired row that holds no claim is still listed.
pub const RELAY_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// One start of a relay's process. Random, since names may be used again.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RelayId(pub Uuid);

impl RelayId {
    /// What a claim names that its relay has given up. There is no such row, so the claim has
    /// expired.
    pub const NOBODY: Self = Self(Uuid::nil());

    /// A fresh id.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

/// One sign of life.
#[derive(Clone, Copy, Debug)]
pub struct Heartbeat<'a> {
    /// Whose row it is.
    pub relay: RelayId,
    /// The relay's name, as claims show it.
    pub name: &'a str,
    /// How many integrations it serves. A row that serves none belongs to a single call, and is
    /// deleted as soon as it has expired and holds no claim.
    pub lanes: usize,
    /// All claims that the relay knows it holds.
    pub held: &'a [Token],
    /// How long the row, and with it every claim that names it, lasts from now on.
    pub claim_time: Duration,
}

/// One relay, as its row shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RelayRow {
    /// Its id.
    pub id: RelayId,
    /// Its name.
    pub name: String,
    /// The version of its program.
    pub version: String,
    /// How many integrations it serves.
    pub lanes: u32,
    /// When its first heartbeat was.
    pub started_at: DateTime<Utc>,
    /// When it expires, or has expired, unless there is another heartbeat.
    pub until: DateTime<Utc>,
    /// How many claims name it.
    pub claims: u64,
}

/// The rows of relays. All times are by the database's clock.
#[async_trait]
pub trait Relays: Send + Sync {
    /// Keeps the relay's row, and every claim that names it, for
    /// [`claim_time`](Heartbeat::claim_time) from now. Makes the row if it is not there, and
    /// revives one that has expired: what nobody has rescued meanwhile is held again.
    ///
    /// Returns those of [`held`](Heartbeat::held) that are lost: rescued by others, or given up. A
    /// claim that ended regularly while the call ran is among them.
    ///
    /// A claim that names this relay, that the relay does not know and that is older than
    /// `claim_time` is given up: the reply to its take was lost. Anybody may rescue it at once. That
    /// counts neither a rescue nor an attempt, since nobody has tried its messages.
    ///
    /// One small write, however many claims there are: no claim's row is touched, except those that
    /// are given up.
    async fn beat(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<Token>>;

    /// Deletes the relay's row: claims that still name it have expired at once. Safe to repeat.
    async fn leave(&self, relay: RelayId) -> StoreResult<()>;

    /// The relays that live, and those that expired within [`RELAY_KEPT`] or still hold claims;
    /// by name, then by start.
    async fn relays(&self) -> StoreResult<Vec<RelayRow>>;
}
