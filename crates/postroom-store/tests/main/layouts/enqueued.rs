//! Enqueueing in somebody else's table, by the library and through the store; and what goes to Postroom's own outbox
//! beside such a table.

use super::postgres::Table;
use super::tables;
use crate::taking::{all, settlement, wish};
use postroom::{NewMessage, Outbox};
use postroom_core::{Fate, Store};
use postroom_store::layout::{Destination, Route};
use postroom_store::{Layout, OpenOptions};
use postroom_testkit::layout_contract::LayoutHarness;
use std::sync::Arc;

const STREAM: &str = "0198c1f0-0000-7000-8000-0000000000aa";

fn message() -> NewMessage {
    NewMessage::new("noop", "run.started").stream(STREAM).json(&serde_json::json!({ "n": 1 }))
}

async fn count(table: &Table, of: &str) -> String {
    table.value(&format!("SELECT count(*) FROM {of}")).await.expect("a count")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_enqueued_in_the_callers_transaction() {
    let table = Table::start(tables::events()).await;
    table.migrate().await;
    let outbox = Outbox::of_table("outbox_events");

    let mut client = table.database.client().await;
    let mut tx = client.transaction().await.expect("begin");
    let first = outbox.enqueue(&mut tx, message().event_id(STREAM)).await.expect("enqueued");
    let again = outbox.enqueue(&mut tx, message().event_id(STREAM)).await.expect("a duplicate");
    assert_eq!((first.is_new(), again.is_new(), again.id()), (true, false, first.id()));
    tx.rollback().await.expect("rolled back");
    assert_eq!(count(&table, "outbox_events").await, "0");

    let mut tx = client.transaction().await.expect("begin");
    let enqueued = outbox.enqueue(&mut tx, message()).await.expect("enqueued");
    tx.commit().await.expect("commit");
    let store = table.store().await;
    let taken = store.take(&wish(&*store, &all("noop")).await).await.expect("taken");
    assert_eq!(&taken[0].messages[0].message.id, enqueued.id());

    let elsewhere = NewMessage::new("kafka:other", "run.started").stream(STREAM).json(&1);
    let mut tx = client.transaction().await.expect("begin");
    let refused =
        outbox.enqueue(&mut tx, elsewhere).await.expect_err("the layout sends it elsewhere");
    let why = postroom_core::with_causes(&refused);
    assert!(why.contains("sends this row to noop, not to kafka:other"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_accepts_messages_with_a_checkpoint_or_says_why_not() {
    let table = Table::start(tables::events()).await;
    table.migrate().await;
    let store = table.store().await;
    let checkpoint = postroom_core::Checkpoint {
        name: "reader".to_owned(),
        expected: None,
        position: "1".to_owned(),
    };
    let accepted =
        store.accept(&[message(), message()], Some(&checkpoint)).await.expect("accepted");
    assert!(accepted.iter().all(postroom_core::Enqueued::is_new));
    assert_eq!(store.checkpoint("reader").await.expect("a position").as_deref(), Some("1"));
    assert_eq!(count(&table, "outbox_events").await, "2");

    let silent = Table::start(tables::composite()).await;
    silent.migrate().await;
    let refused = silent.store().await.accept(&[message()], None).await.expect_err("no `insert`");
    assert!(refused.to_string().contains("its layout has no `insert`"), "{refused}");
}

/// A row for several integrations is for the first; each of the others gets a message in Postroom's own outbox, in
/// the producer's transaction. A death is announced there too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_destinations_and_dead_letters_go_to_postrooms_own_outbox() {
    let mut described = tables::events();
    let both = Destination::Several(vec!["noop".to_owned(), "kafka:audit.{event_type}".to_owned()]);
    let when = [("type".to_owned(), "run.*".to_owned())].into();
    described.layout = Layout { routes: vec![Route { when, to: both }], ..described.layout };
    let table = Table::start(described).await;
    postroom_store::migrate(table.database.url()).await.expect("Postroom's own");
    table.migrate().await;
    let insert = table.words().insert.replace("{n}", "1");
    table.execute(&insert).await.expect("inserted");
    assert_eq!(count(&table, "core_outbox.integration_outbox").await, "1");

    let own =
        postroom_store::open(table.database.url(), &OpenOptions::default()).await.expect("own");
    let audit = own.take(&wish(&*own, &all("kafka:audit.run.started")).await).await.expect("taken");
    let audited = &audit[0].messages[0].message;

    let store: Arc<dyn Store> = table.store().await;
    let taken = store.take(&wish(&*store, &all("noop")).await).await.expect("taken");
    let row = &taken[0].messages[0].message;
    assert_eq!((&audited.event_id, &audited.payload), (&row.event_id, &row.payload));
    let announcement = Some(Box::new(NewMessage::new("noop:dead", "outbox.dead").json(&1)));
    let dead = Fate::Dead { error: "400".to_owned(), tried: None, announcement };
    store.settle(&[settlement(&taken[0], &dead)]).await.expect("settled");
    let letters = own.take(&wish(&*own, &all("noop:dead")).await).await.expect("taken");
    assert_eq!(letters[0].messages.len(), 1);
}
