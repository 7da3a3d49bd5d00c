//! Parcels: a take reads about as many as it takes, whatever is in flight, and everything after it goes
//! by key.

use super::{
    LIMIT, LIVING_RELAY, RELAY, STATISTICS, close, count, defer, enqueue, explain, explain_under,
    most_rows, outbox, rows_read,
};
use crate::postgres::content::{READ_FEW, READ_PARCELS};
use crate::postgres::noted::NOTE_WHOLE;
use crate::postgres::outcomes::{FORGET_PARCELS, PARCELS_NOTED, PARCELS_SENT};
use crate::postgres::parcels::{LOCK_LANES, RESCUE_PARCELS, SWEEP, TAKE_FEW, TAKE_PARCELS, UNPACK};
use crate::postgres::recording::RECORD;
use crate::postgres::transaction::{
    BEGIN, BEGIN_CLAIMING, BEGIN_SETTLING, BEGIN_TAKING, JOIN_BY_HASH,
};
use crate::postgres::upkeep::BACKLOG;
use serde_json::Value;
use tokio_postgres::Client;
use uuid::Uuid;

/// Messages of one parcel.
const PARCEL: i64 = 64;

/// How many parcels a take looks at, as `parcels.rs` reckons.
const LOOK_AT: i64 = 2 * LIMIT / PARCEL + 16;

/// Both ways in which a prepared statement is planned. A transaction that takes or settles asks for the
/// first.
const PLANNED: [&str; 2] =
    ["SET plan_cache_mode = force_generic_plan", "SET plan_cache_mode = force_custom_plan"];

async fn prepare(client: &Client) {
    client
        .batch_execute(&format!(
            "DEALLOCATE ALL;
             PREPARE take_parcels (uuid, text, uuid, text[], int[], bigint, bigint, int, boolean)
             AS {TAKE_PARCELS};
             PREPARE take_few (uuid, text, uuid, text[], bigint, bigint) AS {TAKE_FEW};
             PREPARE read_few (uuid, int) AS {READ_FEW};
             PREPARE sweep (uuid, text, uuid, text[], int[], bigint, bigint, int, boolean) AS {SWEEP};
             PREPARE read_parcels (int, uuid) AS {READ_PARCELS};
             PREPARE sent (uuid, uuid[]) AS {PARCELS_SENT};
             PREPARE noted (uuid, uuid[], text[]) AS {PARCELS_NOTED};
             PREPARE forget (uuid) AS {FORGET_PARCELS};
             PREPARE note_whole (uuid, uuid[], text[]) AS {NOTE_WHOLE};
             PREPARE record (bigint, float8, uuid[]) AS {RECORD};
             PREPARE unpack (text[], int[]) AS {UNPACK};
             PREPARE rescue_parcels (uuid[]) AS {RESCUE_PARCELS}"
        ))
        .await
        .unwrap();
}

async fn parcels() -> (postroom_testkit::TestDatabase, Client) {
    let (database, client) = outbox().await;
    prepare(&client).await;
    (database, client)
}

/// Takes parcels of a lane as the store does; the claim's token and the plan.
async fn explain_take_parcels(client: &Client, lane: &str, rows: i64) -> (Uuid, Value) {
    let token = Uuid::new_v4();
    client
        .batch_execute(&format!(
            "INSERT INTO core_outbox.lane_cursor (lane) VALUES (core_outbox.lane_of('{lane}'))
             ON CONFLICT DO NOTHING"
        ))
        .await
        .unwrap();
    let look_at = LOOK_AT.max(if rows < PARCEL { rows } else { 0 });
    let execute = format!(
        "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE take_parcels ('{token}', 'w', {RELAY}, ARRAY['{lane}'], \
         ARRAY[{rows}], {rows}, 4194304, {look_at}, true)"
    );
    (token, explain_under(client, BEGIN_CLAIMING, &execute).await)
}

/// The same, for tests of other statements.
pub(super) async fn take_parcels(client: &Client, lane: &str, rows: i64) {
    prepare(client).await;
    explain_take_parcels(client, lane, rows).await;
}

/// How many messages a claim holds.
async fn held(client: &Client, token: Uuid) -> i64 {
    let sql = "SELECT messages::bigint FROM core_outbox.claim WHERE token = $1";
    client.query_opt(sql, &[&token]).await.unwrap().map_or(0, |row| row.get(0))
}

