//! Settling around rows that somebody else has locked.
//!
//! Locks what is free and settles that, in one transaction; what is not free is reported, and
//! nobody waits for it.

use super::columns::Columns;
use super::connection::{Connection, OpenTransaction};
use super::error::store_error;
use super::ids::{Id, as_ids, id};
use super::outcomes::Statements;
use super::recording::Recording;
use super::settle::{DOING, apply_announcing, late};
use super::transaction::SETTLE_LOCKED;
use postroom_core::{MessageId, Settled, Settlement, StoreResult, Verdict};
use std::collections::HashSet;
use tokio_postgres::Error;

const DELIVERIES: &str = "SELECT message_id FROM core_outbox.delivery WHERE message_id = ANY ($1)";
const MESSAGES: &str = "SELECT id FROM core_outbox.integration_outbox WHERE id = ANY ($1)";

/// As strong as what settling does to a delivery.
const LOCK_DELIVERIES: &str = "SELECT message_id FROM core_outbox.delivery WHERE message_id = ANY ($1) FOR UPDATE SKIP LOCKED";
/// As strong as an update of a message's state.
const LOCK_MESSAGES: &str = "SELECT id FROM core_outbox.integration_outbox \
     WHERE id = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED";
/// As strong as the end of a message in an outbox that keeps no history.
const LOCK_MESSAGES_TO_DELETE: &str = "SELECT id FROM core_outbox.integration_outbox \
     WHERE id = ANY ($1) FOR UPDATE SKIP LOCKED";

pub(super) async fn settle_free(
    client: &mut Connection,
    settlements: &[Settlement],
    recording: &Recording,
) -> StoreResult<Settled> {
    let failed = |error| store_error(DOING, error);
    let columns: Vec<Columns> = settlements.iter().map(|one| Columns::of(one, recording)).collect();
    let statements = Statements::prepare(client, recording, &columns).await.map_err(failed)?;
    let mut tx = client.transaction().await.map_err(failed)?;
    tx.batch_execute(SETTLE_LOCKED).await.map_err(failed)?;
    let locked = lock_free(&tx, settlements, recording).await.map_err(failed)?;
    let free: Vec<Settlement> = settlements.iter().map(|one| without(one, &locked)).collect();
    let columns: Vec<Columns> = free.iter().map(|one| Columns::of(one, recording)).collect();
    let unchanged = apply_announcing(&mut tx, &statements, &free, &columns).await;
    let unchanged = tx.end(DOING, unchanged).await?;
    let settled = late(client, &free, &unchanged).await?;
    let verdicts = settlements.iter().flat_map(|one| &one.verdicts);
    let locked = verdicts.filter(|verdict| locked.contains(&verdict.id)).map(|verdict| verdict.seq);
    Ok(Settled { locked: locked.collect(), ..settled })
}

/// Locks the deliveries and messages of settlements as far as nobody else has; the ids of those that
/// somebody has.
async fn lock_free(
    tx: &OpenTransaction<'_>,
    settlements: &[Settlement],
    recording: &Recording,
) -> Result<HashSet<MessageId>, Error> {
    let verdicts: Vec<&Verdict> = settlements.iter().flat_map(|one| &one.verdicts).collect();
    let ids = as_ids(verdicts.iter().map(|verdict| &verdict.id));
    let lock_messages = match recording {
        Recording::AtOnce | Recording::Later(_) => LOCK_MESSAGES,
        Recording::Deleted { .. } => LOCK_MESSAGES_TO_DELETE,
    };
    let deliveries = passed_over(tx, LOCK_DELIVERIES, DELIVERIES, ids.clone()).await?;
    let messages = passed_over(tx, lock_messages, MESSAGES, ids).await?;
    Ok(deliveries.into_iter().chain(messages).collect())
}

/// Locks rows by key, and tells which it passed over: those that are there and somebody else has.
async fn passed_over(
    tx: &OpenTransaction<'_>,
    lock: &str,
    look: &str,
    mut ids: Vec<Id<&MessageId>>,
) -> Result<HashSet<MessageId>, Error> {
    let locked = read(tx, lock, &ids).await?;
    ids.retain(|Id(id)| !locked.contains(*id));
    if ids.is_empty() { Ok(HashSet::new()) } else { read(tx, look, &ids).await }
}

async fn read(
    tx: &OpenTransaction<'_>,
    sql: &str,
    ids: &[Id<&MessageId>],
) -> Result<HashSet<MessageId>, Error> {
    tx.query(sql, &[&ids]).await?.iter().map(|row| id(row, 0)).collect()
}

/// The settlement of what is free. Its claim still holds something when anything is left out.
fn without(settlement: &Settlement, locked: &HashSet<MessageId>) -> Settlement {
    let free = |verdict: &&Verdict| !locked.contains(&verdict.id);
    let verdicts: Vec<Verdict> = settlement.verdicts.iter().filter(free).cloned().collect();
    let finished = settlement.finished && verdicts.len() == settlement.verdicts.len();
    Settlement { fence: settlement.fence, verdicts, finished }
}
