//! Deleting what is old.

use super::claims::json;
use super::{attempts, statements};
use crate::round::Round;
use sqlx::{Error, SqliteConnection};

/// Dead messages whose state last changed before. `?1` before, `?2` rows.
const OLD_DEAD: &str = "
    SELECT d.seq FROM outbox_delivery AS d INDEXED BY outbox_delivery_dead
    CROSS JOIN integration_outbox AS m ON m.seq = d.seq
    WHERE d.dead AND d.claim IS NULL AND m.status = 'DEAD'
      AND julianday(m.updated_at) < julianday(?1)
    ORDER BY d.seq LIMIT ?2";

/// `?1` numbers.
const DELETE_DELIVERIES: &str =
    "DELETE FROM outbox_delivery WHERE seq IN (SELECT value FROM json_each(?1))";

/// `?1` before.
pub(super) const PRUNABLE: &str = "
    SELECT count(*) FROM integration_outbox INDEXED BY outbox_sent
    WHERE status = 'SENT' AND coalesce(sent_at, created_at) < ?1
      AND julianday(coalesce(sent_at, created_at)) < julianday(?1)";

/// `?1` before.
pub(super) const PRUNABLE_DEAD: &str = "
    SELECT count(*) FROM outbox_delivery AS d INDEXED BY outbox_delivery_dead
    CROSS JOIN integration_outbox AS m ON m.seq = d.seq
    WHERE d.dead AND d.claim IS NULL AND m.status = 'DEAD'
      AND julianday(m.updated_at) < julianday(?1)";

/// Deletes SENT messages from before, with their attempts.
pub(super) async fn prune_sent(
    tx: &mut SqliteConnection,
    before: &str,
    limit: i64,
) -> Result<u64, Error> {
    let gone: Vec<i64> =
        sqlx::query_scalar(statements::PRUNE).bind(before).bind(limit).fetch_all(&mut *tx).await?;
    attempts::forget(tx, &gone).await?;
    Ok(gone.len() as u64)
}

/// Deletes DEAD messages from before, with all they have.
pub(super) async fn prune_dead(
    tx: &mut SqliteConnection,
    before: &str,
    limit: i64,
) -> Result<u64, Error> {
    let old: Vec<i64> =
        sqlx::query_scalar(OLD_DEAD).bind(before).bind(limit).fetch_all(&mut *tx).await?;
    sqlx::query(DELETE_DELIVERIES).bind(json(&old)).execute(&mut *tx).await?;
    sqlx::query(statements::DELETE_MESSAGES).bind(json(&old)).execute(&mut *tx).await?;
    attempts::forget(tx, &old).await?;
    Ok(old.len() as u64)
}

/// Deletes dead deliveries whose message was deleted by hand: no claim ever comes by to find them.
/// Looks at no more than `deliveries` dead ones, and goes on there the next time.
pub(super) async fn prune_orphans(
    tx: &mut SqliteConnection,
    looked_through: &Round,
    deliveries: i64,
) -> Result<(), Error> {
    let seen: Vec<i64> = sqlx::query_scalar(statements::DEAD)
        .bind(looked_through.after())
        .bind(deliveries)
        .fetch_all(&mut *tx)
        .await?;
    sqlx::query(statements::PRUNE_ORPHANS).bind(json(&seen)).execute(&mut *tx).await?;
    looked_through.note(&seen);
    Ok(())
}
