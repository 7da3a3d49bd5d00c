//! What operators do to messages. Lock order: delivery, message, record.

use super::claims::literal;
use super::error::store_error;
use super::follow::follow;
use super::reconcile::FEED;
use super::replay::replay;
use super::upkeep::{before, delete_messages};
use super::version::Locking;
use super::{LIST, MySqlStore, delete, execute, fetch, list, now, row};
use crate::prunable::by_status;
use async_trait::async_trait;
use postroom_core::{
    Action, ActionId, CANCELLED, Key, NewAction, Operate, Status, StoreErrorKind, StoreResult,
    Token,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Error, MySqlConnection, Row as _};
use std::collections::HashSet;
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// How often an operation that lost to a concurrent transaction is tried, unless it waited this long
/// for a lock: somebody keeps that, and the operator should know.
const TRIES: usize = 10;
const WAIT_LONG: Duration = Duration::from_secs(1);

#[async_trait]
impl Operate for MySqlStore {
    async fn begin_action(&self, action: &NewAction<'_>) -> StoreResult<ActionId> {
        let inserted =
            sqlx::query("INSERT INTO outbox_action (actor, operation, target) VALUES (?, ?, ?)")
                .bind(action.actor)
                .bind(action.operation.as_str())
                .bind(action.target)
                .execute(&self.pool)
                .await
                .map_err(|e| store_error("putting an operation on record", e))?;
        Ok(ActionId(i64::try_from(inserted.last_insert_id()).unwrap_or(i64::MAX)))
    }

    async fn actions(&self, before: Option<ActionId>, limit: usize) -> StoreResult<Vec<Action>> {
        sqlx::query(
            "SELECT id, at, actor, operation, target, messages FROM outbox_action \
             WHERE id < ? ORDER BY id DESC LIMIT ?",
        )
        .bind(before.map_or(i64::MAX, |before| before.0))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(&self.pool)
        .await
        .and_then(|rows| rows.iter().map(action).collect())
        .map_err(|e| store_error("reading the record of operations", e))
    }

    async fn note_action(&self, action: ActionId, messages: u64) -> StoreResult<()> {
        let doing = "adding to the record of an operation";
        let mut connection = self.pool.acquire().await.map_err(|e| store_error(doing, e))?;
        let messages = usize::try_from(messages).unwrap_or(usize::MAX);
        note(&mut connection, action, messages).await.map_err(|e| store_error(doing, e))
    }

    async fn redrive(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        let set = "status = 'PENDING', attempts = 0, due_at = {now}";
        again("redriving", || self.reset(action, keys, "status = 'DEAD'", set)).await
    }

    async fn replay(
        &self,
        action: ActionId,
        keys: &[Key],
        fresh_ids: bool,
    ) -> StoreResult<Vec<Uuid>> {
        again("replaying", || async move {
            let mut tx = self.begin().await?;
            let copies = replay(&mut tx, keys, fresh_ids).await?;
            note(&mut tx, action, copies.len()).await?;
            tx.commit().await?;
            Ok(copies)
        })
        .await
    }

    async fn release(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        again("releasing", || self.release_claimed(action, keys)).await
    }

    async fn cancel(&self, action: ActionId, keys: &[Key]) -> StoreResult<u64> {
        let set = format!("status = 'DEAD', last_error = '{CANCELLED}'");
        let open = "status IN ('PENDING', 'FAILED')";
        again("cancelling", || self.reset(action, keys, open, &set)).await
    }

    async fn prune_on_record(
        &self,
        action: ActionId,
        status: Status,
        older_than: Duration,
        limit: usize,
    ) -> StoreResult<u64> {
        let old = old(status, older_than)?;
        again("pruning", || self.prune_old(action, &old, limit)).await
    }

    async fn prunable(&self, status: Status, older_than: Duration) -> StoreResult<u64> {
        let sql = format!(
            "SELECT COUNT(*) FROM integration_outbox FORCE INDEX (outbox_created) WHERE {}",
            old(status, older_than)?
        );
        sqlx::query(AssertSqlSafe(sql))
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row::count(&row, 0))
            .map_err(|e| store_error("counting what can be pruned", e))
    }
}

/// What became SENT or DEAD more than that long ago.
fn old(status: Status, older_than: Duration) -> StoreResult<String> {
    let since = by_status(status, "COALESCE(sent_at, created_at)", "updated_at")?;
    let before = before(older_than);
    Ok(format!("created_at < {before} AND status = '{status}' AND {since} < {before}"))
}

