//! Taking messages in: many with one statement.

use super::PgStore;
use super::connection::OpenTransaction;
use super::error::store_error;
use super::ids::id;
use super::layout::Foreign;
use super::settle::enqueue_error;
use super::transaction::BY_INDEX;
use crate::intake::{DOING, check, concerning, expect, moved, parts};
use async_trait::async_trait;
use postroom::Outbox;
use postroom_core::{
    Checkpoint, Enqueued, Intake, MessageId, NewMessage, RawJson, StoreErrorKind, StoreResult,
};
use std::collections::{HashMap, HashSet};
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Transaction};
use uuid::Uuid;

/// The most messages in one statement, and the most bytes of their content.
const ROWS: usize = 1_000;
const BYTES: usize = 8 << 20;

const ACCEPT: &str = include_str!("sql/accept.sql");
const ACCEPTED_BEFORE: &str = include_str!("sql/accepted_before.sql");

/// A producer with the same event, or another owner of the checkpoint, is waited for so long.
const WAIT: &str = "SET LOCAL lock_timeout = '5s'";

const POSITION: &str = "SELECT position FROM core_outbox.checkpoint WHERE name = $1";
const LOCK_POSITION: &str =
    "SELECT position FROM core_outbox.checkpoint WHERE name = $1 FOR UPDATE";
const MAKE_CHECKPOINT: &str = "INSERT INTO core_outbox.checkpoint (name, position) \
                               VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
const MOVE_CHECKPOINT: &str = "UPDATE core_outbox.checkpoint \
                               SET position = $2, updated_at = now() WHERE name = $1";

#[async_trait]
impl Intake for PgStore {
    async fn accept(
        &self,
        batch: &[NewMessage],
        checkpoint: Option<&Checkpoint>,
    ) -> StoreResult<Vec<Enqueued>> {
        check(batch, checkpoint)?;
        let mut client = self.connection().await?;
        let table = client.foreign().map(Foreign::enqueued_table).transpose()?;
        let mut tx = client.transaction().await.map_err(|e| store_error(DOING, e))?;
        let accepted = accept(&mut tx, batch, checkpoint, table.as_deref()).await;
        tx.end(DOING, accepted).await
    }

    async fn checkpoint(&self, name: &str) -> StoreResult<Option<String>> {
        let doing = "reading a checkpoint";
        let client = self.connection().await?;
        let row = client.query_opt(POSITION, &[&name]).await.map_err(|e| store_error(doing, e))?;
        row.map(|row| row.try_get(0)).transpose().map_err(|e| store_error(doing, e))
    }
}

/// `table` is the one to write to, unless it is Postroom's own.
async fn accept(
    tx: &mut OpenTransaction<'_>,
    batch: &[NewMessage],
    checkpoint: Option<&Checkpoint>,
    table: Option<&str>,
) -> StoreResult<Vec<Enqueued>> {
    tx.batch_execute(WAIT).await.map_err(|e| store_error(DOING, e))?;
    // First: those who race for it wait here, and not behind each other's messages.
    if let Some(checkpoint) = checkpoint {
        advance(tx, checkpoint).await?;
    }
    let mut answers = Vec::with_capacity(batch.len());
    if let Some(table) = table {
        let outbox = Outbox::of_table(table);
        for message in batch {
            let enqueued = outbox.enqueue(&mut ***tx, message.clone()).await;
            let refused = |error| concerning(answers.len(), batch.len(), enqueue_error(error));
            answers.push(enqueued.map_err(refused)?);
        }
        return Ok(answers);
    }
    for part in parts(batch, ROWS, BYTES) {
        if let Some(written) = write_at_once(tx, part).await? {
            answers.extend(written);
            continue;
        }
        for message in part {
            let enqueued = postroom::enqueue(&mut ***tx, message.clone()).await;
            let refused = |error| concerning(answers.len(), batch.len(), enqueue_error(error));
            let enqueued = enqueued.map_err(refused)?;
            answers.push(enqueued);
        }
    }
    Ok(answers)
}

/// Moves a checkpoint from the position that its caller expects.
async fn advance(tx: &OpenTransaction<'_>, checkpoint: &Checkpoint) -> StoreResult<()> {
    let Checkpoint { name, position, .. } = checkpoint;
    let found = locked(tx, name).await.map_err(|e| store_error(DOING, e))?;
    expect(checkpoint, found.as_deref())?;
    let statement = if found.is_some() { MOVE_CHECKPOINT } else { MAKE_CHECKPOINT };
    let written = tx
        .execute_typed(statement, &[(name, Type::VARCHAR), (position, Type::TEXT)])
        .await
        .map_err(|e| store_error(DOING, e))?;
    if written == 1 {
        return Ok(());
    }
    // Another transaction has made it since we looked.
    let found = locked(tx, name).await.map_err(|e| store_error(DOING, e))?;
    Err(moved(checkpoint, found.as_deref()))
}

