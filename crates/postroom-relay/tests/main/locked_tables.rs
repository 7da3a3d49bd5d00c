//! A table of the outbox that somebody has locked: CREATE INDEX, ALTER TABLE, VACUUM FULL.

use crate::outbox::{Outbox, Running, lane, on_stores};
use postroom_relay::{Health, Settings};
use postroom_sinks::MemorySink;
use postroom_testkit::eventually;
use std::time::Duration;

on_stores! { [mariadb postgres]:
    fault_49_outcomes_wait_for_a_locked_table_and_the_database_is_not_called_away
    fault_49_a_relay_that_can_take_nothing_for_a_lock_is_not_ready_and_says_why
    fault_49_a_relay_that_can_read_nothing_for_a_lock_is_not_ready_and_says_why
}

const SOON: Duration = Duration::from_secs(30);

/// Relays may wait for an answer of the database for 6 seconds with this claim time.
fn settings() -> Settings {
    Settings { claim_time: Duration::from_secs(4), ..Settings::default() }
}

async fn wait_for_health(relay: &Running, what: &str, is_so: impl Fn(&Health) -> bool) -> Health {
    eventually(what, SOON, async || Some(relay.health()).filter(|health| is_so(health))).await
}

/// What CREATE INDEX holds lets messages be read and not be changed.
async fn fault_49_outcomes_wait_for_a_locked_table_and_the_database_is_not_called_away(
    outbox: Outbox,
) {
    let sink = MemorySink::new();
    let ids = outbox.enqueue("memory:a", 20).await;
    let commit = outbox
        .lock_table(
            "LOCK TABLE core_outbox.integration_outbox IN SHARE MODE",
            "LOCK TABLES integration_outbox READ",
        )
        .await;
    let relay = outbox.start(settings(), vec![lane("memory:a", sink.clone())]);
    sink.wait_for(20).await;
    let began = outbox.store.now().await.unwrap();
    while outbox.store.now().await.unwrap() < began + Duration::from_secs(14) {
        assert_eq!(relay.health().database, "ok");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    commit.await;
    outbox.wait_for_all(&ids, "SENT").await;
    relay.stop().await.unwrap();
    assert_eq!(sink.attempts(), 20, "each was delivered once");
}

async fn fault_49_a_relay_that_can_take_nothing_for_a_lock_is_not_ready_and_says_why(
    outbox: Outbox,
) {
    let sink = MemorySink::new();
    let relay = outbox.start(settings(), vec![lane("memory:a", sink.clone())]);
    wait_for_health(&relay, "a start", |health| health.ready).await;
    let commit = outbox
        .lock_table(
            "LOCK TABLE core_outbox.delivery IN ACCESS EXCLUSIVE MODE",
            "LOCK TABLES outbox_delivery WRITE",
        )
        .await;
    let health = wait_for_health(&relay, "trouble", |health| !health.ready).await;
    assert!(health.database.contains(" lock"), "{}", health.database);

    commit.await;
    wait_for_health(&relay, "the lock to be gone", |health| health.ready).await;
    let ids = outbox.enqueue("memory:a", 20).await;
    outbox.wait_for_all(&ids, "SENT").await;
    relay.stop().await.unwrap();
    assert_eq!(sink.attempts(), 20, "each was delivered once");
}

/// The ledger is free: what is due can be seen, and not be read.
async fn fault_49_a_relay_that_can_read_nothing_for_a_lock_is_not_ready_and_says_why(
    outbox: Outbox,
) {
    let sink = MemorySink::new();
    let ids = outbox.enqueue("memory:a", 20).await;
    let commit = outbox
        .lock_table(
            "LOCK TABLE core_outbox.integration_outbox IN ACCESS EXCLUSIVE MODE",
            "LOCK TABLES integration_outbox WRITE",
        )
        .await;
    let relay = outbox.start(settings(), vec![lane("memory:a", sink.clone())]);
    let told = |health: &Health| !health.ready && health.database.contains(" lock");
    wait_for_health(&relay, "the lock to be told", told).await;

    commit.await;
    wait_for_health(&relay, "the lock to be gone", |health| health.ready).await;
    outbox.wait_for_all(&ids, "SENT").await;
    relay.stop().await.unwrap();
    assert_eq!(sink.attempts(), 20, "each was delivered once");
}
