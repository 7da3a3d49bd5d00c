//! Finding and mending what no trigger saw.

use super::follow::{follow, unlike};
use super::locked::{Rows, locked_of};
use super::version::Locking;
use super::{MySqlStore, execute, list, numbers};
use postroom_core::Reconciled;
use sqlx::{AssertSqlSafe, Error, MySqlConnection, Row as _};

/// How many rows are mended in one transaction.
const MEND_ROWS: usize = super::LIST;

/// Something that is wrong: how to find it from a number on, and how to mend what was found.
struct Fault {
    /// Selects numbers, and is followed by `AND … > number ORDER BY … LIMIT`.
    find: &'static str,
    /// The column that is numbered.
    number: &'static str,
    /// What is done to the numbers that follow in `IN (…)`, beside following the messages; it
    /// looks again before it changes anything.
    mend: Option<&'static str>,
}

/// Makes deliveries where there are none. How many dispatches there were is not known any more: they
/// count on as in `0004_reopened.sql`.
pub(super) const FEED: &str = "INSERT IGNORE INTO outbox_delivery \
            (seq, integration, due_at, bytes, failed, dead, dispatch) \
     SELECT m.seq, m.integration_type, m.due_at, \
            OCTET_LENGTH(m.payload) + COALESCE(OCTET_LENGTH(m.headers), 0), \
            m.status = 'FAILED', m.status = 'DEAD', UNIX_TIMESTAMP() - 1577836800 \
     FROM integration_outbox AS m FORCE INDEX (PRIMARY) \
     WHERE m.status IN ('PENDING', 'FAILED', 'DEAD') AND m.seq";

/// Open messages without a delivery.
const UNFED: Fault = Fault {
    find: "SELECT m.seq FROM integration_outbox AS m \
           LEFT JOIN outbox_delivery AS d ON d.seq = m.seq \
           WHERE m.status IN ('PENDING', 'FAILED', 'DEAD') AND d.seq IS NULL",
    number: "m.seq",
    mend: Some(FEED),
};

/// Deliveries that nobody holds, without an open message.
const CLOSED: Fault = Fault {
    find: "SELECT d.seq FROM outbox_delivery AS d \
           LEFT JOIN integration_outbox AS m \
                  ON m.seq = d.seq AND m.status IN ('PENDING', 'FAILED', 'DEAD') \
           WHERE d.claim IS NULL AND m.seq IS NULL",
    number: "d.seq",
    mend: Some(
        "DELETE d FROM outbox_delivery AS d FORCE INDEX (PRIMARY) \
         WHERE d.claim IS NULL \
           AND NOT EXISTS (SELECT 1 FROM integration_outbox AS m \
                           WHERE m.seq = d.seq \
                             AND m.status IN ('PENDING', 'FAILED', 'DEAD')) \
           AND d.seq",
    ),
};

/// Deliveries under a claim that does not exist.
const UNCLAIMED: Fault = Fault {
    find: "SELECT d.seq FROM outbox_delivery AS d \
           LEFT JOIN outbox_claim AS c ON c.token = d.claim \
           WHERE d.claim IS NOT NULL AND c.token IS NULL",
    number: "d.seq",
    mend: Some(
        "UPDATE outbox_delivery FORCE INDEX (PRIMARY) SET claim = NULL \
         WHERE claim IS NOT NULL \
           AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c \
                           WHERE c.token = outbox_delivery.claim) \
           AND seq",
    ),
};

/// Deliveries that nobody holds and that say something else than their open message.
const UNLIKE: Fault = Fault {
    find: concat!(
        "SELECT d.seq FROM outbox_delivery AS d \
         JOIN integration_outbox AS m ON m.seq = d.seq \
         WHERE d.claim IS NULL AND m.status IN ('PENDING', 'FAILED', 'DEAD') AND ",
        unlike!()
    ),
    number: "d.seq",
    mend: None,
};

/// Mends everything, and counts it.
pub(super) async fn reconcile(store: &MySqlStore) -> Result<Reconciled, Error> {
    let freed = mend(store, &UNCLAIMED).await?;
    let made = mend(store, &UNFED).await?;
    let followed = mend(store, &UNLIKE).await?;
    let removed = mend(store, &CLOSED).await?;
    // The server keeps its numbers ahead of those in use by itself, and apart by their key.
    Ok(Reconciled { made, removed, freed, followed, ..Reconciled::default() })
}

/// Counts what [`reconcile`] would mend, in its words.
pub(super) async fn count(store: &MySqlStore) -> Result<Reconciled, Error> {
    let count = async |fault: &Fault| -> Result<u64, Error> {
        let sql = format!("SELECT COUNT(*) FROM ({}) AS found", fault.find);
        let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&store.pool).await?;
        super::row::count(&row, 0)
    };
    Ok(Reconciled {
        made: count(&UNFED).await?,
        removed: count(&CLOSED).await?,
        freed: count(&UNCLAIMED).await?,
        followed: count(&UNLIKE).await?,
        ..Reconciled::default()
    })
}

/// What was freed may have been changed by hand while it was held. How many deliveries followed.
async fn follow_free(
    tx: &mut MySqlConnection,
    seqs: &[i64],
    locking: Locking,
) -> Result<u64, Error> {
    let sql = format!(
        "SELECT seq FROM outbox_delivery FORCE INDEX (PRIMARY) \
         WHERE seq IN ({}) AND claim IS NULL FOR UPDATE",
        list(seqs)
    );
    let free = numbers(tx, sql).await?;
    follow(tx, &free, locking).await
}

/// Looks for numbers without a lock, and mends them in bounded steps.
async fn mend(store: &MySqlStore, fault: &Fault) -> Result<u64, Error> {
    let locking = store.locking().await?;
    let mut after = i64::MIN;
    let mut mended = 0;
    loop {
        let sql = format!(
            "{} AND {number} > {after} ORDER BY {number} LIMIT {MEND_ROWS}",
            fault.find,
            number = fault.number
        );
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&store.pool).await?;
        let mut found = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        let Some(last) = found.last() else { return Ok(mended) };
        after = *last;
        let mut tx = store.begin().await?;
        if locking == Locking::SkipLocked {
            // What somebody is changing at this moment is left for the next time.
            for rows in [Rows::Deliveries, Rows::Messages] {
                let locked = locked_of(&mut tx, rows, &found).await?;
                found.retain(|seq| !locked.contains(seq));
            }
        }
        let done = match fault.mend {
            Some(mend) => Some(execute(&mut tx, format!("{mend} IN ({})", list(&found))).await?),
            None => None,
        };
        let followed = follow_free(&mut tx, &found, locking).await?;
        tx.commit().await?;
        mended += done.unwrap_or(followed);
    }
}
