//! A rolling upgrade across two schema versions: this program's, and a next one made here.

use crate::faults_database::wait_until_sent;
use crate::faults_outbox::{Outbox, SHORT_CLAIMS, SOON, arrivals, metric, webhook};
use postroom_core::MessageId;
use postroom_testkit::{Postgres, Process, Receiver, eventually};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a next version may do while relays of this one run: add.
///
/// The program of that version is this one again, under the role `newer`: the last migration is
/// hidden from that role alone, so that it finds the schema that it was built for.
const NEXT_VERSION: &str = "
    BEGIN;
    SET LOCAL lock_timeout = '2s';
    ALTER TABLE core_outbox.integration_outbox ADD COLUMN region text;
    ALTER TABLE core_outbox.delivery ADD COLUMN priority int NOT NULL DEFAULT 0;
    CREATE TABLE core_outbox.region (name text PRIMARY KEY);
    CREATE ROLE newer LOGIN;
    GRANT USAGE ON SCHEMA core_outbox TO newer;
    GRANT ALL ON ALL TABLES IN SCHEMA core_outbox TO newer;
    GRANT ALL ON ALL SEQUENCES IN SCHEMA core_outbox TO newer;
    INSERT INTO core_outbox.schema_migration (number, name)
        SELECT max(number) + 1, 'made by the test' FROM core_outbox.schema_migration;
    ALTER TABLE core_outbox.schema_migration ENABLE ROW LEVEL SECURITY;
    CREATE POLICY known ON core_outbox.schema_migration TO newer USING (name <> 'made by the test');
    COMMIT";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_44_an_old_relay_gives_way_when_the_schema_moves_and_nothing_is_lost() {
    let server = Postgres::private(&[]).await.unwrap();
    let outbox = Arc::new(Outbox::on(&server).await);
    let receiver = Receiver::start();
    let integration = webhook(&receiver, "concurrency = 4");
    let mut old = outbox.relay(SHORT_CLAIMS, &integration);
    let (producer, stop) = produce(&outbox);
    receiver.wait_for(100, SOON).await;

    outbox.client().await.batch_execute(NEXT_VERSION).await.unwrap();
    let newer_url = outbox.url().replacen("postgres@", "newer@", 1);
    let new = outbox.relay_at(&newer_url, SHORT_CLAIMS, &integration);
    eventually("the new one to deliver on the new schema", SOON, async || {
        (sent_by(&new).await > 50).then_some(())
    })
    .await;
    // The old one notices, finishes what it has begun, and ends; it does not come back.
    assert!(!old.wait(SOON).await.success());
    assert!(old.stderr().contains("the schema has changed: stopping"), "{}", old.stderr());
    let mut back = outbox.relay(SHORT_CLAIMS, &integration);
    assert!(!back.wait(SOON).await.success());
    assert!(
        back.stderr().contains("newer than this program: upgrade Postroom"),
        "{}",
        back.stderr()
    );

    stop.store(true, Ordering::Release);
    let ids = producer.await.unwrap();
    wait_until_sent(&outbox, &ids).await;
    let arrivals = arrivals(&receiver);
    assert_eq!(arrivals.len(), ids.len(), "nothing is lost, and nothing else arrived");
    assert!(arrivals.values().all(|count| *count == 1), "and none came twice");
}

/// Commits messages until it is told to stop, and returns their ids.
fn produce(outbox: &Arc<Outbox>) -> (tokio::task::JoinHandle<Vec<MessageId>>, Arc<AtomicBool>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (outbox, told) = (Arc::clone(outbox), Arc::clone(&stop));
    let producer = tokio::spawn(async move {
        let mut ids = Vec::new();
        while !told.load(Ordering::Acquire) {
            ids.extend(outbox.enqueue("webhook:a", 10).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        ids
    });
    (producer, stop)
}

async fn sent_by(relay: &Process) -> u64 {
    metric(relay, "outbox_sent_total{integration=\"webhook:a\"}").await.unwrap_or(0)
}