async fn explain_sweep(client: &Client) -> (Uuid, Value) {
    let token = Uuid::new_v4();
    let execute = format!(
        "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE sweep ('{token}', 'w', {RELAY}, ARRAY['noop'], \
         ARRAY[{LIMIT}], {LIMIT}, 4194304, {LOOK_AT}, true)"
    );
    (token, explain_under(client, BEGIN_CLAIMING, &execute).await)
}

/// The messages that a claim on parcels holds, as SQL lists them.
async fn in_flight(client: &Client, token: Uuid) -> String {
    let sql = "SELECT message_id FROM core_outbox.in_flight WHERE token = $1";
    let rows = client.query(sql, &[&token]).await.unwrap();
    let ids: Vec<String> =
        rows.iter().map(|row| format!("'{}'::uuid", row.get::<_, Uuid>(0))).collect();
    ids.join(",")
}

/// It reads the parcels that it looks at, and no message and no delivery.
fn assert_looks_at_few(plan: &Value, when: &str) {
    let parcels = rows_read(plan, "parcel");
    assert!(parcels <= LOOK_AT as f64, "{when}: {parcels} parcels read: {plan:#}");
    assert!(rows_read(plan, "integration_outbox") == 0.0, "{when}: {plan:#}");
    assert!(rows_read(plan, "delivery") == 0.0, "{when}: {plan:#}");
}

/// Takes until so many messages are held.
async fn take_in_flight(client: &Client, takes: i64) {
    for _ in 0..takes {
        explain_take_parcels(client, "noop", LIMIT).await;
    }
}

#[tokio::test]
async fn fault_11_statistics_of_an_emptied_table_do_not_widen_a_take_of_parcels() {
    let (_database, client) = parcels().await;
    enqueue(&client, "noop", 20_000).await;
    close(&client, "noop").await;
    client.batch_execute(STATISTICS[1]).await.unwrap();
    for planned in PLANNED {
        // A plan cached in that state must not outlive it harmfully either.
        client.batch_execute(planned).await.unwrap();
        explain_take_parcels(&client, "noop", LIMIT).await;
    }
    enqueue(&client, "late", 110_000).await;
    for statistics in [STATISTICS[0], STATISTICS[2], STATISTICS[1]] {
        client.batch_execute(statistics).await.unwrap();
        for planned in PLANNED {
            client.batch_execute(planned).await.unwrap();
            let (token, plan) = explain_take_parcels(&client, "late", LIMIT).await;
            assert_looks_at_few(&plan, statistics);
            assert!(held(&client, token).await > LIMIT - 2 * PARCEL, "{statistics}: {plan:#}");
            let execute =
                format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE read_parcels (262144, '{token}')");
            let plan = explain_under(&client, BEGIN_TAKING, &execute).await;
            let taken = held(&client, token).await as f64;
            assert_eq!(plan["Actual Rows"], taken, "{statistics}: {plan:#}");
            let messages = rows_read(&plan, "integration_outbox");
            assert!(messages <= taken, "{statistics}: {messages} messages read: {plan:#}");
            let parcels = rows_read(&plan, "parcel");
            assert!(parcels <= LOOK_AT as f64, "{statistics}: {parcels} parcels read: {plan:#}");
            assert!(rows_read(&plan, "delivery") == 0.0, "{statistics}: {plan:#}");
            // Averages over loops are rounded.
            assert!(most_rows(&plan) <= taken + PARCEL as f64, "{statistics}: {plan:#}");
        }
    }
}

/// Messages that were enqueued one by one have a parcel each.
#[tokio::test]
async fn a_take_of_small_parcels_reads_one_for_each_message() {
    let (_database, client) = parcels().await;
    client
        .batch_execute(
            "DO $$ BEGIN FOR n IN 1..10000 LOOP
                 INSERT INTO core_outbox.integration_outbox
                     (source_stream_id, source_event_id, integration_type, event_type, payload)
                 VALUES ('s', 'e' || n, 'noop', 't', '{}');
             END LOOP; END $$",
        )
        .await
        .unwrap();
    for statistics in STATISTICS {
        client.batch_execute(statistics).await.unwrap();
        let (token, plan) = explain_take_parcels(&client, "noop", 40).await;
        assert_eq!(held(&client, token).await, 40);
        assert_looks_at_few(&plan, statistics);
    }
}

