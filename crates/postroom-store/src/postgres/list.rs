//! Which statement lists messages, so that a page costs what it shows and not the history.
//!
//! What is open is found through the deliveries; an event by the fence; everything else in pages
//! by `seq`. Each picks ids first and reads the messages after, so that content is touched for
//! what is shown and for nothing else.

use super::PgStore;
use super::error::store_error;
use super::ids::id;
use super::row::{RECORD_COLUMNS, record};
use super::transaction::{BEGIN_DURABLE, transact};
use postroom_core::{ErrorGroup, Filter, Record, Status, StoreResult};
use tokio_postgres::{Error, Row};

macro_rules! filter {
    () => {
        include_str!("sql/list_filter.sql")
    };
}

/// The fence leads with the event id. Not flattened, or the order asked for would lead the planner
/// down the whole table.
const OF_EVENT: &str = concat!(
    "SELECT found.seq, found.id FROM (
         SELECT m.seq, m.id FROM core_outbox.messages m
         WHERE m.source_event_id = $6::text AND ($1::text IS NULL OR m.status = $1)\n",
    filter!(),
    "OFFSET 0
     ) AS found ORDER BY found.seq DESC LIMIT $10"
);

/// PENDING and FAILED: down the deliveries, and down the messages as far as there are parcels.
const WAITING: &str = concat!(
    "SELECT found.seq, found.id FROM (
         (SELECT d.seq, d.message_id AS id FROM core_outbox.delivery d
          JOIN core_outbox.integration_outbox m ON m.id = d.message_id
          WHERE d.claim IS NULL AND d.state IN ('w', 'f')
            AND m.status = $1::text AND d.seq < $9
            AND ($2::text IS NULL OR d.integration = $2)\n",
    filter!(),
    "     ORDER BY d.seq DESC LIMIT $10)
         UNION ALL
         (SELECT m.seq, m.id FROM core_outbox.messages m
          WHERE m.status = $1::text
            AND m.seq >= (SELECT min(lowest) FROM core_outbox.parcel)
            AND NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = m.id)\n",
    filter!(),
    "     ORDER BY m.seq DESC LIMIT $10)
     ) AS found ORDER BY found.seq DESC LIMIT $10"
);

/// What relays hold is never much, and the claims name it.
const CLAIMED: &str = concat!(
    "SELECT found.seq, found.id FROM (
         SELECT m.seq, m.id
         FROM (
             SELECT d.message_id
             FROM (SELECT token, unnest(ids) AS id FROM core_outbox.claim) AS held
             JOIN core_outbox.delivery d ON d.message_id = held.id AND d.claim = held.token
             UNION ALL
             SELECT f.message_id FROM core_outbox.in_flight f
             WHERE NOT EXISTS (SELECT FROM core_outbox.delivery d WHERE d.message_id = f.message_id)
               AND EXISTS (SELECT FROM core_outbox.integration_outbox o
                           WHERE o.id = f.message_id AND o.status IN ('PENDING', 'FAILED')
                             AND o.settled IS NULL)
         ) AS held
         JOIN core_outbox.integration_outbox m ON m.id = held.message_id
         WHERE $1::text = 'CLAIMED'\n",
    filter!(),
    "OFFSET 0
     ) AS found ORDER BY found.seq DESC LIMIT $10"
);

/// Dead deliveries have an index by lane: a page of each lane, found by a loose scan, is more than
/// enough for a page of all.
const DEAD: &str = concat!(
    "WITH RECURSIVE lane (name) AS (
         (SELECT integration FROM core_outbox.delivery WHERE state = 'd' ORDER BY integration LIMIT 1)
         UNION ALL
         SELECT (SELECT d.integration FROM core_outbox.delivery d
                 WHERE d.state = 'd' AND d.integration > lane.name
                 ORDER BY d.integration LIMIT 1)
         FROM lane WHERE lane.name IS NOT NULL
     )
     SELECT found.seq, found.id FROM lane CROSS JOIN LATERAL (
         SELECT d.seq, d.message_id AS id FROM core_outbox.delivery d
         JOIN core_outbox.integration_outbox m ON m.id = d.message_id
         WHERE d.integration = lane.name AND d.state = 'd' AND d.claim IS NULL
           AND m.status = $1::text AND d.seq < $9\n",
    filter!(),
    "ORDER BY d.seq DESC LIMIT $10
     ) AS found
     WHERE $2 IS NULL OR lane.name = $2
     ORDER BY found.seq DESC LIMIT $10"
);

