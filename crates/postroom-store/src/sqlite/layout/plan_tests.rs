//! The hot statements find rows of somebody else's table by its indexes, whatever its key is.

use super::migrate::plan as left;
use super::{Foreign, Layout};
use crate::MigrateOptions;
use crate::sqlite::{
    admin, claims, content, dispatch, list, operate, parcels, prune, settle, settle_parcels,
};
use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};

const TABLES: [(&str, &str); 4] = [
    ("id", "CREATE TABLE rows (id TEXT PRIMARY KEY, body TEXT, at TEXT, done BOOLEAN)"),
    ("id", "CREATE TABLE rows (id INTEGER PRIMARY KEY, body TEXT, at TEXT, done BOOLEAN)"),
    ("id", "CREATE TABLE rows (id BIGINT PRIMARY KEY, body TEXT, at TEXT, done BOOLEAN)"),
    (
        "tenant\", \"no",
        "CREATE TABLE rows (tenant TEXT, no INT, body TEXT, at TEXT, done BOOLEAN, PRIMARY KEY (tenant, no))",
    ),
];

/// Makes a table and its ledger.
async fn migrated(key: &str, ddl: &str) -> (SqliteConnection, Foreign) {
    let layout = Layout::from_toml(&format!(
        r#"
        table = "rows"
        key = ["{key}"]
        to = "noop"
        message = {{ event_type = "'t'", payload = "m.body", created_at = "m.at" }}
        state = {{ status = "CASE WHEN m.done THEN 'SENT' ELSE 'PENDING' END" }}
        write = {{ sent = {{ done = "true" }}, reopened = {{ done = "false" }} }}
        "#
    ))
    .expect("a layout");
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.expect("in memory");
    let run = |sql: String| sqlx::raw_sql(AssertSqlSafe(sql));
    run(ddl.to_owned()).execute(&mut connection).await.expect("the table");
    let works = left(&mut connection, &layout, &MigrateOptions::default()).await.expect("a plan");
    for work in works {
        run(work.sql).execute(&mut connection).await.expect("migrated");
    }
    let foreign = Foreign::find(&mut connection, &layout).await.expect("the table");
    (connection, foreign)
}

#[tokio::test]
async fn rows_are_found_by_the_columns_of_their_key() {
    let mut bad = Vec::new();
    for (key, ddl) in TABLES {
        let (mut connection, foreign) = migrated(key, ddl).await;
        for statement in [
            claims::TAKE,
            claims::TAKE_RESCUED,
            claims::FORGET_CLOSED,
            content::READ,
            parcels::TAKE_PARCELS,
            parcels::SWEPT_PARCELS,
            parcels::MADE_OF_PARCELS,
            parcels::UNPACK_OF,
            parcels::FOLLOW,
            settle::BY_CLAIM.sent,
            settle::BY_CLAIM.released,
            settle::BY_CLAIM.failed,
            settle::BY_CLAIM.postponed,
            settle::BY_DISPATCH.failed,
            settle::BY_DISPATCH.postponed,
            settle::MARK_SENT,
            settle::MARK_FAILED,
            settle::MARK_PUT_OFF,
            settle::DELETE_MESSAGES,
            settle::THERE,
            settle::ALREADY_SETTLED,
            settle_parcels::FAILED,
            settle_parcels::POSTPONED,
            dispatch::DISPATCHED,
            prune::PRUNE_ORPHANS,
            operate::REDRIVE,
            operate::CANCEL,
            list::ANY,
            list::WAITING,
            list::DEAD,
            admin::CLAIM_OF,
        ] {
            let sql = foreign.rendered(statement);
            let explained = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")));
            let rows = explained.fetch_all(&mut connection).await;
            let rows = rows.unwrap_or_else(|error| panic!("{error}: {sql}"));
            let steps: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
            if !steps.iter().filter(|step| step.contains("SCAN")).all(|step| is_small(step)) {
                bad.push(format!("{ddl}:\n{sql}\n{}", steps.join("\n")));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}

/// Steps that read no more than was asked for, than there are claims and lanes, or than was found already: that is what
/// an UPDATE of a view goes through.
fn is_small(step: &str) -> bool {
    const SMALL: [&str; 7] =
        ["postroom_rows_integration_outbox", "c", "f", "l", "lane", "picked", "CONSTANT"];
    let name = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next());
    step.contains("VIRTUAL TABLE")
        || name.is_some_and(|name| SMALL.contains(&name) || name.starts_with("(subquery-"))
}