#[tokio::test]
async fn a_take_reads_nothing_that_is_in_flight_or_in_another_lane() {
    let (_database, client) = parcels().await;
    enqueue(&client, "a-paused-lane", 100_000).await;
    enqueue(&client, "noop", 100_000).await;
    take_in_flight(&client, 50).await;
    for statistics in STATISTICS {
        client.batch_execute(statistics).await.unwrap();
        let (token, plan) = explain_take_parcels(&client, "noop", LIMIT).await;
        assert!(held(&client, token).await > LIMIT - 2 * PARCEL, "{statistics}: {plan:#}");
        assert_looks_at_few(&plan, statistics);
    }
}

/// A take in a hurry reads at most one parcel more than are few, whether it takes them or not, and then its
/// messages by key.
#[tokio::test]
async fn a_take_in_a_hurry_reads_what_it_takes() {
    let (_database, client) = parcels().await;
    enqueue(&client, "a-paused-lane", 100_000).await;
    enqueue(&client, "noop", 100_000).await;
    take_in_flight(&client, 50).await;
    let above = "parcel p JOIN core_outbox.lane_cursor c USING (lane)
        WHERE c.lane = core_outbox.lane_of('noop') AND p.number > c.mark";
    let to_the_end = "UPDATE core_outbox.lane_cursor c
        SET mark = (SELECT max(number) FROM core_outbox.parcel p WHERE p.lane = c.lane) - $1
        WHERE c.lane = core_outbox.lane_of('noop')";
    for statistics in STATISTICS {
        for planned in PLANNED {
            client.batch_execute(statistics).await.unwrap();
            client.batch_execute(planned).await.unwrap();
            for (left, taken) in [(500_i64, 0), (2, 2)] {
                client.execute(to_the_end, &[&left]).await.unwrap();
                assert_eq!(count(&client, above).await, left);
                let token = Uuid::new_v4();
                let execute = format!(
                    "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE take_few ('{token}', 'w', {RELAY}, \
                     ARRAY['noop'], 1000, 1000000)"
                );
                let plan = explain_under(&client, BEGIN_CLAIMING, &execute).await;
                let read = rows_read(&plan, "parcel");
                assert!(read <= 9.0, "{statistics}: {read} parcels read: {plan:#}");
                let messages = held(&client, token).await;
                assert_eq!(messages > 0, taken > 0, "{statistics}: {plan:#}");
                let execute =
                    format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE read_few ('{token}', 262144)");
                let plan = explain_under(&client, BEGIN_TAKING, &execute).await;
                assert_eq!(plan["Actual Rows"], messages as f64, "{statistics}: {plan:#}");
                assert_eq!(rows_read(&plan, "parcel"), f64::from(taken), "{statistics}: {plan:#}");
                let read = rows_read(&plan, "integration_outbox");
                assert!(read <= messages as f64, "{statistics}: {read} read: {plan:#}");
            }
        }
    }
}

/// The relay counts its backlog once a second, and while it drains one most of all.
#[tokio::test]
async fn counting_the_backlog_looks_up_what_is_in_flight_by_key() {
    let (_database, client) = parcels().await;
    enqueue(&client, "noop", 100_000).await;
    // Claims come and go, so that nobody has counted them yet where all else is known.
    client
        .batch_execute("ANALYZE core_outbox.integration_outbox; ANALYZE core_outbox.parcel")
        .await
        .unwrap();
    take_in_flight(&client, 5).await;
    assert_counts_by_key(&client, "claims are not known").await;
    defer(&client, "delayed", 20_000).await;
    let noted = "INSERT INTO core_outbox.sent (token, at, lowest, highest, ids)
        SELECT gen_random_uuid(), now(), n, n, ARRAY[n]
        FROM (SELECT gen_random_uuid() AS n FROM generate_series(1, 500)) AS n";
    client.batch_execute(noted).await.unwrap();
    for statistics in STATISTICS {
        client.batch_execute(statistics).await.unwrap();
        assert_counts_by_key(&client, statistics).await;
    }
}

async fn assert_counts_by_key(client: &Client, when: &str) {
    let held = count(client, "in_flight").await as f64;
    let (parcels, deliveries) =
        (count(client, "parcel").await as f64, count(client, "delivery").await as f64);
    let plan = explain(client, &format!("EXPLAIN (ANALYZE, FORMAT JSON) {BACKLOG}")).await;
    let messages = rows_read(&plan, "integration_outbox");
    assert!(messages <= held, "{when}: {messages} of {held} messages read: {plan:#}");
    // Averages over loops are rounded.
    let most = (1.1 * held).max(parcels).max(deliveries);
    assert!(most_rows(&plan) <= most, "{when}: {} rows: {plan:#}", most_rows(&plan));
}

