//! Reads the messages that jobs refer to, many at a time.

use super::batcher::{Asked, Batcher, answer, batcher};
use super::shared::Shared;
use postroom_core::{Dispatched, MessageId, StoreResult, with_causes};
use std::collections::HashMap;
use std::sync::Arc;

/// The database refuses to read this message, and will again: nothing is known of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Unread;

/// A message that is still to be delivered; `None` when nothing is.
pub(crate) type Read = Result<Option<Dispatched>, Unread>;

/// Where messages are asked for.
pub(crate) type Reader = Batcher<MessageId, Read>;

pub(crate) fn reader() -> (Reader, Asked<MessageId, Read>) {
    batcher()
}

/// Reads until nobody can ask any more.
pub(crate) async fn run(shared: Arc<Shared>, asked: Asked<MessageId, Read>) {
    let shared = &*shared;
    answer(asked, |ids| read(shared, ids)).await;
}

async fn read(shared: &Shared, ids: Vec<MessageId>) -> Vec<Read> {
    let found = dispatched(shared, &ids).await;
    let is_open =
        |read: &&Result<Dispatched, Unread>| read.as_ref().map_or(true, Dispatched::is_open);
    ids.iter().map(|id| found.get(id).filter(is_open).cloned().transpose()).collect()
}

/// What the outbox has of these messages, by id; absent when nothing is to be settled either.
/// Waits for a database that is away. One that cannot be read does not take others along.
pub(crate) async fn dispatched(
    shared: &Shared,
    ids: &[MessageId],
) -> HashMap<MessageId, Result<Dispatched, Unread>> {
    let mut wanted = ids.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    let of =
        |found: Vec<Dispatched>| found.into_iter().map(|one| (one.message.id.clone(), Ok(one)));
    if let Ok(found) = ask(shared, &wanted).await {
        return of(found).collect();
    }
    let mut read = HashMap::with_capacity(wanted.len());
    for id in wanted {
        match ask(shared, std::slice::from_ref(&id)).await {
            Ok(found) => read.extend(of(found)),
            Err(error) => {
                let error = with_causes(&error);
                tracing::error!(%id, error, "the database refuses to read this message");
                read.insert(id, Err(Unread));
            }
        }
    }
    read
}

async fn ask(shared: &Shared, ids: &[MessageId]) -> StoreResult<Vec<Dispatched>> {
    shared.retry(|| shared.store.dispatched(ids)).await
}
