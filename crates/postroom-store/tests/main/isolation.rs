//! Transactions say their isolation themselves, whatever the role's or the database's default, and
//! producers may use the strictest one.

use crate::taking::{all, settlement, wish};
use crate::{mariadb, postgres};
use postroom_core::{
    Fate, Heartbeat, MessageId, NewAction, NewMessage, Operation, RelayId, Rescued, Status, Store,
    Token,
};
use postroom_store::OpenOptions;
use postroom_testkit::Postgres;
use postroom_testkit::contract::Harness;
use std::collections::BTreeSet;
use std::slice;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// Everything that a store does in transactions, once.
async fn use_all(outbox: &impl Harness) {
    let store = outbox.store().await;
    let quotas = all("noop");
    let mut take = wish(&*store, &quotas).await;
    let dead = |announced: bool| Fate::Dead {
        error: "gone".to_owned(),
        tried: None,
        announcement: announced.then(|| Box::new(new("dead"))),
    };
    let failed = Fate::Failed { delay: HOUR, error: "away".to_owned(), took: Duration::ZERO };
    for fate in [
        Fate::Sent,
        Fate::Released,
        Fate::Postponed { delay: Duration::ZERO },
        failed,
        dead(false),
        dead(true),
    ] {
        store.enqueue(&new("noop")).await.expect("enqueue");
        let batch = store.take(&take).await.expect("take").pop().expect("due");
        let held = [batch.token];
        store.beat(&beat(take.relay, &held, HOUR)).await.expect("beat");
        store.settle(&[settlement(&batch, &fate)]).await.expect("settle");
    }
    store.enqueue(&new("noop")).await.expect("enqueue");
    let id = &store.take(&take).await.expect("take").pop().expect("due").messages[0].message.id;
    outbox.expire_claims().await;
    store.rescue(10).await.expect("rescue");
    store.beat(&beat(take.relay, &[], HOUR)).await.expect("beat");
    for which in [Rescued::Together, Rescued::Alone] {
        store.take_rescued(&take, which).await.expect("take rescued");
    }
    operate(&*store, id).await;
    take.for_queue = true;
    store.enqueue(&new("noop")).await.expect("enqueue");
    let batch = store.take(&take).await.expect("take").pop().expect("due");
    store.dispatched(&[batch.messages[0].message.id.clone()]).await.expect("dispatched");
    // Nothing is held any more, so that all of it is given up.
    store.beat(&beat(take.relay, &[], Duration::ZERO)).await.expect("beat");
    store.relays().await.expect("relays");
    store.leave(take.relay).await.expect("leave");
    store.backlog().await.expect("backlog");
    store.reconcile().await.expect("reconcile");
    store.prune(Duration::ZERO, 100).await.expect("prune");
}

/// What operators do to a message that a worker holds.
async fn operate(store: &dyn Store, id: &MessageId) {
    let action = NewAction { actor: "ann", operation: Operation::Release, target: "a test" };
    let action = store.begin_action(&action).await.expect("an action");
    let key = store.find(id).await.expect("find").expect("there").key();
    assert_eq!(store.release(action, slice::from_ref(&key)).await.expect("release"), 1);
    assert_eq!(store.cancel(action, slice::from_ref(&key)).await.expect("cancel"), 1);
    assert_eq!(store.redrive(action, slice::from_ref(&key)).await.expect("redrive"), 1);
    store.replay(action, &[key], false).await.expect("replay");
    store.note_action(action, 1).await.expect("note");
    store.prune_on_record(action, Status::Sent, HOUR, 10).await.expect("prune");
}

fn beat(relay: RelayId, held: &[Token], claim_time: Duration) -> Heartbeat<'_> {
    Heartbeat { relay, name: "worker", lanes: 1, held, claim_time }
}

fn new(integration: &str) -> NewMessage {
    NewMessage::new(integration, "order.created.v1").json(&serde_json::json!({"orderId": 1}))
}

/// The isolation of every transaction that wrote anything, seen by a trigger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_transactions_are_read_committed_whatever_the_default() {
    let outbox = postgres::start().await;
    let client = outbox.client().await;
    client
        .batch_execute(
            "CREATE TABLE public.seen (isolation text, of text);
             CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
             BEGIN
                 INSERT INTO public.seen
                 VALUES (current_setting('transaction_isolation'), TG_TABLE_NAME || ' ' || TG_OP);
                 RETURN NULL;
             END $$;
             DO $$
             DECLARE watched text;
             BEGIN
                 FOREACH watched IN ARRAY
                     ARRAY['integration_outbox', 'delivery', 'claim', 'attempt', 'action']
                 LOOP
                     EXECUTE format(
                         'CREATE TRIGGER see AFTER INSERT OR UPDATE OR DELETE ON core_outbox.%I
                          FOR EACH STATEMENT EXECUTE FUNCTION public.see()', watched);
                 END LOOP;
             END $$;
             DO $$ BEGIN
                 EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = %L',
                                current_database(), 'serializable');
             END $$",
        )
        .await
        .expect("triggers");
    use_all(&outbox).await;
    // The test's own changes by hand began before the default was another.
    let rows = client.query("SELECT DISTINCT isolation, of FROM public.seen", &[]).await;
    let seen: BTreeSet<(String, String)> =
        rows.expect("seen").iter().map(|row| (row.get(0), row.get(1))).collect();
    assert!(seen.len() > 10, "{seen:?}");
    let others: Vec<_> = seen.iter().filter(|(one, _)| one != "read committed").collect();
    assert!(others.is_empty(), "{others:?}");
}

