//! What operators do to messages.

use super::PgStore;
use super::error::store_error;
use super::ids::{as_ids, id};
use super::locks::{REPLAY as REPLAY_LOCK, operation_error};
use super::parcels::{Edits, Step, one_by_one};
use super::transaction::{BEGIN_DURABLE, JOIN_BY_HASH, transact};
use super::upkeep::{PRUNE, count};
use crate::prunable::by_status;
use async_trait::async_trait;
use postroom_core::{
    Action, ActionId, Key, MessageId, NewAction, Operate, REPLAY_HEADER, Status, StoreResult, Token,
};
use std::time::Duration;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

const BEGIN_ACTION: &str = "INSERT INTO core_outbox.action (actor, operation, target) \
                            VALUES ($1, $2, $3) RETURNING id";
const NOTE_ACTION: &str = "UPDATE core_outbox.action SET messages = messages + $2 WHERE id = $1";
const ACTIONS: &str = "SELECT id, at, actor, operation, target, messages FROM core_outbox.action \
                       WHERE id < $1 ORDER BY id DESC LIMIT $2";

/// An operation's statement: what it changes, its record, and how many that were.
macro_rules! recorded {
    ($file:literal, $answer:literal) => {
        concat!(include_str!($file), include_str!("sql/record_action.sql"), $answer)
    };
}

const REDRIVE: &str = recorded!("sql/redrive.sql", "SELECT count(*) FROM changed");
const CANCEL: &str = recorded!("sql/cancel.sql", "SELECT count(*) FROM changed");
const RELEASE: &str = recorded!("sql/release.sql", "SELECT count(*) FROM changed");
const REPLAY: &str = recorded!("sql/replay.sql", "SELECT id FROM changed");
pub(super) const REPLAY_ROW: &str = recorded!("sql/replay_row.sql", "SELECT id FROM changed");
const PRUNE_DEAD: &str = recorded!("sql/prune_dead.sql", "SELECT count(*) FROM changed");
/// A lane that no relay has served has no cursor, and could not be locked. $1 ids. As in `parcels.rs`.
const MAKE_CURSORS_OF: &str = concat!(
    "INSERT INTO core_outbox.lane_cursor (lane) SELECT lane FROM (
         SELECT DISTINCT core_outbox.lane_of(integration_type) AS lane
         FROM core_outbox.integration_outbox WHERE id = ANY ($1)
     ) AS named ",
    super::parcels::that_have_parcels!()
);
const LOCK_LANES_OF: &str = include_str!("sql/lock_lanes_of.sql");
/// Gives fresh messages their delivery. $1 ids.
const UNPACK_FIRST: &str = concat!(
    include_str!("sql/unpack_of.sql"),
    include_str!("sql/made_of_parcels.sql"),
    "SELECT count(*) FROM gone"
);
const LOCK_CLAIMS_OF: &str = include_str!("sql/lock_claims_of.sql");
const PRUNABLE: &str = include_str!("sql/prunable.sql");
const PRUNABLE_DEAD: &str = include_str!("sql/prunable_dead.sql");

/// Who may hold what an operation waits for.
const OPEN_TRANSACTION: &str = "a transaction that has changed one of these messages and is still \
                                open, or one that locks the outbox's tables";
const ANOTHER_REPLAY: &str = "another `postroom messages replay`, a transaction that has changed \
                              one of these messages and is still open, or one that locks the \
                              outbox's tables";

#[async_trait]
impl Operate for PgStore {
    async fn begin_action(&self, action: &NewAction<'_>) -> StoreResult<ActionId> {
        let doing = "putting an operation on record";
        let client = self.connection().await?;
        let NewAction { actor, operation, target } = action;
        let row = client
            .query_one(BEGIN_ACTION, &[actor, &operation.as_str(), target])
            .await
            .map_err(|e| store_error(doing, e))?;
        row.try_get(0).map(ActionId).map_err(|e| store_error(doing, e))
    }

    async fn actions(&self, before: Option<ActionId>, limit: usize) -> StoreResult<Vec<Action>> {
        let doing = "reading the record of operations";
        let client = self.connection().await?;
        let before = before.map_or(i64::MAX, |action| action.0);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows =
            client.query(ACTIONS, &[&before, &limit]).await.map_err(|e| store_error(doing, e))?;
        rows.iter().map(action).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
    }

    async fn note_action(&self, action: ActionId, messages: u64) -> StoreResult<()> {
        let client = self.connection().await?;
        let messages = i64::try_from(messages).unwrap_or(i64::MAX);
        client
            .execute(NOTE_ACTION, &[&action.0, &messages])
            .await
            .map(|_| ())
            .map_err(|e| store_error("adding to the record of an operation", e))
    }

    async fn redrive(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.change("redriving messages", &[], REDRIVE, action, keys).await
    }