/// SENT, or whatever there is: down the messages.
const ANY: &str = concat!(
    "SELECT m.seq, m.id FROM core_outbox.messages m
     WHERE ($1::text IS NULL OR m.status = $1)\n",
    filter!(),
    "ORDER BY m.seq DESC LIMIT $10"
);

/// Only here the planner may choose between the index on `seq` and the one on the time: it alone
/// can guess which of the two reads less.
const BEGIN_BY_TIME: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; \
     SET LOCAL jit = off; SET LOCAL enable_seqscan = off";

/// How to begin, and the statement that picks messages.
fn pick(filter: &Filter) -> (&'static str, &'static str) {
    match filter.status {
        _ if filter.event_id.is_some() => (BEGIN_DURABLE, OF_EVENT),
        Some(Status::Pending | Status::Failed) => (BEGIN_DURABLE, WAITING),
        Some(Status::Claimed) => (BEGIN_DURABLE, CLAIMED),
        Some(Status::Dead) => (BEGIN_DURABLE, DEAD),
        Some(Status::Sent) | None if filter.since.is_some() => (BEGIN_BY_TIME, ANY),
        Some(Status::Sent) | None => (BEGIN_DURABLE, ANY),
    }
}

/// How to begin, and the statement.
pub(super) fn statement(filter: &Filter) -> (&'static str, String) {
    let (begin, pick) = pick(filter);
    let sql = format!(
        "WITH picked AS MATERIALIZED (\n{pick}\n)
         SELECT {RECORD_COLUMNS} FROM core_outbox.messages
         WHERE seq = ANY (ARRAY(SELECT seq FROM picked))
           -- Another may have the same number.
           AND id = ANY (ARRAY(SELECT id FROM picked))
         ORDER BY seq DESC"
    );
    (begin, sql)
}

pub(super) async fn list(store: &PgStore, filter: &Filter) -> StoreResult<Vec<Record>> {
    let doing = "listing messages";
    let (begin, sql) = statement(filter);
    let rows = run(store, doing, begin, &sql, filter, filter.limit).await?;
    rows.iter().map(record).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
}

/// The messages of a filter by integration and error. All that match are read, and what is shown
/// of them is a few groups.
pub(super) async fn errors(store: &PgStore, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
    let doing = "grouping messages by error";
    let (begin, pick) = pick(filter);
    let sql = format!(
        "WITH picked AS MATERIALIZED (\n{pick}\n)
         SELECT m.integration_type, m.last_error, count(*), min(m.created_at), max(m.created_at),
                max(m.id::text)::/*id*/uuid
         FROM picked JOIN core_outbox.integration_outbox m USING (id)
         WHERE m.last_error IS NOT NULL
         GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT {}",
        filter.limit
    );
    let rows = run(store, doing, begin, &sql, filter, usize::MAX).await?;
    rows.iter().map(group).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
}

fn group(row: &Row) -> Result<ErrorGroup, Error> {
    Ok(ErrorGroup {
        integration: row.try_get(0)?,
        error: row.try_get(1)?,
        messages: u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(0),
        oldest: row.try_get(3)?,
        newest: row.try_get(4)?,
        example: id(row, 5)?,
    })
}

/// Runs a statement that picks by a filter.
async fn run(
    store: &PgStore,
    doing: &str,
    begin: &str,
    sql: &str,
    filter: &Filter,
    rows: usize,
) -> StoreResult<Vec<Row>> {
    let client = store.connection().await?;
    let statement = client.prepare_cached(sql).await.map_err(|e| store_error(doing, e))?;
    transact(
        &client,
        begin,
        &statement,
        &[
            &filter.status.map(Status::as_str),
            &filter.integration,
            &filter.tenant,
            &filter.event_type,
            &filter.correlation,
            &filter.event_id,
            &filter.since,
            &filter.until,
            &filter.before.unwrap_or(i64::MAX),
            &i64::try_from(rows).unwrap_or(i64::MAX),
            &filter.stream,
            &filter.error,
        ],
    )
    .await
    .map_err(|e| store_error(doing, e))
}
