//! Producers that roll back or commit late, and signals that are lost.

use crate::faults_outbox::{Outbox, SOON, arrivals, webhook};
use postroom::{NewMessage, enqueue};
use postroom_testkit::Receiver;
use std::time::Duration;

fn message(event_id: &str) -> NewMessage {
    NewMessage::new("webhook:a", "order.created.v1").event_id(event_id).json(&1)
}

#[tokio::test]
async fn fault_01_what_a_producer_rolls_back_is_never_delivered() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    let _relay = outbox.relay("", &webhook(&receiver, ""));
    let mut client = outbox.client().await;
    for round in 0..5 {
        let mut tx = client.transaction().await.unwrap();
        enqueue(&mut tx, message(&format!("rolled-back-{round}"))).await.unwrap();
        tx.rollback().await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        enqueue(&mut tx, message(&format!("committed-{round}"))).await.unwrap();
        tx.commit().await.unwrap();
        // It was enqueued later, so whatever there was before it would have come.
        receiver.wait_for(round + 1, SOON).await;
    }
    let expected = (0..5).map(|round| (format!("committed-{round}"), 1)).collect();
    assert_eq!(arrivals(&receiver), expected);
    let rows: i64 =
        client.query_one("SELECT count(*) FROM core_outbox.messages", &[]).await.unwrap().get(0);
    assert_eq!(rows, 5);
}

#[tokio::test]
async fn fault_12_a_low_number_that_commits_late_is_delivered() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    let _relay = outbox.relay("", &webhook(&receiver, ""));
    let mut slow = outbox.client().await;
    let mut tx = slow.transaction().await.unwrap();
    let late = enqueue(&mut tx, message("late")).await.unwrap().into_id();
    // Many rounds, so that the relay is far beyond its number and its due time.
    let mut first = None;
    for _ in 0..10 {
        let ids = outbox.enqueue("webhook:a", 10).await;
        outbox.wait_for_all(&ids, "SENT").await;
        first = first.or(Some(ids[0].clone()));
    }
    tx.commit().await.unwrap();
    let late = outbox.wait_for(&late, "SENT").await;
    let first = outbox.record(&first.unwrap()).await;
    assert!(late.message.seq < first.message.seq && late.sent_at > first.sent_at);
    assert_eq!(arrivals(&receiver)["late"], 1);
}

#[tokio::test]
async fn fault_20_a_lost_signal_costs_the_poll_interval_and_no_more() {
    const POLL: Duration = Duration::from_millis(300);
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();

    // The signal as it should be: nobody polls within this test.
    let patient = outbox.relay("poll_interval = \"1h\"", &webhook(&receiver, ""));
    for _ in 0..3 {
        let id = &outbox.enqueue("webhook:a", 1).await[0];
        outbox.wait_for(id, "SENT").await;
    }
    drop(patient);

    let _relay = outbox.relay("poll_interval = \"300ms\"", &webhook(&receiver, ""));
    let first = &outbox.enqueue("webhook:a", 1).await[0];
    outbox.wait_for(first, "SENT").await;
    let client = outbox.client().await;
    // Another relay seems to be busy; then nobody signals at all.
    for lose in [
        "SELECT pg_advisory_lock(7305804402)",
        "ALTER TABLE core_outbox.integration_outbox DISABLE TRIGGER outbox_wake",
    ] {
        client.batch_execute(lose).await.unwrap();
        for _ in 0..3 {
            let id = &outbox.enqueue("webhook:a", 1).await[0];
            let sent = outbox.wait_for(id, "SENT").await;
            let waited = sent.sent_at.unwrap() - sent.message.created_at;
            assert!(waited.to_std().unwrap() < POLL + Duration::from_secs(30), "{waited}");
        }
    }
}
