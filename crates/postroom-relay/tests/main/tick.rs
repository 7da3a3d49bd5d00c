//! One pass at a time, for cron.

use crate::outbox::{Outbox, lane, message, on_stores, patient_lane};
use crate::script::Slow;
use postroom_core::{Outcome, Quota, StoreErrorKind, Take};
use postroom_relay::{Pass, Relay, RelayError, Settings};
use postroom_sinks::MemorySink;
use postroom_store::OpenOptions;
use postroom_testkit::Postgres;
use std::time::Duration;

on_stores! { [mariadb memory postgres sqlite]:
    a_pass_says_exactly_what_it_did
    a_pass_takes_no_more_than_its_limit
    a_pass_leaves_what_is_not_due
    a_pass_frees_what_a_dead_relay_held
}

on_stores! { [memory postgres]: a_pass_goes_on_while_a_full_lane_has_more_though_another_is_idle }

on_stores! { [memory]: a_pass_gives_back_what_its_destination_refuses }

async fn a_pass_says_exactly_what_it_did(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.fail_next(7, Outcome::Delivered);
    sink.fail_next(3, Outcome::retry("503"));
    sink.fail_next(2, Outcome::reject("400"));
    outbox.enqueue("memory:a", 12).await;
    outbox.enqueue("memory:b", 5).await;
    let lanes = vec![patient_lane("memory:a", sink), patient_lane("memory:b", MemorySink::new())];
    let relay = outbox.relay(Settings::default(), lanes);
    let pass = relay.tick(1_000).await.unwrap();
    assert_eq!(pass, Pass { taken: 17, sent: 12, failed: 3, dead: 2, released: 0 });
    assert_eq!(relay.tick(1_000).await.unwrap(), Pass::default());
    let metrics = relay.metrics();
    for line in [
        "outbox_sent_total{integration=\"memory:a\"} 7",
        "outbox_sent_total{integration=\"memory:b\"} 5",
        "outbox_deliveries_total{integration=\"memory:a\",outcome=\"FAILED\"} 3",
        "outbox_deliveries_total{integration=\"memory:a\",outcome=\"DEAD\"} 2",
        "outbox_late_completions_total 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

async fn a_pass_takes_no_more_than_its_limit(outbox: Outbox) {
    let (a, b) = (MemorySink::new(), MemorySink::new());
    outbox.enqueue("memory:a", 150).await;
    outbox.enqueue("memory:b", 150).await;
    let lanes = vec![patient_lane("memory:a", a.clone()), patient_lane("memory:b", b.clone())];
    // Passes may need several takes, and takes several lanes: the limit is over all of them.
    let settings = Settings { batch_size: 30, ..Settings::default() };
    let relay = outbox.relay(settings, lanes);
    let mut delivered = 0;
    for limit in [1, 7, 100, 42] {
        let pass = relay.tick(limit).await.unwrap();
        assert_eq!((pass.taken, pass.sent), (limit as u64, limit as u64));
        delivered += limit;
        assert_eq!(a.delivered().len() + b.delivered().len(), delivered);
    }
    assert_eq!(relay.tick(1_000).await.unwrap().sent, 150);
    assert_eq!((a.delivered().len(), b.delivered().len()), (150, 150));
    assert_eq!(relay.tick(0).await.unwrap(), Pass::default());
}

async fn a_pass_leaves_what_is_not_due(outbox: Outbox) {
    let later = outbox.store.now().await.unwrap() + Duration::from_secs(3_600);
    let id = outbox.put(message("memory:a").due_at(later)).await;
    let relay = outbox.relay(Settings::default(), vec![lane("memory:a", MemorySink::new())]);
    assert_eq!(relay.tick(10).await.unwrap(), Pass::default());
    assert_eq!(outbox.record(&id).await.status, "PENDING");
}

async fn a_pass_frees_what_a_dead_relay_held(outbox: Outbox) {
    let mut ids = outbox.enqueue("memory:a", 6).await;
    let relay = postroom_testkit::living_relay(&*outbox.store, Duration::from_secs(60)).await;
    let take = Take {
        worker: "dead",
        relay,
        quotas: &[Quota { integration: "memory:a".to_owned(), rows: 10 }],
        rows: 10,
        bytes: usize::MAX,
        payload_limit: usize::MAX,
        for_queue: false,
    };
    let held = outbox.store.take(&take).await.unwrap().pop().expect("due");
    assert_eq!(held.messages.len(), 6);
    outbox.store.leave(relay).await.unwrap();
    ids.extend(outbox.enqueue("memory:a", 3).await);
    let relay = outbox.relay(Settings::default(), vec![lane("memory:a", MemorySink::new())]);
    // One of them may have killed the relay; they are handled all the same, all within the pass.
    let pass = relay.tick(2).await.unwrap();
    assert_eq!((pass.taken, pass.sent), (2, 2), "the limit holds for them too");
    let pass = relay.tick(10).await.unwrap();
    assert_eq!(pass, Pass { taken: 7, sent: 7, ..Pass::default() });
    assert!(outbox.statuses(&ids).await.iter().all(|status| status == "SENT"));
}

async fn a_pass_goes_on_while_a_full_lane_has_more_though_another_is_idle(outbox: Outbox) {
    outbox.enqueue("memory:busy", 1_000).await;
    let mut busy = lane("memory:busy", Slow(Duration::from_millis(2)));
    (busy.concurrency, busy.batch_size) = (4, 1);
    let lanes = vec![busy, lane("memory:idle", MemorySink::new())];
    let relay = outbox.relay(Settings::default(), lanes);
    let pass = relay.tick(5_000).await.unwrap();
    assert_eq!(pass, Pass { taken: 1_000, sent: 1_000, ..Pass::default() });
}

async fn a_pass_gives_back_what_its_destination_refuses(outbox: Outbox) {
    let sink = MemorySink::new();
    sink.fail_next(1, Outcome::refuse("403"));
    let ids = outbox.enqueue("memory:a", 5).await;
    let mut lane = lane("memory:a", sink.clone());
    (lane.concurrency, lane.batch_size) = (1, 1);
    let relay = outbox.relay(Settings::default(), vec![lane]);
    let pass = relay.tick(10).await.unwrap();
    assert_eq!(pass, Pass { taken: 5, released: 5, ..Pass::default() });
    assert_eq!(sink.attempts(), 1, "what waited behind the refusal was not offered");
    assert!(outbox.statuses(&ids).await.iter().all(|status| status == "PENDING"));
}

#[tokio::test]
async fn a_database_without_the_outbox_is_an_error_that_says_what_to_do() {
    let database = Postgres::shared().await.database().await;
    let store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
    let lanes = vec![lane("memory:a", MemorySink::new())];
    let relay = Relay::new(store, Settings::default(), lanes);
    for error in [
        relay.tick(10).await.map(drop).unwrap_err(),
        relay.run(std::future::pending()).await.unwrap_err(),
    ] {
        let RelayError::Store(error) = error else { panic!("{error}") };
        assert_eq!(error.kind, StoreErrorKind::Schema);
        assert!(error.to_string().contains("postroom migrate"), "{error}");
    }
}
