//! Reads the messages that jobs refer to, many at a time.

use super::gather::{Asked, Desk, answer, desk};
use super::shared::Shared;
use postroom_core::Dispatched;
use postroom_relay::describe;
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;

/// Where messages are asked for; `None` when nothing is to be delivered.
pub(crate) type Reader = Desk<Uuid, Option<Dispatched>>;

pub(crate) fn reader() -> (Reader, Asked<Uuid, Option<Dispatched>>) {
    desk()
}

/// Reads until nobody can ask any more.
pub(crate) async fn run(shared: Arc<Shared>, asked: Asked<Uuid, Option<Dispatched>>) {
    let shared = &*shared;
    answer(asked, |ids| read(shared, ids)).await;
}

async fn read(shared: &Shared, ids: Vec<Uuid>) -> Vec<Option<Dispatched>> {
    let found = dispatched(shared, &ids).await;
    ids.iter().map(|id| found.get(id).cloned()).collect()
}

/// The messages that are still to be delivered, by id. Waits for a database that is away.
pub(crate) async fn dispatched(shared: &Shared, ids: &[Uuid]) -> HashMap<Uuid, Dispatched> {
    let mut wanted = ids.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    match shared.insist(|| shared.store.dispatched(&wanted)).await {
        Ok(found) => found.into_iter().map(|one| (one.message.id, one)).collect(),
        Err(error) => {
            tracing::error!(error = describe(&error), "the database refuses to be read");
            HashMap::new()
        }
    }
}
