//! Operations over many messages, as a program uses them.

use postroom_core::{
    Admin as _, Fate, Fence, Filter, Limits, NewMessage, Operate as _, Quota, Settlement, Status,
    Store, SystemClock, Take, Tried, Verdict,
};
use postroom_store::bulk::{Bulk, Change, Prune, change_one};
use postroom_store::memory::MemoryStore;
use postroom_store::{OpenOptions, migrate, open};
use postroom_testkit::Postgres;
use std::future::{pending, ready};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Messages that died, more than fit on a page: every third of tenant `acme`.
async fn bury(store: &dyn Store, messages: usize) {
    for n in 0..messages {
        let mut new = NewMessage::new("noop", "t").json(&n);
        new.tenant_id = n.is_multiple_of(3).then(|| "acme".to_owned());
        store.enqueue(&new).await.expect("enqueue");
    }
    let quotas = [Quota { integration: "noop".to_owned(), rows: messages }];
    let take = Take {
        worker: "worker",
        relay: postroom_testkit::living_relay(store, Duration::from_secs(60)).await,
        quotas: &quotas,
        rows: messages,
        bytes: usize::MAX >> 1,
        payload_limit: Limits::default().payload_bytes,
        for_queue: false,
    };
    let batch = store.take(&take).await.expect("take").pop().expect("due");
    let tried =
        Tried { outcome: postroom_core::AttemptOutcome::Reject, took: Duration::from_millis(1) };
    let fate = Fate::Dead { error: "400".to_owned(), tried: Some(tried), announcement: None };
    let verdicts = batch.messages.iter().map(|taken| Verdict {
        seq: taken.message.seq,
        id: taken.message.id.clone(),
        fate: fate.clone(),
    });
    let verdicts = verdicts.collect();
    let settlement = Settlement { fence: Fence::Claim(batch.token), verdicts, finished: true };
    store.settle(&[settlement]).await.expect("settle");
}

async fn count(store: &dyn Store, status: Status) -> u64 {
    store.status_counts().await.expect("counts").of(status)
}

/// The whole of it: a dry run, one tenant, then the rest; nothing twice.
async fn messages_are_redriven_by_filter(store: &dyn Store) {
    bury(store, 450).await;
    let acme = Filter { tenant: Some("acme".to_owned()), ..Filter::default() };
    let bulk = Bulk { actor: "ann", change: Change::Redrive, filter: &acme, per_second: None };
    assert_eq!(bulk.count(store).await.expect("count"), 150);
    assert_eq!(count(store, Status::Dead).await, 450, "a dry run changes nothing");
    assert!(store.actions(None, 10).await.expect("actions").is_empty());

    let mut told = Vec::new();
    let finished = bulk.run(store, pending(), |messages| told.push(messages)).await.expect("run");
    assert_eq!((finished.messages, finished.is_stopped), (150, false));
    assert_eq!(told.last(), Some(&150));
    assert_eq!(bulk.run(store, pending(), |_| {}).await.expect("run").messages, 0);

    let all = Filter::default();
    let rest = Bulk { filter: &all, ..bulk };
    assert_eq!(rest.run(store, pending(), |_| {}).await.expect("run").messages, 300);
    assert_eq!(count(store, Status::Pending).await, 450);
    let actions = store.actions(None, 10).await.expect("actions");
    let told: Vec<_> = actions.iter().map(|one| (one.messages, one.target.as_str())).collect();
    assert_eq!(told, [(300, "all"), (0, "tenant acme"), (150, "tenant acme")]);
    assert!(actions.iter().all(|one| one.actor == "ann" && one.operation == "redrive"));

    // PENDING and FAILED alike are cancelled.
    let cancel = Bulk { change: Change::Cancel, ..rest };
    assert_eq!(cancel.count(store).await.expect("count"), 450);
    assert_eq!(cancel.run(store, pending(), |_| {}).await.expect("run").messages, 450);
}

#[tokio::test]
async fn messages_are_redriven_by_filter_in_memory() {
    messages_are_redriven_by_filter(&MemoryStore::new(Arc::new(SystemClock))).await;
}

#[tokio::test]
async fn messages_are_redriven_by_filter_on_postgresql() {
    let database = Postgres::shared().await.database().await;
    migrate(database.url()).await.expect("migrate");
    let store = open(database.url(), &OpenOptions::default()).await.expect("opens");
    messages_are_redriven_by_filter(&*store).await;
}

