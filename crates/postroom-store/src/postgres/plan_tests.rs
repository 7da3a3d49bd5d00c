//! Claims read what they take and no more, and lists what they show, whatever the statistics say
//! and whatever waits in front. Rows read are counted in the plan; nothing here looks at time.

use super::statements::{BEGIN, SETTLE_SENT, TAKE};
use super::{dispatch, list, orphans, settle, transaction, upkeep};
use postroom_core::{Filter, Status};
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
                           bigint, uuid)
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
         ARRAY['noop'], ARRAY[{LIMIT}], ARRAY['{due}'::timestamptz], ARRAY[{seq}], {LIMIT}, 4194304, NULL)"
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

/// The token of the one claim there is, and some of the numbers it holds, as a list.
async fn held(client: &Client, numbers: i64) -> (uuid::Uuid, String) {
    let row = client
        .query_one(
            "SELECT claim, (array_agg(seq ORDER BY seq))[:$1::bigint] FROM core_outbox.delivery
             WHERE claim IS NOT NULL GROUP BY claim",
            &[&numbers],
        )
        .await
        .unwrap();
    let seqs: Vec<i64> = row.get(1);
    assert_eq!(seqs.len(), usize::try_from(numbers).unwrap());
    (row.get(0), seqs.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn a_batch_is_all_that_is_read_and_no_index_is_touched() {
    let (_database, client) = outbox().await;
    enqueue(&client, "noop", 50_000).await;
    explain_take(&client).await;
    client.batch_execute(&format!("PREPARE sent (uuid, bigint[]) AS {SETTLE_SENT}")).await.unwrap();
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

/// How many rows of messages and deliveries a page is read with.
async fn rows_listed(client: &Client, filter: &Filter) -> (Value, f64) {
    let (begin, sql) = list::statement(filter);
    let prepare = format!(
        "PREPARE list (text, text, text, text, text, text, timestamptz, timestamptz, bigint, bigint,
                       text, text)
         AS {sql}"
    );
    client.batch_execute(&prepare).await.unwrap();
    let text = |text: Option<&str>| text.map_or("NULL".to_owned(), |text| format!("'{text}'"));
    let execute = format!(
        "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE list ({}, {}, NULL, NULL, NULL, {}, NULL, NULL, {}, {},
                                              NULL, NULL)",
        text(filter.status.map(Status::as_str)),
        text(filter.integration.as_deref()),
        text(filter.event_id.as_deref()),
        filter.before.unwrap_or(i64::MAX),
        filter.limit,
    );
    let plan = explain_under(client, begin, &execute).await;
    client.batch_execute("DEALLOCATE list").await.unwrap();
    let rows = rows_read(&plan, "delivery") + rows_read(&plan, "integration_outbox");
    (plan, rows)
}

#[tokio::test]
async fn a_page_of_a_list_reads_about_what_it_shows() {
    const PAGE: usize = 50;
    let (_database, client) = outbox().await;
    // Some that are dead, far back; a history; a backlog in front of both; some that are held.
    enqueue(&client, "dead-1", 30).await;
    enqueue(&client, "dead-2", 30).await;
    enqueue(&client, "sent", 30_000).await;
    client
        .batch_execute(
            "UPDATE core_outbox.integration_outbox
             SET status = CASE integration_type WHEN 'sent' THEN 'SENT' ELSE 'DEAD' END",
        )
        .await
        .unwrap();
    enqueue(&client, "noop", 20_000).await;
    explain_take(&client).await;
    let newest_sent: i64 = client
        .query_one("SELECT max(seq) FROM core_outbox.messages WHERE status = 'SENT'", &[])
        .await
        .unwrap()
        .get(0);
    let page = || Filter { limit: PAGE, ..Filter::default() };
    let of = |status| Filter { status: Some(status), ..page() };
    let lane = |name: &str| Some(name.to_owned());
    for prepare in [
        // No statistics, true ones, and those of a queue that was just emptied.
        "SELECT 1",
        "ANALYZE core_outbox.delivery; ANALYZE core_outbox.integration_outbox",
        "UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE relnamespace = 'core_outbox'::regnamespace",
    ] {
        client.batch_execute(prepare).await.unwrap();
        for (filter, shown, most) in [
            (page(), PAGE, 4 * PAGE),
            (Filter { before: Some(newest_sent + 1), ..of(Status::Sent) }, PAGE, 6 * PAGE),
            (of(Status::Pending), PAGE, 6 * PAGE),
            (Filter { integration: lane("noop"), ..of(Status::Pending) }, PAGE, 6 * PAGE),
            // All that is held is looked at.
            (of(Status::Claimed), PAGE, 2 * LIMIT as usize + 4 * PAGE),
            (of(Status::Dead), PAGE, 10 * PAGE),
            (Filter { integration: lane("dead-1"), ..of(Status::Dead) }, 30, 10 * PAGE),
            (Filter { event_id: lane("sent4000"), ..page() }, 1, 6),
            (Filter { event_id: lane("sent4000"), ..of(Status::Sent) }, 1, 6),
        ] {
            let (plan, rows) = rows_listed(&client, &filter).await;
            assert_eq!(plan["Actual Rows"], shown, "after {prepare}: {filter:?}\n{plan:#}");
            assert!(rows <= most as f64, "after {prepare}: {filter:?} read {rows} rows\n{plan:#}");
        }
    }
}

#[tokio::test]
async fn a_failure_reads_the_attempts_of_its_own_messages() {
    const FAILURES: i64 = 100;
    let (_database, client) = outbox().await;
    enqueue(&client, "noop", 2_000).await;
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
            "PREPARE failed (int, uuid, bigint[], float8[], text[], boolean[], text[], bigint[])
             AS {}",
            settle::FAILED
        ))
        .await
        .unwrap();
    let begin = format!("{BEGIN}; {}", transaction::JOIN_BY_HASH);
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
    let messages = rows_read(&plan, "integration_outbox");
    assert!(messages <= FAILURES as f64, "{messages} messages read: {plan:#}");
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
    enqueue(&client, "noop", 20_000).await;
    explain_take(&client).await;
    let prepare = format!("PREPARE postponed (uuid, bigint[], float8[]) AS {}", settle::POSTPONED);
    client.batch_execute(&prepare).await.unwrap();
    let begin = format!("{BEGIN}; {}", transaction::JOIN_BY_HASH);
    for prepare in [
        "SELECT 1",
        "ANALYZE core_outbox.delivery; ANALYZE core_outbox.integration_outbox",
        "UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE relnamespace = 'core_outbox'::regnamespace",
    ] {
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
    enqueue(&client, "noop", 20_000).await;
    client
        .batch_execute(&format!(
            "PREPARE dispatched (uuid[]) AS {};
             PREPARE sent (uuid, bigint[], int) AS {};
             PREPARE failed (int, uuid, bigint[], float8[], text[], boolean[], text[], bigint[],
                             int) AS {}",
            dispatch::DISPATCHED,
            settle::DISPATCH_SENT,
            settle::DISPATCH_FAILED
        ))
        .await
        .unwrap();
    let by_hash = format!("{BEGIN}; {}", transaction::JOIN_BY_HASH);
    for prepare in [
        "SELECT 1",
        "ANALYZE core_outbox.delivery; ANALYZE core_outbox.integration_outbox",
        "UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE relnamespace = 'core_outbox'::regnamespace",
    ] {
        client.batch_execute(prepare).await.unwrap();
        let row = client
            .query_one(
                "SELECT string_agg(seq::text, ','), string_agg(quote_literal(message_id), ',')
                 FROM (SELECT * FROM core_outbox.delivery ORDER BY seq LIMIT $1) AS first",
                &[&LIMIT],
            )
            .await
            .unwrap();
        let (seqs, ids): (String, String) = (row.get(0), row.get(1));
        let failures = format!(
            "array_fill(1::float8, ARRAY[{LIMIT}]), array_fill('503'::text, ARRAY[{LIMIT}]),
             array_fill(false, ARRAY[{LIMIT}]), array_fill('retry'::text, ARRAY[{LIMIT}]),
             array_fill(1::bigint, ARRAY[{LIMIT}])"
        );
        let fresh = "gen_random_uuid()";
        for (begin, execute) in [
            (BEGIN, format!("dispatched (ARRAY[{ids}]::uuid[])")),
            (&*by_hash, format!("failed (20, {fresh}, ARRAY[{seqs}], {failures}, 0)")),
            (BEGIN, format!("sent ({fresh}, ARRAY[{seqs}], 1)")),
        ] {
            let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {execute}");
            let plan = explain_under(&client, begin, &explain).await;
            assert_eq!(plan["Actual Rows"], LIMIT, "{plan:#}");
            let (deliveries, messages) =
                (rows_read(&plan, "delivery"), rows_read(&plan, "integration_outbox"));
            assert!(deliveries <= LIMIT as f64, "{deliveries} deliveries read: {plan:#}");
            assert!(messages <= LIMIT as f64, "{messages} messages read: {plan:#}");
        }
    }
}

