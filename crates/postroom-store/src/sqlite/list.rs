//! Which statement lists messages, so that a page costs what it shows and not the history.

use super::SqliteStore;
use super::error::store_error;
use super::row::{message_id, record, text};
use super::time::moment;
use super::upkeep::count;
use postroom_core::{ErrorGroup, Filter, Record, Status, StoreResult};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};

macro_rules! filter {
    () => {
        include_str!("sql/list_filter.sql")
    };
}

/// SENT, or whatever there is: down the messages.
pub(super) const ANY: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM outbox_messages AS m WHERE (?1 IS NULL OR m.status = ?1)\n",
    filter!(),
    " ORDER BY m.seq DESC LIMIT ?10"
);

/// By the fence, which leads with the event id.
pub(super) const OF_EVENT: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM outbox_messages AS m
     WHERE m.source_event_id = ?6 AND (?1 IS NULL OR m.status = ?1)\n",
    filter!(),
    // The sign keeps SQLite from going down the messages for the sake of the order.
    " ORDER BY +m.seq DESC LIMIT ?10"
);

/// PENDING and FAILED: down the deliveries, and down the messages as far as there are parcels.
pub(super) const WAITING: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM (
         SELECT seq FROM (
             SELECT m.seq FROM outbox_delivery AS open INDEXED BY outbox_delivery_number
             CROSS JOIN integration_outbox AS m ON m.id = open.message_id
             WHERE open.claim IS NULL AND open.state <> 'd' AND m.status = ?1 AND open.seq < ?9\n",
    filter!(),
    "        ORDER BY open.seq DESC LIMIT ?10
         )
         UNION ALL
         SELECT seq FROM (
             SELECT m.seq FROM outbox_messages AS m
             WHERE m.status = ?1 AND m.seq >= (\n",
    include_str!("sql/lowest_parcel.sql"),
    "        ) AND NOT EXISTS (SELECT 1 FROM outbox_delivery AS d WHERE d.message_id = m.id)\n",
    filter!(),
    "        ORDER BY m.seq DESC LIMIT ?10
         )
     ) AS picked
     CROSS JOIN outbox_messages AS m ON m.seq = picked.seq
     ORDER BY picked.seq DESC LIMIT ?10"
);

/// What relays hold is never much, and the claims name it.
macro_rules! held {
    () => {
        "(SELECT seq FROM outbox_delivery INDEXED BY outbox_delivery_claimed WHERE claim IS NOT NULL
          UNION
          SELECT seq FROM outbox_in_flight) AS held
         CROSS JOIN outbox_messages AS m ON m.seq = held.seq"
    };
}

pub(super) const CLAIMED: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM ",
    held!(),
    " WHERE m.status = ?1\n",
    filter!(),
    " ORDER BY held.seq DESC LIMIT ?10"
);

/// DEAD: down the dead deliveries.
pub(super) const DEAD: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM outbox_delivery AS open INDEXED BY outbox_delivery_dead
     CROSS JOIN outbox_messages AS m ON m.id = open.message_id
     WHERE open.state = 'd' AND m.status = ?1 AND open.seq < ?9\n",
    filter!(),
    " ORDER BY open.seq DESC LIMIT ?10"
);

pub(super) async fn list(store: &SqliteStore, filter: &Filter) -> StoreResult<Vec<Record>> {
    let doing = "listing messages";
    let statement = match filter.status {
        _ if filter.event_id.is_some() => OF_EVENT,
        None | Some(Status::Sent) => ANY,
        Some(Status::Pending | Status::Failed) => WAITING,
        Some(Status::Claimed) => CLAIMED,
        Some(Status::Dead) => DEAD,
    };
    let rows = run(store, statement, filter).await.map_err(|e| store_error(doing, e))?;
    rows.iter().map(record).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
}

/// What is shown of messages with the same error.
macro_rules! grouped {
    ($from:expr) => {
        concat!(
            "SELECT m.integration_type, m.last_error, count(*), \
             min(CAST(round((julianday(m.created_at) - 2440587.5) * 86400000.0) AS INTEGER)), \
             max(CAST(round((julianday(m.created_at) - 2440587.5) * 86400000.0) AS INTEGER)), \
             max(m.id) FROM ",
            $from,
            " WHERE m.last_error IS NOT NULL AND (?1 IS NULL OR m.status = ?1)\n",
            filter!(),
            " GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT ?10"
        )
    };
}

/// Of SENT messages, or all: down the messages.
const ERRORS: &str = grouped!("outbox_messages AS m");

/// Of what waits or is dead: what the ledger names.
const OPEN_ERRORS: &str = grouped!(
    "(SELECT message_id FROM outbox_delivery UNION SELECT message_id FROM outbox_parcel) AS open
     CROSS JOIN outbox_messages AS m ON m.id = open.message_id"
);

/// Of what relays hold.
const CLAIMED_ERRORS: &str = grouped!(held!());

pub(super) async fn errors(store: &SqliteStore, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
    let doing = "grouping messages by error";
    let statement = match filter.status {
        None | Some(Status::Sent) => ERRORS,
        Some(Status::Pending | Status::Failed | Status::Dead) => OPEN_ERRORS,
        Some(Status::Claimed) => CLAIMED_ERRORS,
    };
    let rows = run(store, statement, filter).await.map_err(|e| store_error(doing, e))?;
    rows.iter().map(group).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
}

fn group(row: &SqliteRow) -> Result<ErrorGroup, Error> {
    Ok(ErrorGroup {
        integration: text(row, 0)?,
        error: text(row, 1)?,
        messages: count(row, 2)?,
        oldest: moment(row.try_get(3)?),
        newest: moment(row.try_get(4)?),
        example: message_id(row, 5)?,
    })
}

async fn run(
    store: &SqliteStore,
    statement: &'static str,
    filter: &Filter,
) -> Result<Vec<SqliteRow>, Error> {
    sqlx::query(statement)
        .bind(filter.status.map(Status::as_str))
        .bind(&filter.integration)
        .bind(&filter.tenant)
        .bind(&filter.event_type)
        .bind(&filter.correlation)
        .bind(&filter.event_id)
        .bind(filter.since.map(|at| at.timestamp_millis()))
        .bind(filter.until.map(|at| at.timestamp_millis()))
        .bind(filter.before.unwrap_or(i64::MAX))
        .bind(i64::try_from(filter.limit).unwrap_or(i64::MAX))
        .bind(&filter.stream)
        .bind(&filter.error)
        .fetch_all(&store.readers)
        .await
}
