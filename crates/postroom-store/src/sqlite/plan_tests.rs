//! The hot statements go by their index, whatever statistics someone took.

use super::layout::Names;
use super::{
    MIGRATIONS, admin, attempts, claims, content, dispatch, list, operate, parcels, prune, relays,
    rescue, settle, settle_parcels, statistics,
};
use sqlx::{Connection as _, Row as _, SqliteConnection};

const LANE_ROWS: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
    INSERT INTO integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    SELECT 's', 'e' || i, 'lane-' || (i % 2), 't', '{}' FROM n";

/// A message by its id, and what is named by it.
const MESSAGE: &str = "sqlite_autoindex_integration_outbox_1 (id=?)";
const DELIVERY: &str = "outbox_delivery USING PRIMARY KEY (message_id=?)";
const PARCEL: &str = "SEARCH p USING PRIMARY KEY (integration=? AND seq=? AND message_id=?)";

/// They put a page, and no more, in order.
const SORTED: [&str; 1] = [list::WAITING];

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
    let mut bad = Vec::new();
    // Statistics: none; of one message; of a large backlog; of a table that was emptied since.
    for prepare in [
        "SELECT 1",
        "INSERT INTO integration_outbox
             (source_stream_id, source_event_id, integration_type, event_type, payload)
         VALUES ('s', 'first', 'lane-0', 't', '{}'); ANALYZE",
        &format!("{LANE_ROWS}; ANALYZE"),
        "DELETE FROM outbox_parcel; DELETE FROM integration_outbox; ANALYZE",
    ] {
        let sql = sqlx::AssertSqlSafe(prepare.to_owned());
        sqlx::raw_sql(sql).execute(&mut connection).await.expect("prepared");
        statistics::forget(&mut connection, &Names::default()).await.expect("forgotten");
        for (statement, index) in [
            (claims::IS_DUE, "outbox_delivery_lane (integration=? AND due_at<?)"),
            (claims::IS_RESCUED_DUE, "outbox_delivery_rescued (integration=? AND due_at<?)"),
            (claims::TAKE, "outbox_delivery_lane (integration=? AND due_at<?)"),
            (claims::TAKE_RESCUED, "outbox_delivery_rescued (integration=? AND due_at<?)"),
            (claims::CLAIM_DELIVERIES, DELIVERY),
            (claims::FORGET_CLOSED, DELIVERY),
            (content::READ, "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"),
            (parcels::IS_FRESH, "SEARCH p USING PRIMARY KEY (integration=? AND seq>?)"),
            (parcels::TAKE_PARCELS, "SEARCH p USING PRIMARY KEY (integration=? AND seq>?)"),
            (parcels::TAKE_PARCELS, "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"),
            (parcels::SWEEP, "SEARCH p USING PRIMARY KEY (integration=? AND seq<?)"),
            (parcels::SWEPT_PARCELS, PARCEL),
            // With older versions of SQLite a row value finds the lane only: that would read all of it.
            (
                parcels::END_PARCELS,
                "outbox_parcel USING PRIMARY KEY (integration=? AND seq=? AND message_id=?)",
            ),
            (parcels::MADE_OF_PARCELS, MESSAGE),
            (parcels::UNPACK_OF, PARCEL),
            (parcels::FOLLOW, DELIVERY),
            (settle::BY_CLAIM.sent, "message_id=?)"),
            (settle::BY_CLAIM.released, "message_id=?)"),
            (settle::BY_CLAIM.failed, DELIVERY),
            (settle::BY_CLAIM.postponed, DELIVERY),
            (settle::BY_DISPATCH.sent, DELIVERY),
            (settle::BY_DISPATCH.released, DELIVERY),
            (settle::BY_DISPATCH.failed, DELIVERY),
            (settle::BY_DISPATCH.postponed, DELIVERY),
            (settle::MARK_SENT, MESSAGE),
            (settle::MARK_FAILED, MESSAGE),
            (settle::MARK_PUT_OFF, MESSAGE),
            (settle::DELETE_MESSAGES, MESSAGE),
            (settle::FORGET_CLAIM, "outbox_delivery_claimed (claim=?)"),
            (settle::THERE, MESSAGE),
            (settle::ALREADY_SETTLED, MESSAGE),
            (settle_parcels::OUTRANKED, "SEARCH d USING PRIMARY KEY (message_id=?)"),
            (settle_parcels::FAILED, MESSAGE),
            (settle_parcels::POSTPONED, MESSAGE),
            (settle_parcels::FORGET_PARCELS, PARCEL),
            (dispatch::DISPATCHED, MESSAGE),
            (dispatch::REOPEN, "outbox_delivery_number (seq=?)"),
            (rescue::HELD, "outbox_delivery_claimed (claim=?)"),
            (rescue::RESCUE, "outbox_delivery_claimed (claim=?)"),
            (relays::CLAIMS_OF_RELAY, "outbox_claim_relay (relay=?)"),
            (attempts::SWEEP, "PRIMARY KEY (message_id>?)"),
            (prune::PRUNE, "outbox_sent (<expr><?)"),
            (prune::DEAD, "outbox_delivery_dead (seq>?)"),
            (prune::PRUNE_ORPHANS, MESSAGE),
            (operate::REDRIVE, DELIVERY),
            (operate::CANCEL, DELIVERY),
            (list::ANY, "SEARCH m USING INTEGER PRIMARY KEY (rowid<?)"),
            (list::WAITING, "outbox_delivery_number (seq<?)"),
            (list::WAITING, "SEARCH m USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
            (list::DEAD, "outbox_delivery_dead (seq<?)"),
            (admin::CLAIM_OF, MESSAGE),
        ] {
            let plan = plan(&mut connection, statement).await;
            let is_bounded = plan.lines().filter(|step| step.contains("SCAN")).all(is_small);
            let is_sorted = !plan.contains("TEMP B-TREE") || SORTED.contains(&statement);
            if !(plan.contains(index) && is_bounded && is_sorted) {
                bad.push(format!("after {prepare}, without {index}:\n{statement}\n{plan}"));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}

/// Steps that read no more than was asked for, or than there are relays, claims and lanes.
fn is_small(step: &str) -> bool {
    [
        "VIRTUAL TABLE",
        "CONSTANT ROW",
        "SCAN c",
        "SCAN f",
        "SCAN l",
        "SCAN lane",
        "SCAN picked",
        "SCAN (subquery-",
    ]
    .iter()
    .any(|small| step.contains(small))
}

#[tokio::test]
async fn an_event_is_listed_by_the_fence() {
    let mut connection = outbox().await;
    let plan = plan(&mut connection, list::OF_EVENT).await;
    assert!(plan.contains("outbox_fence (source_event_id=?)"), "{plan}");
    assert!(plan.lines().filter(|step| step.contains("SCAN")).all(is_small), "{plan}");
}
