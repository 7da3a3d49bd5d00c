//! What is wrong with an outbox and does not mend itself.

use super::connection::Connection;
use super::error::store_error;
use super::layout::Foreign;
use super::migrate::old_fences;
use postroom_core::{Finding, Reconciled, StoreResult};
use tokio_postgres::{Client, Error, Row};

const COUNTS: &str = include_str!("sql/diagnose_counts.sql");
const TRIGGERS: &str = include_str!("sql/diagnose_triggers.sql");
const INVALID: &str = include_str!("sql/diagnose_invalid.sql");
const SNAPSHOT: &str = include_str!("sql/diagnose_snapshot.sql");
const CHANGING: &str = include_str!("sql/changing_indexes.sql");

const LEFT_ALONE: &str = "SELECT m.status, count(*) FROM core_outbox.integration_outbox m \
    WHERE m.status NOT IN ('PENDING', 'FAILED', 'SENT', 'DEAD') GROUP BY 1 ORDER BY 1";

const DOING: &str = "looking for what is wrong";

pub(super) async fn diagnose(connection: &Connection) -> StoreResult<Vec<Finding>> {
    let client = connection.client();
    let asked = async {
        match connection.foreign() {
            Some(foreign) => of_layout(connection, foreign).await,
            None => of_own_table(client).await,
        }
    };
    connection.answer(asked).await
}

/// The ledger of a table that somebody else made. Their indexes are none of ours.
async fn of_layout(connection: &Connection, foreign: &Foreign) -> StoreResult<Vec<Finding>> {
    let client = connection.client();
    let mut findings = foreign.examine(client).await?;
    findings.extend(disagreements(client, &connection.put(COUNTS)).await?);
    findings.extend(left_alone(client, &connection.put(LEFT_ALONE)).await?);
    findings.extend(snapshots(client).await?);
    Ok(findings)
}

async fn of_own_table(client: &Client) -> StoreResult<Vec<Finding>> {
    let mut findings = disagreements(client, COUNTS).await?;
    for trigger in names(client, TRIGGERS).await? {
        findings.push(Finding::fault(
            format!("the trigger {trigger} does not fire: new messages or changes are not noticed"),
            format!(
                "`ALTER TABLE core_outbox.integration_outbox ENABLE TRIGGER {trigger}`, then run \
                 `postroom reconcile`"
            ),
        ));
    }
    for index in names(client, INVALID).await? {
        findings.push(Finding::warning(
            format!("the index {index} is invalid: it costs every write and serves no read"),
            format!("run `postroom migrate`, or `DROP INDEX CONCURRENTLY core_outbox.{index}`"),
        ));
    }
    for (index, columns) in changing_indexes(client).await? {
        findings.push(Finding::warning(
            format!(
                "the index {index} names what changes ({columns}): recording an outcome touches \
                 every index"
            ),
            format!("`DROP INDEX CONCURRENTLY core_outbox.{index}`, and query the deliveries"),
        ));
    }
    for fence in old_fences(client).await? {
        findings.push(Finding::warning(
            format!("the old fence {} stands: one event reaches one integration only", fence.name),
            "run `postroom migrate --replace-fence` once no producer says ON CONFLICT \
             (source_stream_id, source_event_id)",
        ));
    }
    findings.extend(snapshots(client).await?);
    Ok(findings)
}

async fn snapshots(client: &Client) -> StoreResult<Vec<Finding>> {
    let holders = names(client, SNAPSHOT).await?;
    let findings = holders.iter().map(|holder| {
        Finding::warning(
            format!("{holder} keeps vacuum from cleaning: claims slow down as dead rows pile up"),
            "end it if nobody needs it",
        )
    });
    Ok(findings.collect())
}

/// Rows whose status the layout does not know.
async fn left_alone(client: &Client, sql: &str) -> StoreResult<Vec<Finding>> {
    let rows = client.query_typed(sql, &[]).await.map_err(|e| store_error(DOING, e))?;
    let finding = |row: &Row| {
        let (status, count): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok::<_, Error>(Finding::warning(
            format!(
                "{count} rows have the status {status}, which their layout does not know: they are left alone"
            ),
            "name it in state.status of the layout, or correct the rows",
        ))
    };
    rows.iter().map(finding).collect::<Result<_, _>>().map_err(|e| store_error(DOING, e))
}

/// Messages and deliveries that do not agree.
async fn disagreements(client: &Client, counts: &str) -> StoreResult<Vec<Finding>> {
    let rows = client.query_typed(counts, &[]).await.map_err(|e| store_error(DOING, e))?;
    let mut counts = [0; 6];
    for row in &rows {
        for (index, count) in counts.iter_mut().enumerate() {
            let found: i64 = row.try_get(index).map_err(|e| store_error(DOING, e))?;
            *count = u64::try_from(found).unwrap_or(0);
        }
    }
    let [made, removed, freed, followed, advanced, numbered] = counts;
    let found = Reconciled { made, removed, freed, followed, advanced, numbered };
    Ok(Finding::disagreements(&found))
}

/// Indexes that name a column which changes, with those columns.
pub(super) async fn changing_indexes(client: &Client) -> StoreResult<Vec<(String, String)>> {
    let rows = client.query_typed(CHANGING, &[]).await.map_err(|e| store_error(DOING, e))?;
    let read = rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    read.collect::<Result<_, _>>().map_err(|e| store_error(DOING, e))
}

async fn names(client: &Client, query: &str) -> StoreResult<Vec<String>> {
    let rows = client.query_typed(query, &[]).await.map_err(|e| store_error(DOING, e))?;
    rows.iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()
        .map_err(|e| store_error(DOING, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_testkit::Postgres;

    #[tokio::test]
    async fn who_keeps_vacuum_from_cleaning_is_named() {
        let database = Postgres::shared().await.database().await;
        let (client, other) = (database.client().await, database.client().await);
        let at_once = SNAPSHOT.replace("10 minutes", "0 minutes");
        assert_eq!(names(&client, &at_once).await.unwrap(), [""; 0]);
        other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
        let pid: i32 = other.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        let found = names(&client, &at_once).await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("the session with pid {pid} of ")), "{found:?}");
        assert_eq!(names(&client, SNAPSHOT).await.unwrap(), [""; 0], "not after a moment");
    }
}
