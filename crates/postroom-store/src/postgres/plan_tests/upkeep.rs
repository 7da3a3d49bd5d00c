//! Rescues and pruning.

use super::{
    LIMIT, LIVING_RELAY, RELAY, STATISTICS, close, defer, enqueue, explain, explain_take,
    explain_under, outbox, rows_read,
};
use crate::postgres::transaction::{BEGIN, JOIN_BY_HASH};
use crate::postgres::{orphans, rescue};

#[tokio::test]
async fn a_rescue_reads_what_it_frees() {
    let (_database, client) = outbox().await;
    enqueue(&client, "sent", 20_000).await;
    close(&client, "sent").await;
    defer(&client, "noop", 20_000).await;
    let prepare = format!("PREPARE rescue (int, uuid[], uuid) AS {}", rescue::RESCUE);
    client.batch_execute(&prepare).await.unwrap();
    let begin = format!("{BEGIN}; {JOIN_BY_HASH}");
    for prepare in STATISTICS {
        client.batch_execute(prepare).await.unwrap();
        client.batch_execute(LIVING_RELAY).await.unwrap();
        explain_take(&client).await;
        let expire = "UPDATE core_outbox.relay SET until = now() - interval '1 second'";
        client.batch_execute(expire).await.unwrap();
        let tokens = "SELECT string_agg(quote_literal(token), ',') FROM core_outbox.claim";
        let tokens: String = client.query_one(tokens, &[]).await.unwrap().get(0);
        let execute = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE rescue \
             (20, ARRAY[{tokens}]::uuid[], gen_random_uuid())"
        );
        let plan = explain_under(&client, &begin, &execute).await;
        let rescued =
            "SELECT count(*) FROM core_outbox.delivery WHERE rescues > 0 AND claim IS NULL";
        let rescued: i64 = client.query_one(rescued, &[]).await.unwrap().get(0);
        assert!(rescued > 0 && rescued % LIMIT == 0, "after {prepare}: {rescued} rescued");
        // Deliveries to lock, to free, and to see whether any is left; messages to see whether they
        // are there, and to lock.
        let (deliveries, messages) =
            (rows_read(&plan, "delivery"), rows_read(&plan, "integration_outbox"));
        assert!(deliveries <= 3.0 * LIMIT as f64, "{deliveries} deliveries read: {plan:#}");
        assert!(messages <= 2.0 * LIMIT as f64, "{messages} messages read: {plan:#}");
    }
}

/// Nearly every look for expired claims finds none, however many a heartbeat keeps.
#[tokio::test]
async fn claims_of_a_living_relay_are_read_once_and_nothing_they_hold() {
    const CLAIMS: i64 = 5_000;
    let (_database, client) = outbox().await;
    defer(&client, "noop", 5_000).await;
    client
        .batch_execute(&format!(
            "ALTER TABLE core_outbox.claim SET (autovacuum_enabled = off);
             WITH held AS (
                 UPDATE core_outbox.delivery SET claim = gen_random_uuid()
                 RETURNING message_id, claim
             )
             INSERT INTO core_outbox.claim (token, worker, since, relay, alone, ids, dispatched)
             SELECT held.claim, 'w', now(), {RELAY}, false, ARRAY[held.message_id], true FROM held;
             PREPARE expired (bigint, uuid, boolean) AS {}",
            rescue::EXPIRED
        ))
        .await
        .unwrap();
    for prepare in STATISTICS {
        client.batch_execute(prepare).await.unwrap();
        for (begin, statement) in [
            ("BEGIN", &*rescue::ANY_EXPIRED.replace("$1", "gen_random_uuid()")),
            (BEGIN, "EXECUTE expired (10, gen_random_uuid(), false)"),
        ] {
            let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) {statement}");
            let plan = explain_under(&client, begin, &explain).await;
            let (claims, deliveries) = (rows_read(&plan, "claim"), rows_read(&plan, "delivery"));
            // A rescue asks first which relays have claims.
            assert!(claims <= 2.0 * CLAIMS as f64, "after {prepare}: {claims}: {plan:#}");
            assert!(deliveries == 0.0, "after {prepare}: {deliveries}: {plan:#}");
        }
    }
    let held = "SELECT count(*) FROM core_outbox.delivery WHERE claim IS NOT NULL";
    assert_eq!(client.query_one(held, &[]).await.unwrap().get::<_, i64>(0), CLAIMS);
}

#[tokio::test]
async fn pruning_orphans_reads_as_many_dead_deliveries_as_it_may() {
    const STEP: i64 = 100;
    let (_database, client) = outbox().await;
    defer(&client, "dead", 1_000).await;
    client
        .batch_execute("UPDATE core_outbox.integration_outbox SET status = 'DEAD'")
        .await
        .unwrap();
    enqueue(&client, "sent", 20_000).await;
    close(&client, "sent").await;
    client
        .batch_execute("DELETE FROM core_outbox.integration_outbox WHERE source_event_id = 'dead7'")
        .await
        .unwrap();
    defer(&client, "noop", 5_000).await;
    let prepare = format!("PREPARE orphans (text, bigint, bigint) AS {}", orphans::PRUNE_ORPHANS);
    client.batch_execute(&prepare).await.unwrap();
    for prepare in STATISTICS {
        client.batch_execute(prepare).await.unwrap();
        let execute = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE orphans ('', 0, {STEP})");
        let plan = explain(&client, &execute).await;
        // One that was found is read once more to be deleted.
        let deliveries = rows_read(&plan, "delivery");
        assert!(deliveries <= STEP as f64 + 1.0, "{deliveries} deliveries read: {plan:#}");
        let messages = rows_read(&plan, "integration_outbox");
        assert!(messages <= STEP as f64, "{messages} messages read: {plan:#}");
    }
    let left = "SELECT count(*) FROM core_outbox.delivery WHERE state = 'd'";
    assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 999);
}