/// The same on MariaDB, whose default is REPEATABLE READ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_transactions_are_read_committed_whatever_the_default() {
    let outbox = mariadb::start().await;
    let mut triggers = "CREATE TABLE seen (isolation TEXT, of TEXT)".to_owned();
    for table in [
        "outbox_parcel",
        "outbox_delivery",
        "outbox_claim",
        "outbox_lane_cursor",
        "outbox_relay",
        "outbox_attempt",
        "outbox_action",
    ] {
        for change in ["INSERT", "UPDATE", "DELETE"] {
            triggers.push_str(&format!(
                "; CREATE TRIGGER see_{table}_{change} AFTER {change} ON {table} FOR EACH ROW \
                 INSERT INTO seen SELECT @@tx_isolation, '{table} {change}' \
                 WHERE CONNECTION_ID() <> (SELECT id FROM by_hand)"
            ));
        }
    }
    outbox
        .execute("CREATE TABLE by_hand AS SELECT CONNECTION_ID() AS id".to_owned())
        .await
        .unwrap();
    outbox.execute(triggers).await.expect("triggers");
    use_all(&outbox).await;
    let seen: Vec<(String, String)> = sqlx::query_as("SELECT DISTINCT isolation, of FROM seen")
        .fetch_all(&outbox.by_hand)
        .await
        .expect("seen");
    assert!(seen.len() > 5, "{seen:?}");
    assert!(seen.iter().all(|(isolation, _)| isolation == "READ-COMMITTED"), "{seen:?}");
}

/// Producers that insert many rows side by side, in the strictest isolation, while a relay works.
/// Nothing they do depends on what another does, so none of them fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serializable_producers_do_not_fail_for_each_other() {
    const PRODUCERS: usize = 8;
    const TRANSACTIONS: usize = 25;
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let mut producers = Vec::new();
    for _ in 0..PRODUCERS {
        producers.push(tokio::spawn(produce(database.client().await, TRANSACTIONS)));
    }
    deliver(database.url(), PRODUCERS * TRANSACTIONS * 50).await;
    let mut failures = 0;
    for producer in producers {
        failures += producer.await.expect("a producer");
    }
    assert_eq!(failures, 0, "of {} transactions", PRODUCERS * TRANSACTIONS);
}

/// How many transactions failed; each is tried again until it is done.
async fn produce(client: tokio_postgres::Client, transactions: usize) -> usize {
    const INSERT: &str = "
        BEGIN ISOLATION LEVEL SERIALIZABLE;
        INSERT INTO core_outbox.integration_outbox
            (source_stream_id, source_event_id, integration_type, event_type, payload, status)
        SELECT 's', gen_random_uuid()::text, 'noop', 't', '{}',
               CASE n WHEN 0 THEN 'SENT' ELSE 'PENDING' END
        FROM generate_series(0, 50) n
        ON CONFLICT DO NOTHING;
        COMMIT";
    let (mut done, mut failures) = (0, 0);
    while done < transactions {
        match client.batch_execute(INSERT).await {
            Ok(()) => done += 1,
            Err(error) => {
                failures += 1;
                assert!(failures < 10_000, "{error}");
                client.batch_execute("ROLLBACK").await.expect("rolled back");
            }
        }
    }
    failures
}

/// Takes and settles until everything is SENT.
async fn deliver(url: &str, messages: usize) {
    let store = postroom_store::open(url, &OpenOptions::default()).await.expect("store");
    let quotas = all("noop");
    let take = wish(&*store, &quotas).await;
    let mut sent = 0;
    postroom_testkit::eventually("everything SENT", Duration::from_secs(120), async || {
        loop {
            let batches = store.take(&take).await.expect("take");
            if batches.is_empty() {
                break;
            }
            for batch in batches {
                sent += batch.messages.len();
                let sent = [settlement(&batch, &Fate::Sent)];
                assert!(store.settle(&sent).await.expect("settle").late.is_empty());
            }
        }
        (sent == messages).then_some(())
    })
    .await;
}
