//! What operators do to messages.

use super::claims::json;
use super::error::store_error;
use super::prune::{PRUNABLE, PRUNABLE_DEAD, prune_dead, prune_sent};
use super::row::text as text_column;
use super::settle::others;
use super::time::{earlier, moment, now_ms, text};
use super::upkeep::count;
use super::{SqliteStore, statements};
use crate::prunable::by_status;
use async_trait::async_trait;
use postroom_core::{
    Action, ActionId, CANCELLED, Key, NewAction, Operate, REPLAY_HEADER, Status, StoreResult, Token,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _, SqliteConnection};
use std::time::Duration;
use uuid::Uuid;

/// `?1` now, `?2` actor, `?3` operation, `?4` target.
const BEGIN_ACTION: &str = "
    INSERT INTO outbox_action (at, actor, operation, target) VALUES (?1, ?2, ?3, ?4) RETURNING id";

/// `?1` below, `?2` rows.
const ACTIONS: &str = "
    SELECT id, at, actor, operation, target, messages FROM outbox_action
    WHERE id < ?1 ORDER BY id DESC LIMIT ?2";

/// `?1` action, `?2` messages.
const RECORD: &str = "UPDATE outbox_action SET messages = messages + ?2 WHERE id = ?1";

/// What is not dead any more. `?1` numbers, `?2` due.
const FREE_DEAD: &str = "
    UPDATE outbox_delivery SET dead = 0, failed = 0, rescues = 0, due_at = ?2
    WHERE seq IN (SELECT value FROM json_each(?1)) AND dead AND claim IS NULL
      AND EXISTS (SELECT 1 FROM integration_outbox AS m
                  WHERE m.seq = outbox_delivery.seq AND m.status = 'DEAD')
    RETURNING seq";

/// `?1` numbers, `?2` now, `?3` a fresh token.
const MARK_REDRIVEN: &str = "
    UPDATE integration_outbox
    SET status = 'PENDING', attempts = 0, due_at = ?2, updated_at = ?2, settled = ?3
    WHERE seq IN (SELECT value FROM json_each(?1))";

/// What waits no longer. `?1` numbers.
const BURY_WAITING: &str = "
    UPDATE outbox_delivery SET dead = 1, failed = 0, rescues = 0
    WHERE seq IN (SELECT value FROM json_each(?1)) AND NOT dead AND claim IS NULL
      AND EXISTS (SELECT 1 FROM integration_outbox AS m
                  WHERE m.seq = outbox_delivery.seq AND m.status IN ('PENDING', 'FAILED'))
    RETURNING seq";

/// `?1` numbers, `?2` now, `?3` a fresh token, `?4` error.
const MARK_CANCELLED: &str = "
    UPDATE integration_outbox
    SET status = 'DEAD', last_error = ?4, updated_at = ?2, settled = ?3
    WHERE seq IN (SELECT value FROM json_each(?1))";

/// What is held no longer. `?1` numbers.
const FREE_CLAIMED: &str = "
    UPDATE outbox_delivery SET claim = NULL
    WHERE seq IN (SELECT value FROM json_each(?1)) AND claim IS NOT NULL
      AND EXISTS (SELECT 1 FROM integration_outbox AS m WHERE m.seq = outbox_delivery.seq)
    RETURNING seq";

/// Of what is held. `?1` numbers, `?2` now, `?3` a fresh token.
const MARK_DUE: &str = "
    UPDATE integration_outbox SET due_at = ?2, updated_at = ?2, settled = ?3
    WHERE seq IN (SELECT value FROM json_each(?1)) AND status IN ('PENDING', 'FAILED')
      AND EXISTS (SELECT 1 FROM outbox_delivery AS d
                  WHERE d.seq = integration_outbox.seq AND d.claim IS NOT NULL)";

