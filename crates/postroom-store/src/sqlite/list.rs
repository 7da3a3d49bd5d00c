//! Which statement lists messages, so that a page costs what it shows and not the history.

use super::SqliteStore;
use super::error::store_error;
use super::row::{record, text, uuid};
use super::time::moment;
use super::upkeep::count;
use postroom_core::{ErrorGroup, Filter, Record, Status, StoreResult};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};

/// What every list asks of a message. `?2` integration, `?3` tenant, `?4` event type,
/// `?5` correlation, `?6` event id, `?7` since, `?8` until, `?9` below this number; null matches
/// everything. `?11` stream, `?12` part of the last error. `?1` status, `?10` rows.
macro_rules! filter {
    () => {
        concat!(
            " AND (?2 IS NULL OR m.integration_type = ?2) AND (?3 IS NULL OR m.tenant_id = ?3)
              AND (?4 IS NULL OR m.event_type = ?4) AND (?5 IS NULL OR m.correlation_id = ?5)
              AND (?6 IS NULL OR m.source_event_id = ?6) AND (?7 IS NULL OR ",
            ms!("m.created_at"),
            " >= ?7) AND (?8 IS NULL OR ",
            ms!("m.created_at"),
            " < ?8) AND m.seq < ?9 AND (?11 IS NULL OR m.source_stream_id = ?11)
              AND (?12 IS NULL OR instr(lower(m.last_error), lower(?12)) > 0)"
        )
    };
}

/// SENT, or whatever there is: down the messages.
pub(super) const ANY: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM outbox_messages AS m WHERE (?1 IS NULL OR m.status = ?1)",
    filter!(),
    " ORDER BY m.seq DESC LIMIT ?10"
);

/// By the fence, which leads with the event id.
pub(super) const OF_EVENT: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM outbox_messages AS m
     WHERE m.source_event_id = ?6 AND (?1 IS NULL OR m.status = ?1)",
    filter!(),
    // The sign keeps SQLite from going down the messages for the sake of the order.
    " ORDER BY +m.seq DESC LIMIT ?10"
);

/// PENDING, CLAIMED and FAILED: down the deliveries.
pub(super) const OPEN: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM outbox_delivery AS open CROSS JOIN outbox_messages AS m ON m.seq = open.seq
     WHERE m.status = ?1 AND open.seq < ?9 AND (open.claim IS NOT NULL) = (?1 = 'CLAIMED')",
    filter!(),
    " ORDER BY open.seq DESC LIMIT ?10"
);

/// DEAD: down the dead deliveries.
pub(super) const DEAD: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM outbox_delivery AS open INDEXED BY outbox_delivery_dead
     CROSS JOIN outbox_messages AS m ON m.seq = open.seq
     WHERE open.dead AND m.status = ?1 AND open.seq < ?9",
    filter!(),
    " ORDER BY open.seq DESC LIMIT ?10"
);

pub(super) async fn list(store: &SqliteStore, filter: &Filter) -> StoreResult<Vec<Record>> {
    let doing = "listing messages";
    let statement = match filter.status {
        _ if filter.event_id.is_some() => OF_EVENT,
        None | Some(Status::Sent) => ANY,
        Some(Status::Pending | Status::Claimed | Status::Failed) => OPEN,
        Some(Status::Dead) => DEAD,
    };
    let rows = run(store, statement, filter).await.map_err(|e| store_error(doing, e))?;
    rows.iter().map(record).collect::<Result<_, _>>().map_err(|e| store_error(doing, e))
}

/// What is shown of messages with the same error.
macro_rules! grouped {
    ($from:literal) => {
        concat!(
            "SELECT m.integration_type, m.last_error, count(*), min(",
            ms!("m.created_at"),
            "), max(",
            ms!("m.created_at"),
            "), max(m.id) FROM ",
            $from,
            " WHERE m.last_error IS NOT NULL AND (?1 IS NULL OR m.status = ?1)",
            filter!(),
            " GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT ?10"
        )
    };
}

/// Of SENT messages, or all: down the messages.
const ERRORS: &str = grouped!("outbox_messages AS m");

/// Of what is open or dead: down the deliveries.
const OPEN_ERRORS: &str =
    grouped!("outbox_delivery AS open CROSS JOIN outbox_messages AS m ON m.seq = open.seq");

pub(super) async fn errors(store: &SqliteStore, filter: &Filter) -> StoreResult<Vec<ErrorGroup>> {
    let doing = "grouping messages by error";
    let statement = match filter.status {
        None | Some(Status::Sent) => ERRORS,
        Some(Status::Pending | Status::Claimed | Status::Failed | Status::Dead) => OPEN_ERRORS,
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
        example: uuid(row, 5)?,
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
