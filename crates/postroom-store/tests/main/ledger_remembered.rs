//! Remembered events in the ledger of PostgreSQL.

use crate::ledger_outbox::{LEFT, count, outbox_with, take};
use crate::taking::settlement;
use postroom_core::{Fate, Store};
use postroom_store::OpenOptions;
use postroom_testkit::TestDatabase;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;

const UNTIL: &str = "SELECT extract(epoch FROM until)::bigint FROM core_outbox.remembered";

async fn insert(client: &Client, columns: &str, values: &str) {
    let sql = format!(
        "INSERT INTO core_outbox.integration_outbox
             (source_stream_id, source_event_id, integration_type, event_type, payload{columns})
         VALUES ('s', 'evt-1', 'noop', 't', '{{}}'{values})"
    );
    client.batch_execute(&sql).await.expect("inserted");
}

/// An outbox that has delivered and pruned one event.
async fn outbox() -> (TestDatabase, Client, Arc<dyn Store>) {
    let hour = Duration::from_secs(3_600);
    let options = OpenOptions { remember_events: hour, ..OpenOptions::default() };
    let (database, client, store) = outbox_with(&options).await;
    insert(&client, "", "").await;
    let batch = take(&*store, "noop").await.pop().expect("due");
    store.settle(&[settlement(&batch, &Fate::Sent)]).await.expect("settle");
    assert_eq!(store.prune(Duration::ZERO, 10).await.expect("prune"), 1);
    (database, client, store)
}

/// However it comes, it is over before the ledger knows of it.
#[tokio::test]
async fn a_remembered_event_leaves_the_ledger_empty() {
    for (columns, values) in [
        ("", ""),
        (", due_at", ", now() + interval '1 hour'"),
        (", status", ", 'FAILED'"),
        (", status", ", 'DEAD'"),
    ] {
        let (_database, client, store) = outbox().await;
        insert(&client, columns, values).await;
        assert_eq!(count(&client, LEFT).await, 0, "{values}");
        assert!(store.backlog().await.expect("backlog").lanes.is_empty(), "{values}");
        assert!(store.diagnose().await.expect("diagnose").is_empty(), "{values}");
    }
}

/// Who repeats an event again and again does not keep it remembered for ever.
#[tokio::test]
async fn what_was_not_delivered_again_prolongs_nothing() {
    let (_database, client, store) = outbox().await;
    let back = "UPDATE core_outbox.remembered SET until = until - interval '30 minutes'";
    client.batch_execute(back).await.expect("changed");
    let until = count(&client, UNTIL).await;
    insert(&client, "", "").await;
    assert_eq!(store.prune(Duration::ZERO, 10).await.expect("prune"), 1);
    assert_eq!(count(&client, UNTIL).await, until);
}

#[tokio::test]
async fn an_event_whose_time_is_over_is_forgotten() {
    let (_database, client, store) = outbox().await;
    let back = "UPDATE core_outbox.remembered SET until = now() - interval '1 second'";
    client.batch_execute(back).await.expect("changed");
    store.prune(Duration::ZERO, 10).await.expect("prune");
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.remembered").await, 0);
}
