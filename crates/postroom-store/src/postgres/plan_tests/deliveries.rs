//! Deliveries: taking them, and settling by claim and by dispatch.

use super::{
    LIMIT, RELAY, STATISTICS, assert_reads_only_what_it_takes, defer, explain, explain_take,
    explain_under, outbox, rows_read,
};
use crate::postgres::statements::{SETTLE_SENT, TAKE_RESCUED};
use crate::postgres::transaction::{BEGIN, JOIN_BY_HASH};
use crate::postgres::{dispatch, outcomes};
use tokio_postgres::Client;
use uuid::Uuid;

#[tokio::test]
async fn fault_11_statistics_of_an_emptied_table_do_not_widen_a_claim() {
    let (_database, client) = outbox().await;
    // A queue that keeps up: filled, emptied, and analysed while empty and not vacuumed.
    defer(&client, "noop", 20_000).await;
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
    defer(&client, "noop", 50_000).await;
    assert_reads_only_what_it_takes(&explain_take(&client).await);
    client.batch_execute("SET plan_cache_mode = force_custom_plan").await.unwrap();
    assert_reads_only_what_it_takes(&explain_take(&client).await);
}

#[tokio::test]
async fn a_paused_lane_with_300_000_deliveries_in_front_is_not_read() {
    let (_database, client) = outbox().await;
    defer(&client, "a-paused-lane", 300_000).await;
    defer(&client, "noop", 5_000).await;
    assert_reads_only_what_it_takes(&explain_take(&client).await);
    client.batch_execute("ANALYZE core_outbox.delivery").await.unwrap();
    assert_reads_only_what_it_takes(&explain_take(&client).await);
}

/// The token of the one claim on deliveries there is, and some of the ids it holds, as a list.
async fn held(client: &Client, messages: i64) -> (Uuid, String) {
    let row = client
        .query_one(
            "SELECT claim, (array_agg(message_id ORDER BY seq))[:$1::bigint]
             FROM core_outbox.delivery WHERE claim IS NOT NULL GROUP BY claim",
            &[&messages],
        )
        .await
        .unwrap();
    let ids: Vec<Uuid> = row.get(1);
    assert_eq!(ids.len(), usize::try_from(messages).unwrap());
    (row.get(0), list(&ids))
}

fn list(ids: &[Uuid]) -> String {
    ids.iter().map(|id| format!("'{id}'::uuid")).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn a_batch_is_all_that_is_read_and_no_index_is_touched() {
    let (_database, client) = outbox().await;
    defer(&client, "noop", 50_000).await;
    explain_take(&client).await;
    client.batch_execute(&format!("PREPARE sent (uuid, uuid[]) AS {SETTLE_SENT}")).await.unwrap();
    let (token, list) = held(&client, LIMIT).await;
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

#[tokio::test]
async fn a_failure_reads_the_attempts_of_its_own_messages() {
    const FAILURES: i64 = 100;
    let (_database, client) = outbox().await;
    defer(&client, "noop", 2_000).await;
    explain_take(&client).await;
    client
        .batch_execute(
            "INSERT INTO core_outbox.attempt (message_id, number, at, took_ms, outcome, error)
             SELECT id, n, now(), 1, 'retry', '503'
             FROM core_outbox.integration_outbox CROSS JOIN generate_series(1, 20) n",
        )
        .await
        .unwrap();
    client
        .batch_execute(&format!(
            "PREPARE failed (int, uuid, uuid[], float8[], text[], boolean[], text[], bigint[])
             AS {}",
            outcomes::FAILED
        ))
        .await
        .unwrap();
    let begin = format!("{BEGIN}; {JOIN_BY_HASH}");
    let (token, list) = held(&client, FAILURES).await;
    let execute = format!(
        "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE failed (20, '{token}', ARRAY[{list}],
             array_fill(1::float8, ARRAY[{FAILURES}]), array_fill('503'::text, ARRAY[{FAILURES}]),
             array_fill(false, ARRAY[{FAILURES}]), array_fill('retry'::text, ARRAY[{FAILURES}]),
             array_fill(1::bigint, ARRAY[{FAILURES}]))"
    );
    let plan = explain_under(&client, &begin, &execute).await;
    assert_eq!(plan["Actual Rows"], FAILURES, "{plan:#}");
    // One to find the next number, one to forget, and that one again by its place.
    let attempts = rows_read(&plan, "attempt");
    assert!(attempts <= 3.0 * FAILURES as f64, "{attempts} attempts read: {plan:#}");
    // Once to be locked, before its delivery is freed, and once to be marked.
    let messages = rows_read(&plan, "integration_outbox");
    assert!(messages <= 2.0 * FAILURES as f64, "{messages} messages read: {plan:#}");
    // At most those of the same claim.
    let deliveries = rows_read(&plan, "delivery");
    assert!(deliveries <= LIMIT as f64, "{deliveries} deliveries read: {plan:#}");
    let kept = client.query_one("SELECT count(*) FROM core_outbox.attempt", &[]).await.unwrap();
    assert_eq!(kept.get::<_, i64>(0), 40_000);
}

#[tokio::test]
async fn what_is_postponed_is_found_by_key() {
    const POSTPONED: i64 = 100;
    let (_database, client) = outbox().await;
    defer(&client, "noop", 20_000).await;
    explain_take(&client).await;
    let prepare = format!("PREPARE postponed (uuid, uuid[], float8[]) AS {}", outcomes::POSTPONED);
    client.batch_execute(&prepare).await.unwrap();
    let begin = format!("{BEGIN}; {JOIN_BY_HASH}");
    for prepare in STATISTICS {
        client.batch_execute(prepare).await.unwrap();
        let (token, list) = held(&client, POSTPONED).await;
        let execute = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE postponed ('{token}', ARRAY[{list}],
                 array_fill(60::float8, ARRAY[{POSTPONED}]))"
        );
        let plan = explain_under(&client, &begin, &execute).await;
        assert_eq!(plan["Actual Rows"], POSTPONED, "{plan:#}");
        // Each to lock it, and to change it.
        let (deliveries, messages) =
            (rows_read(&plan, "delivery"), rows_read(&plan, "integration_outbox"));
        let most = 2.0 * POSTPONED as f64;
        assert!(deliveries <= most, "after {prepare}: {deliveries} deliveries read: {plan:#}");
        assert!(messages <= most, "after {prepare}: {messages} messages read: {plan:#}");
    }
}

