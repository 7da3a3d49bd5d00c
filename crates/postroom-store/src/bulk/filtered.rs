//! A change of all messages that a filter finds.

use super::throttle::Throttle;
use super::{BATCH, Change, Finished};
use postroom_core::{Filter, Key, NewAction, Record, Status, Store, StoreErrorKind, StoreResult};
use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::pin::pin;
use std::slice;
use tokio::time::Instant;

/// How many locked messages are left alone before the whole of it fails: each costs the wait for its
/// lock.
const LOCKED_MAX: u64 = 3;

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
    /// What comes to match while it runs may be left out. A few messages that somebody else has
    /// locked are left alone.
    ///
    /// # Errors
    /// When the database is away or refuses, or others have locked many messages. What was changed
    /// by then stays changed, and is on record.
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
        let mut throttle = Throttle::new(self.per_second);
        let mut finished = Finished { action, messages: 0, locked: 0, is_stopped: false };
        for status in self.change.statuses() {
            let mut before = None;
            while let Some(page) = self.page(store, *status, before).await? {
                before = page.last().map(|key| key.seq);
                for batch in page.chunks(throttle.batch) {
                    tokio::select! {
                        biased;
                        () = &mut stop => {
                            return Ok(Finished { is_stopped: true, ..finished });
                        }
                        () = tokio::time::sleep_until(throttle.next) => {}
                    }
                    let began = Instant::now();
                    let changed_before = finished.messages;
                    let applied = self.apply(store, batch, &mut finished).await;
                    progress(finished.messages);
                    applied?;
                    throttle.changed(finished.messages - changed_before, began);
                }
            }
        }
        Ok(finished)
    }

    /// Changes a batch; where somebody else has locked some of it, message by message. A replay is
    /// not tried so: it waits for another replay, whichever messages that one has.
    async fn apply(
        &self,
        store: &dyn Store,
        batch: &[Key],
        finished: &mut Finished,
    ) -> StoreResult<()> {
        match self.change.apply(store, finished.action, batch).await {
            Ok(changed) => {
                finished.messages += changed.messages;
                return Ok(());
            }
            Err(error) if error.kind != StoreErrorKind::Conflict => return Err(error),
            Err(error) if matches!(self.change, Change::Replay { .. }) => return Err(error),
            Err(_) if batch.len() == 1 && finished.locked < LOCKED_MAX => {
                finished.locked += 1;
                return Ok(());
            }
            Err(_) => {}
        }
        for key in batch {
            match self.change.apply(store, finished.action, slice::from_ref(key)).await {
                Ok(changed) => finished.messages += changed.messages,
                Err(error)
                    if error.kind == StoreErrorKind::Conflict && finished.locked < LOCKED_MAX =>
                {
                    finished.locked += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
        Ok((!records.is_empty()).then(|| records.iter().map(Record::key).collect()))
    }
}

/// A filter as the record of an action shows it.
fn in_words(filter: &Filter) -> String {
    let time = |time: Option<chrono::DateTime<chrono::Utc>>| time.map(|time| time.to_rfc3339());
    let parts = [
        ("integration", filter.integration.clone()),
        ("tenant", filter.tenant.clone()),
        ("type", filter.event_type.clone()),
        ("correlation", filter.correlation.clone()),
        ("event id", filter.event_id.clone()),
        ("stream", filter.stream.clone()),
        ("error", filter.error.clone()),
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
}