#[tokio::test]
async fn messages_are_redriven_by_filter_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", folder.path().join("outbox.db").display());
    migrate(&url).await.expect("migrate");
    let store = open(&url, &OpenOptions::default()).await.expect("opens");
    messages_are_redriven_by_filter(&*store).await;
}

#[tokio::test]
async fn one_locked_message_is_left_alone_and_the_others_are_changed() {
    let database = Postgres::shared().await.database().await;
    migrate(database.url()).await.expect("migrated");
    let store = open(database.url(), &OpenOptions::default()).await.expect("opened");
    bury(&*store, 250).await;
    let lock = "SELECT FROM core_outbox.integration_outbox WHERE seq = 7 FOR UPDATE";
    let commit = database.open_transaction(lock).await;
    let all = Filter::default();
    let bulk = Bulk { actor: "ann", change: Change::Redrive, filter: &all, per_second: None };
    let finished = bulk.run(&*store, pending(), |_| {}).await.expect("redriven");
    assert_eq!((finished.messages, finished.locked), (249, 1));
    assert_eq!(store.actions(None, 1).await.expect("actions")[0].messages, 249);

    commit.await;
    let finished = bulk.run(&*store, pending(), |_| {}).await.expect("redriven");
    assert_eq!((finished.messages, finished.locked), (1, 0));
}

#[tokio::test]
async fn a_rate_is_kept() {
    let store = MemoryStore::new(Arc::new(SystemClock));
    bury(&store, 50).await;
    let filter = Filter::default();
    let per_second = NonZeroU32::new(100);
    let bulk = Bulk { actor: "ann", change: Change::Redrive, filter: &filter, per_second };
    let began = Instant::now();
    let mut batches = Vec::new();
    let finished = bulk.run(&store, pending(), |n| batches.push((n, began.elapsed()))).await;
    assert_eq!(finished.expect("run").messages, 50);
    assert_eq!(batches.len(), 5, "a tenth of a second's worth at a time: {batches:?}");
    for (messages, at) in batches {
        let earliest = Duration::from_millis((messages - 10) * 10);
        assert!(at >= earliest, "{messages} after {at:?}");
    }
}

#[tokio::test]
async fn a_stop_leaves_the_rest_alone_and_the_record_true() {
    let store = MemoryStore::new(Arc::new(SystemClock));
    bury(&store, 450).await;
    let filter = Filter::default();
    let bulk = Bulk { actor: "ann", change: Change::Redrive, filter: &filter, per_second: None };
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let mut stop = Some(stop);
    let is_stopped = async {
        let _ = stopped.await;
    };
    let finished = bulk
        .run(&store, is_stopped, |_| {
            if let Some(stop) = stop.take() {
                let _ = stop.send(());
            }
        })
        .await
        .expect("run");
    assert!(finished.is_stopped);
    assert_eq!(finished.messages, 200, "the batch that had begun is finished");
    assert_eq!(count(&store, Status::Pending).await, 200);
    assert_eq!(store.actions(None, 1).await.expect("actions")[0].messages, 200);
}

#[tokio::test]
async fn old_messages_are_pruned_in_batches() {
    let store = MemoryStore::new(Arc::new(SystemClock));
    bury(&store, 1_250).await;
    let prune = Prune { actor: "ann", status: Status::Dead, older_than: Duration::ZERO };
    assert_eq!(prune.count(&store).await.expect("count"), 1_250);
    let stopped = prune.run(&store, ready(()), |_| {}).await.expect("run");
    assert_eq!((stopped.messages, stopped.is_stopped), (1_000, true));
    let finished = prune.run(&store, pending(), |_| {}).await.expect("run");
    assert_eq!((finished.messages, finished.is_stopped), (250, false));
    assert_eq!(count(&store, Status::Dead).await, 0);
}

#[tokio::test]
async fn one_message_is_changed_once() {
    let store = MemoryStore::new(Arc::new(SystemClock));
    bury(&store, 1).await;
    let filter = Filter { limit: 1, ..Filter::default() };
    let key = store.list(&filter).await.expect("list")[0].key();
    let redrive =
        async || change_one(&store, "ann", Change::Redrive, key.clone()).await.expect("change").1;
    assert_eq!(redrive().await.messages, 1);
    assert_eq!(redrive().await.messages, 0);
    let actions = store.actions(None, 10).await.expect("actions");
    assert!(actions.iter().all(|action| action.target == key.id.to_string()));
}
