//! Stopping: what is in flight ends well, and the rest is free at once.

use crate::outbox::{Outbox, Running, SOON, lane, message, on_stores, patient_lane};
use crate::script::{Act, Script};
use postroom_core::{Message, Outcome, Store};
use postroom_relay::{Lane, Relay, Settings};
use postroom_sinks::MemorySink;
use postroom_store::OpenOptions;
use postroom_testkit::eventually;
use std::sync::Arc;
use std::time::{Duration, Instant};

on_stores! { [mariadb memory postgres sqlite]:
    a_stop_finishes_what_is_in_flight_and_gives_back_the_rest
    a_stop_gives_back_what_does_not_end_in_time
}

on_stores! { [memory]:
    what_was_reported_before_the_stop_stands
    a_relay_can_run_again
    a_pass_that_is_dropped_holds_its_messages_no_longer_than_their_claim
    a_run_that_is_dropped_takes_no_more
    a_relay_whose_run_was_dropped_can_run_again
}

on_stores! { [postgres]: a_stop_takes_its_limit_once_even_when_sink_and_database_hang }

/// One message in the sink's hands at a time, and nothing free for a day unless it is given back.
fn one_by_one(sink: MemorySink) -> (Settings, Vec<Lane>) {
    let mut lane = lane("memory:a", sink);
    (lane.concurrency, lane.batch_size) = (1, 1);
    let claim_time = Duration::from_secs(24 * 60 * 60);
    (Settings { claim_time, ..Settings::default() }, vec![lane])
}

async fn a_stop_finishes_what_is_in_flight_and_gives_back_the_rest(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.hold();
    let ids = outbox.enqueue("memory:a", 10).await;
    let (settings, lanes) = one_by_one(sink.clone());
    let relay = outbox.start(settings, lanes);
    sink.wait_held(1).await;
    eventually("the others to be claimed", SOON, async || {
        (outbox.claimed().await == 10).then_some(())
    })
    .await;
    let stopping = tokio::spawn(relay.stop());
    // The rest comes back before the one in flight has ended.
    outbox.wait_for_all(&ids[1..], "PENDING").await;
    assert_eq!(outbox.record(&ids[0]).await.status, "CLAIMED");
    sink.release();
    stopping.await.unwrap().unwrap();
    assert_eq!(outbox.record(&ids[0]).await.status, "SENT");
    assert_eq!(sink.attempts(), 1, "nothing begins after the stop");

    let (settings, lanes) = one_by_one(sink.clone());
    let next = outbox.start(settings, lanes);
    outbox.wait_for_all(&ids, "SENT").await;
    next.stop().await.unwrap();
    assert_eq!(sink.attempts(), 10);
}

async fn a_stop_gives_back_what_does_not_end_in_time(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.hold();
    let ids = outbox.enqueue("memory:a", 10).await;
    let before = outbox.records(&ids).await;
    let (mut settings, lanes) = one_by_one(sink.clone());
    settings.stop_limit = Duration::from_millis(50);
    let relay = outbox.start(settings, lanes);
    sink.wait_held(1).await;
    relay.stop().await.unwrap();
    assert_eq!(outbox.records(&ids).await, before, "as if it had never been taken");
    assert_eq!(outbox.claimed().await, 0);

    sink.release();
    let (settings, lanes) = one_by_one(sink.clone());
    let next = outbox.start(settings, lanes);
    outbox.wait_for_all(&ids, "SENT").await;
    next.stop().await.unwrap();
    assert_eq!(sink.attempts(), 10);
}

async fn what_was_reported_before_the_stop_stands(outbox: Outbox) {
    let ids = outbox.enqueue("memory:a", 3).await;
    let first = &ids[0];
    let reported = first.clone();
    let sink = Script::new(move |message: &Message| {
        if message.id == reported { Act::Report(Outcome::Delivered) } else { Act::Stall }
    });
    let settings = Settings { stop_limit: Duration::from_millis(50), ..Settings::default() };
    let relay = outbox.start(settings, vec![patient_lane("memory:a", sink)]);
    outbox.wait_for(first, "SENT").await;
    relay.stop().await.unwrap();
    assert_eq!(outbox.statuses(&ids).await, ["SENT", "PENDING", "PENDING"]);
}

async fn a_relay_can_run_again(outbox: Outbox) {
    let sink = MemorySink::new();
    let relay = outbox.relay(Settings::default(), vec![lane("memory:a", sink)]);
    for _ in 0..3 {
        let id = outbox.put(message("memory:a")).await;
        let running = Running::start(Arc::clone(&relay));
        outbox.wait_for(&id, "SENT").await;
        running.stop().await.unwrap();
        let id = outbox.put(message("memory:a")).await;
        relay.tick(1).await.unwrap();
        assert_eq!(outbox.record(&id).await.status, "SENT");
    }
}