/// `?1` number, `?2` the new id, `?3` a fresh event id or null, `?4` now, `?5` the path of the
/// header that names the row it was made from, `?6` that row's id.
const REPLAY: &str = "
    INSERT INTO integration_outbox (
        id, source_stream_id, source_event_id, integration_type, event_type, payload, headers,
        tenant_id, user_id, correlation_id, causation_id, source, ordering_key,
        schema_version, copy, occurred_at, due_at, max_attempts
    )
    SELECT ?2, m.source_stream_id, coalesce(?3, m.source_event_id), m.integration_type,
           m.event_type, m.payload,
           json_set(CASE json_type(m.headers) WHEN 'object' THEN m.headers ELSE '{}' END, ?5, m.id),
           m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, m.ordering_key,
           m.schema_version,
           CASE WHEN ?3 IS NULL
                THEN (SELECT max(o.copy) + 1 FROM integration_outbox AS o
                      WHERE o.source_event_id = m.source_event_id
                        AND o.source_stream_id = m.source_stream_id
                        AND o.integration_type = m.integration_type)
                ELSE 0 END,
           m.occurred_at, ?4, m.max_attempts
    FROM integration_outbox AS m
    WHERE m.seq = ?1 AND m.id = ?6 AND m.status = 'SENT'
      -- Marked SENT by hand during an attempt: that attempt decides.
      AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d
                      WHERE d.seq = m.seq AND d.claim IS NOT NULL)";

#[async_trait]
impl Operate for SqliteStore {
    async fn begin_action(&self, action: &NewAction<'_>) -> StoreResult<ActionId> {
        let doing = "putting an operation on record";
        let mut tx = self.begin(doing).await?;
        let id = sqlx::query_scalar(BEGIN_ACTION)
            .bind(now_ms())
            .bind(action.actor)
            .bind(action.operation.as_str())
            .bind(action.target)
            .fetch_one(&mut *tx)
            .await
            .map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        Ok(ActionId(id))
    }

    async fn actions(&self, before: Option<ActionId>, limit: usize) -> StoreResult<Vec<Action>> {
        let doing = "reading the record of operations";
        let rows = sqlx::query(ACTIONS)
            .bind(before.map_or(i64::MAX, |action| action.0))
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        rows.iter().map(action).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
    }

    async fn note_action(&self, action: ActionId, messages: u64) -> StoreResult<()> {
        let doing = "adding to the record of an operation";
        self.recorded(doing, action, async |_| Ok(messages)).await.map(|_| ())
    }

    async fn redrive(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.recorded("redriving messages", action, async |tx| redrive(tx, keys).await).await
    }

    async fn replay(
        &self,
        action: ActionId,
        keys: &[Key],
        fresh_ids: bool,
    ) -> StoreResult<Vec<Uuid>> {
        let mut made = Vec::new();
        self.recorded("replaying messages", action, async |tx| {
            made = replay(tx, keys, fresh_ids).await?;
            Ok(made.len() as u64)
        })
        .await?;
        Ok(made)
    }

    async fn release(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.recorded("releasing messages", action, async |tx| release(tx, keys).await).await
    }

    async fn cancel(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.recorded("cancelling messages", action, async |tx| cancel(tx, keys).await).await
    }

    async fn prune_on_record(
        &self,
        action: ActionId,
        status: Status,
        older_than: Duration,
        limit: usize,
    ) -> StoreResult<u64> {
        let is_dead = by_status(status, false, true)?;
        let before = text(earlier(now_ms(), older_than));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.recorded("pruning", action, async |tx| {
            if is_dead {
                prune_dead(tx, &before, limit).await
            } else {
                prune_sent(tx, &before, limit).await
            }
        })
        .await
    }

    async fn prunable(&self, status: Status, older_than: Duration) -> StoreResult<u64> {
        let doing = "counting what can be pruned";
        let row = sqlx::query(by_status(status, PRUNABLE, PRUNABLE_DEAD)?)
            .bind(text(earlier(now_ms(), older_than)))
            .fetch_one(&self.readers)
            .await
            .map_err(|e| store_error(doing, e))?;
        count(&row, 0).map_err(|e| store_error(doing, e))
    }
}