/// The position of a checkpoint, which stays there until the transaction ends.
async fn locked(tx: &OpenTransaction<'_>, name: &str) -> Result<Option<String>, Error> {
    let rows = tx.query_typed(LOCK_POSITION, &[(&name, Type::VARCHAR)]).await?;
    rows.first().map(|row| row.try_get(0)).transpose()
}

/// Writes several messages with one statement. `None` when there is only one, or when the database
/// refused some: nothing of this part is written then, and message by message tells which it was.
async fn write_at_once(
    tx: &mut Transaction<'_>,
    part: &[NewMessage],
) -> StoreResult<Option<Vec<Enqueued>>> {
    if part.len() < 2 {
        return Ok(None);
    }
    let savepoint = tx.transaction().await.map_err(|e| store_error(DOING, e))?;
    let written = match insert(&savepoint, part).await.map_err(|e| store_error(DOING, e)) {
        Err(error) if error.kind == StoreErrorKind::Refused => None,
        written => written?,
    };
    let ended = match &written {
        Some(_) => savepoint.commit().await,
        None => savepoint.rollback().await,
    };
    ended.map_err(|e| store_error(DOING, e))?;
    Ok(written)
}

/// The answers in order; `None` when something else than the fence took a message for a duplicate.
async fn insert(tx: &Transaction<'_>, part: &[NewMessage]) -> Result<Option<Vec<Enqueued>>, Error> {
    let ids: Vec<Uuid> = part.iter().map(|_| Uuid::now_v7()).collect();
    let written = insert_with_ids(tx, &ids, part).await?;
    let others: Vec<&NewMessage> =
        part.iter().zip(&ids).filter(|(_, id)| !written.contains(id)).map(|(one, _)| one).collect();
    let mut first = if others.is_empty() { HashMap::new() } else { find(tx, &others).await? };
    let mut place = 0;
    let answers = ids.iter().map(|id| {
        if written.contains(id) {
            return Some(Enqueued::New((*id).into()));
        }
        place += 1;
        first.remove(&place).map(Enqueued::Duplicate)
    });
    Ok(answers.collect())
}

/// Inserts messages, and returns the ids of those that are new.
async fn insert_with_ids(
    tx: &Transaction<'_>,
    ids: &[Uuid],
    part: &[NewMessage],
) -> Result<HashSet<Uuid>, Error> {
    let rows = tx
        .query_typed(
            ACCEPT,
            &[
                (&ids, Type::UUID_ARRAY),
                (&column(part, NewMessage::stream_id), Type::VARCHAR_ARRAY),
                (&column(part, |one| &one.event_id), Type::VARCHAR_ARRAY),
                (&column(part, |one| &one.integration), Type::VARCHAR_ARRAY),
                (&column(part, |one| &one.event_type), Type::VARCHAR_ARRAY),
                (&column(part, |one| one.payload().map(RawJson::as_str)), Type::TEXT_ARRAY),
                (&column(part, |one| one.headers_json().map(RawJson::as_str)), Type::TEXT_ARRAY),
                (&column(part, |one| &one.tenant_id), Type::VARCHAR_ARRAY),
                (&column(part, |one| &one.user_id), Type::VARCHAR_ARRAY),
                (&column(part, |one| &one.correlation_id), Type::VARCHAR_ARRAY),
                (&column(part, |one| &one.causation_id), Type::VARCHAR_ARRAY),
                (&column(part, |one| &one.source), Type::VARCHAR_ARRAY),
                (&column(part, |one| &one.ordering_key), Type::VARCHAR_ARRAY),
                (&column(part, |one| one.schema_version), Type::INT4_ARRAY),
                (&column(part, |one| one.copy), Type::INT4_ARRAY),
                (&column(part, |one| one.occurred_at), Type::TIMESTAMPTZ_ARRAY),
                (&column(part, |one| one.due_at), Type::TIMESTAMPTZ_ARRAY),
                (&column(part, |one| one.max_attempts), Type::INT4_ARRAY),
            ],
        )
        .await?;
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// The ids of the messages that the fence takes for the same as these, by place from 1.
async fn find(
    tx: &Transaction<'_>,
    messages: &[&NewMessage],
) -> Result<HashMap<i64, MessageId>, Error> {
    tx.batch_execute(BY_INDEX).await?;
    let messages = messages.iter().copied();
    let rows = tx
        .query_typed(
            ACCEPTED_BEFORE,
            &[
                (&column(messages.clone(), |one| &one.event_id), Type::VARCHAR_ARRAY),
                (&column(messages.clone(), NewMessage::stream_id), Type::VARCHAR_ARRAY),
                (&column(messages.clone(), |one| &one.integration), Type::VARCHAR_ARRAY),
                (&column(messages, |one| one.copy), Type::INT4_ARRAY),
            ],
        )
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, id(row, 1)?))).collect()
}

/// One column of many messages.
fn column<'a, T>(
    messages: impl IntoIterator<Item = &'a NewMessage>,
    value: impl Fn(&'a NewMessage) -> T,
) -> Vec<T> {
    messages.into_iter().map(value).collect()
}
