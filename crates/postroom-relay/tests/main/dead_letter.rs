//! The word that a message has died.

use crate::outbox::{Outbox, lane, message, on_stores};
use crate::script::{Act, Script};
use postroom_core::{DEAD_EVENT_TYPE, Filter, Outcome, Record};
use postroom_relay::Settings;
use postroom_sinks::MemorySink;
use serde_json::{Value, json};

on_stores! { [mariadb memory postgres sqlite]:
    a_death_is_announced_once_and_says_why
    a_dead_announcement_is_not_announced
}

on_stores! { [postgres]: death_and_announcement_are_one_transaction }

fn announcing() -> Settings {
    Settings { dead_letter: Some("memory:dead".to_owned()), ..Settings::default() }
}

async fn announcements(outbox: &Outbox) -> Vec<Record> {
    let filter =
        Filter { integration: Some("memory:dead".to_owned()), limit: 100, ..Filter::default() };
    outbox.store.list(&filter).await.unwrap()
}

async fn a_death_is_announced_once_and_says_why(outbox: Outbox) {
    let told = MemorySink::new();
    let id = outbox
        .put(message("memory:a").event_id("e-1").stream("order-7").tenant("acme").max_attempts(3))
        .await;
    let failing = Script::new(|_| Act::fail());
    let relay = outbox
        .start(announcing(), vec![lane("memory:a", failing), lane("memory:dead", told.clone())]);
    outbox.wait_for(&id, "DEAD").await;
    told.wait_for(1).await;
    // Had there been a second, it would have come before this one.
    let after = outbox.put(message("memory:dead")).await;
    outbox.wait_for(&after, "SENT").await;
    relay.stop().await.unwrap();

    let delivered = told.delivered();
    assert_eq!(delivered.len(), 2);
    let announcement = &delivered[0];
    assert_eq!(announcement.event_type, DEAD_EVENT_TYPE);
    assert_eq!(announcement.stream_id, "order-7");
    assert_eq!(announcement.causation_id.as_deref(), Some("e-1"));
    assert_eq!(announcement.tenant_id.as_deref(), Some("acme"));
    assert_ne!(announcement.event_id, "e-1", "an event of its own");
    let payload: Value = serde_json::from_str(announcement.payload.as_str()).unwrap();
    let expected = json!({
        "outboxId": id,
        "sourceEventId": "e-1",
        "sourceStreamId": "order-7",
        "integrationType": "memory:a",
        "eventType": "order.created.v1",
        "attempts": 3,
        "error": "503 Service Unavailable",
    });
    assert_eq!(payload, expected);
}

async fn a_dead_announcement_is_not_announced(outbox: Outbox) {
    let rejecting = || Script::new(|_| Act::Report(Outcome::reject("400")));
    let id = outbox.put(message("memory:a")).await;
    let (first, second) = (rejecting(), rejecting());
    let lanes = vec![lane("memory:a", first), lane("memory:dead", second.clone())];
    let relay = outbox.start(announcing(), lanes);
    outbox.wait_for(&id, "DEAD").await;
    let announcement = announcements(&outbox).await.pop().expect("written with the death");
    outbox.wait_for(&announcement.message.id, "DEAD").await;
    relay.stop().await.unwrap();
    assert_eq!(announcements(&outbox).await.len(), 1);
    assert_eq!(second.attempts(), 1);
}

async fn death_and_announcement_are_one_transaction(outbox: Outbox) {
    let sink = Script::new(|_| Act::Report(Outcome::reject("400")));
    let id = outbox.put(message("memory:a")).await;
    // Nobody delivers the announcement: the row keeps the transaction that wrote it.
    let relay = outbox.relay(announcing(), vec![lane("memory:a", sink)]);
    assert_eq!(relay.tick(10).await.unwrap().dead, 1);
    let announcement = announcements(&outbox).await.pop().expect("written with the death");
    assert_eq!(announcement.status, "PENDING");
    let written_by = "SELECT xmin::text FROM core_outbox.integration_outbox WHERE id = $1";
    let client = outbox.database().client().await;
    let death: String = client.query_one(written_by, &[&id.as_uuid()]).await.unwrap().get(0);
    let word: String =
        client.query_one(written_by, &[&announcement.message.id.as_uuid()]).await.unwrap().get(0);
    assert_eq!(death, word);
}