async fn a_pass_that_is_dropped_holds_its_messages_no_longer_than_their_claim(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.hold();
    let id = outbox.put(message("memory:a")).await;
    let settings = Settings { claim_time: Duration::from_millis(300), ..Settings::default() };
    let relay = outbox.relay(settings, vec![lane("memory:a", sink.clone())]);
    tokio::select! {
        pass = relay.tick(10) => panic!("the sink holds it: {pass:?}"),
        () = sink.wait_held(1) => {}
    }
    // It was given back if there was time for that; otherwise its claim expires.
    eventually("the message to be free", SOON, async || {
        outbox.store.rescue(10).await.unwrap();
        (outbox.record(&id).await.status == "PENDING").then_some(())
    })
    .await;
}

async fn a_run_that_is_dropped_takes_no_more(outbox: Outbox) {
    let sink = MemorySink::new();
    let relay = outbox.relay(Settings::default(), vec![lane("memory:a", sink.clone())]);
    let first = outbox.put(message("memory:a")).await;
    tokio::select! {
        ended = relay.run(std::future::pending()) => panic!("nobody asked it to stop: {ended:?}"),
        _ = outbox.wait_for(&first, "SENT") => {}
    }
    let next = outbox.relay(Settings::default(), vec![lane("memory:b", MemorySink::new())]);
    let next = Running::start(next);
    let mut left = Vec::new();
    for _ in 0..20 {
        left.push(outbox.put(message("memory:a")).await);
        let id = outbox.put(message("memory:b")).await;
        outbox.wait_for(&id, "SENT").await;
    }
    assert!(outbox.statuses(&left).await.iter().all(|status| status == "PENDING"));
    next.stop().await.unwrap();
}

async fn a_relay_whose_run_was_dropped_can_run_again(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.hold();
    let ids = outbox.enqueue("memory:a", 10).await;
    let (mut settings, lanes) = one_by_one(sink.clone());
    settings.claim_time = Duration::from_millis(300);
    let relay = outbox.relay(settings, lanes);
    tokio::select! {
        ended = relay.run(std::future::pending()) => panic!("nobody asked it to stop: {ended:?}"),
        () = sink.wait_held(1) => {}
    }
    eventually("nothing to be counted as in hand", SOON, async || {
        (relay.health().lanes[0].in_flight == 0).then_some(())
    })
    .await;
    sink.release();
    let running = Running::start(relay);
    outbox.wait_for_all(&ids, "SENT").await;
    running.stop().await.unwrap();
}

async fn a_stop_takes_its_limit_once_even_when_sink_and_database_hang(outbox: Outbox) {
    let ids = outbox.enqueue("memory:a", 2).await;
    let first = &ids[0];
    let reported = first.clone();
    let sink = Script::new(move |message: &Message| {
        if message.id == reported { Act::Report(Outcome::Delivered) } else { Act::Stall }
    });
    // A completion waits for this lock, a claim does not.
    let client = outbox.database().client().await;
    client.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM core_outbox.integration_outbox WHERE id = $1 FOR UPDATE";
    client.query_one(lock, &[&first.as_uuid()]).await.unwrap();

    let stop_limit = Duration::from_millis(500);
    let settings = Settings { stop_limit, ..Settings::default() };
    let relay = outbox.start(settings, vec![patient_lane("memory:a", sink)]);
    // Within a transaction the first look at the activity would stay as it was.
    let observer = outbox.database().client().await;
    eventually("the completion to wait", SOON, async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock'";
        let waiting: i64 = observer.query_one(waiting, &[]).await.unwrap().get(0);
        (waiting > 0).then_some(())
    })
    .await;
    let asked = Instant::now();
    relay.stop().await.unwrap();
    // A second more for recording, and some for a slow machine.
    assert!(asked.elapsed() < stop_limit + Duration::from_secs(3), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_relay_that_waits_for_its_database_stops_at_once() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://app@{nobody}/shop");
    let store: Arc<dyn Store> = postroom_store::open(&url, &OpenOptions::default()).await.unwrap();
    let relay = Relay::new(store, Settings::default(), vec![lane("memory:a", MemorySink::new())]);
    let relay = Running::start(Arc::new(relay));
    eventually("the relay's word", SOON, async || {
        (relay.health().database.contains("refused")).then_some(())
    })
    .await;
    assert!(!relay.health().ready);
    relay.stop().await.unwrap();
}
