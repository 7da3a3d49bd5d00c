//! The runner: cut off anywhere, from several places, beside those who hold locks.

use crate::old_table::OldTable;
use postroom_core::StoreErrorKind;
use postroom_store::MigrateOptions;
use postroom_testkit::eventually;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(30);

/// The server's process that runs a statement like this.
const RUNNING: &str = "SELECT max(pid)::text FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'active'
      AND query LIKE ";

async fn wait_until_it_runs(table: &OldTable, statement: &str) -> String {
    eventually(statement, SOON, async || {
        Some(table.text(&format!("{RUNNING} '%{statement}%'")).await).filter(|pid| !pid.is_empty())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_at_once_adopt_once() {
    let table = OldTable::filled(300).await;
    let migrations: Vec<_> = (0..3)
        .map(|_| {
            let url = table.url().to_owned();
            tokio::spawn(async move { postroom_store::migrate(&url).await })
        })
        .collect();
    let mut applied = 0;
    for migration in migrations {
        applied += migration.await.expect("no panic").expect("migrated").len();
    }
    let known = postroom_store::migrations(table.url()).expect("known").len();
    assert_eq!(applied, known, "each migration was applied by one of them");
    assert!(postroom_store::migrate(table.url()).await.expect("again").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_left_invalid_by_a_killed_build_is_built_again() {
    let table = OldTable::filled(10).await;
    // A snapshot that is older than the build keeps it waiting; its backend is killed then.
    let old = table.database.client().await;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.expect("a snapshot");
    let url = table.url().to_owned();
    let waiting = tokio::spawn(async move { postroom_store::migrate(&url).await });
    let pid = wait_until_it_runs(&table, "CREATE INDEX CONCURRENTLY adoption_order").await;
    let invalid =
        "SELECT string_agg(indexrelid::regclass::text, ' ') FROM pg_index WHERE NOT indisvalid";
    eventually("the build to wait", SOON, async || {
        (table.text(invalid).await == "core_outbox.adoption_order").then_some(())
    })
    .await;
    table.text(&format!("SELECT pg_terminate_backend({pid})::text")).await;
    let error = waiting.await.expect("no panic").expect_err("killed");
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert_eq!(table.text(invalid).await, "core_outbox.adoption_order");
    old.batch_execute("COMMIT").await.expect("the snapshot goes");

    // Until somebody migrates again, old workers finish what they had, and people change rows.
    table
        .execute(
            "UPDATE core_outbox.integration_outbox SET status = 'SENT' WHERE source_event_id = 'CLAIMED-1';
             UPDATE core_outbox.integration_outbox SET status = 'FAILED', attempts = 5,
                 due_at = now() + interval '1 day' WHERE source_event_id = 'CLAIMED-2';
             UPDATE core_outbox.integration_outbox SET locked_at = now() WHERE source_event_id = 'CLAIMED-3';
             UPDATE core_outbox.integration_outbox SET status = 'DEAD' WHERE source_event_id = 'PENDING-1';
             UPDATE core_outbox.integration_outbox SET headers = '{}' WHERE source_event_id = 'PENDING-2';
             UPDATE core_outbox.integration_outbox SET status = 'PENDING' WHERE source_event_id = 'SENT-1';
             DELETE FROM core_outbox.integration_outbox WHERE source_event_id = 'PENDING-3'",
        )
        .await;
    postroom_store::migrate(table.url()).await.expect("the rest");
    assert_eq!(table.text(invalid).await, "");
    let findings = table.store().await.diagnose().await.expect("diagnose");
    assert_eq!(findings.len(), 1, "only the old fence: {findings:?}");
    let differs = "SELECT count(*)::text
        FROM core_outbox.delivery d JOIN core_outbox.integration_outbox m ON m.id = d.message_id
        WHERE d.due_at <> m.due_at OR d.state <> core_outbox.state_of(m.status) OR d.seq <> m.seq";
    assert_eq!(table.text(differs).await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_44_an_old_program_does_not_migrate_a_newer_schema() {
    let table = OldTable::empty().await;
    postroom_store::migrate(table.url()).await.expect("migrated");
    table.execute("INSERT INTO core_outbox.schema_migration VALUES (99, 'next')").await;
    let error = postroom_store::migrate(table.url()).await.expect_err("a newer schema");
    assert_eq!(error.kind, StoreErrorKind::Schema);
    assert!(error.to_string().contains("newer than this program"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adoption_goes_on_where_it_was_cut_off() {
    let table = OldTable::filled(2_000).await;
    let mut last = String::new();
    // Killed in the middle of the numbering, again and again, until it comes through.
    for _ in 0..3 {
        let url = table.url().to_owned();
        let waiting = tokio::spawn(async move { postroom_store::migrate(&url).await });
        let pid = wait_until_it_runs(&table, "GET DIAGNOSTICS touched").await;
        let numbered = "SELECT count(seq)::text FROM core_outbox.integration_outbox";
        last = eventually("more numbers", SOON, async || {
            Some(table.text(numbered).await).filter(|count| *count != last || count == "12000")
        })
        .await;
        table.text(&format!("SELECT pg_terminate_backend({pid})::text")).await;
        // It may have been through already.
        if waiting.await.expect("no panic").is_ok() {
            break;
        }
    }
    postroom_store::migrate(table.url()).await.expect("the rest");
    let store = table.store().await;
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
    let backlog = store.backlog().await.expect("backlog");
    let lane = &backlog.lanes[0];
    assert_eq!((lane.pending, lane.failed, lane.dead), (3_000, 3_000, 2_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_never_queue_behind_a_migration_for_long() {
    let table = OldTable::filled(10).await;
    let holder = table.database.client().await;
    holder
        .batch_execute("BEGIN; UPDATE core_outbox.integration_outbox SET updated_at = now()")
        .await
        .expect("a transaction that stays open");
    let options = MigrateOptions {
        lock_timeout: Duration::from_millis(100),
        tries: 3,
        ..MigrateOptions::default()
    };
    let producer = table.producer(None).await;
    let error = postroom_store::migrate_with(table.url(), &options).await.expect_err("locked out");
    assert_eq!(error.kind, StoreErrorKind::Conflict);
    let text = error.to_string();
    for part in ["migration 0001_outbox", "ALTER TABLE", "3 tries of 100ms", "pg_stat_activity"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let before = producer.committed();
    eventually("producers to go on", SOON, async || (producer.committed() > before).then_some(()))
        .await;
    holder.batch_execute("COMMIT").await.expect("it ends");
    postroom_store::migrate_with(table.url(), &options).await.expect("adopted");
    producer.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_prints_what_would_run_and_that_is_enough_to_do_it_by_hand() {
    let table = OldTable::filled(5).await;
    let options = MigrateOptions { replace_fence: true, ..MigrateOptions::default() };
    let planned = postroom_store::plan(table.url(), &options).await.expect("a plan");
    assert_eq!(table.text("SELECT to_regclass('core_outbox.delivery')::text").await, "");
    let numbers: Vec<_> = planned.iter().map(|work| work.number).collect();
    assert_eq!((numbers[0], numbers[1], numbers.last()), (None, Some(1), Some(&None)));
    let script: Vec<_> = planned.into_iter().map(|work| work.sql).collect();
    let script = script.join("\n\n");
    for part in [
        "SET LOCAL lock_timeout = '2000ms'",
        "DROP INDEX CONCURRENTLY IF EXISTS core_outbox.ux_outbox_source",
    ] {
        assert!(script.contains(part), "{part}");
    }
    let by_hand = std::process::Command::new("psql")
        .args([table.url(), "-v", "ON_ERROR_STOP=1", "-q", "-c", "SELECT 1", "-f", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .and_then(|mut psql| {
            std::io::Write::write_all(psql.stdin.as_mut().expect("piped"), script.as_bytes())?;
            psql.wait()
        })
        .expect("psql");
    assert!(by_hand.success());
    assert!(postroom_store::plan(table.url(), &options).await.expect("a plan").is_empty());
    assert_eq!(table.store().await.diagnose().await.expect("diagnose"), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_migration_of_several_steps_has_done_can_be_done_again() {
    let table = OldTable::empty().await;
    table.execute("DROP SCHEMA core_outbox CASCADE").await;
    postroom_store::migrate(table.url()).await.expect("migrated");
    let known = postroom_store::migrations(table.url()).expect("known");
    for migration in known.iter().filter(|one| one.sql.contains("outside a transaction")) {
        table
            .execute(&format!(
                "DELETE FROM core_outbox.schema_migration WHERE number = {}",
                migration.number
            ))
            .await;
        let again = postroom_store::migrate(table.url()).await.expect("again");
        assert_eq!(again, [migration.number], "{}", migration.name);
    }
}
