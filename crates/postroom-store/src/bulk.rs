//! What an operator does to messages: to one, or to all that a filter finds, in batches and at a
//! pace.
//!
//! Each call is one action on record, under the name of who asked for it. What is changed and its
//! record are committed together, batch by batch: an operation that is stopped or killed half-way
//! has done what its record says, and can be said again.

use postroom_core::{
    ActionId, Filter, Key, NewAction, Operation, Status, Store, StoreErrorKind, StoreResult,
};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How many messages are looked at, and changed in one transaction, at a time.
const BATCH: usize = 200;
/// How many messages are deleted in one transaction.
const PRUNE_BATCH: usize = 1_000;
/// With a rate, this many batches make a second, so that nobody is hit by a second's worth at once.
const BATCHES_PER_SECOND: u32 = 10;
/// How often a batch is tried again that lost to a concurrent transaction.
const CONFLICTS_MAX: u32 = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);

/// What is done to each message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// Dead messages again, with all their attempts.
    Redrive,
    /// Sent messages again, as new rows.
    Replay {
        /// Whether they get event ids of their own, so that receivers repeat the effect.
        fresh_ids: bool,
    },
    /// Claimed messages are taken from their relay.
    Release,
    /// Waiting messages become DEAD.
    Cancel,
}

impl Change {
    /// The operation it is on record as.
    #[must_use]
    pub fn operation(self) -> Operation {
        match self {
            Self::Redrive => Operation::Redrive,
            Self::Replay { .. } => Operation::Replay,
            Self::Release => Operation::Release,
            Self::Cancel => Operation::Cancel,
        }
    }

    /// The statuses it applies to; messages with another are left alone.
    #[must_use]
    pub fn statuses(self) -> &'static [Status] {
        match self {
            Self::Redrive => &[Status::Dead],
            Self::Replay { .. } => &[Status::Sent],
            Self::Release => &[Status::Claimed],
            Self::Cancel => &[Status::Pending, Status::Failed],
        }
    }

    async fn apply(
        self,
        store: &dyn Store,
        action: ActionId,
        keys: &[Key],
    ) -> StoreResult<Changed> {
        let mut conflicts = 0;
        loop {
            let changed = match self {
                Self::Redrive => store.redrive(action, keys).await.map(Changed::count),
                Self::Release => store.release(action, keys).await.map(Changed::count),
                Self::Cancel => store.cancel(action, keys).await.map(Changed::count),
                Self::Replay { fresh_ids } => store
                    .replay(action, keys, fresh_ids)
                    .await
                    .map(|made| Changed { messages: made.len() as u64, made }),
            };
            match changed {
                Err(error)
                    if error.kind == StoreErrorKind::Conflict && conflicts < CONFLICTS_MAX =>
                {
                    conflicts += 1;
                    tokio::time::sleep(CONFLICT_PAUSE).await;
                }
                changed => return changed,
            }
        }
    }
}

/// What one change did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changed {
    /// How many messages.
    pub messages: u64,
    /// The new messages of a replay.
    pub made: Vec<Uuid>,
}

impl Changed {
    fn count(messages: u64) -> Self {
        Self { messages, made: Vec::new() }
    }
}

/// Changes one message, on record. Nothing is changed when it is not in the state for it.
///
/// # Errors
/// When the database is away or refuses.
pub async fn change_one(
    store: &dyn Store,
    actor: &str,
    change: Change,
    key: Key,
) -> StoreResult<(ActionId, Changed)> {
    let target = key.id.to_string();
    let action = NewAction { actor, operation: change.operation(), target: &target };
    let action = store.begin_action(&action).await?;
    Ok((action, change.apply(store, action, &[key]).await?))
}

/// A change of all messages that a filter finds.
#[derive(Clone, Copy, Debug)]
pub struct Bulk<'a> {
    /// Who asks for it.
    pub actor: &'a str,
    /// What is done.
    pub change: Change,
    /// To which messages. The status follows from the change, and all pages are gone through:
    /// what the filter says of these is not looked at.
    pub filter: &'a Filter,
    /// The most messages per second.
    pub per_second: Option<NonZeroU32>,
}

/// How an operation over many messages ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Finished {
    /// Its record.
    pub action: ActionId,
    /// How many messages it changed.
    pub messages: u64,
    /// Whether it was stopped before it was through.
    pub is_stopped: bool,
}

