//! The ledger of a table that somebody else made.
//!
//! A [`Foreign`] is a layout together with what the catalogue says about its table. From it come the tables and
//! triggers of the ledger (`ledger.rs`) and its statements (`statement.rs`), which are the store's own, put in
//! other words: what only reads goes to a view of the table in the columns of Postroom's own, and what writes is
//! written as the layout has it.

mod adopt;
mod catalogue;
mod check;
mod enqueue;
mod fields;
mod key;
mod ledger;
mod row_security;
mod statement;
mod text;
mod trial;
mod wording;

pub(crate) use adopt::propose;
pub(crate) use ledger::grants;
pub(super) use ledger::{expect_ledger_of, plan, remove};
pub(crate) use wording::{Text, Wording};

use super::error::store_error;
use crate::layout::{Dialect, Layout, Table};
use key::{Key, KeyColumn};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::collections::BTreeSet;
use tokio_postgres::Client;

/// A table that somebody else made, and how it is read and written.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    /// With its settings put in.
    pub(super) layout: Layout,
    /// The schema of its ledger.
    pub(super) schema: String,
    pub(super) table: Table,
    key: Key,
    /// Whether its rows say themselves how often they failed.
    keeps_failures: bool,
    /// Whether bodies are texts in the table, which may be anything.
    has_texts: bool,
}

impl Foreign {
    /// Looks the table up.
    ///
    /// # Errors
    /// When there is no such table, or its key is not what the layout says.
    pub(crate) async fn find(client: &Client, layout: &Layout) -> StoreResult<Self> {
        layout.check()?;
        match Table::find(client, &layout.table).await? {
            Some(table) => Self::of(client, layout, table).await,
            None => Err(StoreError::plain(
                StoreErrorKind::Schema,
                format!(
                    "there is no table {}: run `postroom migrate`, or correct `table` in its layout",
                    layout.table
                ),
            )),
        }
    }

    pub(super) async fn of(client: &Client, layout: &Layout, table: Table) -> StoreResult<Self> {
        let schema = layout.ledger_schema();
        let mut layout = layout.resolved(&schema, Dialect::Postgres)?;
        let columns = layout.key.iter().map(|name| {
            let column = table.column(name).ok_or_else(|| {
                StoreError::plain(
                    StoreErrorKind::Schema,
                    format!(
                        "{} has no column {name}, which `key` in its layout names: `postroom check` \
                         compares the two",
                        layout.table
                    ),
                )
            })?;
            Ok(KeyColumn {
                name: column.name.clone(),
                kind: column.kind.clone(),
                collation: column.collation.clone(),
            })
        });
        let columns = columns.collect::<StoreResult<Vec<_>>>()?;
        let key = Key::of(&columns, identity(&layout, &table, &columns).as_ref());
        let keeps_failures = layout.keeps_failures();
        let content = &mut layout.message;
        // Its size is taken in the producer's transaction: of the column, since what makes a body of it may fail.
        if content.stored.is_none()
            && let Some(column) = only(crate::layout::columns(&content.payload))
        {
            content.stored = Some(format!("m.{}", crate::layout::quoted(&column)));
        }
        // The ledger's own functions may not be there yet, and make no texts.
        let mut has_texts = false;
        if !content.payload.contains(&schema) {
            let sql = format!(
                "SELECT pg_typeof(body.value)::text FROM (SELECT 1) AS one \
                 LEFT JOIN (SELECT {} AS value FROM {} m LIMIT 0) AS body ON true",
                content.payload, table.name
            );
            let kind: Option<String> = match client.query_typed_one(&sql, &[]).await {
                Ok(row) => Some(row.try_get(0).map_err(failed)?),
                // What does not fit the table is reported by `check`, with its place.
                Err(error) if error.code().is_some_and(|code| code.code().starts_with("42")) => {
                    None
                }
                Err(error) => return Err(failed(error)),
            };
            const TEXTS: [&str; 5] = ["text", "character varying", "character", "json", "bytea"];
            has_texts = kind.as_deref().is_some_and(|kind| TEXTS.contains(&kind));
            if kind.as_deref() == Some("bytea") {
                content.payload = format!("{schema}.text_of({})", content.payload);
            }
        }
        Ok(Self { layout, schema, table, key, keeps_failures, has_texts })
    }

