//! What the outbox in a SQLite file has of its own: the file, its types, its one writer.

use crate::sqlite::{Sqlite, start, url};
use crate::taking;
use postroom_core::{
    Batch, ContentFault, Heartbeat, NewMessage, Quota, RelayId, Severity, Store, StoreError,
    StoreErrorKind, Take,
};
use postroom_store::{MigrateOptions, OpenOptions, migrate, migrate_with, migrations, open, plan};
use postroom_testkit::contract::{Harness as _, PlainRow};
use sqlx::AssertSqlSafe;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

async fn refused(url: &str) -> StoreError {
    open(url, &OpenOptions::default()).await.err().expect("must not open")
}

async fn take(store: &dyn Store) -> Result<usize, StoreError> {
    Ok(take_batch(store).await?.map_or(0, |batch| batch.messages.len()))
}

async fn take_batch(store: &dyn Store) -> Result<Option<Batch>, StoreError> {
    let quotas = [Quota { integration: "noop".to_owned(), rows: 10 }];
    let relay = RelayId::random();
    let claim_time = Duration::from_secs(60);
    store.beat(&Heartbeat { relay, name: "worker", lanes: 1, held: &[], claim_time }).await?;
    let take = Take {
        worker: "worker",
        relay,
        quotas: &quotas,
        rows: 10,
        bytes: 1 << 20,
        payload_limit: 1 << 20,
        for_queue: false,
    };
    Ok(store.take(&take).await?.pop())
}

