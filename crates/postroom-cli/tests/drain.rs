//! Several relays on one outbox: each message is delivered, and none twice while nobody crashes.

use crate::faults_outbox::{Outbox, SOON};
use postroom_core::{Filter, Status};
use postroom_testkit::{Process, Signal, eventually};
use std::collections::HashSet;
use std::time::Duration;

#[tokio::test]
async fn fault_10_four_relays_deliver_each_of_100_000_messages_exactly_once() {
    let outbox = Outbox::postgres().await;
    let fill = fill_postgres(&outbox, 100_000);
    drain(&outbox, 4, 100_000, "batch_size = 1000", fill).await;
}

#[tokio::test]
async fn two_relays_deliver_each_of_50_000_messages_exactly_once() {
    let outbox = Outbox::postgres().await;
    let fill = fill_postgres(&outbox, 50_000);
    drain(&outbox, 2, 50_000, "", fill).await;
}

#[tokio::test]
async fn two_relays_deliver_each_of_20_000_messages_on_mariadb_exactly_once() {
    let outbox = Outbox::mariadb().await;
    let insert = "INSERT INTO integration_outbox \
             (source_stream_id, source_event_id, integration_type, event_type, payload) \
         SELECT CONCAT('order-', seq), CONCAT('e-', seq), 'file:all', 'order.created.v1', \
                JSON_OBJECT('orderId', seq) \
         FROM seq_1_to_20000";
    let fill = async {
        sqlx::raw_sql(insert).execute(&mut outbox.mariadb_connection().await).await.unwrap();
    };
    drain(&outbox, 2, 20_000, "", fill).await;
}

async fn fill_postgres(outbox: &Outbox, messages: usize) {
    let insert = format!(
        "INSERT INTO core_outbox.integration_outbox \
             (source_stream_id, source_event_id, integration_type, event_type, payload) \
         SELECT 'order-' || n, 'e-' || n, 'file:all', 'order.created.v1', \
                jsonb_build_object('orderId', n) \
         FROM generate_series(1, {messages}) AS n"
    );
    outbox.client().await.batch_execute(&insert).await.unwrap();
}

/// `fill` brings the messages once all relays are there: one that starts late could find nothing.
async fn drain(
    outbox: &Outbox,
    relays: usize,
    messages: usize,
    keys: &str,
    fill: impl Future<Output = ()>,
) {
    let mut relays: Vec<Process> = (0..relays)
        .map(|n| {
            let file = format!("[integrations.\"file:all\"]\npath = \"{n}.jsonl\"");
            outbox.relay(keys, &file)
        })
        .collect();
    for relay in &relays {
        relay.wait_for_line("the relay runs", SOON).await;
    }
    fill.await;
    eventually("every message to be delivered", SOON * 2, async || {
        // Not at every look: counting takes from those who work.
        tokio::time::sleep(Duration::from_millis(100)).await;
        outbox.store.backlog().await.unwrap().lanes.is_empty().then_some(())
    })
    .await;
    for relay in &mut relays {
        relay.signal(Signal::SIGTERM);
        assert!(relay.wait(SOON).await.success(), "{}", relay.stderr());
    }

    let mut delivered = 0;
    let mut events = HashSet::with_capacity(messages);
    for n in 0..relays.len() {
        let lines = std::fs::read_to_string(outbox.folder().path().join(format!("{n}.jsonl")));
        let lines = lines.unwrap_or_default();
        assert!(!lines.is_empty(), "relay {n} took part");
        for line in lines.lines() {
            let message: serde_json::Value = serde_json::from_str(line).unwrap();
            events.insert(message["event_id"].as_str().unwrap().to_owned());
            delivered += 1;
        }
    }
    assert_eq!((delivered, events.len()), (messages, messages));
    let counts = outbox.store.status_counts().await.unwrap();
    assert_eq!(usize::try_from(counts.of(Status::Sent)).unwrap(), messages);
    let last = Filter { limit: 1_000, ..Filter::default() };
    for record in outbox.store.list(&last).await.unwrap() {
        assert_eq!(record.message.attempts, 0);
    }
}
