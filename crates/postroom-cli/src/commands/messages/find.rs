//! From what people call a message to the message.

use super::list::{cells, columns};
use crate::args::Named;
use crate::commands::each::{Answers, each_open};
use crate::commands::outbox;
use crate::config::Database;
use crate::failure::Failure;
use crate::output;
use anyhow::anyhow;
use chrono::{DateTime, Utc};
use postroom_core::{Filter, Record, Store};
use std::sync::Arc;

/// How many candidates are shown.
const CANDIDATES: usize = 10;

/// A message, and where it is.
pub(super) struct Found {
    /// The name of its database, where there are several.
    pub(super) database: Option<String>,
    pub(super) store: Arc<dyn Store>,
    pub(super) record: Record,
}

/// What one outbox knows by a name.
struct Candidates {
    store: Arc<dyn Store>,
    records: Vec<Record>,
    now: DateTime<Utc>,
}

/// The one message that has this id, whose id begins so, or whose event id it is, in whichever of these
/// outboxes. Where one of them cannot be asked, only a whole id tells for sure which message is meant.
pub(super) async fn find(
    databases: &[Database],
    name: &Named,
    for_sure: bool,
) -> Result<Found, Failure> {
    let mut answers = each_open(databases, async |store| {
        let records = candidates(&*store, name).await?;
        Ok(Candidates { now: store.now().await?, records, store })
    })
    .await?;
    let failed = answers.failed();
    match answers.each.iter().map(|one| one.found.records.len()).sum::<usize>() {
        0 => {
            let elsewhere =
                failed.map_or_else(String::new, |failed| format!("; not asked: {failed}"));
            Err(Failure::Failed(anyhow!(
                "there is no message {name}: no id begins so, and no event id is the same; \
                 `postroom messages list` shows those there are{elsewhere}"
            )))
        }
        1 => {
            match failed.filter(|_| !name.is_whole_id()) {
                Some(failed) if for_sure => {
                    return Err(Failure::Failed(anyhow!(
                        "another database may have a message {name} too, and cannot be asked: name one \
                         by --database ({}); {failed}",
                        outbox::names(databases)
                    )));
                }
                Some(failed) => tracing::warn!("not asked: {failed}"),
                None => {}
            }
            answers.each.retain(|one| !one.found.records.is_empty());
            let one = answers.each.pop().and_then(|mut one| {
                let record = one.found.records.pop()?;
                Some(Found { database: one.name, store: one.found.store, record })
            });
            one.ok_or_else(|| Failure::Failed(anyhow!("there is no message {name}")))
        }
        _ => Err(ambiguous(name, &answers)),
    }
}

/// The messages in one outbox that a name may stand for.
async fn candidates(store: &dyn Store, name: &Named) -> Result<Vec<Record>, Failure> {
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
    Ok(found)
}

fn ambiguous(name: &Named, answers: &Answers<Candidates>) -> Failure {
    let mut table = columns(answers.table());
    let all = answers
        .each
        .iter()
        .flat_map(|one| one.found.records.iter().map(move |record| (one, record)));
    for (one, record) in all.clone().take(CANDIDATES) {
        table.row(one.row(cells(record, one.found.now)));
    }
    let more = if all.count() > CANDIDATES { "\n…" } else { "" };
    let database = if answers.are_several { ", its database by --database" } else { "" };
    let candidates = output::rendered_for_errors(&table);
    Failure::Failed(anyhow!(
        "{name} is not one message but several: name one by more of its id{database}, or all of an \
         event by --event-id\n{}{more}",
        candidates.trim_end()
    ))
}