async fn execute(outbox: &Sqlite, sql: &str) {
    sqlx::query(AssertSqlSafe(sql)).execute(&outbox.by_hand).await.expect("executed");
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let error = refused("sqlite:///no/such/folder/outbox.db").await;
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.to_string().contains("/no/such/folder does not exist"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_reported() {
    let folder = folder();
    std::fs::write(folder.path().join("outbox.db"), "not a database, but long enough to be read")
        .expect("written");
    let error = refused(&url(&folder)).await;
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("outbox.db"), "{error}");
}

#[tokio::test]
async fn a_file_without_an_outbox_asks_for_migrate() {
    let folder = folder();
    let store = open(&url(&folder), &OpenOptions::default()).await.expect("opens");
    let message = NewMessage::new("noop", "ping");
    for error in [
        store.ready().await.expect_err("no schema"),
        take(&*store).await.expect_err("no schema"),
        store.enqueue(&message).await.expect_err("no schema"),
    ] {
        assert_eq!(error.kind, StoreErrorKind::Schema, "{error}");
        assert!(error.to_string().contains("postroom migrate"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrations_run_once_however_many_start_them() {
    let folder = folder();
    let mut migrators = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let url = url(&folder);
        migrators.spawn(async move { migrate(&url).await.expect("migrate") });
    }
    let applied = migrators.join_all().await;
    let mut numbers = applied.concat();
    numbers.sort_unstable();
    let known = migrations(&url(&folder)).expect("a known database");
    let known: Vec<u32> = known.iter().map(|migration| migration.number).collect();
    assert_eq!(numbers, known, "{applied:?}");
    assert!(migrate(&url(&folder)).await.expect("migrate").is_empty());
    open(&url(&folder), &OpenOptions::default())
        .await
        .expect("opens")
        .ready()
        .await
        .expect("ready");
}

#[tokio::test]
async fn a_table_of_that_name_that_is_not_ours_is_left_alone() {
    let folder = folder();
    // Opening makes the file; the table comes from elsewhere.
    drop(open(&url(&folder), &OpenOptions::default()).await.expect("opens"));
    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(folder.path().join("outbox.db"));
    let theirs = sqlx::SqlitePool::connect_with(options).await.expect("opens");
    sqlx::query("CREATE TABLE integration_outbox (id TEXT)").execute(&theirs).await.expect("made");
    let refused = migrate(&url(&folder)).await.expect_err("must be refused");
    let planned = plan(&url(&folder), &MigrateOptions::default()).await.expect_err("no plan");
    for error in [refused, planned] {
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.to_string().contains("not made by Postroom"), "{error}");
    }
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema")
        .fetch_one(&theirs)
        .await
        .expect("a count");
    assert_eq!(tables, 1);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let outbox = start().await;
    execute(&outbox, "INSERT INTO outbox_schema_migration (number, name) VALUES (99, 'x')").await;
    let url = url(&outbox.folder);
    for error in [
        outbox.store().await.ready().await.expect_err("newer"),
        migrate(&url).await.expect_err("newer"),
        plan(&url, &MigrateOptions::default()).await.expect_err("newer"),
    ] {
        assert_eq!(error.kind, StoreErrorKind::Schema);
        assert!(error.to_string().contains("newer"), "{error}");
    }
}

#[tokio::test]
async fn missing_triggers_are_found_and_made_again() {
    let outbox = start().await;
    let there = async || -> Vec<(String, String)> {
        let triggers = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY 1";
        sqlx::query_as(triggers).fetch_all(&outbox.by_hand).await.expect("triggers")
    };
    let before = there().await;
    for trigger in ["outbox_feed", "outbox_follow"] {
        execute(&outbox, &format!("DROP TRIGGER {trigger}")).await;
    }
    let store = outbox.store().await;
    let findings = store.diagnose().await.expect("diagnose");
    assert_eq!(findings.len(), 2, "{findings:?}");
    for (finding, trigger) in findings.iter().zip(["outbox_feed", "outbox_follow"]) {
        assert_eq!(finding.severity, Severity::Fault);
        assert!(finding.problem.contains(&format!("{trigger} is missing")), "{finding:?}");
        assert!(finding.remedy.contains("postroom migrate"), "{finding:?}");
    }
    let options = MigrateOptions::default();
    let migrated = migrate_with(&url(&outbox.folder), &options).await.expect("migrated");
    assert_eq!(migrated.done, ["the trigger outbox_feed", "the trigger outbox_follow"]);
    assert!(migrated.applied.is_empty());
    assert_eq!(there().await, before);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_relay_needs_no_write_lock() {
    let outbox = start().await;
    let store = outbox.store().await;
    let quotas = taking::all("noop");
    let wish = taking::wish(&*store, &quotas).await;
    execute(&outbox, "BEGIN IMMEDIATE").await;
    // A relay that wanted the lock would wait for seconds, and then fail.
    assert!(store.take(&wish).await.expect("take").is_empty());
    assert_eq!(store.rescue(10).await.expect("rescue"), 0);
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
    assert!(store.backlog().await.expect("backlog").lanes.is_empty());
    assert!(store.integrations().await.expect("integrations").is_empty());
    execute(&outbox, "ROLLBACK").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_waits_for_a_short_transaction_of_another() {
    let outbox = start().await;
    let store = outbox.store().await;
    execute(&outbox, "BEGIN IMMEDIATE").await;
    let waiting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.enqueue(&NewMessage::new("noop", "ping")).await }
    });
    execute(&outbox, "COMMIT").await;
    waiting.await.expect("no panic").expect("enqueued once the lock was free");
    assert_eq!(take(&*store).await.expect("take"), 1);
}

#[tokio::test]
async fn text_that_is_no_utf_8_does_not_stop_its_lane() {
    let outbox = start().await;
    let store = outbox.store().await;
    let id = outbox.insert(&PlainRow::new("noop")).await.expect("a row");
    execute(&outbox, "UPDATE integration_outbox SET user_id = CAST(x'4a6f73e9' AS TEXT)").await;
    assert_eq!(take(&*store).await.expect("take"), 1);
    let record = store.find(&id).await.expect("find").expect("the message");
    assert_eq!(record.message.user_id.as_deref(), Some("Jos\u{fffd}"));
}

#[tokio::test]
async fn values_of_the_wrong_type_are_refused() {
    let outbox = start().await;
    for (column, value) in [
        ("id", "not-a-uuid"),
        ("id", "x-y-z"),
        ("attempts", "many"),
        ("attempts", "1.5"),
        ("max_attempts", "3000000000"),
        ("created_at", "yesterday"),
        ("updated_at", "now"),
        ("tenant_id", &"t".repeat(61)),
        ("status", &"S".repeat(21)),
    ] {
        let row = PlainRow::new("noop").with(column, value);
        assert!(outbox.insert(&row).await.is_err(), "accepted {column} = {value}");
    }
    for sql in [
        "UPDATE integration_outbox SET payload = x'7b7d'",
        "UPDATE integration_outbox SET headers = x'7b7d'",
        "UPDATE integration_outbox SET sent_at = 'never'",
    ] {
        outbox.insert(&PlainRow::new("noop")).await.expect("a row");
        assert!(sqlx::query(sql).execute(&outbox.by_hand).await.is_err(), "accepted {sql}");
    }
}

#[tokio::test]
async fn an_id_is_found_in_either_case() {
    let outbox = start().await;
    let id = outbox.insert(&PlainRow::new("noop")).await.expect("a row");
    execute(&outbox, "UPDATE integration_outbox SET id = upper(id)").await;
    let found = outbox.store().await.find(&id).await.expect("find");
    assert_eq!(found.expect("the message").message.id, id);
}

#[tokio::test]
async fn replaced_and_ignored_rows_leave_one_delivery_each() {
    let outbox = start().await;
    let store = outbox.store().await;
    let row = PlainRow::new("noop").insert_sql("integration_outbox");
    execute(&outbox, &row).await;
    execute(&outbox, &row.replacen("INSERT", "INSERT OR IGNORE", 1)).await;
    execute(&outbox, &row.replacen("INSERT", "INSERT OR REPLACE", 1)).await;
    assert_eq!(take(&*store).await.expect("take"), 1);
    assert_eq!(outbox.deliveries().await, 1);
}

/// Triggers and defaults run in the producer's SQLite, which may be older than ours.
#[tokio::test]
async fn a_producer_with_another_sqlite_is_served() {
    const PRODUCER: &str = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
with db:
    db.execute('''INSERT INTO integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
        VALUES (?, ?, ?, ?, ?)''', ('order-1', 'evt-1', 'noop', 'order.created.v1', '{}'))
    db.execute('UPDATE integration_outbox SET user_id = ?', ('python ' + sqlite3.sqlite_version,))
";
    let outbox = start().await;
    let mut python = Command::new("python3");
    python.args(["-c", PRODUCER]).arg(outbox.folder.path().join("outbox.db"));
    let Ok(output) = python.output() else {
        let test = "sqlite a_producer_with_another_sqlite_is_served";
        return postroom_testkit::skip(test, "python3 is not installed");
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(take(&*outbox.store().await).await.expect("take"), 1);
}

#[tokio::test]
async fn statistics_of_a_short_queue_are_thrown_away() {
    let outbox = start().await;
    outbox.insert(&PlainRow::new("noop")).await.expect("a row");
    execute(&outbox, "CREATE TABLE orders AS SELECT 1 AS id").await;
    execute(&outbox, "ANALYZE").await;
    assert_eq!(take(&*outbox.store().await).await.expect("take"), 1);
    let left: Vec<String> = sqlx::query_scalar("SELECT DISTINCT tbl FROM sqlite_stat1")
        .fetch_all(&outbox.by_hand)
        .await
        .expect("a list");
    // Those about the bookkeeping and the application's own tables stay.
    assert!(left.contains(&"orders".to_owned()), "{left:?}");
    let ours = [
        "integration_outbox",
        "outbox_parcel",
        "outbox_delivery",
        "outbox_claim",
        "outbox_lane_cursor",
        "outbox_relay",
    ];
    assert!(!left.iter().any(|table| ours.contains(&table.as_str())), "{left:?}");
}

#[tokio::test]
async fn fault_48_rows_written_without_checks_are_faults_of_their_own() {
    let outbox = start().await;
    let store = outbox.store().await;
    execute(&outbox, "PRAGMA ignore_check_constraints = ON").await;
    for (payload, version) in
        [("'1'", "1"), ("'1'", "'second'"), ("CAST(x'22ff22' AS TEXT)", "1"), ("'1'", "1")]
    {
        let sql = format!(
            "INSERT INTO integration_outbox \
             (source_stream_id, source_event_id, integration_type, event_type, payload, \
              schema_version) \
             VALUES ('s', lower(hex(randomblob(8))), 'noop', 't', {payload}, {version})"
        );
        execute(&outbox, &sql).await;
    }
    let batch = take_batch(&*store).await.expect("take").expect("due");
    let faults: Vec<bool> = batch
        .messages
        .iter()
        .map(|taken| matches!(taken.fault, Some(ContentFault::Unreadable { .. })))
        .collect();
    assert_eq!(faults, [false, true, true, false]);
}
