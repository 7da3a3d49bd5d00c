//! Claims read what they take and no more, and lists what they show, whatever the statistics say
//! and whatever waits in front. Rows read are counted in the plan; nothing here looks at time.

mod deliveries;
mod layout_changes;
mod layouts;
mod lists;
mod parcels;
mod upkeep;

use super::statements::TAKE;
use super::transaction::BEGIN;
use postroom_testkit::{Postgres, TestDatabase};
use serde_json::Value;
use tokio_postgres::Client;

const LIMIT: i64 = 1_000;

/// No statistics, true ones, and those of a queue that was just emptied.
const STATISTICS: [&str; 3] = [
    "SELECT 1",
    "ANALYZE core_outbox.parcel; ANALYZE core_outbox.delivery; ANALYZE core_outbox.claim;
     ANALYZE core_outbox.integration_outbox",
    "UPDATE pg_class SET reltuples = 0, relpages = 0
     WHERE relnamespace = 'core_outbox'::regnamespace",
];

/// The relay that takes.
const RELAY: &str = "'00000000-0000-4000-8000-000000000001'";
const LIVING_RELAY: &str = "INSERT INTO core_outbox.relay
    VALUES ('00000000-0000-4000-8000-000000000001', 'w', now(), now() + interval '1 day', '1', 1)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until";

async fn outbox() -> (TestDatabase, Client) {
    let database = Postgres::shared().await.database().await;
    crate::migrate(database.url()).await.unwrap();
    let client = database.client().await;
    // Statistics are taken when the test says so, and dead rows stay.
    for table in ["parcel", "delivery", "claim", "lane_cursor", "integration_outbox"] {
        let off = format!("ALTER TABLE core_outbox.{table} SET (autovacuum_enabled = off)");
        client.batch_execute(&off).await.unwrap();
    }
    client
        .batch_execute(&format!(
            "PREPARE take (int, uuid, text, uuid, text[], int[], timestamptz[], bigint[], bigint,
                           bigint, boolean)
             AS {TAKE};
             {LIVING_RELAY}"
        ))
        .await
        .unwrap();
    (database, client)
}

/// Fresh messages, of one statement: in parcels of 64.
async fn enqueue(client: &Client, integration: &str, messages: u32) {
    client.batch_execute(&insert(integration, messages)).await.unwrap();
}

/// Messages with a delivery each, due, as no trigger makes them at once.
async fn defer(client: &Client, integration: &str, messages: u32) {
    client
        .batch_execute(&format!(
            "BEGIN; SET LOCAL session_replication_role = replica; {}; COMMIT;
             INSERT INTO core_outbox.delivery
                 (message_id, seq, due_at, since, lane, bytes, state, integration)
             SELECT id, seq, due_at, due_at, core_outbox.lane_of(integration_type), 300, 'w',
                    integration_type
             FROM core_outbox.integration_outbox
             WHERE integration_type = '{integration}'
             ORDER BY seq",
            insert(integration, messages)
        ))
        .await
        .unwrap();
}

fn insert(integration: &str, messages: u32) -> String {
    format!(
        "INSERT INTO core_outbox.integration_outbox
             (source_stream_id, source_event_id, integration_type, event_type, payload)
         SELECT 's', '{integration}' || n, '{integration}', 't',
                jsonb_build_object('note', repeat('x', 280))
         FROM generate_series(1, {messages}) n"
    )
}

/// Closes the messages of a lane, ledger included.
async fn close(client: &Client, integration: &str) {
    client
        .batch_execute(&format!(
            "BEGIN; SET LOCAL core_outbox.relay = 'on';
             UPDATE core_outbox.integration_outbox SET status = 'SENT'
             WHERE integration_type = '{integration}';
             DELETE FROM core_outbox.parcel WHERE integration = '{integration}';
             DELETE FROM core_outbox.delivery WHERE integration = '{integration}';
             COMMIT"
        ))
        .await
        .unwrap();
}

async fn count(client: &Client, from: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM core_outbox.{from}");
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

/// Runs the prepared claim under the relay's planner settings, beginning after what was claimed
/// before, and returns its plan.
async fn explain_take(client: &Client) -> Value {
    let mark = client
        .query_one(
            "SELECT coalesce(max(due_at), 'epoch')::text, coalesce(max(seq), 0)
             FROM core_outbox.delivery WHERE claim IS NOT NULL",
            &[],
        )
        .await
        .unwrap();
    let (due, seq): (String, i64) = (mark.get(0), mark.get(1));
    let execute = format!(
        "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE take (262144, gen_random_uuid(), 'w', {RELAY}, \
         ARRAY['noop'], ARRAY[{LIMIT}], ARRAY['{due}'::timestamptz], ARRAY[{seq}], {LIMIT}, 4194304, false)"
    );
    explain(client, &execute).await
}

async fn explain(client: &Client, statement: &str) -> Value {
    explain_under(client, BEGIN, statement).await
}

async fn explain_under(client: &Client, begin: &str, statement: &str) -> Value {
    client.batch_execute(begin).await.unwrap();
    let answer = client.simple_query(statement).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    let text: String = answer
        .iter()
        .filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    serde_json::from_str::<Value>(&text).unwrap()[0]["Plan"].clone()
}

/// Rows that scans of `table` touched, those they threw away included.
fn rows_read(plan: &Value, table: &str) -> f64 {
    let number = |key: &str| plan[key].as_f64().unwrap_or(0.0);
    let own = if plan["Relation Name"] == table && plan["Node Type"] != "ModifyTable" {
        let removed = number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
        (number("Actual Rows") + removed) * number("Actual Loops")
    } else {
        0.0
    };
    let below = plan["Plans"].as_array().into_iter().flatten();
    own + below.map(|plan| rows_read(plan, table)).sum::<f64>()
}

/// The most rows that any step of a plan handled, those that it threw away included: what a join
/// compares is seen here, and in no table.
fn most_rows(plan: &Value) -> f64 {
    let number = |key: &str| plan[key].as_f64().unwrap_or(0.0);
    let removed = number("Rows Removed by Filter") + number("Rows Removed by Join Filter");
    let own = (number("Actual Rows") + removed) * number("Actual Loops");
    let below = plan["Plans"].as_array().into_iter().flatten();
    below.map(most_rows).fold(own, f64::max)
}

/// A claim scans its rows once by index and once more by place, and reads each message once.
fn assert_reads_only_what_it_takes(plan: &Value) {
    let deliveries = rows_read(plan, "delivery");
    let messages = rows_read(plan, "integration_outbox");
    assert!(deliveries <= 2.0 * LIMIT as f64, "{deliveries} deliveries read: {plan:#}");
    assert!(messages <= LIMIT as f64, "{messages} messages read: {plan:#}");
    assert_eq!(plan["Actual Rows"], LIMIT, "{plan:#}");
}
