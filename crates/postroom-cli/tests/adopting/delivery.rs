//! 10,000 rows of each table, with a receiver that fails, and a relay that is killed on its way.

use super::scene::{Producer, Scene};
use crate::faults_outbox::SOON;
use postroom_testkit::{Request, eventually};
use std::collections::{BTreeMap, BTreeSet};

const ROWS: usize = 10_000;
/// The relay is killed after so many requests.
const KILLED_AFTER: usize = 3_000;
/// These requests are refused for good, where the owner's table has a word for that.
const REFUSED: [usize; 3] = [5, 2_000, 4_321];

/// Delivers all rows, and returns the requests by the number in their bodies. `number` finds that.
async fn deliver(
    scene: &Scene,
    producer: Producer,
    refused: &[usize],
    number: fn(&Request) -> u64,
) -> BTreeMap<u64, Vec<Request>> {
    scene.script_failures(3 * ROWS, refused);
    let mut killed = scene.relay();
    let mut producing = scene.produce(producer, ROWS);
    scene.receiver.wait_for(KILLED_AFTER, SOON).await;
    killed.kill9();
    let _next = scene.relay();
    assert!(producing.wait(SOON).await.success(), "{}", producing.stderr());
    assert_eq!(producing.stdout(), format!("committed {ROWS}"));
    eventually("the owner to find nothing unsent", SOON, async || {
        let left = scene.count("unsent").await;
        if std::env::var_os("SHOW").is_some() {
            eprintln!(
                "{:?} {left} left, {} requests",
                std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap()
                    .as_secs(),
                scene.receiver.count()
            );
        }
        (left == 0).then_some(())
    })
    .await;

    let mut received: BTreeMap<u64, Vec<Request>> = BTreeMap::new();
    for request in scene.deliveries() {
        received.entry(number(&request)).or_default().push(request);
    }
    // Every committed row, and none that was rolled back.
    let expected: BTreeSet<u64> = (0..ROWS as u64).collect();
    let numbers: BTreeSet<u64> = received.keys().copied().collect();
    assert_eq!(numbers, expected);
    for (number, requests) in &received {
        let events: BTreeSet<_> =
            requests.iter().map(|one| one.header("idempotency-key")).collect();
        assert_eq!(events.len(), 1, "{number}: repeats have one event id");
    }
    received
}

/// How many of the numbers came with a refusal: these are dead.
async fn assert_dead_and_replayed(scene: &Scene) {
    let dead = scene.count("dead").await;
    assert_eq!(dead, REFUSED.len() as i64);
    let before = scene.receiver.count();
    assert_eq!(scene.rows("replay").await, REFUSED.len() as u64);
    eventually("what was replayed to be delivered", SOON, async || {
        (scene.count("delivered").await == ROWS as i64).then_some(())
    })
    .await;
    assert!(scene.receiver.count() >= before + REFUSED.len());
    assert_eq!(scene.count("dead").await, 0);
}

fn top(request: &Request) -> u64 {
    request.json()["n"].as_u64().unwrap()
}

#[tokio::test]
async fn the_integration_outbox_is_delivered_through_bullmq_and_reads_as_its_owner_reads_it() {
    let scene = Scene::set("integration-outbox").await;
    let received = deliver(&scene, Producer::Node, &REFUSED, top).await;
    assert_eq!(scene.count("delivered").await, (ROWS - REFUSED.len()) as i64);
    let by_status = scene.by_status().await;
    assert_eq!(by_status["SENT"], (ROWS - REFUSED.len()) as i64, "{by_status:?}");
    assert_eq!(by_status["DEAD"], REFUSED.len() as i64, "{by_status:?}");
    assert_eq!(by_status.len(), 2, "{by_status:?}");
    for (number, requests) in &received {
        assert_eq!(requests[0].header("idempotency-key"), Some(&*format!("evt-{number}")));
    }
    let _relay = scene.relay();
    assert_dead_and_replayed(&scene).await;
}

