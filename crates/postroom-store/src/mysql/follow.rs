//! Deliveries that nobody holds any more follow what was changed by hand meanwhile.

use super::{LIST, fetch, list};
use chrono::NaiveDateTime;
use sqlx::{Error, MySqlConnection, Row as _};

/// Makes deliveries say what their messages say. Read and then written: an UPDATE with a join
/// would lock the messages too, and wait for whoever holds them.
pub(super) async fn follow(tx: &mut MySqlConnection, seqs: &[i64]) -> Result<(), Error> {
    for part in seqs.chunks(LIST) {
        let sql = format!(
            "SELECT d.seq, m.due_at, m.integration_type, m.status \
             FROM outbox_delivery AS d FORCE INDEX (PRIMARY) \
             JOIN integration_outbox AS m FORCE INDEX (PRIMARY) ON m.seq = d.seq \
             WHERE d.seq IN ({}) \
               AND (m.due_at <> d.due_at OR m.integration_type <> d.integration \
                    OR d.failed <> (m.status = 'FAILED') OR d.dead <> (m.status = 'DEAD'))",
            list(part)
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
        }
    }
    Ok(())
}
