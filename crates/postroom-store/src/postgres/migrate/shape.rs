//! Whether a table is one that can be adopted.

use crate::postgres::connect::ask;
use crate::postgres::error::store_error;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::collections::BTreeMap;
use tokio_postgres::Client;

/// The columns of the table to adopt: name, type, whether NULL is refused.
const OLD: &[(&str, &str, bool)] = &[
    ("id", "uuid", true),
    ("source_stream_id", "character varying(200)", true),
    ("source_event_id", "character varying(100)", true),
    ("integration_type", "character varying(120)", true),
    ("event_type", "character varying(120)", true),
    ("payload", "jsonb", true),
    ("headers", "jsonb", false),
    ("tenant_id", "character varying(60)", false),
    ("user_id", "character varying(60)", false),
    ("correlation_id", "character varying(120)", false),
    ("due_at", "timestamp with time zone", true),
    ("attempts", "integer", true),
    ("max_attempts", "integer", true),
    ("status", "character varying(20)", true),
    ("locked_at", "timestamp with time zone", false),
    ("locked_by", "character varying(120)", false),
    ("created_at", "timestamp with time zone", true),
    ("updated_at", "timestamp with time zone", true),
    ("sent_at", "timestamp with time zone", false),
    ("last_error", "text", false),
];

/// The columns that adoption adds. `seq` refuses NULL only at the end.
const ADDED: &[(&str, &str)] = &[
    ("seq", "bigint"),
    ("copy", "integer"),
    ("ordering_key", "character varying(200)"),
    ("causation_id", "character varying(120)"),
    ("source", "character varying(120)"),
    ("schema_version", "integer"),
    ("occurred_at", "timestamp with time zone"),
    ("settled", "uuid"),
];

const COLUMNS: &str = "
    SELECT attname::text, format_type(atttypid, atttypmod), attnotnull
    FROM pg_attribute
    WHERE attrelid = 'core_outbox.integration_outbox'::regclass AND attnum > 0 AND NOT attisdropped";
const KIND: &str = "
    SELECT c.relkind = 'r' AND NOT c.relispartition AND NOT c.relhassubclass,
           EXISTS (SELECT FROM pg_index i
                   JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
                   WHERE i.indrelid = c.oid AND i.indisprimary AND i.indnkeyatts = 1
                     AND a.attname = 'id')
    FROM pg_class c WHERE c.oid = 'core_outbox.integration_outbox'::regclass";
const BAD_ROWS: &str = "
    SELECT count(*) FILTER (WHERE attempts < 0),
           count(*) FILTER (WHERE max_attempts < 1),
           count(*) FILTER (WHERE NOT (isfinite(due_at) AND due_at < '100000-01-01Z'
               AND isfinite(created_at) AND created_at < '100000-01-01Z'
               AND isfinite(updated_at) AND updated_at < '100000-01-01Z'
               AND (sent_at IS NULL OR isfinite(sent_at) AND sent_at < '100000-01-01Z')))
    FROM core_outbox.integration_outbox";

const HAS_FENCE: &str = "
    SELECT EXISTS (
        SELECT FROM pg_index i
        WHERE i.indrelid = 'core_outbox.integration_outbox'::regclass
          AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
          AND (SELECT bool_and(a.attname IN ('source_stream_id', 'source_event_id',
                                             'integration_type'))
               FROM pg_attribute a
               WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
    )";

const DOING: &str = "looking at the table to adopt";

/// Compares the table with what can be adopted. `added`: whether its own columns were added
/// already, by a run that was cut off.
///
/// # Errors
/// With every difference there is.
pub(super) async fn check(client: &Client, added: bool) -> StoreResult<()> {
    let rows = client.query(COLUMNS, &[]).await.map_err(|e| store_error(DOING, e))?;
    let mut found: BTreeMap<String, (String, bool)> = BTreeMap::new();
    for row in &rows {
        let read = || Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?)));
        let (name, column) = read().map_err(|e| store_error(DOING, e))?;
        found.insert(name, column);
    }
    let mut differences = Vec::new();
    for (name, kind, not_null) in OLD {
        match found.remove(*name) {
            None => differences.push(format!("{name} is missing")),
            Some((other, _)) if other != *kind => {
                differences.push(format!("{name} is {other}, not {kind}"));
            }
            Some((_, false)) if *not_null => differences.push(format!("{name} allows NULL")),
            Some(_) => {}
        }
    }
    if added {
        for (name, kind) in ADDED {
            match found.remove(*name) {
                Some((other, _)) if other == *kind => {}
                Some((other, _)) => differences.push(format!("{name} is {other}, not {kind}")),
                None => differences.push(format!("{name} is missing")),
            }
        }
    }
    differences.extend(found.keys().map(|name| format!("{name} is unknown")));
    let row = client.query_one(KIND, &[]).await.map_err(|e| store_error(DOING, e))?;
    let flag = |index| row.try_get::<_, bool>(index).map_err(|e| store_error(DOING, e));
    if !flag(0)? {
        differences.push("it is partitioned, inherited from, or no table".to_owned());
    }
    if !flag(1)? {
        differences.push("its primary key is not the column id".to_owned());
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(refused(format!(
        "core_outbox.integration_outbox exists already, was not made by Postroom, and cannot be \
         adopted: {}. Nothing was changed. Bring it into shape (docs/operations.md says which), or \
         rename it",
        differences.join("; ")
    )))
}

/// Looks for rows that the outbox's checks refuse.
///
/// # Errors
/// With what to correct.
pub(super) async fn check_rows(client: &Client) -> StoreResult<()> {
    let row = client.query_one(BAD_ROWS, &[]).await.map_err(|e| store_error(DOING, e))?;
    let mut faults = Vec::new();
    for (index, what) in [
        "with attempts below 0",
        "with max_attempts below 1",
        "with a time that is infinite or after the year 100000",
    ]
    .into_iter()
    .enumerate()
    {
        let count: i64 = row.try_get(index).map_err(|e| store_error(DOING, e))?;
        if count > 0 {
            faults.push(format!("{count} {what}"));
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(refused(format!(
        "core_outbox.integration_outbox holds rows that no relay could deliver: {}. Nothing was \
         changed. Correct or delete them, then migrate again",
        faults.join("; ")
    )))
}

/// Looks for an index that keeps every event from being there twice: until the new fence is
/// built, at the end, nothing else does, and with such rows it could not be.
///
/// # Errors
/// When there is none.
pub(super) async fn check_fence(client: &Client) -> StoreResult<()> {
    if ask(client, DOING, HAS_FENCE).await? {
        return Ok(());
    }
    Err(refused(
        "core_outbox.integration_outbox has no valid unique index on source_stream_id and \
         source_event_id: an event may be there twice for the same integration. Nothing was \
         changed. Run `CREATE UNIQUE INDEX CONCURRENTLY ux_outbox_source ON \
         core_outbox.integration_outbox (source_stream_id, source_event_id)`, which names what is \
         there twice, then migrate again"
            .to_owned(),
    ))
}

fn refused(problem: String) -> StoreError {
    StoreError::plain(StoreErrorKind::Refused, problem)
}