impl SqliteStore {
    /// Changes messages and adds their number to the record, in one transaction.
    async fn recorded(
        &self,
        doing: &str,
        action: ActionId,
        change: impl AsyncFnOnce(&mut SqliteConnection) -> Result<u64, Error>,
    ) -> StoreResult<u64> {
        let mut tx = self.begin(doing).await?;
        let changed = change(&mut tx).await.map_err(|e| store_error(doing, e))?;
        sqlx::query(RECORD)
            .bind(action.0)
            .bind(i64::try_from(changed).unwrap_or(i64::MAX))
            .execute(&mut *tx)
            .await
            .map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        Ok(changed)
    }
}

/// The numbers of messages that are still the ones that were meant.
async fn numbers(tx: &mut SqliteConnection, keys: &[Key]) -> Result<String, Error> {
    let others = others(tx, keys.iter().map(|key| (key.seq, key.id))).await?;
    let seqs = keys.iter().map(|key| key.seq).filter(|seq| !others.contains(seq));
    Ok(json(&seqs.collect::<Vec<_>>()))
}

async fn redrive(tx: &mut SqliteConnection, keys: &[Key]) -> Result<u64, Error> {
    let now = now_ms();
    let numbers = numbers(tx, keys).await?;
    let freed: Vec<i64> =
        sqlx::query_scalar(FREE_DEAD).bind(numbers).bind(now).fetch_all(&mut *tx).await?;
    sqlx::query(MARK_REDRIVEN)
        .bind(json(&freed))
        .bind(text(now))
        .bind(Token::random().0.to_string())
        .execute(&mut *tx)
        .await?;
    Ok(freed.len() as u64)
}

async fn cancel(tx: &mut SqliteConnection, keys: &[Key]) -> Result<u64, Error> {
    let numbers = numbers(tx, keys).await?;
    let buried: Vec<i64> =
        sqlx::query_scalar(BURY_WAITING).bind(numbers).fetch_all(&mut *tx).await?;
    sqlx::query(MARK_CANCELLED)
        .bind(json(&buried))
        .bind(text(now_ms()))
        .bind(Token::random().0.to_string())
        .bind(CANCELLED)
        .execute(&mut *tx)
        .await?;
    Ok(buried.len() as u64)
}

async fn release(tx: &mut SqliteConnection, keys: &[Key]) -> Result<u64, Error> {
    let numbers = numbers(tx, keys).await?;
    // While they are held: the trigger would follow it otherwise, as a change by hand.
    sqlx::query(MARK_DUE)
        .bind(&numbers)
        .bind(text(now_ms()))
        .bind(Token::random().0.to_string())
        .execute(&mut *tx)
        .await?;
    let freed: Vec<i64> =
        sqlx::query_scalar(FREE_CLAIMED).bind(numbers).fetch_all(&mut *tx).await?;
    sqlx::query(statements::FOLLOW).bind(json(&freed)).execute(&mut *tx).await?;
    Ok(freed.len() as u64)
}

/// One by one, so that each finds the copies that the ones before have made.
async fn replay(
    tx: &mut SqliteConnection,
    keys: &[Key],
    fresh_ids: bool,
) -> Result<Vec<Uuid>, Error> {
    let mut keys = keys.to_vec();
    keys.sort_unstable_by_key(|key| key.seq);
    let header = format!("$.\"{REPLAY_HEADER}\"");
    let mut made = Vec::new();
    for key in keys {
        let id = Uuid::now_v7();
        let written = sqlx::query(REPLAY)
            .bind(key.seq)
            .bind(id.to_string())
            .bind(fresh_ids.then(|| Uuid::now_v7().to_string()))
            .bind(text(now_ms()))
            .bind(&header)
            .bind(key.id.to_string())
            .execute(&mut *tx)
            .await?;
        if written.rows_affected() == 1 {
            made.push(id);
        }
    }
    Ok(made)
}

fn action(row: &SqliteRow) -> Result<Action, Error> {
    Ok(Action {
        id: row.try_get(0)?,
        at: moment(row.try_get(1)?),
        actor: text_column(row, 2)?,
        operation: text_column(row, 3)?,
        target: text_column(row, 4)?,
        messages: count(row, 5)?,
    })
}