#[tokio::test]
async fn a_rescue_reads_what_it_frees() {
    let (_database, client) = outbox().await;
    enqueue(&client, "sent", 20_000).await;
    client
        .batch_execute("UPDATE core_outbox.integration_outbox SET status = 'SENT'")
        .await
        .unwrap();
    enqueue(&client, "noop", 20_000).await;
    let prepare = format!("PREPARE rescue (int, bigint, uuid) AS {}", upkeep::RESCUE);
    client.batch_execute(&prepare).await.unwrap();
    let begin = format!("{BEGIN}; {}", transaction::JOIN_BY_HASH);
    for prepare in [
        "ANALYZE core_outbox.delivery; ANALYZE core_outbox.integration_outbox",
        "UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE relnamespace = 'core_outbox'::regnamespace",
    ] {
        client.batch_execute(prepare).await.unwrap();
        explain_take(&client).await;
        let expire = "UPDATE core_outbox.claim SET until = since - interval '1 second'";
        client.batch_execute(expire).await.unwrap();
        let execute = "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE rescue (20, 10, gen_random_uuid())";
        let plan = explain_under(&client, &begin, execute).await;
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

/// Nearly every look for expired claims finds none, however many a lease keeps.
#[tokio::test]
async fn claims_under_a_lease_are_read_once_and_nothing_they_hold() {
    const CLAIMS: i64 = 5_000;
    let (_database, client) = outbox().await;
    enqueue(&client, "noop", 5_000).await;
    client
        .batch_execute(&format!(
            "ALTER TABLE core_outbox.claim SET (autovacuum_enabled = off);
             INSERT INTO core_outbox.claim (token, worker, since, until, alone, dispatched)
             VALUES (gen_random_uuid(), 'w', now(), now() + interval '1 hour', false, true);
             WITH held AS (
                 UPDATE core_outbox.delivery SET claim = gen_random_uuid()
                 RETURNING seq, claim
             )
             INSERT INTO core_outbox.claim (token, worker, since, until, alone, seqs, dispatched, lease)
             SELECT held.claim, 'w', now(), now(), false, ARRAY[held.seq], true, lease.token
             FROM held, core_outbox.claim lease;
             PREPARE rescue (int, bigint, uuid) AS {}",
            upkeep::RESCUE
        ))
        .await
        .unwrap();
    let by_hash = format!("{BEGIN}; {}", transaction::JOIN_BY_HASH);
    for prepare in [
        "SELECT 1",
        "ANALYZE core_outbox.claim",
        "UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE relnamespace = 'core_outbox'::regnamespace",
    ] {
        client.batch_execute(prepare).await.unwrap();
        for (begin, statement) in [
            ("BEGIN", upkeep::ANY_EXPIRED),
            (&*by_hash, "EXECUTE rescue (20, 10, gen_random_uuid())"),
        ] {
            let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) {statement}");
            let plan = explain_under(&client, begin, &explain).await;
            // The leases, and the claims.
            let (claims, deliveries) = (rows_read(&plan, "claim"), rows_read(&plan, "delivery"));
            assert!(claims <= 2.0 * (CLAIMS + 1) as f64, "after {prepare}: {claims}: {plan:#}");
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
    enqueue(&client, "dead", 1_000).await;
    client
        .batch_execute("UPDATE core_outbox.integration_outbox SET status = 'DEAD'")
        .await
        .unwrap();
    enqueue(&client, "sent", 20_000).await;
    client
        .batch_execute(
            "UPDATE core_outbox.integration_outbox SET status = 'SENT' WHERE integration_type = 'sent';
             DELETE FROM core_outbox.integration_outbox WHERE source_event_id = 'dead7'",
        )
        .await
        .unwrap();
    enqueue(&client, "noop", 5_000).await;
    let prepare = format!("PREPARE orphans (text, bigint, bigint) AS {}", orphans::PRUNE_ORPHANS);
    client.batch_execute(&prepare).await.unwrap();
    for prepare in [
        "SELECT 1",
        "ANALYZE core_outbox.delivery; ANALYZE core_outbox.integration_outbox",
        "UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE relnamespace = 'core_outbox'::regnamespace",
    ] {
        client.batch_execute(prepare).await.unwrap();
        let execute = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE orphans ('', 0, {STEP})");
        let plan = explain(&client, &execute).await;
        // One that was found is read once more to be deleted.
        let deliveries = rows_read(&plan, "delivery");
        assert!(deliveries <= STEP as f64 + 1.0, "{deliveries} deliveries read: {plan:#}");
        let messages = rows_read(&plan, "integration_outbox");
        assert!(messages <= STEP as f64, "{messages} messages read: {plan:#}");
    }
    let left = "SELECT count(*) FROM core_outbox.delivery WHERE dead";
    assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 999);
}
