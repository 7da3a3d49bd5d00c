//! From what people call a message to the message.

use super::list::table;
use crate::args::Named;
use crate::failure::Failure;
use crate::output;
use anyhow::anyhow;
use postroom_core::{Filter, Record, Store};

/// How many candidates are shown.
const CANDIDATES: usize = 10;

/// The one message that has this id, whose id begins so, or whose event id it is.
pub(super) async fn find(store: &dyn Store, name: &Named) -> Result<Record, Failure> {
    let limit = CANDIDATES + 1;
    // One whose id is written so is meant, though other ids may begin so.
    let mut found = match store.find(name.id()).await? {
        Some(record) => vec![record],
        None => store.find_prefix(name.prefix(), limit).await?,
    };
    // The beginning of one message's id may be the whole event id of another.
    let event_id = Some(name.as_str().to_owned());
    let filter = Filter { event_id, limit, ..Filter::default() };
    for record in store.list(&filter).await? {
        if found.iter().all(|known| known.message.id != record.message.id) {
            found.push(record);
        }
    }
    if found.len() > 1 {
        return Err(ambiguous(store, name, found).await);
    }
    found.pop().ok_or_else(|| {
        Failure::Failed(anyhow!(
            "there is no message {name}: no id begins so, and no event id is the same; \
             `postroom messages list` shows those there are"
        ))
    })
}

async fn ambiguous(store: &dyn Store, name: &Named, mut found: Vec<Record>) -> Failure {
    let now = match store.now().await {
        Ok(now) => now,
        Err(error) => return error.into(),
    };
    let more = if found.len() > CANDIDATES { "\n…" } else { "" };
    found.truncate(CANDIDATES);
    let candidates = output::rendered_for_errors(&table(&found, now));
    Failure::Failed(anyhow!(
        "{name} is not one message but several: name one by more of its id, or all of an event by \
         --event-id\n{}{more}",
        candidates.trim_end()
    ))
}
