//! A real PgBouncer in transaction mode between the store and the server.

use postroom_core::{
    Batch, Fate, Fence, Heartbeat, NewMessage, Quota, RelayId, Settlement, Store, StoreErrorKind,
    Take, Token, Verdict,
};
use postroom_store::OpenOptions;
use postroom_testkit::{PgBouncer, Postgres, TestDatabase};
use std::sync::Arc;
use std::time::Duration;

/// Everything that the contract asks of a store, by whichever session comes.
mod contract {
    use crate::postgres::start_behind_a_pooler as start;
    postroom_testkit::contract_tests!(start);
}

struct Pooled {
    database: TestDatabase,
    _pooler: PgBouncer,
    url: String,
}

/// A migrated database, and a pooler with so few sessions that statements change them all the
/// time.
async fn start(sessions: u32) -> Pooled {
    let server = Postgres::shared().await;
    let database = server.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let pooler = PgBouncer::start(server.url(), sessions).await.expect("a pooler");
    let url = pooler.before(database.url());
    Pooled { database, _pooler: pooler, url }
}

async fn open(url: &str, options: OpenOptions) -> Arc<dyn Store> {
    postroom_store::open(url, &options).await.expect("a store")
}

fn said() -> OpenOptions {
    OpenOptions { transaction_pooler: true, ..OpenOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_19_a_pooler_that_nobody_mentioned_is_refused_at_the_start() {
    for sessions in [1, 5] {
        let pooled = start(sessions).await;
        let store = open(&pooled.url, OpenOptions::default()).await;
        let error = store.ready().await.expect_err("a pooler");
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.to_string().contains("pooler = \"transaction\""), "{error}");
        let error = postroom_store::migrate(&pooled.url).await.expect_err("a pooler");
        assert!(error.to_string().contains("direct_url"), "{error}");
        // Directly there is nothing to mention.
        open(pooled.database.url(), OpenOptions::default()).await.ready().await.expect("direct");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fault_19_two_relays_and_a_producer_work_behind_it() {
    const MESSAGES: usize = 2_000;
    let pooled = start(3).await;
    let stores = [open(&pooled.url, said()).await, open(&pooled.url, said()).await];
    stores[0].ready().await.expect("ready");
    let producer = Arc::clone(&stores[0]);
    let producing = tokio::spawn(async move {
        for n in 0..MESSAGES {
            let message = NewMessage::new("noop", "t").json(&n);
            producer.enqueue(&message).await.expect("enqueued");
        }
    });
    let draining = stores.clone().map(|store| {
        tokio::spawn(async move {
            let mut settled = 0;
            while settled_in(&*store).await < MESSAGES as u64 {
                settled += drain(&*store).await;
                store.rescue(10).await.expect("rescue");
            }
            settled
        })
    });
    producing.await.expect("the producer");
    let mut settled = 0;
    for one in draining {
        settled += one.await.expect("a relay");
    }
    assert_eq!(settled, MESSAGES, "each was taken by one of them, once");
    let leftover = pooled
        .database
        .client()
        .await
        .query_one("SELECT count(*) FROM core_outbox.claim", &[])
        .await
        .expect("claims");
    assert_eq!(leftover.get::<_, i64>(0), 0);
    // The rest of the store, by whichever session comes.
    let store = &stores[1];
    assert_eq!(store.reconcile().await.expect("reconcile").total(), 0);
    assert_eq!(store.diagnose().await.expect("diagnose"), []);
    store.integrations().await.expect("integrations");
    store.now().await.expect("the clock");
    assert_eq!(store.prune(Duration::ZERO, 100).await.expect("prune"), 100);
}

async fn settled_in(store: &dyn Store) -> u64 {
    store.status_counts().await.expect("counts").of(postroom_core::Status::Sent)
}

/// Takes what is due and settles it: every tenth fails and comes again, the rest is sent.
async fn drain(store: &dyn Store) -> usize {
    let take = Take {
        worker: "worker",
        relay: postroom_testkit::living_relay(store, Duration::from_secs(30)).await,
        quotas: &[Quota { integration: "noop".to_owned(), rows: 50 }],
        rows: 50,
        bytes: 1 << 20,
        payload_limit: 1 << 18,
        for_queue: false,
    };
    let mut sent = 0;
    let batches = store.take(&take).await.expect("take");
    let held: Vec<_> = batches.iter().map(|batch| batch.token).collect();
    for batch in batches {
        sent += settle(store, take.relay, &held, &batch).await;
    }
    sent
}

async fn settle(store: &dyn Store, relay: RelayId, held: &[Token], batch: &Batch) -> usize {
    let mut sent = 0;
    let verdicts = batch.messages.iter().map(|taken| {
        let again = taken.message.seq % 10 == 0 && taken.message.attempts == 0;
        sent += usize::from(!again);
        let fate = if again {
            let (delay, took) = (Duration::ZERO, Duration::ZERO);
            Fate::Failed { delay, error: "once".to_owned(), took }
        } else {
            Fate::Sent
        };
        Verdict { seq: taken.message.seq, id: taken.message.id.clone(), fate }
    });
    let verdicts: Vec<_> = verdicts.collect();
    let claim_time = Duration::from_secs(30);
    let beat = Heartbeat { relay, name: "worker", lanes: 1, held, claim_time };
    let lost = store.beat(&beat).await.expect("a heartbeat");
    assert!(!lost.contains(&batch.token), "lost: {lost:?}");
    let settlement = Settlement { fence: Fence::Claim(batch.token), verdicts, finished: true };
    let late = store.settle(&[settlement]).await.expect("settled").late;
    assert!(late.is_empty(), "late: {late:?}");
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_19_signals_come_over_a_direct_connection_or_not_at_all() {
    let pooled = start(2).await;
    assert!(open(&pooled.url, said()).await.wake().await.is_none(), "polling is the floor");
    let direct_url = Some(pooled.database.url().to_owned());
    let store = open(&pooled.url, OpenOptions { direct_url, ..said() }).await;
    let mut wake = store.wake().await.expect("a signal");
    wake.busy(false).await;
    store.enqueue(&NewMessage::new("noop", "t")).await.expect("enqueued");
    tokio::time::timeout(Duration::from_secs(20), wake.woken()).await.expect("woken");
}