impl MySqlStore {
    /// Gives messages that nobody holds, and that are as `state` says, a new state, and a delivery
    /// that says the same.
    async fn reset(
        &self,
        action: ActionId,
        keys: &[Key],
        state: &str,
        set: &str,
    ) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let at = now(&mut tx).await?;
        let set = set.replace("{now}", &format!("'{at}'"));
        let mut count = 0;
        for part in keys.chunks(LIST) {
            let seqs = lock(&mut tx, part, Hold::Free, state).await?;
            let chosen = list(&seqs);
            let sql = format!(
                "UPDATE integration_outbox FORCE INDEX (PRIMARY) SET {set}, updated_at = '{at}', settled = {} \
                 WHERE seq IN ({chosen})",
                literal(Token::random())
            );
            execute(&mut tx, sql).await?;
            // In place: its number of dispatches stays.
            let sql = format!(
                "UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET rescues = 0 \
                 WHERE seq IN ({chosen})"
            );
            execute(&mut tx, sql).await?;
            follow(&mut tx, &seqs, Locking::Wait).await?;
            execute(&mut tx, format!("{FEED} IN ({chosen})")).await?;
            count += seqs.len();
        }
        note(&mut tx, action, count).await?;
        tx.commit().await?;
        Ok(count as u64)
    }

    /// Takes claims away; the delivery follows what was changed by hand meanwhile. A claim that is
    /// left empty goes with its batch, or when it expires.
    async fn release_claimed(&self, action: ActionId, keys: &[Key]) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let at = now(&mut tx).await?;
        let mut count = 0;
        for part in keys.chunks(LIST) {
            let seqs = lock(&mut tx, part, Hold::Claimed, "TRUE").await?;
            let chosen = list(&seqs);
            let sql = format!(
                "UPDATE integration_outbox FORCE INDEX (PRIMARY) \
                 SET due_at = '{at}', updated_at = '{at}', settled = {} \
                 WHERE seq IN ({chosen}) AND status IN ('PENDING', 'FAILED')",
                literal(Token::random())
            );
            execute(&mut tx, sql).await?;
            let sql = format!(
                "UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET claim = NULL \
                 WHERE seq IN ({chosen})"
            );
            execute(&mut tx, sql).await?;
            follow(&mut tx, &seqs, Locking::Wait).await?;
            count += seqs.len();
        }
        note(&mut tx, action, count).await?;
        tx.commit().await?;
        Ok(count as u64)
    }

    /// Deletes messages for which `old` holds, as long as nobody holds them.
    async fn prune_old(&self, action: ActionId, old: &str, limit: usize) -> Result<u64, Error> {
        let mut tx = self.begin().await?;
        let sql = format!(
            "SELECT seq, id FROM integration_outbox FORCE INDEX (outbox_created) \
             WHERE {old} LIMIT {limit}"
        );
        let mut found = Vec::new();
        for row in fetch(&mut tx, sql).await? {
            found.push(Key { seq: row.try_get(0)?, id: row.try_get::<Hyphenated, _>(1)?.into() });
        }
        let mut count = 0;
        for part in found.chunks(LIST) {
            let seqs = lock(&mut tx, part, Hold::Free, old).await?;
            delete(&mut tx, "outbox_delivery", &seqs).await?;
            delete_messages(&mut tx, &seqs).await?;
            count += seqs.len();
        }
        note(&mut tx, action, count).await?;
        tx.commit().await?;
        Ok(count as u64)
    }
}

/// Whether a relay holds a message.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Hold {
    /// Nobody does; there may be no delivery at all.
    Free,
    /// One does.
    Claimed,
}

/// Locks the messages among `keys` that are held as `hold` says and are as `state` says.
async fn lock(
    tx: &mut MySqlConnection,
    keys: &[Key],
    hold: Hold,
    state: &str,
) -> Result<Vec<i64>, Error> {
    let seqs = list(&keys.iter().map(|key| key.seq).collect::<Vec<_>>());
    let sql = format!(
        "SELECT seq, claim IS NOT NULL FROM outbox_delivery FORCE INDEX (PRIMARY) \
         WHERE seq IN ({seqs}) FOR UPDATE"
    );
    let mut claimed = HashSet::new();
    for row in fetch(tx, sql).await? {
        if row.try_get(1)? {
            claimed.insert(row.try_get::<i64, _>(0)?);
        }
    }
    let sql = format!(
        "SELECT seq, id FROM integration_outbox FORCE INDEX (PRIMARY) \
         WHERE seq IN ({seqs}) AND {state} FOR UPDATE"
    );
    let mut locked = Vec::new();
    for row in fetch(tx, sql).await? {
        let key = Key { seq: row.try_get(0)?, id: row.try_get::<Hyphenated, _>(1)?.into() };
        let is_claimed = claimed.contains(&key.seq);
        if keys.contains(&key) && is_claimed == (hold == Hold::Claimed) {
            locked.push(key.seq);
        }
    }
    Ok(locked)
}

/// Adds to the record of an operation, in the transaction that changed the messages.
async fn note(tx: &mut MySqlConnection, action: ActionId, count: usize) -> Result<(), Error> {
    let sql =
        format!("UPDATE outbox_action SET messages = messages + {count} WHERE id = {}", action.0);
    execute(tx, sql).await.map(|_| ())
}

/// Tries a transaction again when it was lost to a concurrent one: nothing of it remains.
async fn again<T, W: Future<Output = Result<T, Error>> + Send>(
    doing: &str,
    work: impl Fn() -> W + Send + Sync,
) -> StoreResult<T> {
    let mut tries = 1;
    loop {
        let began = Instant::now();
        let error = match work().await {
            Ok(value) => return Ok(value),
            Err(error) => store_error(doing, error),
        };
        let waited = began.elapsed() >= WAIT_LONG;
        if error.kind != StoreErrorKind::Conflict || tries == TRIES || waited {
            return Err(error);
        }
        tries += 1;
    }
}

fn action(row: &MySqlRow) -> Result<Action, Error> {
    Ok(Action {
        id: row.try_get(0)?,
        at: row::time(row, 1)?,
        actor: row.try_get(2)?,
        operation: row.try_get(3)?,
        target: row.try_get(4)?,
        messages: row.try_get(5)?,
    })
}
