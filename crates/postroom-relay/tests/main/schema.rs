//! A schema that is newer than the relay.

use crate::outbox::{Outbox, lane};
use postroom_core::{Status, StoreErrorKind};
use postroom_relay::{RelayError, Settings};
use postroom_sinks::MemorySink;

fn assert_newer(ended: Result<(), RelayError>) {
    match ended {
        Err(RelayError::Store(error)) if error.kind == StoreErrorKind::Schema => {
            assert!(error.to_string().contains("newer than this program"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_44_a_running_relay_stops_for_a_newer_schema_and_loses_nothing() {
    let outbox = Outbox::postgres().await;
    let sink = MemorySink::new();
    let ids = outbox.enqueue("memory:a", 20).await;
    sink.hold();
    let start = || {
        let mut lane = lane("memory:a", sink.clone());
        (lane.concurrency, lane.batch_size) = (2, 2);
        outbox.start(Settings { batch_size: 4, ..Settings::default() }, vec![lane])
    };
    let relay = start();
    sink.wait_held(1).await;
    let client = outbox.database().client().await;
    client
        .batch_execute(
            "INSERT INTO core_outbox.schema_migration (number, name) VALUES (99, 'next')",
        )
        .await
        .unwrap();
    // What is in flight is finished and recorded; the rest is given back at once.
    sink.release();
    assert_newer(relay.ended().await);
    let counts = outbox.store.status_counts().await.unwrap();
    assert_eq!(counts.of(Status::Sent), sink.delivered().len() as u64);
    assert_eq!(outbox.claimed().await, 0);
    assert_newer(start().ended().await);

    client
        .batch_execute("DELETE FROM core_outbox.schema_migration WHERE number = 99")
        .await
        .unwrap();
    let relay = start();
    outbox.wait_for_all(&ids, "SENT").await;
    assert_eq!(sink.delivered().len(), 20, "each was delivered once");
    relay.stop().await.unwrap();
}
