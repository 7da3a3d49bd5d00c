//! A database that refuses one outcome, as a trigger or a constraint of the user's own may.

use crate::outbox::{Outbox, lane};
use postroom_relay::Settings;
use postroom_sinks::MemorySink;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_is_refused_takes_no_other_along() {
    let outbox = Outbox::postgres().await;
    let ids = outbox.enqueue("memory:a", 10).await;
    let client = outbox.database().client().await;
    client
        .batch_execute(&format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
             CREATE TRIGGER refuse BEFORE UPDATE ON core_outbox.integration_outbox
                 FOR EACH ROW WHEN (NEW.id = '{}' AND NEW.status = 'SENT')
                 EXECUTE FUNCTION refuse()",
            ids[4]
        ))
        .await
        .unwrap();
    let sink = MemorySink::new();
    let mut lane = lane("memory:a", sink.clone());
    (lane.concurrency, lane.batch_size) = (1, 10);
    let settings = Settings { claim_time: Duration::from_secs(1), ..Settings::default() };
    let relay = outbox.start(settings, vec![lane]);

    let others: Vec<_> = ids.iter().filter(|&id| *id != ids[4]).cloned().collect();
    outbox.wait_for_all(&others, "SENT").await;
    // Its claim expires, and it is delivered again: at least once, and never forgotten.
    sink.wait_for(11).await;
    assert_ne!(outbox.record(&ids[4]).await.status, "SENT");

    client.batch_execute("DROP TRIGGER refuse ON core_outbox.integration_outbox").await.unwrap();
    outbox.wait_for(&ids[4], "SENT").await;
    relay.stop().await.unwrap();
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
