//! A message that was closed by hand is opened again, by a transaction that has not ended when the
//! store comes by: it is delivered all the same, and the store waits for nobody.

use super::{PgStore, claims};
use crate::OpenOptions;
use postroom_core::{Batch, Claims as _, Quota, Reconciled, Rescued, Take, Upkeep as _};
use postroom_testkit::{Postgres, TestDatabase, living_relay};
use std::time::Duration;
use tokio_postgres::Client;

const EXPIRE: &str = "UPDATE core_outbox.relay SET until = now() - interval '1 second'";

/// What the claim is on.
#[derive(Clone, Copy, PartialEq)]
enum Claimed {
    Parcel,
    Delivery,
}

struct Outbox {
    _database: TestDatabase,
    store: PgStore,
    by_hand: Client,
    other: Client,
}

impl Outbox {
    /// One message, claimed, and closed by hand meanwhile.
    async fn with_message_set_to(status: &str, claimed: Claimed) -> Self {
        let database = Postgres::shared().await.database().await;
        crate::migrate(database.url()).await.unwrap();
        let store = PgStore::new(database.url(), &OpenOptions::default()).unwrap();
        let (by_hand, other) = (database.client().await, database.client().await);
        let outbox = Self { _database: database, store, by_hand, other };
        outbox
            .execute(
                "INSERT INTO core_outbox.integration_outbox
                     (source_stream_id, source_event_id, integration_type, event_type, payload)
                 VALUES ('s', 'e', 'noop', 't', '{}')",
            )
            .await;
        if claimed == Claimed::Delivery {
            for due in ["now() + interval '1 hour'", "now()"] {
                let sql = format!("UPDATE core_outbox.integration_outbox SET due_at = {due}");
                outbox.execute(&sql).await;
                outbox.store.backlog().await.unwrap();
            }
        }
        outbox
            .store
            .take(&take(&outbox.store, &[quota()]).await)
            .await
            .unwrap()
            .pop()
            .expect("due");
        outbox.set_status(&outbox.by_hand, status).await;
        outbox
    }

    async fn execute(&self, sql: &str) {
        self.by_hand.batch_execute(sql).await.unwrap();
    }

    async fn set_status(&self, client: &Client, status: &str) {
        let sql = format!("UPDATE core_outbox.integration_outbox SET status = '{status}'");
        client.batch_execute(&sql).await.unwrap();
    }

    async fn open_uncommitted(&self) {
        self.other.batch_execute("BEGIN").await.unwrap();
        self.set_status(&self.other, "PENDING").await;
    }

    async fn commit(&self) {
        self.other.batch_execute("COMMIT").await.unwrap();
    }

    async fn rescue(&self) -> u64 {
        promptly(self.store.rescue(10)).await.unwrap()
    }

    async fn reconcile(&self) -> Reconciled {
        promptly(self.store.reconcile()).await.unwrap()
    }

    /// Nothing is left to mend, and the message can be taken.
    async fn assert_delivered(&self, is_rescued: bool) {
        assert_eq!(self.store.diagnose().await.unwrap(), []);
        let quotas = [quota()];
        let take = take(&self.store, &quotas).await;
        let batches: Vec<Batch> = if is_rescued {
            self.store.take_rescued(&take, Rescued::Together).await.unwrap()
        } else {
            self.store.take(&take).await.unwrap()
        };
        assert_eq!(batches.len(), 1);
    }
}

fn quota() -> Quota {
    Quota { integration: "noop".to_owned(), rows: 10 }
}

async fn take<'a>(store: &PgStore, quotas: &'a [Quota]) -> Take<'a> {
    Take {
        worker: "worker",
        relay: living_relay(store, Duration::from_secs(30)).await,
        quotas,
        rows: 10,
        bytes: 1 << 20,
        payload_limit: 1 << 20,
        for_queue: false,
    }
}

/// With an end, so that waiting for the open transaction is a failure and no hang.
async fn promptly<T>(work: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(10);
    tokio::time::timeout(limit, work).await.expect("nobody is waited for")
}

#[tokio::test]
async fn while_a_rescue_comes_by() {
    let outbox = Outbox::with_message_set_to("DEAD", Claimed::Delivery).await;
    outbox.execute(EXPIRE).await;
    outbox.open_uncommitted().await;
    assert_eq!(outbox.rescue().await, 0);
    outbox.commit().await;
    assert_eq!(outbox.rescue().await, 1);
    outbox.assert_delivered(true).await;
}

#[tokio::test]
async fn while_its_parcel_is_rescued() {
    for status in ["DEAD", "SENT"] {
        let outbox = Outbox::with_message_set_to(status, Claimed::Parcel).await;
        outbox.execute(EXPIRE).await;
        outbox.open_uncommitted().await;
        // It is over: what opens it again is followed when it is known.
        outbox.rescue().await;
        outbox.commit().await;
        outbox.assert_delivered(false).await;
    }
}

#[tokio::test]
async fn while_its_delivery_is_freed_from_a_claim_that_is_gone() {
    let outbox = Outbox::with_message_set_to("DEAD", Claimed::Delivery).await;
    outbox.execute("DELETE FROM core_outbox.claim").await;
    outbox.open_uncommitted().await;
    assert_eq!(outbox.reconcile().await.total(), 0);
    outbox.commit().await;
    assert_eq!(outbox.reconcile().await, Reconciled { freed: 1, ..Reconciled::default() });
    outbox.assert_delivered(false).await;
}

#[tokio::test]
async fn while_the_claim_on_its_parcel_is_gone() {
    // The change to SENT asks for nothing, so it is over; that to DEAD waits for the open transaction.
    for (status, followed) in [("DEAD", 0), ("SENT", 1)] {
        let outbox = Outbox::with_message_set_to(status, Claimed::Parcel).await;
        outbox.execute("DELETE FROM core_outbox.claim").await;
        outbox.open_uncommitted().await;
        assert_eq!(outbox.reconcile().await, Reconciled { followed, ..Reconciled::default() });
        outbox.commit().await;
        outbox.assert_delivered(false).await;
    }
}

#[tokio::test]
async fn while_its_delivery_is_about_to_be_removed() {
    let outbox = Outbox::with_message_set_to("SENT", Claimed::Delivery).await;
    outbox.execute(EXPIRE).await;
    assert_eq!(outbox.rescue().await, 1);
    outbox.open_uncommitted().await;
    assert_eq!(outbox.reconcile().await.total(), 0);
    outbox.commit().await;
    outbox.assert_delivered(false).await;
}

#[tokio::test]
async fn while_the_relay_that_took_it_puts_its_delivery_right() {
    for status in ["SENT", "DEAD"] {
        let outbox = Outbox::with_message_set_to(status, Claimed::Delivery).await;
        let id = outbox.by_hand.query_one("SELECT message_id FROM core_outbox.delivery", &[]).await;
        let ids = [id.unwrap().get(0)];
        outbox.open_uncommitted().await;
        let connection = outbox.store.connection().await.unwrap();
        promptly(claims::forget(&connection, &ids)).await.unwrap();
        outbox.commit().await;
        // The claim's end frees it.
        outbox.execute(EXPIRE).await;
        assert_eq!(outbox.rescue().await, 1);
        outbox.assert_delivered(true).await;
    }
}
