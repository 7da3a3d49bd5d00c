//! Claims read what they take and no more, whatever the statistics say and whatever waits in
//! front. Rows read are counted in the plan; nothing here looks at time.

use super::statements::{BEGIN, SETTLE_SENT, TAKE};
use postroom_testkit::{Postgres, TestDatabase};
use serde_json::Value;
use tokio_postgres::Client;

const LIMIT: i64 = 1_000;

async fn outbox() -> (TestDatabase, Client) {
    let database = Postgres::shared().await.database().await;
    crate::migrate(database.url()).await.unwrap();
    let client = database.client().await;
    // Statistics are taken when the test says so, and dead rows stay.
    for table in ["delivery", "integration_outbox"] {
        let off = format!("ALTER TABLE core_outbox.{table} SET (autovacuum_enabled = off)");
        client.batch_execute(&off).await.unwrap();
    }
    client
        .batch_execute(&format!(
            "PREPARE take (int, uuid, text, float8, text[], int[], timestamptz[], bigint[], bigint,
                           bigint)
             AS {TAKE}"
        ))
        .await
        .unwrap();
    (database, client)
}

async fn enqueue(client: &Client, integration: &str, messages: u32) {
    client
        .batch_execute(&format!(
            "INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload)
             SELECT 's', '{integration}' || n, '{integration}', 't',
                    jsonb_build_object('note', repeat('x', 280))
             FROM generate_series(1, {messages}) n"
        ))
        .await
        .unwrap();
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
        "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE take (262144, gen_random_uuid(), 'w', 30, \
         ARRAY['noop'], ARRAY[{LIMIT}], ARRAY['{due}'::timestamptz], ARRAY[{seq}], {LIMIT}, 4194304)"
    );
    explain(client, &execute).await
}

async fn explain(client: &Client, statement: &str) -> Value {
    client.batch_execute(BEGIN).await.unwrap();
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

/// A claim scans its rows once by index and once more by place, and reads each message once.
fn assert_reads_only_what_it_takes(plan: &Value) {
    let deliveries = rows_read(plan, "delivery");
    let messages = rows_read(plan, "integration_outbox");
    assert!(deliveries <= 2.0 * LIMIT as f64, "{deliveries} deliveries read: {plan:#}");
    assert!(messages <= LIMIT as f64, "{messages} messages read: {plan:#}");
    assert_eq!(plan["Actual Rows"], LIMIT, "{plan:#}");
}

#[tokio::test]
async fn fault_11_statistics_of_an_emptied_table_do_not_widen_a_claim() {
    let (_database, client) = outbox().await;
    // A queue that keeps up: filled, emptied, and analysed while empty and not vacuumed.
    enqueue(&client, "noop", 20_000).await;
    client
        .batch_execute(
            "DELETE FROM core_outbox.delivery; DELETE FROM core_outbox.integration_outbox; \
             ANALYZE core_outbox.delivery; ANALYZE core_outbox.integration_outbox",
        )
        .await
        .unwrap();
    // A plan cached in that state must not outlive it harmfully either.
    client.batch_execute("SET plan_cache_mode = force_generic_plan").await.unwrap();
    explain_take(&client).await;
    enqueue(&client, "noop", 50_000).await;
    assert_reads_only_what_it_takes(&explain_take(&client).await);
    client.batch_execute("SET plan_cache_mode = force_custom_plan").await.unwrap();
    assert_reads_only_what_it_takes(&explain_take(&client).await);
}

#[tokio::test]
async fn a_paused_lane_with_300_000_deliveries_in_front_is_not_read() {
    let (_database, client) = outbox().await;
    enqueue(&client, "a-paused-lane", 300_000).await;
    enqueue(&client, "noop", 5_000).await;
    assert_reads_only_what_it_takes(&explain_take(&client).await);
    client.batch_execute("ANALYZE core_outbox.delivery").await.unwrap();
    assert_reads_only_what_it_takes(&explain_take(&client).await);
}

#[tokio::test]
async fn a_batch_is_all_that_is_read_and_no_index_is_touched() {
    let (_database, client) = outbox().await;
    enqueue(&client, "noop", 50_000).await;
    explain_take(&client).await;
    client.batch_execute(&format!("PREPARE sent (uuid, bigint[]) AS {SETTLE_SENT}")).await.unwrap();
    let (token, seqs): (uuid::Uuid, Vec<i64>) = {
        let row = client
            .query_one(
                "SELECT claim, array_agg(seq) FROM core_outbox.delivery
                 WHERE claim IS NOT NULL GROUP BY claim",
                &[],
            )
            .await
            .unwrap();
        (row.get(0), row.get(1))
    };
    assert_eq!(seqs.len(), usize::try_from(LIMIT).unwrap());
    let list = seqs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let plan = explain(
        &client,
        &format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE sent ('{token}', ARRAY[{list}])"),
    )
    .await;
    assert!(rows_read(&plan, "delivery") <= LIMIT as f64, "{plan:#}");
    assert!(rows_read(&plan, "integration_outbox") <= LIMIT as f64, "{plan:#}");
    // The claim and the completion each stayed on their pages.
    client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    let hot = client
        .query(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
             WHERE schemaname = 'core_outbox' AND relname IN ('delivery', 'integration_outbox')",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(hot.len(), 2);
    for table in hot {
        assert_eq!((table.get::<_, i64>(0), table.get::<_, i64>(1)), (LIMIT, LIMIT));
    }
}