/// What a worker elsewhere does: it reads by id, and settles by the number of the dispatch.
#[tokio::test]
async fn a_dispatch_is_read_and_settled_by_key() {
    let (_database, client) = outbox().await;
    defer(&client, "noop", 20_000).await;
    client
        .batch_execute(&format!(
            "PREPARE dispatched (uuid[]) AS {};
             PREPARE sent (uuid, uuid[], int) AS {};
             PREPARE failed (int, uuid, uuid[], float8[], text[], boolean[], text[], bigint[],
                             int, int) AS {}",
            dispatch::DISPATCHED,
            outcomes::DISPATCH_SENT,
            outcomes::DISPATCH_FAILED
        ))
        .await
        .unwrap();
    let by_hash = format!("{BEGIN}; {JOIN_BY_HASH}");
    for prepare in STATISTICS {
        client.batch_execute(prepare).await.unwrap();
        let row = client
            .query_one(
                "SELECT array_agg(message_id)
                 FROM (SELECT message_id FROM core_outbox.delivery ORDER BY seq LIMIT $1) AS first",
                &[&LIMIT],
            )
            .await
            .unwrap();
        let ids = list(&row.get::<_, Vec<Uuid>>(0));
        let failures = format!(
            "array_fill(1::float8, ARRAY[{LIMIT}]), array_fill('503'::text, ARRAY[{LIMIT}]),
             array_fill(false, ARRAY[{LIMIT}]), array_fill('retry'::text, ARRAY[{LIMIT}]),
             array_fill(1::bigint, ARRAY[{LIMIT}])"
        );
        let fresh = "gen_random_uuid()";
        for (begin, execute) in [
            (BEGIN, format!("dispatched (ARRAY[{ids}])")),
            (&*by_hash, format!("failed (20, {fresh}, ARRAY[{ids}], {failures}, 0, 0)")),
            (BEGIN, format!("sent ({fresh}, ARRAY[{ids}], 1)")),
        ] {
            let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {execute}");
            let plan = explain_under(&client, begin, &explain).await;
            assert_eq!(plan["Actual Rows"], LIMIT, "{plan:#}");
            let (deliveries, messages) =
                (rows_read(&plan, "delivery"), rows_read(&plan, "integration_outbox"));
            // To lock it, and to change it.
            let most = 2.0 * LIMIT as f64;
            assert!(deliveries <= most, "{deliveries} deliveries read: {plan:#}");
            assert!(messages <= most, "{messages} messages read: {plan:#}");
        }
    }
}

#[tokio::test]
async fn taking_rescued_messages_reads_no_more_than_a_quota() {
    const ROWS: i64 = 100;
    let (_database, client) = outbox().await;
    defer(&client, "noop", 20_000).await;
    // Those that go alone come first: they are read, as far as a quota goes, and passed over.
    let prepare = format!(
        "UPDATE core_outbox.delivery SET rescues = CASE WHEN seq % 1000 < 20 THEN 9 ELSE 1 END;
         PREPARE take_rescued (int, text[], uuid[], int[], text, uuid, bigint, bigint, boolean,
                               boolean)
         AS {TAKE_RESCUED}"
    );
    client.batch_execute(&prepare).await.unwrap();
    for prepare in STATISTICS {
        client.batch_execute(prepare).await.unwrap();
        for (alone, taken) in [(false, ROWS / 2), (true, 1)] {
            let execute = format!(
                "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE take_rescued (262144, ARRAY['noop', 'idle'], \
                 ARRAY[gen_random_uuid(), gen_random_uuid()], ARRAY[{ROWS}, {ROWS}], 'w', {RELAY}, 1000, \
                 4194304, {alone}, false)"
            );
            let plan = explain(&client, &execute).await;
            assert_eq!(plan["Actual Rows"], taken, "after {prepare}: {plan:#}");
            // By index, up to the quota beyond what is held, and once more by place.
            let held = "SELECT count(*) FROM core_outbox.delivery WHERE claim IS NOT NULL";
            let held: i64 = client.query_one(held, &[]).await.unwrap().get(0);
            let (deliveries, messages) =
                (rows_read(&plan, "delivery"), rows_read(&plan, "integration_outbox"));
            let most = (2 * ROWS + held) as f64;
            assert!(deliveries <= most, "after {prepare}: {deliveries} deliveries: {plan:#}");
            assert!(messages <= taken as f64, "after {prepare}: {messages} messages: {plan:#}");
        }
    }
}
