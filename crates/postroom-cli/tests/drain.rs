//! Several relays on one outbox: each message is delivered, and none twice while nobody crashes.

use crate::faults_outbox::{Outbox, SOON};
use postroom_testkit::{Process, Signal, eventually};
use std::collections::HashSet;
use std::time::Duration;

#[tokio::test]
async fn fault_10_four_relays_deliver_each_of_100_000_messages_exactly_once() {
    drain(4, 100_000, "batch_size = 1000").await;
}

#[tokio::test]
async fn two_relays_deliver_each_of_50_000_messages_exactly_once() {
    drain(2, 50_000, "").await;
}

async fn drain(relays: usize, messages: usize, keys: &str) {
    let outbox = Outbox::postgres().await;
    let client = outbox.client().await;
    let insert = format!(
        "INSERT INTO core_outbox.integration_outbox \
             (source_stream_id, source_event_id, integration_type, event_type, payload) \
         SELECT 'order-' || n, 'e-' || n, 'file:all', 'order.created.v1', \
                jsonb_build_object('orderId', n) \
         FROM generate_series(1, {messages}) AS n"
    );
    client.batch_execute(&insert).await.unwrap();
    let mut relays: Vec<Process> = (0..relays)
        .map(|n| {
            let file = format!("[integrations.\"file:all\"]\npath = \"{n}.jsonl\"");
            outbox.relay(keys, &file)
        })
        .collect();
    eventually("every message to be delivered", SOON * 2, async || {
        // Not at every look: counting takes from those who work.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let left = "SELECT EXISTS (SELECT FROM core_outbox.delivery)";
        let left: bool = client.query_one(left, &[]).await.unwrap().get(0);
        (!left).then_some(())
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
    let sent = "SELECT count(*) FROM core_outbox.messages WHERE status = 'SENT' AND attempts = 0";
    let sent: i64 = client.query_one(sent, &[]).await.unwrap().get(0);
    assert_eq!(usize::try_from(sent).unwrap(), messages);
}
