//! Messages that somebody else has locked delay themselves, and nobody else.

use crate::outbox::{Outbox, Running, lane, message, on_stores};
use crate::script::{Act, Script};
use postroom_core::{Filter, MessageId, Outcome};
use postroom_relay::Settings;
use postroom_sinks::MemorySink;
use postroom_testkit::contract::Commit;
use std::time::Duration;

on_stores! { [mariadb postgres]:
    fault_49_locked_messages_that_die_hold_up_no_other_lane
    fault_49_an_open_change_of_a_whole_lane_holds_up_no_other
    fault_49_a_stop_does_not_wait_for_locked_messages
}

/// Locks stay for several of these.
const CLAIM_TIME: Duration = Duration::from_secs(4);
/// How long a handful of messages may take on a loaded machine, while nothing holds them up.
const PROMPTLY: Duration = Duration::from_secs(10);

fn settings() -> Settings {
    Settings { claim_time: CLAIM_TIME, ..Settings::default() }
}

/// Runs a statement on each of these messages in a transaction that stays open. One by one: a
/// statement on many would lock the gaps between them too on MariaDB, and stop its producers.
async fn hold(outbox: &Outbox, statement: &str, ids: &[MessageId]) -> Commit {
    let each = ids.iter().map(|id| statement.replace("{id}", &format!("id = '{id}'")));
    outbox.open_transaction(&each.collect::<Vec<_>>().join("; ")).await
}

/// Lets another lane work until a lock has been held for several claim times.
async fn others_go_on(outbox: &Outbox, relay: &Running) {
    let began = outbox.store.now().await.unwrap();
    while outbox.store.now().await.unwrap() < began + 3 * CLAIM_TIME {
        let ids = outbox.enqueue("memory:working", 20).await;
        let sent = tokio::time::timeout(PROMPTLY, outbox.wait_for_all(&ids, "SENT")).await;
        sent.expect("the other lane is not held up");
    }
    for metric in ["outbox_claims_lost_total 0", "outbox_late_completions_total 0"] {
        let metrics = relay.metrics();
        assert!(metrics.contains(metric), "{metric}: {metrics}");
    }
}

async fn fault_49_locked_messages_that_die_hold_up_no_other_lane(outbox: Outbox) {
    let rejecting = Script::new(|_| Act::Report(Outcome::reject("400")));
    let locked = outbox.enqueue("memory:rejecting", 2).await;
    let commit = hold(&outbox, "SELECT 1 FROM {table} WHERE {id} FOR UPDATE", &locked).await;
    let settings = Settings { dead_letter: Some("memory:dead".to_owned()), ..settings() };
    let lanes = vec![
        lane("memory:rejecting", rejecting.clone()),
        lane("memory:working", MemorySink::new()),
        lane("memory:dead", MemorySink::new()),
    ];
    let relay = outbox.start(settings, lanes);
    // One more that dies beside them is announced at once.
    let free = outbox.put(message("memory:rejecting")).await;
    others_go_on(&outbox, &relay).await;
    outbox.wait_for(&free, "DEAD").await;
    assert_eq!(outbox.statuses(&locked).await, ["CLAIMED", "CLAIMED"]);

    commit.await;
    outbox.wait_for_all(&locked, "DEAD").await;
    relay.stop().await.unwrap();
    assert_eq!(rejecting.attempts(), 3, "each was tried once");
    let filter =
        Filter { integration: Some("memory:dead".to_owned()), limit: 100, ..Filter::default() };
    assert_eq!(outbox.store.list(&filter).await.unwrap().len(), 3, "each death was announced");
}

async fn fault_49_an_open_change_of_a_whole_lane_holds_up_no_other(outbox: Outbox) {
    let slow = MemorySink::new();
    let locked = outbox.enqueue("memory:locked", 200).await;
    let change = "UPDATE {table} SET correlation_id = 'by hand' WHERE {id}";
    let commit = hold(&outbox, change, &locked).await;
    let mut few_at_once = lane("memory:locked", slow.clone());
    (few_at_once.concurrency, few_at_once.batch_size) = (8, 5);
    let relay =
        outbox.start(settings(), vec![few_at_once, lane("memory:working", MemorySink::new())]);
    slow.wait_for(100).await;
    others_go_on(&outbox, &relay).await;

    commit.await;
    outbox.wait_for_all(&locked, "SENT").await;
    relay.stop().await.unwrap();
    assert_eq!(slow.attempts(), 200, "each was delivered once");
}

async fn fault_49_a_stop_does_not_wait_for_locked_messages(outbox: Outbox) {
    let sink = MemorySink::new();
    let ids = outbox.enqueue("memory:a", 20).await;
    let commit = hold(&outbox, "SELECT 1 FROM {table} WHERE {id} FOR UPDATE", &ids).await;
    let stop_limit = Duration::from_millis(100);
    let relay =
        outbox.start(Settings { stop_limit, ..settings() }, vec![lane("memory:a", sink.clone())]);
    sink.wait_for(20).await;
    tokio::time::timeout(Duration::from_secs(10), relay.stop()).await.expect("a stop").unwrap();

    // Their claims expire, and they are delivered again.
    commit.await;
    let next = outbox.start(settings(), vec![lane("memory:a", sink)]);
    outbox.wait_for_all(&ids, "SENT").await;
    next.stop().await.unwrap();
}
