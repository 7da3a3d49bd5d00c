//! Enqueueing in somebody else's table, by the library and through the store; and what goes to Postroom's own outbox
//! beside such a table.

use super::postgres::Table;
use super::tables::Described;
use super::{mysql, mysql_tables, sqlite, sqlite_tables, tables};
use crate::taking::{all, settlement, wish};
use postroom::{NewMessage, Outbox};
use postroom_core::{Batch, Fate, Store, Taken};
use postroom_store::layout::{Destination, Route};
use postroom_store::{Layout, OpenOptions};
use postroom_testkit::layout_contract::LayoutHarness;
use std::sync::Arc;

const STREAM: &str = "0198c1f0-0000-7000-8000-0000000000aa";

fn message() -> NewMessage {
    NewMessage::new("noop", "run.started").stream(STREAM).json(&serde_json::json!({ "n": 1 }))
}

async fn count(table: &impl LayoutHarness, of: &str) -> String {
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

/// A change to a message, and the name of what it gives that a row may have no column for.
type Part = (fn(NewMessage) -> NewMessage, &'static str);

const PARTS: [Part; 12] = [
    (|message| message.headers(&serde_json::json!({ "a": 1 })), "headers"),
    (|message| message.tenant("acme"), "tenant_id"),
    (|message| message.user("u1"), "user_id"),
    (|message| message.correlation("c1"), "correlation_id"),
    (|message| message.causation("k1"), "causation_id"),
    (|message| message.source("billing"), "source"),
    (|message| message.ordering_key("o1"), "ordering_key"),
    (|message| message.stream("s1"), "stream"),
    (|message| message.schema_version(2), "schema_version"),
    (|message| message.max_attempts(3), "max_attempts"),
    (|message| message.occurred_at(chrono::DateTime::UNIX_EPOCH), "occurred_at"),
    (|message| message.due_at(chrono::Utc::now() + chrono::TimeDelta::hours(1)), "due"),
];

/// What a row cannot hold is refused by its name; what is as it is without is not.
async fn refuses_what_its_rows_cannot_hold(table: impl LayoutHarness) {
    table.migrate().await;
    let store = table.store().await;
    let plain =
        || NewMessage::new(table.words().lane, "orders").json(&serde_json::json!({ "n": 1 }));
    for (give, name) in PARTS {
        let refused = store.accept(&[give(plain())], None).await;
        let why = postroom_core::with_causes(&refused.expect_err(name));
        for words in
            [&format!("no place for `{name}`"), "leave it out", &format!("`${name}` in `insert`")]
        {
            assert!(why.contains(words), "{words}: {why}");
        }
    }
    let copy = store.accept(&[plain().copy(1)], None).await.expect_err("a copy");
    assert!(postroom_core::with_causes(&copy).contains("no place for `copy`"));

    let traced = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut said = plain()
        .event_id("e1")
        .stream("e1")
        .schema_version(1)
        .max_attempts(10)
        .due_at(chrono::Utc::now() - chrono::TimeDelta::seconds(1))
        .headers(&serde_json::json!({}));
    said = said.with_traceparent(traced).expect("a traceparent");
    for message in [plain(), said] {
        let accepted = store.accept(&[message], None).await.expect("nothing is lost");
        assert!(accepted[0].is_new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_row_cannot_hold_is_refused_by_name() {
    refuses_what_its_rows_cannot_hold(Table::start(tables::numbered()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_row_cannot_hold_is_refused_by_name_on_sqlite() {
    use super::{sqlite, sqlite_tables};
    refuses_what_its_rows_cannot_hold(sqlite::Table::start(sqlite_tables::numbered()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_row_cannot_hold_is_refused_by_name_on_mariadb() {
    let table = mysql::Table::start(mysql_tables::numbered(), mysql::Server::MariaDb).await;
    refuses_what_its_rows_cannot_hold(table).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_row_cannot_hold_is_refused_by_name_on_mysql() {
    let table = mysql::Table::start(mysql_tables::numbered(), mysql::Server::MySql).await;
    refuses_what_its_rows_cannot_hold(table).await;
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

/// A table whose rows go to several integrations.
fn several(described: Described) -> Described {
    let both = Destination::Several(vec!["noop".to_owned(), "kafka:audit.{event_type}".to_owned()]);
    let when = [("type".to_owned(), "*".to_owned())].into();
    Described {
        layout: Layout { routes: vec![Route { when, to: both }], ..described.layout },
        ..described
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_destinations_and_dead_letters_go_to_postrooms_own_outbox() {
    let table = Table::start(several(tables::events())).await;
    go_to_postrooms_own_outbox(&table, table.database.url(), "core_outbox.integration_outbox")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_destinations_and_dead_letters_go_to_postrooms_own_outbox_on_sqlite() {
    let table = sqlite::Table::start(sqlite_tables::events()).await;
    let table = table.described_as(several(sqlite_tables::events()));
    go_to_postrooms_own_outbox(&table, &table.url(), "integration_outbox").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_destinations_and_dead_letters_go_to_postrooms_own_outbox_on_mariadb() {
    let described = several(mysql_tables::events());
    let table = mysql::Table::start(mysql_tables::events(), mysql::Server::MariaDb).await;
    let table = table.described_as(described);
    go_to_postrooms_own_outbox(&table, table.database.url(), "integration_outbox").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_destinations_and_dead_letters_go_to_postrooms_own_outbox_on_mysql() {
    let described = several(mysql_tables::events());
    let table = mysql::Table::start(mysql_tables::events(), mysql::Server::MySql).await;
    let table = table.described_as(described);
    go_to_postrooms_own_outbox(&table, table.database.url(), "integration_outbox").await;
}

/// A row for several integrations is for the first; each of the others gets a message in Postroom's own outbox, in
/// the producer's transaction. A death is announced there too.
async fn go_to_postrooms_own_outbox<T: LayoutHarness>(table: &T, url: &str, own_table: &str) {
    let insert = |n: &str| table.words().insert.replace("{n}", n);
    table.execute(&insert("1")).await.expect("a row that is there before");
    postroom_store::migrate(url).await.expect("Postroom's own");
    table.migrate().await;
    assert_eq!(count(table, own_table).await, "1");
    table.execute(&insert("2")).await.expect("inserted");
    assert_eq!(count(table, own_table).await, "2");
    let (_, is_new) = table.enqueue(STREAM, STREAM, "{}").await.expect("enqueued");
    assert!(is_new);
    assert_eq!(count(table, own_table).await, "3");

    let own = postroom_store::open(url, &OpenOptions::default()).await.expect("own");
    let audit = own.take(&wish(&*own, &all("kafka:audit.run.started")).await).await.expect("taken");
    let mut audited = contents(&audit);
    // The library's row has another type.
    let other = own.take(&wish(&*own, &all("kafka:audit.order.created")).await).await;
    audited.extend(contents(&other.expect("taken")));
    audited.sort();

    let store: Arc<dyn Store> = table.store().await;
    let mut taken = store.take(&wish(&*store, &all("noop")).await).await.expect("taken");
    taken.extend(store.take(&wish(&*store, &all("noop")).await).await.expect("taken"));
    let mut rows = contents(&taken);
    rows.sort();
    assert_eq!(audited, rows);
    let announcement = Some(Box::new(NewMessage::new("noop:dead", "outbox.dead").json(&1)));
    let dead = Fate::Dead { error: "400".to_owned(), tried: None, announcement };
    store.settle(&[settlement(&taken[0], &dead)]).await.expect("settled");
    let letters = own.take(&wish(&*own, &all("noop:dead")).await).await.expect("taken");
    assert_eq!(letters[0].messages.len(), 1, "the same announcement for all, which is one event");
}

/// What is to be delivered, each with its event id.
fn contents(batches: &[Batch]) -> Vec<(String, String)> {
    let taken = batches.iter().flat_map(|batch| &batch.messages);
    let content =
        |taken: &Taken| (taken.message.event_id.clone(), taken.message.payload.as_str().to_owned());
    taken.map(content).collect()
}