/// The same row as TypeORM makes it from the entity: columns in camelCase, times without a zone.
#[tokio::test]
async fn typeorms_integration_outbox_is_delivered_through_bullmq_and_reads_as_its_entity_reads_it()
{
    const TABLE: &str = r#"
        CREATE EXTENSION IF NOT EXISTS "uuid-ossp";
        CREATE SCHEMA core_outbox;
        CREATE TABLE core_outbox.integration_outbox (
            id uuid NOT NULL DEFAULT uuid_generate_v4() PRIMARY KEY,
            "sourceStreamId" varchar(200) NOT NULL, "sourceEventId" varchar(100) NOT NULL,
            "integrationType" varchar(120) NOT NULL, "eventType" varchar(120) NOT NULL,
            payload jsonb NOT NULL, headers jsonb,
            "tenantId" varchar(60), "userId" varchar(60), "correlationId" varchar(120),
            "dueAt" timestamptz NOT NULL DEFAULT now(),
            attempts int NOT NULL DEFAULT 0, "maxAttempts" int NOT NULL DEFAULT 10,
            status varchar(20) NOT NULL DEFAULT 'PENDING',
            "lockedAt" timestamptz, "lockedBy" varchar(120),
            "createdAt" timestamp NOT NULL DEFAULT now(), "updatedAt" timestamp NOT NULL DEFAULT now(),
            "sentAt" timestamptz, "lastError" text);
        CREATE UNIQUE INDEX "IDX_40a7dba18ab2074574a12e356c"
            ON core_outbox.integration_outbox ("sourceStreamId", "sourceEventId");
        CREATE INDEX "IDX_a4f438be470694d8eac8d8f2c7" ON core_outbox.integration_outbox (status);
        CREATE INDEX "IDX_a85769dc307adcdc4b22052eda" ON core_outbox.integration_outbox ("dueAt", status);"#;
    let scene = Scene::nestjs_through_bullmq(TABLE).await;
    scene.script_failures(3 * ROWS, &REFUSED);
    let client = scene.database.client().await;
    let mut killed = scene.relay();
    for first in (0..ROWS).step_by(100) {
        let insert = format!(
            r#"INSERT INTO core_outbox.integration_outbox
                   ("sourceStreamId", "sourceEventId", "integrationType", "eventType", payload)
               SELECT 'order-' || n, 'order-placed-' || n, 'webhook:fulfilment', 'order.placed.v1',
                      jsonb_build_object('n', n)
               FROM generate_series({first}, {first} + 99) n"#
        );
        client.batch_execute(&insert).await.unwrap();
    }
    scene.receiver.wait_for(KILLED_AFTER, SOON).await;
    killed.kill9();
    let _next = scene.relay();
    eventually("nothing unsent", SOON, async || {
        let open = r"SELECT count(*) FROM core_outbox.integration_outbox WHERE status NOT IN ('SENT', 'DEAD')";
        (client.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    let numbers: BTreeSet<u64> = scene.deliveries().iter().map(top).collect();
    assert_eq!(numbers.len(), ROWS);
    let read = r#"SELECT count(*) FILTER (WHERE status = 'SENT' AND "sentAt" IS NOT NULL),
                         count(*) FILTER (WHERE status = 'DEAD' AND attempts > 0 AND "lastError" IS NOT NULL),
                         count(*) FILTER (WHERE abs(extract(epoch FROM "updatedAt" - "createdAt")) < 300)
                  FROM core_outbox.integration_outbox"#;
    let row = client.query_one(read, &[]).await.unwrap();
    let counts: [i64; 3] = [row.get(0), row.get(1), row.get(2)];
    assert_eq!(counts, [(ROWS - REFUSED.len()) as i64, REFUSED.len() as i64, ROWS as i64]);
    let replay = r#"UPDATE core_outbox.integration_outbox
                    SET status = 'PENDING', attempts = 0, "dueAt" = now() WHERE status = 'DEAD'"#;
    assert_eq!(client.execute(replay, &[]).await.unwrap(), REFUSED.len() as u64);
    eventually("what was replayed to be delivered", SOON, async || {
        let open = r"SELECT count(*) FROM core_outbox.integration_outbox WHERE status <> 'SENT'";
        (client.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn outbox_events_are_delivered_and_read_as_their_owner_reads_them() {
    let scene = Scene::set("outbox-events").await;
    // The table knows no event that is given up: nothing is refused for good.
    let received = deliver(&scene, Producer::Python, &[], top).await;
    assert_eq!(scene.count("delivered").await, ROWS as i64);
    assert_eq!(scene.rows("next batch").await, 0);
    let client = scene.database.client().await;
    let keys = "SELECT event_id::text, (payload->>'n')::bigint, idempotency_key FROM outbox_events";
    for row in client.query(keys, &[]).await.unwrap() {
        let number = u64::try_from(row.get::<_, i64>(1)).unwrap();
        let request = &received[&number][0];
        assert_eq!(request.header("idempotency-key"), row.get(0));
        assert_eq!(request.header("idempotencykey"), row.get(2));
    }
}

#[tokio::test]
async fn billing_events_are_delivered_and_read_as_their_owner_reads_them() {
    let scene = Scene::set("billing-events").await;
    let number = |request: &Request| request.json()["data"]["n"].as_u64().unwrap();
    let received = deliver(&scene, Producer::Python, &REFUSED, number).await;
    let by_status = scene.by_status().await;
    assert_eq!(by_status["dispatched"], (ROWS - REFUSED.len()) as i64, "{by_status:?}");
    assert_eq!(by_status["dead_letter"], REFUSED.len() as i64, "{by_status:?}");
    assert_eq!(by_status.len(), 2, "{by_status:?}");
    assert!(scene.count("retried and delivered").await > 500);
    for (number, requests) in &received {
        let (body, request) = (requests[0].json(), &requests[0]);
        let keys: Vec<_> = body.as_object().unwrap().keys().collect();
        assert!(!keys.iter().any(|key| key.starts_with("outbox_")), "{keys:?}");
        assert_eq!(request.header("postroom-correlation"), Some(&*format!("req-{number}")));
        assert_eq!(request.header("postroom-causation"), Some(&*format!("cmd-{number}")));
        assert_eq!(request.header("postroom-tenant"), Some(&*format!("tenant-{}", number % 7)));
    }
    // What its producer wrote is there, but for the state.
    let client = scene.database.client().await;
    let changed = "SELECT count(*) FROM billing_events WHERE payload->>'type' <> 'invoice.paid.v1' \
                   OR payload->>'correlation_id' IS NULL OR payload#>>'{data,total}' <> '100'";
    assert_eq!(client.query_one(changed, &[]).await.unwrap().get::<_, i64>(0), 0);
    let _relay = scene.relay();
    assert_dead_and_replayed(&scene).await;
}

#[tokio::test]
async fn the_katas_outbox_is_delivered_and_reads_as_its_owner_reads_it() {
    let scene = Scene::set("kata").await;
    let received = deliver(&scene, Producer::Node, &REFUSED, top).await;
    let by_status = scene.by_status().await;
    assert_eq!(by_status["SENT"], (ROWS - REFUSED.len()) as i64, "{by_status:?}");
    assert_eq!(by_status["FAILED"], REFUSED.len() as i64, "{by_status:?}");
    assert_eq!(by_status.len(), 2, "{by_status:?}");
    assert!(scene.count("retried and delivered").await > 500);
    // The claims so far, as the owner counts them: one for what came once, and one more for what was in the hands of
    // the relay that was killed before it came.
    let client = scene.database.client().await;
    let attempts = "SELECT (payload->>'n')::bigint, attempts FROM outbox";
    for row in client.query(attempts, &[]).await.unwrap() {
        let (number, attempts): (i64, i32) = (row.get(0), row.get(1));
        let arrivals = received[&u64::try_from(number).unwrap()].len();
        let attempts = usize::try_from(attempts).unwrap();
        let claims = arrivals..=arrivals + 1;
        assert!(claims.contains(&attempts), "{number}: {attempts} of {arrivals}");
    }
    let _relay = scene.relay();
    assert_dead_and_replayed(&scene).await;
}
