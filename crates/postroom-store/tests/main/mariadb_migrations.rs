//! Migrations where DDL commits by itself.

use crate::mariadb::{start, start_with_least_rights};
use postroom_core::{Severity, StoreErrorKind};
use postroom_store::{MigrateOptions, OpenOptions, migrate, migrate_with, migrations, open, plan};
use postroom_testkit::contract::Harness as _;
use postroom_testkit::{MariaDatabase, MariaDb, skip};
use sqlx::AssertSqlSafe;
use std::io::Write as _;
use std::process::{Command, Stdio};

async fn empty() -> MariaDatabase {
    MariaDb::shared().await.database().await
}

async fn execute(database: &MariaDatabase, sql: &str) {
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(&mut database.connection().await).await.expect("executed");
}

async fn readiness(database: &MariaDatabase) -> Result<(), (StoreErrorKind, String)> {
    let store = open(database.url(), &OpenOptions::default()).await.expect("a store");
    store.ready().await.map_err(|error| (error.kind, error.to_string()))
}

#[tokio::test]
async fn processes_that_migrate_at_once_apply_each_step_once() {
    let database = empty().await;
    let (kind, _) = readiness(&database).await.expect_err("there is nothing yet");
    assert_eq!(kind, StoreErrorKind::Schema);
    let url = database.url();
    let (a, b, c) = tokio::join!(migrate(url), migrate(url), migrate(url));
    let mut applied = [a.expect("a"), b.expect("b"), c.expect("c")].concat();
    applied.sort_unstable();
    let all: Vec<u32> = migrations(url).expect("known").iter().map(|step| step.number).collect();
    assert_eq!(applied, all);
    readiness(&database).await.expect("ready");
    assert!(migrate(url).await.expect("again").is_empty());
}

#[tokio::test]
async fn a_migration_that_was_cut_off_is_finished_by_the_next() {
    let outbox = start().await;
    let id = outbox.insert(&postroom_testkit::contract::PlainRow::new("noop")).await.expect("row");
    let database = &outbox.database;
    execute(
        database,
        "DROP TRIGGER outbox_follow; DROP VIEW outbox_messages; \
         UPDATE outbox_schema_migration SET applied_at = NULL",
    )
    .await;
    let (kind, error) = readiness(database).await.expect_err("not finished");
    assert_eq!(kind, StoreErrorKind::Schema);
    assert!(error.contains("postroom migrate"), "{error}");
    migrate(database.url()).await.expect("finished");
    readiness(database).await.expect("ready");
    let store = outbox.store().await;
    assert!(store.find(&id).await.expect("find").is_some(), "what was there stays");
}

/// A trigger that is being replaced when its migration is cut off is made once.
#[tokio::test]
async fn a_migration_that_was_cut_off_while_it_replaced_a_trigger_is_finished() {
    let outbox = start().await;
    let database = &outbox.database;
    execute(
        database,
        "DROP TRIGGER outbox_follow; \
         UPDATE outbox_schema_migration SET applied_at = NULL WHERE number = 1",
    )
    .await;
    assert_eq!(migrate(database.url()).await.expect("finished"), [1]);
    readiness(database).await.expect("ready");
    assert_eq!(outbox.store().await.diagnose().await.expect("diagnose"), []);
}

#[tokio::test]
async fn a_table_of_someone_else_is_refused_and_untouched() {
    let database = empty().await;
    execute(
        &database,
        "CREATE TABLE integration_outbox (id INT); INSERT INTO integration_outbox VALUES (7)",
    )
    .await;
    let refused = migrate(database.url()).await.expect_err("must be refused");
    let planned = plan(database.url(), &MigrateOptions::default()).await.expect_err("no plan");
    for error in [refused, planned] {
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.to_string().contains("Nothing was changed"), "{error}");
    }
    let tables: Vec<String> = sqlx::query_scalar("SHOW TABLES")
        .fetch_all(&mut database.connection().await)
        .await
        .expect("tables");
    assert_eq!(tables, ["integration_outbox"]);
    let left: i32 = sqlx::query_scalar("SELECT id FROM integration_outbox")
        .fetch_one(&mut database.connection().await)
        .await
        .expect("the row");
    assert_eq!(left, 7);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let outbox = start().await;
    let note = "INSERT INTO outbox_schema_migration VALUES (99, 'later', UTC_TIMESTAMP(6))";
    execute(&outbox.database, note).await;
    let (kind, error) = readiness(&outbox.database).await.expect_err("too new");
    assert_eq!(kind, StoreErrorKind::Schema);
    assert!(error.contains("upgrade Postroom"), "{error}");
    // One that was cut off is newer too.
    execute(
        &outbox.database,
        "UPDATE outbox_schema_migration SET applied_at = NULL WHERE number = 99",
    )
    .await;
    let url = outbox.database.url();
    let migrated = migrate(url).await.expect_err("too new");
    let planned = plan(url, &MigrateOptions::default()).await.expect_err("too new");
    for error in [migrated, planned] {
        assert_eq!(error.kind, StoreErrorKind::Schema);
        assert!(error.to_string().contains("upgrade Postroom"), "{error}");
    }
}

