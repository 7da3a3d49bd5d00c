//! How a relay holds what it has in queues.

use super::outbox::{Outbox, Running, external, own};
use crate::servers::LONG;
use postroom_bullmq::Part;
use postroom_core::MessageId;
use postroom_relay::ExternalLanes as _;
use postroom_sinks::MemorySink;
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, Redis, TestDatabase, eventually};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;
use uuid::Uuid;

const JOBS: usize = 8;
/// Long enough that a loaded machine sends its heartbeats in time.
const CLAIM_TIME: Duration = Duration::from_secs(5);

async fn on_postgres(outbox: &mut Outbox) -> (TestDatabase, Client) {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.unwrap();
    outbox.store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
    let client = database.client().await;
    (database, client)
}

/// The claims, each with the transaction that wrote it last.
async fn claims(client: &Client) -> Vec<(Uuid, String)> {
    let sql = "SELECT token, xmin::text FROM core_outbox.claim ORDER BY token";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

async fn relays(client: &Client) -> i64 {
    let sql = "SELECT count(*) FROM core_outbox.relay WHERE until >= now()";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// How many jobs of a relay had this outcome.
fn jobs(relay: &Running, outcome: &str) -> usize {
    let text = relay.metrics.text();
    let outcome = format!("outcome=\"{outcome}\"}}");
    let lines = text.lines().filter_map(|line| line.split_once(&outcome));
    lines.map(|(_, count)| count.trim().parse::<usize>().expect("a number")).sum()
}

/// Messages that come one after the other, each with a job that waits.
async fn thin_traffic(outbox: &Outbox) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for _ in 0..JOBS {
        let id = outbox.enqueue(&outbox.message("order.created", 3)).await;
        outbox.wait_waiting(&id, 1).await;
        ids.push(id);
    }
    ids
}

/// Under thin traffic each job has a claim of its own, and all of them are kept by one row: theirs
/// are not written again.
#[tokio::test]
async fn the_claims_of_live_jobs_are_kept_by_one_row() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    outbox.settings.claim_time = CLAIM_TIME;
    let (_database, client) = on_postgres(&mut outbox).await;
    let relay = outbox.start(Part::Relay);
    let ids = thin_traffic(&outbox).await;
    let taken = claims(&client).await;
    assert_eq!(taken.len(), JOBS);
    // Each has outlived a claim time by several rescues, and there were heartbeats since.
    eventually("the heartbeat to keep them", LONG, async || {
        let sql = "SELECT bool_and(c.since < now() - interval '7 seconds' AND r.until > now())
                   FROM core_outbox.claim c JOIN core_outbox.relay r ON r.id = c.relay";
        let row = client.query_one(sql, &[]).await.ok()?;
        row.get::<_, Option<bool>>(0)?.then_some(())
    })
    .await;
    assert_eq!(relays(&client).await, 1, "for the relay and its transport together");
    assert_eq!(claims(&client).await, taken, "no other row was written");
    assert_eq!(relay.transport.health()[0].in_flight, JOBS);
    assert_eq!(jobs(&relay, "FOUND"), 0, "none was taken again");

    // Stopped, it has no row, and another adopts its jobs.
    relay.stop().await;
    assert_eq!(relays(&client).await, 0);
    let relay = outbox.start(Part::Relay);
    eventually("the jobs to be found", LONG, async || {
        (jobs(&relay, "FOUND") == JOBS).then_some(())
    })
    .await;
    assert_eq!(jobs(&relay, "ADDED"), 0);
    assert_eq!(outbox.queue().counts().await.unwrap().waiting, JOBS as u64);
    relay.stop().await;

    // With nothing left in queues there is no claim.
    let sink = MemorySink::new();
    let mut working = own(server.address(), Arc::new(sink.clone()));
    working.lane.integration = outbox.lane.integration.clone();
    working.store = Arc::clone(&outbox.store);
    let relay = working.start(Part::Relay);
    for id in ids {
        assert_eq!(working.wait(&id, "SENT").await.message.attempts, 0);
    }
    assert_eq!(sink.attempts(), JOBS);
    eventually("no claim", LONG, async || {
        let count = client.query_one("SELECT count(*) FROM core_outbox.claim", &[]).await.ok()?;
        (count.get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    relay.stop().await;
}

/// A claim that was taken in a call whose answer was lost is nobody's: the heartbeat must not keep it.
#[tokio::test]
async fn a_claim_that_nobody_heard_of_is_taken_again() {
    let server = Redis::shared().await;
    let mut outbox = external(server.address());
    let (_database, client) = on_postgres(&mut outbox).await;
    let relay = outbox.start(Part::Relay);
    let first = outbox.enqueue(&outbox.message("order.created", 3)).await;
    outbox.wait_waiting(&first, 1).await;
    // As the relay's own statement would have left it.
    let hidden = "INSERT INTO core_outbox.integration_outbox
            (source_stream_id, source_event_id, integration_type, event_type, payload, due_at)
        VALUES ('s', 'e', $1, 't', '{}', now() + interval '1 hour') RETURNING id";
    let hidden: Uuid = client.query_one(hidden, &[&outbox.lane.integration]).await.unwrap().get(0);
    let lost = "WITH held AS (
            UPDATE core_outbox.delivery SET claim = gen_random_uuid(), due_at = now()
            WHERE message_id = $1 RETURNING message_id, claim
        ), due AS (
            UPDATE core_outbox.integration_outbox SET due_at = now() WHERE id = $1
        )
        INSERT INTO core_outbox.claim (token, worker, since, relay, alone, ids, dispatched)
        SELECT held.claim, c.worker, now(), c.relay, false, ARRAY[held.message_id], true
        FROM held, core_outbox.claim c";
    assert_eq!(client.execute(lost, &[&hidden]).await.unwrap(), 1);
    outbox.wait_waiting(&hidden.into(), 1).await;
    assert_eq!(relay.transport.health()[0].in_flight, 2);
    relay.stop().await;
}

/// A relay whose heartbeat was late is told what others have rescued meanwhile. Here it adopts that
/// itself: no job is lost, and none is doubled.
#[tokio::test]
async fn what_was_rescued_from_a_late_relay_is_taken_again_and_not_doubled() {
    let server = Redis::shared().await;
    let outbox = external(server.address());
    let relay = outbox.start(Part::Relay);
    let ids = thin_traffic(&outbox).await;
    for rescued in [2, JOBS] {
        let before = jobs(&relay, "FOUND");
        // Nothing of the relay runs between these two: there is one thread.
        outbox.memory.by_hand().expire_claims();
        let freed = outbox.store.rescue(rescued).await.unwrap();
        assert_eq!(freed, rescued as u64);
        eventually("what was rescued to be found", LONG, async || {
            (jobs(&relay, "FOUND") >= before + rescued).then_some(())
        })
        .await;
        for id in &ids {
            outbox.wait(id, "CLAIMED").await;
        }
        assert_eq!(relay.transport.health()[0].in_flight, JOBS);
    }
    assert_eq!(jobs(&relay, "ADDED"), JOBS);
    assert_eq!(outbox.queue().counts().await.unwrap().waiting, JOBS as u64);
    for id in ids {
        outbox.wait_number(&id, 1).await;
    }
    relay.stop().await;
}
