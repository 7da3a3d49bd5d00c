//! Tables that somebody else made: following changes by hand, replaying and polling read what they are about, whatever
//! the history, the backlog and the statistics.

use super::layouts::{HISTORY, STATISTICS, Table, built_in};
use super::{LIMIT, explain_under, most_rows, rows_read};
use crate::layout::{Feed, Layout};
use crate::postgres::operate::REPLAY_ROW;
use crate::postgres::parcels::FOLLOW;
use crate::postgres::polled;
use crate::postgres::transaction::{BEGIN, BEGIN_DURABLE};

const INSERT: &str = "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
    SELECT gen_random_uuid(), gen_random_uuid(), 't', n::text, '{}' FROM generate_series({from}, {to}) n";

async fn events(layout: Layout, statistics: &str) -> Table {
    let table = Table::filled(layout, INSERT, "delivered_at = now()").await;
    table.client.batch_execute(statistics).await.unwrap();
    table
}

/// A batch of what was delivered long ago.
async fn delivered(table: &Table) -> Vec<String> {
    let sql = format!(
        "SELECT event_id::text FROM outbox_events WHERE delivered_at IS NOT NULL \
         ORDER BY idempotency_key LIMIT {LIMIT}"
    );
    table.client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn changes_by_hand_are_followed_by_reading_what_was_changed() {
    for statistics in STATISTICS {
        let table = events(built_in("events"), statistics).await;
        table.prepare("follow", "uuid[], boolean, bigint[], bigint[]", FOLLOW).await;
        let ids = table.list(&delivered(&table).await);
        let reopen =
            format!("UPDATE outbox_events SET delivered_at = NULL WHERE event_id = ANY ({ids})");
        table.client.batch_execute(&reopen).await.unwrap();
        let edits = "SELECT format('%L::bigint[], %L::bigint[]', array_agg(lane), array_agg(id))
                     FROM postroom_outbox_events.pending_edit";
        let edits: String = table.client.query_one(edits, &[]).await.unwrap().get(0);
        let follow =
            format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE follow ({ids}, true, {edits})");
        let left = "SELECT count(*) FROM postroom_outbox_events.delivery";
        // At first they get their deliveries, then these are compared.
        for _ in 0..2 {
            let plan = explain_under(&table.client, BEGIN, &follow).await;
            table.assert_reads_a_batch(&plan, "following changes by hand");
            assert_eq!(table.client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), LIMIT);
        }
    }
}

#[tokio::test]
async fn a_replay_reads_what_it_replays() {
    for statistics in STATISTICS {
        let table = events(built_in("events"), statistics).await;
        table.prepare("replay", "uuid[], uuid, bigint", REPLAY_ROW).await;
        let ids = table.list(&delivered(&table).await);
        let replay =
            format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE replay ({ids}, gen_random_uuid(), 0)");
        let plan = explain_under(&table.client, BEGIN_DURABLE, &replay).await;
        table.assert_reads_a_batch(&plan, "replaying");
        let open = "SELECT count(*) FROM outbox_events WHERE delivered_at IS NULL";
        let open: i64 = table.client.query_one(open, &[]).await.unwrap().get(0);
        assert_eq!(open, 3 * LIMIT);
    }
}

/// The statement with which `poll` looks for new rows, as `poll.sql` has it: with its two variables as parameters.
fn look(table: &Table) -> String {
    let function = table.foreign.poll();
    let from = function.find("WITH new AS MATERIALIZED").expect("the look");
    let (statement, _) = function[from..].split_once(';').expect("its end");
    statement
        .replace("INTO seen ", "")
        .replace("since = '0'", "$1 = '0'")
        .replace("since::text", "$1::text")
        .replace(", soon)", ", $2)")
}

/// How many rows of the table one call of `poll` reads.
async fn rows_of_a_poll(table: &Table) -> f64 {
    let client = &table.client;
    // What earlier transactions of the session have read may still be counted in it.
    let read = "SELECT (seq_tup_read + idx_tup_fetch)::float8 FROM pg_stat_xact_user_tables
                WHERE relid = 'outbox_events'::regclass";
    client.batch_execute(&polled::begin()).await.unwrap();
    let before: f64 = client.query_one(read, &[]).await.unwrap().get(0);
    client.batch_execute("SELECT postroom_outbox_events.poll()").await.unwrap();
    let after: f64 = client.query_one(read, &[]).await.unwrap().get(0);
    client.batch_execute("COMMIT").await.unwrap();
    after - before
}

#[tokio::test]
async fn a_poll_reads_the_open_rows_and_nothing_of_the_history() {
    for statistics in STATISTICS {
        let table = events(Layout { feed: Feed::Poll, ..built_in("events") }, statistics).await;
        let sql = look(&table);
        let prepare = format!("PREPARE look (xid8, timestamptz) AS {sql}");
        table.client.batch_execute(&prepare).await.unwrap_or_else(|e| panic!("{e:?}\n{sql}"));
        let open = 2.0 * LIMIT as f64;
        // At first everything that is open is new. Then nothing is, with a whole backlog in parcels, and everything or
        // nothing was written since the last look.
        for since in ["'0'", "'1'", "pg_snapshot_xmin(pg_current_snapshot())"] {
            let look = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE look ({since}, now())");
            let plan = explain_under(&table.client, &polled::begin(), &look).await;
            let rows = rows_read(&plan, &table.name);
            assert!(rows <= open, "after {statistics}: {rows} of {HISTORY} delivered: {plan:#}");
            let most = most_rows(&plan);
            assert!(most <= 2.0 * open, "after {statistics}: a step handles {most} rows: {plan:#}");
        }
        // The whole function looks twice: for what is new, and for what was changed.
        for looks in [1.0, 2.0] {
            let rows = rows_of_a_poll(&table).await;
            assert!(
                rows > 0.0 && rows <= looks * open,
                "after {statistics}: a poll reads {rows} rows"
            );
        }
        let named = "SELECT sum(cardinality(refs)) FROM postroom_outbox_events.parcel";
        let named: i64 = table.client.query_one(named, &[]).await.unwrap().get(0);
        assert_eq!(named, 2 * LIMIT);
    }
}