#[tokio::test]
async fn missing_triggers_are_found_with_a_relays_rights_and_made_again() {
    let outbox = start_with_least_rights().await;
    let url = outbox.database.url();
    let triggers = "SELECT TRIGGER_NAME, ACTION_STATEMENT FROM information_schema.TRIGGERS \
                    WHERE TRIGGER_SCHEMA = DATABASE() ORDER BY 1";
    let there = async || -> Vec<(String, String)> {
        let mut connection = outbox.database.connection().await;
        sqlx::query_as(triggers).fetch_all(&mut connection).await.expect("triggers")
    };
    let before = there().await;
    let store = outbox.store().await;
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    execute(&outbox.database, "DROP TRIGGER outbox_feed; DROP TRIGGER outbox_follow").await;
    let findings = store.diagnose().await.expect("diagnose");
    assert_eq!(findings.len(), 2, "{findings:?}");
    for (finding, trigger) in findings.iter().zip(["outbox_feed", "outbox_follow"]) {
        assert_eq!(finding.severity, Severity::Fault);
        assert!(finding.problem.contains(&format!("{trigger} is missing")), "{finding:?}");
        assert!(finding.remedy.contains("postroom migrate"), "{finding:?}");
    }
    let migrated = migrate_with(url, &MigrateOptions::default()).await.expect("migrated");
    assert_eq!(migrated.done, ["the trigger outbox_feed", "the trigger outbox_follow"]);
    assert!(migrated.applied.is_empty());
    assert_eq!(there().await, before);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
}

/// `SHOW FULL COLUMNS` and `SHOW CREATE TABLE` show it.
#[tokio::test]
async fn every_table_and_column_says_what_it_is_for() {
    let outbox = start().await;
    let without_comment = "
        SELECT TABLE_NAME FROM information_schema.TABLES
        WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE' AND TABLE_COMMENT = ''
        UNION ALL
        SELECT CONCAT(c.TABLE_NAME, '.', c.COLUMN_NAME)
        FROM information_schema.COLUMNS AS c
        JOIN information_schema.TABLES AS t
            ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME
        WHERE c.TABLE_SCHEMA = DATABASE() AND t.TABLE_TYPE = 'BASE TABLE' AND c.COLUMN_COMMENT = ''
        ORDER BY 1";
    let names: Vec<String> = sqlx::query_scalar(without_comment)
        .fetch_all(&mut outbox.database.connection().await)
        .await
        .expect("the information schema");
    assert_eq!(names, [""; 0]);
}

/// What `migrate --dry-run` prints can be given to an administrator.
#[tokio::test]
async fn the_printed_statements_run_in_the_command_line_client() {
    let name = "the_printed_statements_run_in_the_command_line_client";
    let database = empty().await;
    let address = database.url().split(['@', '/']).nth(3).expect("an address");
    let (host, port) = address.split_once(':').expect("a port");
    let client = Command::new("mariadb")
        .args(["--no-defaults", "-uroot", "-h", host, "-P", port, database.name()])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut client) = client else {
        return skip(name, "the command-line client mariadb is not installed");
    };
    let mut input = client.stdin.take().expect("piped");
    for step in migrations(database.url()).expect("known") {
        input.write_all(step.sql.as_bytes()).expect("written");
    }
    drop(input);
    let output = client.wait_with_output().expect("ended");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let triggers: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()",
    )
    .fetch_one(&mut database.connection().await)
    .await
    .expect("counted");
    assert_eq!(triggers, 2);
}
