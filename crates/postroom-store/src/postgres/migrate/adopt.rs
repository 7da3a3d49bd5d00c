//! Adopting a table that was made by somebody else's outbox.
//!
//! The way is `migrations/postgres/adopt/`, in three parts that can be cut off anywhere and run
//! again. It ends where migration 0001 ends.

use super::MIGRATIONS;
use super::script::{Step, statements, steps};
use super::shape;
use crate::postgres::error::store_error;
use postroom_core::StoreResult;
use std::time::Duration;
use tokio_postgres::Client;

const TABLE: &str = include_str!("../../../migrations/postgres/adopt/1_table.sql");
const NUMBERS: &str = include_str!("../../../migrations/postgres/adopt/2_numbers.sql");
const FINISH: &str = include_str!("../../../migrations/postgres/adopt/3_finish.sql");

const HAS_DELIVERIES: &str = "SELECT to_regclass('core_outbox.delivery') IS NOT NULL";
const IS_NUMBERED: &str = "
    SELECT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = to_regclass('core_outbox.integration_outbox')
          AND attname = 'seq' AND attidentity = 'd'
    )";

/// What of 0001 is done in another way, or in another place.
const APART: &[&str] = &[
    "CREATE SCHEMA",
    "CREATE TABLE core_outbox.integration_outbox",
    "CREATE UNIQUE INDEX outbox_fence",
    "CREATE INDEX outbox_number",
    "CREATE INDEX outbox_created",
];

/// The steps that are left to adopt the table, from wherever an earlier run was cut off.
///
/// # Errors
/// When the table is of another shape, or holds or may hold rows that the outbox refuses.
pub(super) async fn plan(client: &Client, claimed_grace: Duration) -> StoreResult<Vec<Step>> {
    let has_deliveries = is_true(client, HAS_DELIVERIES).await?;
    shape::check(client, has_deliveries).await?;
    let mut planned = Vec::new();
    if !has_deliveries {
        shape::check_rows(client).await?;
        shape::check_fence(client).await?;
        let grace = claimed_grace.as_secs_f64().to_string();
        planned.extend(steps(&with_0001(&TABLE.replace("{claimed_grace}", &grace))));
    }
    if !is_true(client, IS_NUMBERED).await? {
        planned.extend(steps(NUMBERS));
    }
    planned.extend(steps(&with_0001(FINISH)));
    Ok(planned)
}

async fn is_true(client: &Client, query: &str) -> StoreResult<bool> {
    let doing = "looking at the table to adopt";
    let row = client.query_one(query, &[]).await.map_err(|e| store_error(doing, e))?;
    row.try_get(0).map_err(|e| store_error(doing, e))
}

/// Puts statements of 0001 where `-- postroom: 0001 …` stands: the one that begins like this, as
/// it is built beside producers, or all that are not [`APART`].
fn with_0001(script: &str) -> String {
    const MARK: &str = "-- postroom: 0001";
    let first = MIGRATIONS.first().map_or("", |migration| migration.sql);
    let begins = |statement: &str, head: &str| without_comments(statement).starts_with(head);
    let lines = script.lines().map(|line| match line.strip_prefix(MARK).map(str::trim) {
        None => line.to_owned(),
        Some("") => {
            let rest = statements(first).into_iter();
            let rest = rest.filter(|one| !APART.iter().any(|head| begins(one, head)));
            rest.collect::<Vec<_>>().join("\n\n")
        }
        Some(head) => {
            let one = statements(first).into_iter().find(|one| begins(one, head));
            one.unwrap_or_default().replacen(" INDEX ", " INDEX CONCURRENTLY ", 1)
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn without_comments(statement: &str) -> &str {
    let mut rest = statement.trim_start();
    while rest.starts_with("--") {
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest.trim_start());
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_0001_says_is_taken_from_there() {
        let table = with_0001(TABLE);
        for part in ["FUNCTION core_outbox.enqueue", "TABLE core_outbox.claim", "outbox_follow"] {
            assert!(table.contains(part), "{part}");
        }
        assert!(!table.contains("CREATE TABLE core_outbox.integration_outbox"));
        let finish = with_0001(FINISH);
        assert!(finish.contains("UNIQUE INDEX CONCURRENTLY outbox_fence ON"), "{finish}");
        assert!(finish.contains("INDEX CONCURRENTLY outbox_created ON"), "{finish}");
        assert!(!finish.contains("-- postroom: 0001"));
    }
}