/// What committed late is found below the mark. All that is in flight there is looked at, once, and what lies
/// above as in any take.
#[tokio::test]
async fn a_sweep_reads_what_lies_between_the_marks_once() {
    let (_database, client) = parcels().await;
    enqueue(&client, "a-paused-lane", 100_000).await;
    enqueue(&client, "noop", 60_000).await;
    take_in_flight(&client, 20).await;
    for statistics in STATISTICS {
        // Parcels below the mark that nobody holds: as if they had committed late.
        client
            .batch_execute(
                "UPDATE core_outbox.claim SET lanes = lanes[2:], numbers = numbers[2:]
                 WHERE lanes IS NOT NULL",
            )
            .await
            .unwrap();
        client.batch_execute(statistics).await.unwrap();
        let in_flight =
            "parcel p JOIN core_outbox.lane_cursor c ON c.lane = p.lane AND p.number <= c.mark";
        let between = count(&client, in_flight).await as f64;
        let (token, plan) = explain_sweep(&client).await;
        let taken = held(&client, token).await;
        assert!(taken > LIMIT - 2 * PARCEL && taken <= LIMIT, "{statistics}: {taken} of {plan:#}");
        let parcels = rows_read(&plan, "parcel");
        let most = between + LOOK_AT as f64;
        assert!(parcels <= most, "{statistics}: {parcels} of {between} read: {plan:#}");
        assert!(most_rows(&plan) <= 2.0 * between, "{statistics}: {plan:#}");
    }
}

/// A take says whether deliveries are due without reading those that are not.
#[tokio::test]
async fn a_take_of_parcels_looks_at_no_delayed_delivery() {
    let (_database, client) = parcels().await;
    defer(&client, "noop", 20_000).await;
    let apart = "UPDATE core_outbox.integration_outbox SET source_stream_id = 'delayed'";
    client.batch_execute(apart).await.unwrap();
    let delay = "UPDATE core_outbox.delivery SET due_at = now() + interval '1 hour'";
    client.batch_execute(delay).await.unwrap();
    enqueue(&client, "noop", 20_000).await;
    for statistics in STATISTICS {
        client.batch_execute(statistics).await.unwrap();
        for planned in PLANNED {
            client.batch_execute(planned).await.unwrap();
            let (_, plan) = explain_take_parcels(&client, "noop", LIMIT).await;
            assert_looks_at_few(&plan, statistics);
        }
    }
    client.batch_execute("UPDATE core_outbox.delivery SET due_at = now()").await.unwrap();
    let (_, plan) = explain_take_parcels(&client, "noop", LIMIT).await;
    assert!(rows_read(&plan, "delivery") == 1.0, "one says that some are due: {plan:#}");
}

