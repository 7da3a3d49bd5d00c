//! Relays that are killed, paused or stopped in the middle of their work.

use crate::faults_outbox::{
    CLAIM_TIME, Outbox, SHORT_CLAIMS, SOON, arrivals, metric, wait_until_ready, webhook,
};
use chrono::{DateTime, Utc};
use postroom_testkit::{Behaviour, Receiver, Signal, eventually};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Nothing that a killed relay held comes free within a test: only a release can explain it.
const LONG_CLAIMS: &str = "claim_time = \"1h\"";

#[tokio::test]
async fn fault_02_killed_after_the_claim_and_before_the_send_nothing_is_lost() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    let ids = outbox.enqueue("webhook:a", 10).await;
    let mut relay = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, "concurrency = 1"));
    let first = receiver.wait_for(1, SOON).await.remove(0);
    let first = first.header("idempotency-key").unwrap().to_owned();
    outbox.wait_for_claims(10).await;
    outbox.crash(&mut relay).await;

    let killed_at = outbox.store.now().await.unwrap();
    let client = outbox.client().await;
    let until: DateTime<Utc> = client
        .query_one(
            "SELECT min(r.until) FROM core_outbox.claim c \
                          JOIN core_outbox.relay r ON r.id = c.relay",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    let _next = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    outbox.wait_for_all(&ids, "SENT").await;
    let limit = killed_at + CLAIM_TIME + Duration::from_secs(30);
    for record in outbox.records(&ids).await {
        let sent_at = record.sent_at.unwrap();
        assert!(sent_at >= until, "a claim is respected while it lasts: {until}, sent {sent_at}");
        assert!(sent_at < limit, "killed {killed_at}, sent {sent_at}");
        assert_eq!(record.message.attempts, 0);
        let expected = if record.message.event_id == first { 2 } else { 1 };
        assert_eq!(arrivals(&receiver)[&record.message.event_id], expected);
    }
}

#[tokio::test]
async fn fault_03_killed_after_the_answer_and_before_the_mark_is_one_duplicate() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::Accept, Behaviour::Accept, Behaviour::HoldResponse]);
    let ids = outbox.enqueue("webhook:a", 3).await;
    let blocked = outbox.block_completion(&ids[1]).await;
    let mut relay = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, "concurrency = 1"));
    receiver.wait_for(3, SOON).await;
    outbox.wait_until_blocked().await;
    // The last of the batch is marked, while the one before it is not.
    receiver.release();
    outbox.wait_for(&ids[2], "SENT").await;
    outbox.crash(&mut relay).await;
    blocked.end().await;

    let marked: HashMap<String, bool> = outbox
        .records(&ids)
        .await
        .into_iter()
        .map(|record| (record.message.event_id, record.status == "SENT"))
        .collect();
    let _next = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    outbox.wait_for_all(&ids, "SENT").await;
    // What was marked has come once; what was not, twice, under the same event id.
    for (event_id, count) in arrivals(&receiver) {
        assert_eq!(count, if marked[&event_id] { 1 } else { 2 });
    }
    let blocked = outbox.record(&ids[1]).await.message.event_id;
    assert_eq!(arrivals(&receiver)[&blocked], 2);
}

