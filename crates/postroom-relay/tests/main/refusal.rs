//! A database that refuses one outcome, as a trigger or a constraint of the user's own may.

use crate::outbox::{Outbox, Running, SOON, lane};
use postroom_relay::Settings;
use postroom_sinks::MemorySink;
use postroom_testkit::eventually;
use std::future::Future;
use std::time::Duration;

/// Several of these pass while outcomes are refused.
const CLAIM_TIME: Duration = Duration::from_secs(1);

fn settings() -> Settings {
    Settings { claim_time: CLAIM_TIME, ..Settings::default() }
}

/// Has the database refuse to record SENT for some messages, until the answer is awaited.
async fn refuse_sent(outbox: &Outbox, which: &str) -> impl Future<Output = ()> + use<> {
    let client = outbox.database().client().await;
    client
        .batch_execute(&format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON core_outbox.integration_outbox
                 FOR EACH ROW WHEN (NEW.status = 'SENT' AND {which})
                 EXECUTE FUNCTION refuse()"
        ))
        .await
        .unwrap();
    async move {
        let drop = "DROP TRIGGER refuse ON core_outbox.integration_outbox";
        client.batch_execute(drop).await.unwrap();
    }
}

/// Waits until claims that nobody keeps would have expired, and what they hold been delivered again.
async fn several_claim_times(outbox: &Outbox) {
    let began = outbox.store.now().await.unwrap();
    eventually("several claim times", SOON, async || {
        (outbox.store.now().await.unwrap() > began + 4 * CLAIM_TIME).then_some(())
    })
    .await;
}

fn unrecorded(relay: &Running, count: usize) -> Option<()> {
    let line = format!("outbox_unrecorded{{integration=\"memory:a\"}} {count}\n");
    relay.metrics().contains(&line).then_some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_outcome_is_refused_is_held_and_takes_no_other_along() {
    let outbox = Outbox::postgres().await;
    let ids = outbox.enqueue("memory:a", 10).await;
    let accept = refuse_sent(&outbox, &format!("NEW.id = '{}'", ids[4])).await;
    let sink = MemorySink::new();
    let mut lane = lane("memory:a", sink.clone());
    (lane.concurrency, lane.batch_size) = (1, 10);
    let relay = outbox.start(settings(), vec![lane]);

    let others: Vec<_> = ids.iter().filter(|&id| *id != ids[4]).cloned().collect();
    outbox.wait_for_all(&others, "SENT").await;
    eventually("the metric", SOON, async || unrecorded(&relay, 1)).await;
    several_claim_times(&outbox).await;
    assert_eq!(sink.attempts(), 10, "its receiver hears of it once");
    assert_eq!(outbox.record(&ids[4]).await.status, "CLAIMED");

    accept.await;
    outbox.wait_for(&ids[4], "SENT").await;
    eventually("the metric", SOON, async || unrecorded(&relay, 0)).await;
    relay.stop().await.unwrap();
    assert_eq!(sink.attempts(), 10, "what was known is recorded once the database takes it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_stops_at_its_share_of_outcomes_that_are_refused() {
    let outbox = Outbox::postgres().await;
    let ids = outbox.enqueue("memory:a", 100).await;
    let accept = refuse_sent(&outbox, "NEW.integration_type = 'memory:a'").await;
    let sink = MemorySink::new();
    let mut few_at_once = lane("memory:a", sink.clone());
    (few_at_once.concurrency, few_at_once.batch_size) = (1, 5);
    let lanes = vec![few_at_once, lane("memory:b", MemorySink::new())];
    let relay = outbox.start(Settings { batch_size: 5, ..settings() }, lanes);
    // Four times what runs at once.
    eventually("a full lane", SOON, async || (sink.attempts() >= 15).then_some(())).await;
    let free = outbox.enqueue("memory:b", 20).await;
    outbox.wait_for_all(&free, "SENT").await;
    several_claim_times(&outbox).await;
    assert!(sink.attempts() <= 20, "{} were delivered and cannot be recorded", sink.attempts());

    accept.await;
    outbox.wait_for_all(&ids, "SENT").await;
    relay.stop().await.unwrap();
    assert_eq!(sink.attempts(), 100, "each was delivered once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_gives_up_what_is_refused_and_the_next_relay_delivers_it_again() {
    let outbox = Outbox::postgres().await;
    let ids = outbox.enqueue("memory:a", 3).await;
    let accept = refuse_sent(&outbox, "true").await;
    let sink = MemorySink::new();
    // A stop that waited for them would take an hour.
    let patient = Settings { stop_limit: Duration::from_secs(3_600), ..settings() };
    let relay = outbox.start(patient, vec![lane("memory:a", sink.clone())]);
    eventually("refusals", SOON, async || unrecorded(&relay, 3)).await;
    tokio::time::timeout(SOON, relay.stop()).await.expect("a stop").unwrap();

    accept.await;
    let next = outbox.start(settings(), vec![lane("memory:a", sink.clone())]);
    outbox.wait_for_all(&ids, "SENT").await;
    next.stop().await.unwrap();
    assert_eq!(sink.attempts(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_ends_though_an_outcome_is_refused() {
    let outbox = Outbox::postgres().await;
    let ids = outbox.enqueue("memory:a", 3).await;
    let _accept = refuse_sent(&outbox, &format!("NEW.id = '{}'", ids[1])).await;
    let relay = outbox.relay(settings(), vec![lane("memory:a", MemorySink::new())]);
    let pass = tokio::time::timeout(SOON, relay.tick(10)).await.expect("an end").unwrap();
    assert_eq!((pass.taken, pass.sent), (3, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_somebody_has_locked_hold_up_no_other() {
    let outbox = Outbox::postgres().await;
    let locked = outbox.enqueue("memory:a", 2).await;
    let mut editors = Vec::new();
    // As many as there are completers, each in a transaction that stays open.
    for id in &locked {
        let client = outbox.database().client().await;
        let edit = format!(
            "BEGIN; UPDATE core_outbox.integration_outbox SET tenant_id = 'x' WHERE id = '{id}'"
        );
        client.batch_execute(&edit).await.unwrap();
        editors.push(client);
    }
    let sinks = [MemorySink::new(), MemorySink::new()];
    let mut lanes = vec![lane("memory:a", sinks[0].clone()), lane("memory:b", sinks[1].clone())];
    lanes[0].batch_size = 1;
    let relay = outbox.start(Settings::default(), lanes);
    sinks[0].wait_for(2).await;
    let others = outbox.enqueue("memory:b", 20).await;
    outbox.wait_for_all(&others, "SENT").await;
    assert_eq!(outbox.statuses(&locked).await, ["CLAIMED", "CLAIMED"]);

    for editor in editors {
        editor.batch_execute("COMMIT").await.unwrap();
    }
    outbox.wait_for_all(&locked, "SENT").await;
    assert_eq!(sinks[0].attempts(), 2, "each was delivered once");
    relay.stop().await.unwrap();
}
