//! What operators do to messages.

use super::SqliteStore;
use super::error::store_error;
use super::json_lists::{ids, json, json_ids};
use super::parcels::{self, FOLLOW, InFlight, Parcel};
use super::prune::{PRUNABLE, PRUNABLE_DEAD, prune_dead, prune_sent};
use super::reconcile::SECONDS_UNTIL_2020;
use super::row::text as text_column;
use super::session::Session;
use super::time::{earlier, moment, now_ms, text};
use super::upkeep::count;
use crate::prunable::by_status;
use async_trait::async_trait;
use postroom_core::{
    Action, ActionId, CANCELLED, Key, MessageId, NewAction, Operate, REPLAY_HEADER, Status,
    StoreResult, Token,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};
use std::collections::HashSet;
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

pub(super) const REDRIVE: &str = include_str!("sql/redrive.sql");
const MARK_REDRIVEN: &str = include_str!("sql/mark_redriven.sql");
pub(super) const CANCEL: &str = include_str!("sql/cancel.sql");
const MARK_CANCELLED: &str = include_str!("sql/mark_cancelled.sql");
const HELD_OF: &str = include_str!("sql/held_of.sql");
const CLAIMED_OF: &str = include_str!("sql/claimed_of.sql");
const RELEASE: &str = include_str!("sql/release.sql");
const MARK_DUE: &str = include_str!("sql/mark_due.sql");
const REPLAY: &str = include_str!("sql/replay.sql");
const REPLAY_ROW: &str = include_str!("sql/replay_row.sql");

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
            .fetch_one(&mut tx)
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
    ) -> StoreResult<Vec<MessageId>> {
        let layout = self.readers.lookup.layout();
        if let Some(layout) = layout {
            layout.refuse_replay(fresh_ids)?;
        }
        let mut made = Vec::new();
        self.recorded("replaying messages", action, async |tx| {
            made = match layout {
                Some(_) => replay_rows(tx, keys).await?,
                None => replay(tx, keys, fresh_ids).await?,
            };
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
        let before = earlier(now_ms(), older_than);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.recorded("pruning", action, async |tx| {
            if is_dead {
                prune_dead(tx, &text(before), limit).await
            } else {
                prune_sent(tx, before, limit, self.history.remember_events).await
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
        change: impl AsyncFnOnce(&mut Session) -> Result<u64, Error>,
    ) -> StoreResult<u64> {
        let mut tx = self.begin(doing).await?;
        let changed = change(&mut tx).await.map_err(|e| store_error(doing, e))?;
        sqlx::query(RECORD)
            .bind(action.0)
            .bind(i64::try_from(changed).unwrap_or(i64::MAX))
            .execute(&mut tx)
            .await
            .map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        Ok(changed)
    }
}

/// The messages that an operation names, as statements take them. A number that comes again is another
/// message's, so only the ids count.
fn ids_of(keys: &[Key]) -> String {
    json_ids(keys.iter().map(|key| &key.id))
}

async fn redrive(tx: &mut Session, keys: &[Key]) -> Result<u64, Error> {
    let now = now_ms();
    let freed = sqlx::query(REDRIVE).bind(ids_of(keys)).bind(now).fetch_all(&mut *tx).await?;
    mark_redriven(tx, &ids(&freed)?, now).await?;
    Ok(freed.len() as u64)
}

/// Opens messages whose deliveries say already that they wait.
async fn mark_redriven(tx: &mut Session, opened: &[MessageId], now: i64) -> Result<(), Error> {
    sqlx::query(MARK_REDRIVEN)
        .bind(json_ids(opened))
        .bind(text(now))
        .bind(Token::random().0.to_string())
        .execute(tx)
        .await?;
    Ok(())
}

async fn cancel(tx: &mut Session, keys: &[Key]) -> Result<u64, Error> {
    let named = ids_of(keys);
    parcels::unpack_of(tx, &named).await?;
    let buried = sqlx::query(CANCEL).bind(named).fetch_all(&mut *tx).await?;
    sqlx::query(MARK_CANCELLED)
        .bind(json_ids(&ids(&buried)?))
        .bind(text(now_ms()))
        .bind(Token::random().0.to_string())
        .bind(CANCELLED)
        .execute(&mut *tx)
        .await?;
    Ok(buried.len() as u64)
}

/// Takes messages from their relays. Of a claim on deliveries only the delivery's own is cleared, of one on
/// parcels the message gets a delivery for its parcel: the rest of the batch stays held.
async fn release(tx: &mut Session, keys: &[Key]) -> Result<u64, Error> {
    let wanted: HashSet<String> = keys.iter().map(|key| key.id.to_string()).collect();
    let in_flight = InFlight::read(tx).await?;
    let fresh: Vec<Parcel> =
        in_flight.parcels().filter(|parcel| wanted.contains(&parcel.id)).cloned().collect();
    let fresh = sqlx::query(HELD_OF).bind(parcels::to_json(&fresh)).fetch_all(&mut *tx).await?;
    let fresh = fresh.iter().map(Parcel::of).collect::<Result<Vec<_>, _>>()?;
    let held = sqlx::query(CLAIMED_OF).bind(ids_of(keys)).fetch_all(&mut *tx).await?;
    let mut all: Vec<String> =
        held.iter().map(|row| text_column(row, 0)).collect::<Result<_, _>>()?;
    all.extend(fresh.iter().map(|parcel| parcel.id.clone()));
    // While they are held: the trigger would follow it otherwise, as a change by hand.
    sqlx::query(MARK_DUE)
        .bind(json(&all))
        .bind(text(now_ms()))
        .bind(Token::random().0.to_string())
        .execute(&mut *tx)
        .await?;
    let freed = sqlx::query(RELEASE).bind(ids_of(keys)).fetch_all(&mut *tx).await?;
    sqlx::query(FOLLOW).bind(json_ids(&ids(&freed)?)).execute(&mut *tx).await?;
    let made = parcels::unpack(tx, &fresh).await?;
    Ok(freed.len() as u64 + made)
}

/// One by one, so that each finds the copies that the ones before have made.
async fn replay(tx: &mut Session, keys: &[Key], fresh_ids: bool) -> Result<Vec<MessageId>, Error> {
    let mut keys = keys.to_vec();
    keys.sort_unstable_by_key(|key| key.seq);
    let header = format!("$.\"{REPLAY_HEADER}\"");
    let mut made = Vec::new();
    for key in keys {
        let id = Uuid::now_v7();
        let written = sqlx::query(REPLAY)
            .bind(key.id.to_string())
            .bind(id.to_string())
            .bind(fresh_ids.then(|| Uuid::now_v7().to_string()))
            .bind(text(now_ms()))
            .bind(&header)
            .execute(&mut *tx)
            .await?;
        if written.rows_affected() == 1 {
            made.push(id.into());
        }
    }
    Ok(made)
}

/// Opens sent rows again: a table that somebody else made gets no copies.
async fn replay_rows(tx: &mut Session, keys: &[Key]) -> Result<Vec<MessageId>, Error> {
    let now = now_ms();
    let made = sqlx::query(REPLAY_ROW)
        .bind(ids_of(keys))
        .bind(now)
        .bind(now / 1_000 - SECONDS_UNTIL_2020)
        .fetch_all(&mut *tx)
        .await?;
    let made = ids(&made)?;
    mark_redriven(tx, &made, now).await?;
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