#[tokio::test]
async fn fault_04_killed_in_the_middle_of_a_completion_the_batch_is_all_or_none() {
    const MESSAGES: usize = 100;
    let outbox = Outbox::postgres().await;
    let ids = outbox.enqueue("file:a", MESSAGES).await;
    let file = "[integrations.\"file:a\"]\npath = \"a.jsonl\"";
    // In the middle of the batch: some rows are written by then, and some are not.
    let stalled = outbox.stall_completion(&ids[MESSAGES / 2]).await;
    let mut relay = outbox.relay(SHORT_CLAIMS, file);
    stalled.wait().await;
    outbox.crash(&mut relay).await;
    stalled.end().await;
    for record in outbox.records(&ids).await {
        assert_eq!((record.status.as_str(), record.sent_at), ("CLAIMED", None));
    }
    let killed_at = outbox.store.now().await.unwrap();

    let _next = outbox.relay(SHORT_CLAIMS, file);
    outbox.wait_for_all(&ids, "SENT").await;
    let lines = std::fs::read_to_string(outbox.folder().path().join("a.jsonl")).unwrap();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for line in lines.lines() {
        let message: serde_json::Value = serde_json::from_str(line).unwrap();
        *counts.entry(message["id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(counts.len(), MESSAGES);
    assert!(counts.values().all(|count| *count == 2), "{counts:?}");
    let limit = killed_at + CLAIM_TIME + Duration::from_secs(30);
    for record in outbox.records(&ids).await {
        assert!(record.sent_at.unwrap() < limit, "killed {killed_at}, sent {:?}", record.sent_at);
    }
}

#[tokio::test]
async fn fault_07_a_relay_paused_past_its_claim_changes_no_row_and_a_metric_rises() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    let id = &outbox.enqueue("webhook:a", 1).await[0];
    let mut paused = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    receiver.wait_for(1, SOON).await;
    paused.signal(Signal::SIGSTOP);
    let other = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    let sent = outbox.wait_for(id, "SENT").await;

    receiver.release();
    paused.signal(Signal::SIGCONT);
    eventually("the late completion", SOON, async || {
        (metric(&paused, "outbox_late_completions_total").await == Some(1)).then_some(())
    })
    .await;
    assert_eq!(outbox.record(id).await, sent, "the row is as it was");
    assert_eq!(metric(&other, "outbox_late_completions_total").await, Some(0));
    assert_eq!(arrivals(&receiver), [(sent.message.event_id, 2)].into());

    // It lives on, with claims that are its own.
    drop(other);
    let next = &outbox.enqueue("webhook:a", 1).await[0];
    outbox.wait_for(next, "SENT").await;
}

/// What it had in hand and had not begun when it was paused, others have delivered: it begins none of it.
#[tokio::test]
async fn fault_07_a_relay_paused_past_its_claim_begins_nothing_that_it_has_lost() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    let ids = outbox.enqueue("webhook:a", 20).await;
    let mut paused = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, "concurrency = 1"));
    let held = receiver.wait_for(1, SOON).await.remove(0);
    let held = held.header("idempotency-key").unwrap().to_owned();
    paused.signal(Signal::SIGSTOP);
    let other = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    outbox.wait_for_all(&ids, "SENT").await;
    // The answer is there when it wakes, and it has room for the next one.
    receiver.release();
    paused.signal(Signal::SIGCONT);
    eventually("the late completion", SOON, async || {
        (metric(&paused, "outbox_late_completions_total").await == Some(1)).then_some(())
    })
    .await;
    drop(other);
    let next = &outbox.enqueue("webhook:a", 1).await[0];
    outbox.wait_for(next, "SENT").await;
    let twice: Vec<_> = arrivals(&receiver).into_iter().filter(|(_, times)| *times > 1).collect();
    assert_eq!(twice, [(held, 2)]);
}

#[tokio::test]
async fn fault_08_a_rescue_in_the_middle_of_a_completion_leaves_sent_as_sent() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    let ids = outbox.enqueue("webhook:a", 2).await;
    // With deliveries of their own: what is claimed as a parcel is rescued as one, after the
    // completion.
    for due in ["now() + interval '1 hour'", "now()"] {
        let set = format!("UPDATE core_outbox.integration_outbox SET due_at = {due}");
        outbox.client().await.batch_execute(&set).await.unwrap();
        outbox.store.backlog().await.unwrap();
    }
    let mut slow = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, "concurrency = 1"));
    let held = receiver.wait_for(1, SOON).await.remove(0);
    let held = held.header("postroom-message-id").unwrap().to_owned();
    let completing = ids.iter().find(|&id| id.to_string() == held).cloned().unwrap();
    let waiting = ids.iter().find(|&id| *id != completing).cloned().unwrap();

    // Ready by then, so that it rescues as soon as the claim has expired.
    let rescuer = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    wait_until_ready(&rescuer, true).await;
    // The completion of one message waits in its middle, and its relay is paused until the claim
    // on both has expired and another relay rescues.
    let stalled = outbox.stall_completion(&completing).await;
    receiver.next([Behaviour::HoldResponse]);
    receiver.release();
    receiver.wait_for(2, SOON).await;
    stalled.wait().await;
    slow.signal(Signal::SIGSTOP);
    outbox.wait_for(&waiting, "SENT").await;
    assert_eq!(outbox.record(&completing).await.status, "CLAIMED");
    stalled.end().await;
    let sent = outbox.wait_for(&completing, "SENT").await;
    slow.signal(Signal::SIGCONT);
    receiver.release();
    eventually("the late completion of the other", SOON, async || {
        (metric(&slow, "outbox_late_completions_total").await == Some(1)).then_some(())
    })
    .await;
    assert_eq!(outbox.record(&completing).await, sent);
    assert_eq!(arrivals(&receiver)[&sent.message.event_id], 1, "SENT is not sent again");
    assert_eq!(metric(&rescuer, "outbox_rescued_total").await, Some(1));
}