#[tokio::test]
async fn a_batch_of_parcels_is_settled_by_key_and_touches_no_index() {
    let (_database, client) = parcels().await;
    enqueue(&client, "noop", 100_000).await;
    take_in_flight(&client, 10).await;
    let mut settled = 0;
    for statistics in STATISTICS {
        client.batch_execute(statistics).await.unwrap();
        for planned in PLANNED {
            client.batch_execute(planned).await.unwrap();
            let (token, _) = explain_take_parcels(&client, "noop", LIMIT).await;
            let taken = held(&client, token).await;
            let ids = in_flight(&client, token).await;
            let execute =
                format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE sent ('{token}', ARRAY[{ids}])");
            let plan = explain_under(&client, BEGIN_SETTLING, &execute).await;
            assert_eq!(plan["Actual Rows"], 0, "{statistics}: none is left: {plan:#}");
            let messages = rows_read(&plan, "integration_outbox");
            assert!(messages <= taken as f64, "{statistics}: {messages} messages read: {plan:#}");
            let parcels = rows_read(&plan, "parcel");
            let most = LIMIT / PARCEL + 2;
            assert!(parcels <= most as f64, "{statistics}: {parcels} parcels read: {plan:#}");
            assert!(most_rows(&plan) <= 2.0 * taken as f64, "{statistics}: {plan:#}");
            assert_eq!(held(&client, token).await, 0, "the claim is over");
            settled += taken;
        }
    }
    client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    let hot = client
        .query_one(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
             WHERE schemaname = 'core_outbox' AND relname = 'integration_outbox'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((hot.get::<_, i64>(0), hot.get::<_, i64>(1)), (settled, settled));
}

#[tokio::test]
async fn unpacking_reads_as_many_messages_as_were_asked_for() {
    let (_database, client) = parcels().await;
    enqueue(&client, "noop", 100_000).await;
    take_in_flight(&client, 10).await;
    let in_flight = 10 * (LIMIT / PARCEL + 1);
    for statistics in STATISTICS {
        client.batch_execute(statistics).await.unwrap();
        for planned in PLANNED {
            client.batch_execute(planned).await.unwrap();
            let before = count(&client, "delivery").await;
            let execute = format!(
                "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE unpack (ARRAY['noop'], ARRAY[{LIMIT}])"
            );
            let plan = explain(&client, &execute).await;
            let made = count(&client, "delivery").await - before;
            assert!((LIMIT..LIMIT + PARCEL).contains(&made), "{statistics}: {made}: {plan:#}");
            let messages = rows_read(&plan, "integration_outbox");
            assert!(messages <= made as f64, "{statistics}: {messages} messages read: {plan:#}");
            // What is in flight, as many as may be asked for, and those that go, by place.
            let parcels = rows_read(&plan, "parcel");
            let most = in_flight + LIMIT + LIMIT / PARCEL + 2;
            assert!(parcels <= most as f64, "{statistics}: {parcels} parcels read: {plan:#}");
            assert!(most_rows(&plan) <= (2 * most) as f64, "{statistics}: {plan:#}");
        }
    }
}

#[tokio::test]
async fn a_rescue_of_parcels_reads_what_the_claim_holds() {
    let (_database, client) = parcels().await;
    enqueue(&client, "noop", 100_000).await;
    take_in_flight(&client, 10).await;
    client.batch_execute(LIVING_RELAY).await.unwrap();
    for statistics in STATISTICS {
        client.batch_execute(statistics).await.unwrap();
        for planned in PLANNED {
            client.batch_execute(planned).await.unwrap();
            let (token, _) = explain_take_parcels(&client, "noop", LIMIT).await;
            let taken = held(&client, token).await;
            let before = count(&client, "delivery").await;
            let execute = format!(
                "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE rescue_parcels (ARRAY['{token}'::uuid])"
            );
            let plan = explain(&client, &execute).await;
            assert_eq!(count(&client, "delivery").await - before, taken, "{statistics}: {plan:#}");
            // To see what is over, and to make deliveries.
            let messages = rows_read(&plan, "integration_outbox");
            assert!(messages <= 2.0 * taken as f64, "{statistics}: {messages} read: {plan:#}");
            let deliveries = rows_read(&plan, "delivery");
            assert!(deliveries <= taken as f64, "{statistics}: {deliveries} read: {plan:#}");
            let parcels = rows_read(&plan, "parcel");
            let most = 2 * (LIMIT / PARCEL + 2);
            assert!(parcels <= most as f64, "{statistics}: {parcels} parcels read: {plan:#}");
            assert!(most_rows(&plan) <= 2.0 * taken as f64, "{statistics}: {plan:#}");
        }
    }
}

/// Deliveries that came after the statistics were taken are not gone through for every message.
#[tokio::test]
async fn many_deliveries_do_not_slow_down_what_becomes_of_parcels() {
    let (_database, client) = parcels().await;
    enqueue(&client, "noop", 20_000).await;
    client.batch_execute("VACUUM ANALYZE core_outbox.delivery").await.unwrap();
    // A plan of that time is kept.
    let (token, _) = explain_take_parcels(&client, "noop", LIMIT).await;
    let read = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE read_parcels (262144, '{token}')");
    explain_under(&client, BEGIN_TAKING, &read).await;
    client
        .batch_execute(
            "INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload, due_at)
             SELECT 's', 'later-' || n, 'noop', 't', '{}', now() + interval '1 day'
             FROM generate_series(1, 20000) n",
        )
        .await
        .unwrap();
    for planned in PLANNED {
        client.batch_execute(planned).await.unwrap();
        for (statement, more) in
            [("sent", ""), ("noted", ", ARRAY['noop']"), ("note_whole", ", ARRAY['noop']")]
        {
            let (token, _) = explain_take_parcels(&client, "noop", LIMIT).await;
            let taken = held(&client, token).await as f64;
            let ids = in_flight(&client, token).await;
            let read =
                format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE read_parcels (262144, '{token}')");
            let plan = explain_under(&client, BEGIN_TAKING, &read).await;
            assert!(rows_read(&plan, "delivery") <= taken, "{plan:#}");
            let forget = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE forget ('{token}')");
            let plan = explain_under(&client, BEGIN_SETTLING, &forget).await;
            assert!(rows_read(&plan, "delivery") <= taken, "{plan:#}");
            assert!(most_rows(&plan) <= 2.0 * taken, "{plan:#}");
            let execute = format!(
                "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {statement} ('{token}', ARRAY[{ids}]{more})"
            );
            let plan = explain_under(&client, BEGIN_SETTLING, &execute).await;
            let deliveries = rows_read(&plan, "delivery");
            assert!(deliveries <= taken, "{statement}: {deliveries} deliveries read: {plan:#}");
            assert!(most_rows(&plan) <= 2.0 * taken, "{statement}: {plan:#}");
            assert_eq!(held(&client, token).await, 0, "{statement}: the claim is over");
        }
        let (token, _) = explain_take_parcels(&client, "noop", LIMIT).await;
        let taken = held(&client, token).await as f64;
        let rescue = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE rescue_parcels (ARRAY['{token}'::uuid])"
        );
        let plan = explain(&client, &rescue).await;
        assert!(most_rows(&plan) <= 2.0 * taken, "{plan:#}");
    }
}