    /// Whether the ledger is the one that this layout makes.
    ///
    /// # Errors
    /// When another layout was migrated.
    pub(super) async fn check_applied(&self, client: &Client) -> StoreResult<()> {
        let made = crate::layout::fingerprint(&self.made()?);
        let sql = format!("SELECT fingerprint FROM {}.layout", self.schema);
        let rows = client.query_typed(&sql, &[]).await.map_err(failed)?;
        let is_same =
            rows.first().is_some_and(|row| row.try_get(0).is_ok_and(|found: &str| found == made));
        if is_same {
            return Ok(());
        }
        Err(StoreError::plain(
            StoreErrorKind::Schema,
            format!(
                "the layout of {} or its table has changed since it was migrated: run `postroom migrate`",
                self.table.name
            ),
        ))
    }

    /// The type by which the ledger names rows.
    #[cfg(test)]
    pub(super) fn key_type(&self) -> &'static str {
        self.key.id_type()
    }

    /// Whether bodies are texts in the table, which may be anything.
    pub(super) fn has_texts(&self) -> bool {
        self.has_texts
    }

    /// The table that is enqueued into.
    ///
    /// # Errors
    /// When the layout does not say how.
    pub(super) fn enqueued_table(&self) -> StoreResult<String> {
        self.layout.enqueued_table().map(str::to_owned)
    }

    /// Refuses a replay that the layout has no words for.
    ///
    /// # Errors
    /// When rows cannot be opened again, or would have to get another event id.
    pub(super) fn refuse_replay(&self, fresh_ids: bool) -> StoreResult<()> {
        self.layout.refuse_replay(fresh_ids)
    }

    /// One of the advisory locks: every ledger has its own.
    pub(super) fn lock(&self, lock: i64) -> i64 {
        lock_of(&self.schema, lock)
    }
}

/// One of the advisory locks of `locks.rs`, for the ledger in `schema`.
pub(super) fn lock_of(schema: &str, lock: i64) -> i64 {
    // FNV-1a. Two ledgers of one number would wake each other's relays, and no more.
    let hash = schema
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    lock + (i64::from(hash >> 2) << 33)
}

/// What tells apart two rows that had the same key, with its type: what the layout says; otherwise, where the
/// key is a number, the column with the time of creation.
fn identity(layout: &Layout, table: &Table, key: &[KeyColumn]) -> Option<(String, String)> {
    let said = layout.identity.clone();
    let is_number =
        |one: &KeyColumn| ["smallint", "integer", "bigint"].contains(&one.kind.as_str());
    let content = &layout.message;
    let by_time = || {
        let other = content.created_at.as_ref().or(content.event_id.as_ref());
        key.iter().all(is_number).then(|| other.cloned()).flatten()
    };
    // A time that is made of a column. Its text would depend on the session: producers have other zones than relays.
    let otherwise = if said.is_some() { "text" } else { "timestamp with time zone" };
    let expression = said.or_else(by_time)?;
    let columns = crate::layout::columns(&expression);
    let kind = match columns.iter().next().and_then(|name| table.column(name)) {
        Some(column)
            if [
                format!("m.{}", column.name),
                format!("m.{}", crate::layout::quoted(&column.name)),
            ]
            .contains(&expression) =>
        {
            column.kind.clone()
        }
        _ => otherwise.to_owned(),
    };
    Some((expression, kind))
}

/// The only one, if there is one.
fn only(columns: BTreeSet<String>) -> Option<String> {
    let mut columns = columns.into_iter();
    columns.next().filter(|_| columns.next().is_none())
}

fn failed(error: tokio_postgres::Error) -> StoreError {
    store_error("looking at the table of a layout", error)
}