#[tokio::test]
async fn fault_09_a_relay_without_that_sink_rescues_the_row_and_leaves_it_alone() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    let id = &outbox.enqueue("webhook:a", 1).await[0];
    let mut killed = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    receiver.wait_for(1, SOON).await;
    outbox.crash(&mut killed).await;

    let other = outbox.relay(SHORT_CLAIMS, "[integrations.\"file:other\"]\npath = \"other\"");
    eventually("the rescue", SOON, async || {
        (metric(&other, "outbox_rescued_total").await == Some(1)).then_some(())
    })
    .await;
    // It works, and passes by what is not its own.
    let its_own = &outbox.enqueue("file:other", 1).await[0];
    outbox.wait_for(its_own, "SENT").await;
    let left = outbox.record(id).await;
    assert_eq!((left.status.as_str(), left.message.attempts), ("PENDING", 0));
    assert_eq!((left.locked_by, left.last_error), (None, None));
    other.wait_for_line("unrouted", SOON).await;

    let _next = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    let sent = outbox.wait_for(id, "SENT").await;
    assert_eq!(arrivals(&receiver)[&sent.message.event_id], 2);
}

#[tokio::test]
async fn fault_23_a_stop_drains_what_is_in_flight_and_releases_the_rest_at_once() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse, Behaviour::HoldResponse]);
    let ids = outbox.enqueue("webhook:a", 20).await;
    let two_at_once = webhook(&receiver, "concurrency = 2");
    let mut relay = outbox.relay(&format!("{LONG_CLAIMS}\nstop_limit = \"1m\""), &two_at_once);
    receiver.wait_for(2, SOON).await;
    outbox.wait_for_claims(20).await;
    relay.signal(Signal::SIGTERM);
    // Released before the two in flight have ended.
    outbox.wait_for_claims(2).await;

    // Another relay has them at once.
    let _next = outbox.relay(LONG_CLAIMS, &two_at_once);
    eventually("18 to be delivered", SOON, async || {
        (arrivals(&receiver).len() == 20).then_some(())
    })
    .await;
    receiver.release();
    let status = relay.wait(SOON).await;
    assert_eq!(status.code(), Some(0), "{}", relay.stderr());
    outbox.wait_for_all(&ids, "SENT").await;
    assert!(arrivals(&receiver).values().all(|count| *count == 1), "none twice");
}

#[tokio::test]
async fn fault_23_a_stop_releases_at_once_what_does_not_end_within_its_limit() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.always(Behaviour::HoldResponse);
    let ids = outbox.enqueue("webhook:a", 20).await;
    let before = outbox.records(&ids).await;
    let keys = format!("{LONG_CLAIMS}\nstop_limit = \"500ms\"");
    let mut relay = outbox.relay(&keys, &webhook(&receiver, "concurrency = 4"));
    receiver.wait_for(4, SOON).await;
    outbox.wait_for_claims(20).await;
    let stopped = Instant::now();
    relay.signal(Signal::SIGTERM);
    let status = relay.wait(SOON).await;
    assert_eq!(status.code(), Some(0), "{}", relay.stderr());
    assert!(stopped.elapsed() < Duration::from_secs(30), "{:?}", stopped.elapsed());
    assert_eq!(outbox.records(&ids).await, before, "free, and no attempt used");

    receiver.always(Behaviour::Accept);
    let _next = outbox.relay(LONG_CLAIMS, &webhook(&receiver, ""));
    outbox.wait_for_all(&ids, "SENT").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_51_what_a_killed_relay_had_in_hand_is_delivered_soon_after_its_claim_time() {
    const MESSAGES: usize = 500;
    const CLAIM_TIME: Duration = Duration::from_secs(5);
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.always(Behaviour::HoldResponse);
    let ids = outbox.enqueue("webhook:a", MESSAGES).await;
    let keys = "claim_time = \"5s\"\nbatch_size = 250";
    // Other lanes are idle, and that slows nothing down.
    let integrations = format!(
        "{}[integrations.\"file:idle\"]\npath = \"idle.jsonl\"\n",
        webhook(&receiver, "concurrency = 64")
    );
    let mut killed = outbox.relay(keys, &integrations);
    outbox.wait_for_claims(MESSAGES as u64).await;
    let other = outbox.relay(keys, &integrations);
    wait_until_ready(&other, true).await;
    receiver.always(Behaviour::RespondSlowly(Duration::from_millis(500)));
    killed.kill9();
    let killed_at = outbox.store.now().await.unwrap();

    outbox.wait_for_all(&ids, "SENT").await;
    let limit = killed_at + CLAIM_TIME + Duration::from_secs(10);
    for record in outbox.records(&ids).await {
        let sent_at = record.sent_at.unwrap();
        assert!(sent_at < limit, "killed {killed_at}, sent {sent_at}");
        assert_eq!(record.message.attempts, 0, "no message has used an attempt");
    }
}
