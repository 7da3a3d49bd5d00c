//! The hot statements go by their index, whatever statistics someone took.

use super::{MIGRATIONS, list, statements, statistics};
use sqlx::{Connection as _, Row as _, SqliteConnection};

const LANE_ROWS: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
    INSERT INTO integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    SELECT 's', 'e' || i, 'lane-' || (i % 2), 't', '{}' FROM n";

async fn outbox() -> SqliteConnection {
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.expect("in memory");
    for migration in MIGRATIONS {
        sqlx::raw_sql(migration.sql).execute(&mut connection).await.expect("migrated");
    }
    connection
}

async fn plan(connection: &mut SqliteConnection, statement: &str) -> String {
    let sql = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
    let rows = sqlx::query(sql).fetch_all(connection).await.expect("a plan");
    let steps: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
    steps.join("\n")
}

#[tokio::test]
async fn hot_statements_go_by_their_index() {
    let mut connection = outbox().await;
    // Statistics: none; of one message; of a large backlog; of a table that was emptied since.
    for prepare in [
        "SELECT 1",
        "INSERT INTO integration_outbox
             (source_stream_id, source_event_id, integration_type, event_type, payload)
         VALUES ('s', 'first', 'lane-0', 't', '{}'); ANALYZE",
        &format!("{LANE_ROWS}; ANALYZE"),
        "DELETE FROM outbox_delivery; DELETE FROM integration_outbox; ANALYZE",
    ] {
        let sql = sqlx::AssertSqlSafe(prepare.to_owned());
        sqlx::raw_sql(sql).execute(&mut connection).await.expect("prepared");
        statistics::forget(&mut connection).await.expect("forgotten");
        for (statement, index) in [
            (statements::IS_DUE, "outbox_delivery_ready (integration=? AND due_at<?)"),
            (statements::IS_RESCUED_DUE, "outbox_delivery_rescued (integration=? AND due_at<?)"),
            (statements::DUE, "outbox_delivery_ready (integration=? AND due_at<?)"),
            (statements::RESCUED_DUE, "outbox_delivery_rescued (integration=? AND due_at<?)"),
            (statements::CLAIM, "INTEGER PRIMARY KEY (rowid=?)"),
            (statements::READ, "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"),
            (statements::BY_CLAIM.end_sent, "outbox_delivery"),
            (statements::MARK_SENT, "INTEGER PRIMARY KEY (rowid=?)"),
            (statements::BY_CLAIM.free_failed, "outbox_delivery"),
            (statements::BY_DISPATCH.end_sent, "outbox_delivery"),
            (statements::BY_DISPATCH.free_failed, "outbox_delivery"),
            (statements::DISPATCHED, "sqlite_autoindex_integration_outbox"),
            (statements::FREE_RESCUED, "outbox_delivery_claimed (claim=?)"),
            (statements::CLAIMS_OF_RELAY, "outbox_claim_relay (relay=?)"),
            (statements::PRUNE, "outbox_sent (<expr><?)"),
            (statements::DEAD, "outbox_delivery_dead (seq>?)"),
            (statements::PRUNE_ORPHANS, "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"),
            (list::ANY, "SEARCH m USING INTEGER PRIMARY KEY (rowid<?)"),
            (list::OPEN, "SEARCH open USING INTEGER PRIMARY KEY (rowid<?)"),
            (list::DEAD, "outbox_delivery_dead (seq<?)"),
            (statements::CLAIM_OF, "sqlite_autoindex_integration_outbox_1 (id=?)"),
        ] {
            let plan = plan(&mut connection, statement).await;
            assert!(plan.contains(index), "after {prepare}:\n{statement}\n{plan}");
            let scans = plan.lines().filter(|step| step.starts_with("SCAN"));
            for scan in scans {
                let is_small = scan.contains("VIRTUAL TABLE") || scan.contains("CONSTANT ROW");
                assert!(is_small, "after {prepare}:\n{statement}\n{plan}");
            }
            assert!(!plan.contains("TEMP B-TREE"), "after {prepare}:\n{statement}\n{plan}");
        }
    }
}

#[tokio::test]
async fn an_event_is_listed_by_the_fence() {
    let mut connection = outbox().await;
    let plan = plan(&mut connection, list::OF_EVENT).await;
    assert!(plan.contains("outbox_fence (source_event_id=?)"), "{plan}");
    assert!(!plan.contains("SCAN"), "{plan}");
}