    async fn replay(
        &self,
        action: ActionId,
        keys: &[Key],
        fresh_ids: bool,
    ) -> StoreResult<Vec<MessageId>> {
        let doing = "replaying messages";
        let ids = as_ids(keys.iter().map(|key| &key.id));
        // They may have been delivered and not say so yet.
        self.record(Duration::ZERO, usize::MAX, Some(&ids)).await?;
        let client = self.connection().await?;
        if let Some(foreign) = client.foreign() {
            foreign.refuse_replay(fresh_ids)?;
            let statement =
                client.prepare_cached(REPLAY_ROW).await.map_err(|e| store_error(doing, e))?;
            let params: [&(dyn ToSql + Sync); 3] = [&ids, &Token::random().0, &action.0];
            let rows = transact(&client, BEGIN_DURABLE, &statement, &params)
                .await
                .map_err(|e| operation_error(doing, ANOTHER_REPLAY, e))?;
            return replayed(&rows).map_err(|e| store_error(doing, e));
        }
        let statement = client.prepare_cached(REPLAY).await.map_err(|e| store_error(doing, e))?;
        // The lock is a statement of its own: what it waited for is seen by the next one.
        let begin = format!("{BEGIN_DURABLE}; SELECT pg_advisory_xact_lock({REPLAY_LOCK})");
        let params: [&(dyn ToSql + Sync); 4] = [&ids, &fresh_ids, &action.0, &REPLAY_HEADER];
        let rows = transact(&client, &begin, &statement, &params)
            .await
            .map_err(|e| operation_error(doing, ANOTHER_REPLAY, e))?;
        replayed(&rows).map_err(|e| store_error(doing, e))
    }

    async fn release(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        self.change("releasing messages", &[LOCK_CLAIMS_OF], RELEASE, action, keys).await
    }

    async fn cancel(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        let doing = "cancelling messages";
        self.poll().await?;
        let ids = as_ids(keys.iter().map(|key| &key.id));
        let client = self.connection().await?;
        // A message that was sent elsewhere by hand is still in a parcel of its old lane.
        self.follow_any_edits(&client, Edits::OfMessages(&ids), Duration::MAX)
            .await
            .map_err(|e| store_error(doing, e))?;
        drop(client);
        let first = [MAKE_CURSORS_OF, LOCK_LANES_OF, UNPACK_FIRST];
        self.change(doing, &first, CANCEL, action, keys).await
    }

    async fn prune_on_record(
        &self,
        action: ActionId,
        status: Status,
        older_than: Duration,
        limit: usize,
    ) -> StoreResult<u64> {
        let doing = "pruning";
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let age = older_than.as_secs_f64();
        let is_dead = by_status(status, false, true)?;
        if is_dead {
            return self.counted(doing, PRUNE_DEAD, &[&age, &limit, &action.0]).await;
        }
        let failed = |error| operation_error(doing, OPEN_TRANSACTION, error);
        let mut client = self.connection().await?;
        let tx = client.transaction().await.map_err(failed)?;
        let pruned = async {
            let row = tx.query_one(PRUNE, &[&age, &limit, &self.remembered()]).await?;
            tx.execute(NOTE_ACTION, &[&action.0, &row.try_get::<_, i64>(0)?]).await?;
            count(&row, 0)
        };
        let pruned = pruned.await.map_err(failed);
        tx.end(doing, pruned).await
    }

    async fn prunable(&self, status: Status, older_than: Duration) -> StoreResult<u64> {
        let sql = by_status(status, PRUNABLE, PRUNABLE_DEAD)?;
        self.counted("counting what can be pruned", sql, &[&older_than.as_secs_f64()]).await
    }
}

impl PgStore {
    /// Changes the messages that are in the state the operation expects, after statements that take their
    /// ids. Waits for the disk: what an operator is told has happened.
    async fn change(
        &self,
        doing: &str,
        first: &[&str],
        sql: &str,
        action: ActionId,
        keys: &[Key],
    ) -> StoreResult<u64> {
        let ids = as_ids(keys.iter().map(|key| &key.id));
        let client = self.connection().await?;
        let begin = format!("{BEGIN_DURABLE}; {JOIN_BY_HASH}");
        let params: [&(dyn ToSql + Sync); 3] = [&ids, &Token::random().0, &action.0];
        let only_ids: [&(dyn ToSql + Sync); 1] = [&ids];
        let mut steps: Vec<Step<'_>> = first.iter().map(|sql| (*sql, &only_ids[..])).collect();
        steps.push((sql, &params));
        let rows = one_by_one(&client, &begin, &steps)
            .await
            .map_err(|e| operation_error(doing, OPEN_TRANSACTION, e))?;
        rows.first().map_or(Ok(0), |row| count(row, 0)).map_err(|e| store_error(doing, e))
    }

    async fn counted(
        &self,
        doing: &str,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> StoreResult<u64> {
        let client = self.connection().await?;
        let row = client
            .query_one(sql, params)
            .await
            .map_err(|e| operation_error(doing, OPEN_TRANSACTION, e))?;
        count(&row, 0).map_err(|e| store_error(doing, e))
    }
}

fn replayed(rows: &[Row]) -> Result<Vec<MessageId>, Error> {
    rows.iter().map(|row| id(row, 0)).collect()
}

fn action(row: &Row) -> Result<Action, Error> {
    Ok(Action {
        id: row.try_get(0)?,
        at: row.try_get(1)?,
        actor: row.try_get(2)?,
        operation: row.try_get(3)?,
        target: row.try_get(4)?,
        messages: count(row, 5)?,
    })
}
