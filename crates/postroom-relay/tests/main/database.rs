//! Databases that are away at the start, or go away in between.

use crate::outbox::{Running, SOON, lane, message};
use postroom_core::{Filter, Status, Store};
use postroom_relay::{Relay, Settings};
use postroom_sinks::MemorySink;
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, TestDatabase, eventually};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

struct Away {
    server: Postgres,
    _database: TestDatabase,
    store: Arc<dyn Store>,
    sink: MemorySink,
}

impl Away {
    async fn new() -> Self {
        let server = Postgres::private(&[]).await.unwrap();
        let database = server.database().await;
        postroom_store::migrate(database.url()).await.unwrap();
        let store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
        Self { server, _database: database, store, sink: MemorySink::new() }
    }

    async fn enqueue(&self, count: usize) -> HashSet<String> {
        let mut ids = HashSet::new();
        for _ in 0..count {
            let message = message("memory:a");
            ids.insert(message.event_id.clone());
            self.store.enqueue(&message).await.unwrap();
        }
        ids
    }

    fn relay(&self) -> Running {
        let mut lane = lane("memory:a", self.sink.clone());
        (lane.concurrency, lane.batch_size) = (2, 10);
        // What the crash makes the database forget comes back when its claim has expired.
        let claim_time = Duration::from_secs(3);
        let settings = Settings { batch_size: 20, claim_time, ..Settings::default() };
        let relay = Relay::new(Arc::clone(&self.store), settings, vec![lane]);
        Running::start(Arc::new(relay))
    }

    async fn wait_until_sent(&self, count: u64) {
        eventually("everything to be SENT", SOON, async || {
            let counts = self.store.status_counts().await.unwrap();
            (counts.of(Status::Sent) == count).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_down_at_the_start_is_waited_for() {
    let away = Away::new().await;
    let ids = away.enqueue(30).await;
    away.server.stop().await.unwrap();
    let relay = away.relay();
    eventually("the relay to say so", SOON, async || {
        (relay.health().database.contains("PostgreSQL cannot be reached")).then_some(())
    })
    .await;
    assert!(!relay.health().ready);
    assert_eq!(away.sink.attempts(), 0);

    away.server.start().await.unwrap();
    away.wait_until_sent(30).await;
    let health = relay.health();
    assert_eq!((health.ready, health.database.as_str()), (true, "ok"));
    let delivered: HashSet<_> =
        away.sink.delivered().into_iter().map(|message| message.event_id).collect();
    assert_eq!(delivered, ids);
    relay.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_05_a_database_that_crashes_pauses_the_relay_and_nothing_is_lost() {
    let away = Away::new().await;
    let mut ids = away.enqueue(200).await;
    let relay = away.relay();
    away.sink.wait_for(10).await;
    // In the middle of it: some are recorded, some delivered, some taken, some waiting.
    away.sink.hold();
    ids.extend(away.enqueue(20).await);
    away.sink.wait_held(1).await;
    away.server.stop().await.unwrap();
    away.sink.release();
    eventually("the relay to say so", SOON, async || (!relay.health().ready).then_some(())).await;

    away.server.start().await.unwrap();
    away.wait_until_sent(220).await;
    eventually("readiness", SOON, async || relay.health().ready.then_some(())).await;
    ids.extend(away.enqueue(20).await);
    away.wait_until_sent(240).await;
    let delivered: HashSet<_> =
        away.sink.delivered().into_iter().map(|message| message.event_id).collect();
    assert_eq!(delivered, ids);
    let all = Filter { limit: 300, ..Filter::default() };
    for record in away.store.list(&all).await.unwrap() {
        assert_eq!(record.message.attempts, 0, "the database's trouble is no attempt");
    }
    relay.stop().await.unwrap();
}

/// A take that loses to concurrent transactions again and again is tried again soon, and the database
/// counts as there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_21_a_serialization_failure_is_no_database_that_cannot_be_used() {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.unwrap();
    let client = database.client().await;
    client
        .batch_execute(
            "CREATE SEQUENCE public.lost;
             CREATE FUNCTION public.lose() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 PERFORM nextval('public.lost');
                 RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
             END $$;
             CREATE TRIGGER lose BEFORE INSERT ON core_outbox.claim
                 FOR EACH ROW EXECUTE FUNCTION public.lose()",
        )
        .await
        .unwrap();
    let store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
    let sink = MemorySink::new();
    let lanes = vec![lane("memory:a", sink.clone())];
    let relay = Relay::new(Arc::clone(&store), Settings::default(), lanes);
    let relay = Running::start(Arc::new(relay));
    eventually("the relay to be ready", SOON, async || relay.health().ready.then_some(())).await;

    store.enqueue(&message("memory:a")).await.unwrap();
    eventually("takes to be lost", SOON, async || {
        let health = relay.health();
        assert_eq!((health.ready, health.database.as_str()), (true, "ok"));
        let lost = "SELECT last_value FROM public.lost";
        let lost: i64 = client.query_one(lost, &[]).await.unwrap().get(0);
        (lost >= 20).then_some(())
    })
    .await;
    client.batch_execute("DROP TRIGGER lose ON core_outbox.claim").await.unwrap();
    eventually("the message to be delivered", SOON, async || {
        (sink.delivered().len() == 1).then_some(())
    })
    .await;
    relay.stop().await.unwrap();
}