impl Bulk<'_> {
    /// How many messages it would find now. Changes nothing, and is not on record.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn count(&self, store: &dyn Store) -> StoreResult<u64> {
        let mut found = 0;
        for status in self.change.statuses() {
            let mut before = None;
            while let Some(page) = self.page(store, *status, before).await? {
                before = page.last().map(|key| key.seq);
                found += page.len() as u64;
            }
        }
        Ok(found)
    }

    /// Changes them, newest first, until all are done or `stop` is ready; a batch that has begun
    /// is finished. `progress` is told the number of messages changed so far, after each batch.
    /// What comes to match while it runs may be left out.
    ///
    /// # Errors
    /// When the database is away or refuses. What was changed by then stays changed, and is on
    /// record.
    pub async fn run(
        &self,
        store: &dyn Store,
        stop: impl Future<Output = ()>,
        mut progress: impl FnMut(u64),
    ) -> StoreResult<Finished> {
        let target = in_words(self.filter);
        let action =
            NewAction { actor: self.actor, operation: self.change.operation(), target: &target };
        let action = store.begin_action(&action).await?;
        let mut stop = pin!(stop);
        let mut pace = Pace::new(self.per_second);
        let mut messages = 0;
        for status in self.change.statuses() {
            let mut before = None;
            while let Some(page) = self.page(store, *status, before).await? {
                before = page.last().map(|key| key.seq);
                for batch in page.chunks(pace.batch) {
                    tokio::select! {
                        biased;
                        () = &mut stop => {
                            return Ok(Finished { action, messages, is_stopped: true });
                        }
                        () = tokio::time::sleep_until(pace.next) => {}
                    }
                    let began = Instant::now();
                    let changed = self.change.apply(store, action, batch).await?.messages;
                    pace.changed(changed, began);
                    messages += changed;
                    progress(messages);
                }
            }
        }
        Ok(Finished { action, messages, is_stopped: false })
    }

    /// The keys of a page; none after the last.
    async fn page(
        &self,
        store: &dyn Store,
        status: Status,
        before: Option<i64>,
    ) -> StoreResult<Option<Vec<Key>>> {
        let filter = Filter { status: Some(status), before, limit: BATCH, ..self.filter.clone() };
        let records = store.list(&filter).await?;
        Ok((!records.is_empty()).then(|| records.iter().map(postroom_core::Record::key).collect()))
    }
}

/// Deletes old messages, on record.
#[derive(Clone, Copy, Debug)]
pub struct Prune<'a> {
    /// Who asks for it.
    pub actor: &'a str,
    /// SENT or DEAD.
    pub status: Status,
    /// How long ago they became so.
    pub older_than: Duration,
}

impl Prune<'_> {
    /// How many messages it would delete now. Changes nothing, and is not on record.
    ///
    /// # Errors
    /// When the database is away, or the status is neither SENT nor DEAD.
    pub async fn count(&self, store: &dyn Store) -> StoreResult<u64> {
        store.prunable(self.status, self.older_than).await
    }

    /// Deletes them in batches, until all are gone or `stop` is ready. `progress` is told the
    /// number of messages deleted so far, after each batch.
    ///
    /// # Errors
    /// When the database is away, or the status is neither SENT nor DEAD.
    pub async fn run(
        &self,
        store: &dyn Store,
        stop: impl Future<Output = ()>,
        mut progress: impl FnMut(u64),
    ) -> StoreResult<Finished> {
        let target = format!("{}, older than {:?}", self.status, self.older_than);
        let action = NewAction { actor: self.actor, operation: Operation::Prune, target: &target };
        let action = store.begin_action(&action).await?;
        let mut stop = pin!(stop);
        let mut messages = 0;
        loop {
            let pruned =
                store.prune_on_record(action, self.status, self.older_than, PRUNE_BATCH).await?;
            messages += pruned;
            if pruned == 0 {
                return Ok(Finished { action, messages, is_stopped: false });
            }
            progress(messages);
            // Room for others between two batches, and for a stop.
            tokio::select! {
                biased;
                () = &mut stop => return Ok(Finished { action, messages, is_stopped: true }),
                () = tokio::task::yield_now() => {}
            }
        }
    }
}

/// A filter as the record of an action shows it.
#[must_use]
pub fn in_words(filter: &Filter) -> String {
    let time = |time: Option<chrono::DateTime<chrono::Utc>>| time.map(|time| time.to_rfc3339());
    let parts = [
        ("integration", filter.integration.clone()),
        ("tenant", filter.tenant.clone()),
        ("type", filter.event_type.clone()),
        ("correlation", filter.correlation.clone()),
        ("event id", filter.event_id.clone()),
        ("since", time(filter.since)),
        ("until", time(filter.until)),
    ];
    let mut words = String::new();
    for (name, value) in parts {
        let Some(value) = value else { continue };
        let comma = if words.is_empty() { "" } else { ", " };
        let _ = write!(words, "{comma}{name} {value}");
    }
    if words.is_empty() { "all".to_owned() } else { words }
}

/// When the next batch may begin.
struct Pace {
    per_second: Option<NonZeroU32>,
    batch: usize,
    next: Instant,
}

impl Pace {
    fn new(per_second: Option<NonZeroU32>) -> Self {
        let batch = per_second.map_or(BATCH, |rate| {
            let tenth = (rate.get() / BATCHES_PER_SECOND).max(1);
            BATCH.min(usize::try_from(tenth).unwrap_or(BATCH))
        });
        Self { per_second, batch, next: Instant::now() }
    }

    /// Time that was lost is not made up for: that would be a burst.
    fn changed(&mut self, messages: u64, began: Instant) {
        if let Some(rate) = self.per_second {
            let seconds = messages as f64 / f64::from(rate.get());
            self.next = began + Duration::from_secs_f64(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_told_in_words() {
        assert_eq!(in_words(&Filter::default()), "all");
        let filter = Filter {
            integration: Some("webhook:a".to_owned()),
            tenant: Some("acme".to_owned()),
            ..Filter::default()
        };
        assert_eq!(in_words(&filter), "integration webhook:a, tenant acme");
    }

    #[test]
    fn a_slow_rate_has_small_batches() {
        for (rate, batch) in [(1, 1), (50, 5), (1_000, 100), (1_000_000, BATCH)] {
            assert_eq!(Pace::new(NonZeroU32::new(rate)).batch, batch);
        }
        assert_eq!(Pace::new(None).batch, BATCH);
    }
}
