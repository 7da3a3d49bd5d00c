//! Deliveries that nobody holds any more follow what was changed by hand meanwhile.

use super::version::Locking;
use super::{LIST, fetch, list, numbers};
use chrono::NaiveDateTime;
use sqlx::{Error, MySqlConnection, Row as _};

/// Whether a delivery `d` says something else than its message `m`.
macro_rules! unlike {
    () => {
        "(m.due_at <> d.due_at OR m.integration_type <> d.integration \
          OR d.failed <> (m.status = 'FAILED') OR d.dead <> (m.status = 'DEAD'))"
    };
}
pub(super) use unlike;

/// Makes deliveries say what their messages say, and counts those that did not. The messages are
/// locked first, so that a change that is being made is waited for, or passed over by who asks for
/// that. Read and then written: an UPDATE with a join would lock every message of the list again.
pub(super) async fn follow(
    tx: &mut MySqlConnection,
    seqs: &[i64],
    locking: Locking,
) -> Result<u64, Error> {
    let mut followed = 0;
    for part in seqs.chunks(LIST) {
        let part = &lock_messages(tx, part, locking).await?;
        let sql = format!(
            "SELECT d.seq, m.due_at, m.integration_type, m.status \
             FROM outbox_delivery AS d FORCE INDEX (PRIMARY) \
             JOIN integration_outbox AS m FORCE INDEX (PRIMARY) ON m.seq = d.seq \
             WHERE d.seq IN ({}) AND {}",
            list(part),
            unlike!()
        );
        for row in fetch(tx, sql).await? {
            let status: String = row.try_get(3)?;
            sqlx::query(
                "UPDATE outbox_delivery FORCE INDEX (PRIMARY) \
                 SET due_at = ?, integration = ?, failed = ?, dead = ? WHERE seq = ?",
            )
            .bind(row.try_get::<NaiveDateTime, _>(1)?)
            .bind(row.try_get::<String, _>(2)?)
            .bind(status == "FAILED")
            .bind(status == "DEAD")
            .bind(row.try_get::<i64, _>(0)?)
            .execute(&mut *tx)
            .await?;
            followed += 1;
        }
    }
    Ok(followed)
}

/// Locks the messages of deliveries, and tells which are open and say what their deliveries say:
/// nobody has changed them.
pub(super) async fn lock_alike(tx: &mut MySqlConnection, seqs: &[i64]) -> Result<Vec<i64>, Error> {
    lock_messages(tx, seqs, Locking::Wait).await?;
    let sql = format!(
        "SELECT d.seq FROM outbox_delivery AS d FORCE INDEX (PRIMARY) \
         JOIN integration_outbox AS m FORCE INDEX (PRIMARY) ON m.seq = d.seq \
         WHERE d.seq IN ({}) AND m.status IN ('PENDING', 'FAILED') AND NOT {}",
        list(seqs),
        unlike!()
    );
    numbers(tx, sql).await
}

/// Locks messages by number; which ones that could be done to.
pub(super) async fn lock_messages(
    tx: &mut MySqlConnection,
    seqs: &[i64],
    locking: Locking,
) -> Result<Vec<i64>, Error> {
    let sql = format!(
        "SELECT seq FROM integration_outbox FORCE INDEX (PRIMARY) WHERE seq IN ({}) {}",
        list(seqs),
        locking.clause()
    );
    numbers(tx, sql).await
}