/// In the background: no message is read when one is delivered, and each once when that is recorded.
#[tokio::test]
async fn what_is_noted_is_recorded_by_key() {
    let (_database, client) = parcels().await;
    enqueue(&client, "noop", 20_000).await;
    for statistics in STATISTICS {
        client.batch_execute(statistics).await.unwrap();
        for (planned, statement) in
            PLANNED.iter().flat_map(|planned| [(planned, "noted"), (planned, "note_whole")])
        {
            client.batch_execute(planned).await.unwrap();
            let (token, _) = explain_take_parcels(&client, "noop", LIMIT).await;
            let taken = held(&client, token).await;
            let ids = in_flight(&client, token).await;
            let execute = format!(
                "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {statement} ('{token}', ARRAY[{ids}], ARRAY['noop'])"
            );
            let plan = explain_under(&client, BEGIN_SETTLING, &execute).await;
            assert!(rows_read(&plan, "integration_outbox") == 0.0, "{statistics}: {plan:#}");
            assert!(rows_read(&plan, "delivery") == 0.0, "{statistics}: {plan:#}");
            assert!(most_rows(&plan) <= 2.0 * taken as f64, "{statistics}: {plan:#}");
            assert_eq!(held(&client, token).await, 0, "the claim is over");

            let by_hash = format!("{BEGIN}; {JOIN_BY_HASH}");
            let execute = "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE record (8, 0, NULL)";
            let plan = explain_under(&client, &by_hash, execute).await;
            // To see whether it is there, to lock it, and to change it.
            let messages = rows_read(&plan, "integration_outbox");
            assert!(messages <= 3.0 * taken as f64, "{statistics}: {messages} read: {plan:#}");
            assert!(most_rows(&plan) <= 2.0 * taken as f64, "{statistics}: {plan:#}");
            assert_eq!(count(&client, "sent").await, 0);
        }
    }
}

/// Every take writes the lane's row, and an old snapshot keeps all its versions. They are found a page at a
/// time.
#[tokio::test]
async fn an_old_snapshot_makes_no_lane_slow_to_lock() {
    const TAKES: i64 = 2_000;
    let (database, client) = parcels().await;
    explain_take_parcels(&client, "noop", LIMIT).await;
    let old = database.client().await;
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    for _ in 0..TAKES {
        client.batch_execute("UPDATE core_outbox.lane_cursor SET mark = mark + 1").await.unwrap();
    }
    client.batch_execute(&format!("PREPARE lock_lanes (text[]) AS {LOCK_LANES}")).await.unwrap();
    let lock = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE lock_lanes (ARRAY['noop'])";
    let plan = explain(&client, lock).await;
    let pages = plan["Shared Hit Blocks"].as_i64().unwrap();
    assert!(pages <= TAKES / 50, "{pages} pages read for {TAKES} versions: {plan:#}");
    old.batch_execute("ROLLBACK").await.unwrap();
}
