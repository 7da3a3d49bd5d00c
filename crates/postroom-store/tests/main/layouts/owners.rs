//! What the owners of particular tables rely on, beyond what holds for every layout.

use super::postgres::Table;
use super::tables::{self, Described};
use super::{sqlite, sqlite_tables};
use crate::taking::{all, settlement, wish};
use postroom_core::{Batch, Fate, Store, StoreErrorKind};
use postroom_store::layout::{Dialect, Sent};
use postroom_store::{Layout, MigrateOptions};
use postroom_testkit::Postgres;
use postroom_testkit::layout_contract::LayoutHarness;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

async fn take(table: &Table, store: &dyn Store) -> Vec<Batch> {
    store.take(&wish(store, &all(table.words().lane)).await).await.expect("taken")
}

/// Takes the one message that is due, and gives it this fate.
async fn take_and_settle(table: &Table, store: &dyn Store, fate: Fate) -> Value {
    let batches = take(table, store).await;
    let [batch] = &batches[..] else { panic!("one batch: {batches:?}") };
    store.settle(&[settlement(batch, &fate)]).await.expect("settled");
    serde_json::from_str(batch.messages[0].message.payload.as_str()).expect("JSON")
}

fn failed(delay: Duration, error: &str) -> Fate {
    Fate::Failed { delay, error: error.to_owned(), took: Duration::ZERO }
}

fn dead(error: &str) -> Fate {
    let tried = Some(postroom_core::Tried {
        outcome: postroom_core::AttemptOutcome::Reject,
        took: Duration::ZERO,
    });
    Fate::Dead { error: error.to_owned(), tried, announcement: None }
}

async fn json(table: &Table, sql: &str) -> Value {
    serde_json::from_str(&table.value(sql).await.expect("a value")).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metadata_of_a_billing_event_is_written_as_its_dispatcher_would() {
    let table = Table::start(tables::metadata()).await;
    table.migrate().await;
    let store = table.store().await;
    table
        .execute(
            "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload) VALUES
             ('01JABC', 'invoice', 'acme', 'res_1', '{\"n\": 1, \"type\": \"invoice.paid\", \"correlation_id\": \"c\",
               \"causation_id\": \"k\", \"outbox_status\": \"pending\", \"outbox_custom\": true}')",
        )
        .await
        .expect("inserted");
    let payload = "SELECT payload::text FROM billing_events WHERE id = '01JABC'";

    let batches = take(&table, &*store).await;
    let message = &batches[0].messages[0].message;
    assert_eq!(message.id.to_string(), "01JABC");
    assert_eq!(message.event_type, "invoice.paid");
    assert_eq!(
        (message.correlation_id.as_deref(), message.causation_id.as_deref()),
        (Some("c"), Some("k"))
    );
    assert_eq!((message.tenant_id.as_deref(), message.stream_id.as_str()), (Some("acme"), "res_1"));
    let delivered: Value = serde_json::from_str(message.payload.as_str()).expect("JSON");
    let bare = json!({"n": 1, "type": "invoice.paid", "correlation_id": "c", "causation_id": "k"});
    assert_eq!(delivered, bare, "its state does not leave the table");
    store
        .settle(&[settlement(&batches[0], &failed(Duration::ZERO, "503"))])
        .await
        .expect("settled");

    let said = json(&table, payload).await;
    assert_eq!(said["outbox_status"], "pending");
    assert_eq!(
        (&said["outbox_retry_count"], &said["outbox_last_error"]),
        (&json!(1), &json!("503"))
    );
    let next = said["outbox_next_attempt_at"].as_str().expect("a time");
    assert!(chrono::DateTime::parse_from_rfc3339(next).is_ok() && next.ends_with('Z'), "{next}");
    // As its own dispatcher asks.
    let open = "SELECT count(*) FROM billing_events WHERE payload->>'outbox_status' = 'pending'
                AND (payload->>'outbox_next_attempt_at')::timestamptz <= now()";
    assert_eq!(table.value(open).await.as_deref(), Some("1"));

    take_and_settle(&table, &*store, dead("410")).await;
    let said = json(&table, payload).await;
    assert_eq!(
        (&said["outbox_status"], &said["outbox_retry_count"]),
        (&json!("dead_letter"), &json!(2))
    );

    // Its documented replay.
    table
        .execute(
            "UPDATE billing_events SET payload = payload || '{\"outbox_status\": \"pending\", \"outbox_retry_count\": 0}'",
        )
        .await
        .expect("replayed by hand");
    take_and_settle(&table, &*store, Fate::Sent).await;
    let said = json(&table, payload).await;
    assert_eq!(
        (&said["outbox_status"], &said["outbox_custom"]),
        (&json!("dispatched"), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_rubbish_or_without_a_status_stop_nobody_and_are_counted() {
    let table = Table::start(tables::metadata()).await;
    table.migrate().await;
    let store = table.store().await;
    let mut payloads =
        vec![json!({"n": 1, "outbox_status": "pending"}), json!({"n": 2}), json!([3]), json!("4")];
    payloads.push(json!({"n": 5, "outbox_status": "parked"}));
    payloads.push(json!({"n": 6, "outbox_status": "pending", "outbox_retry_count": "many",
        "outbox_next_attempt_at": "tomorrow noonish"}));
    payloads.push(json!({"n": 7, "outbox_status": "pending", "outbox_retry_count": -3,
        "outbox_next_attempt_at": "2026-02-31T25:61:00+99:00"}));
    for (n, payload) in payloads.iter().enumerate() {
        let sql = format!(
            "INSERT INTO billing_events (id, subject, tenant_id, payload)
            VALUES ('{n}', 'invoice', 'acme', '{payload}')"
        );
        table.execute(&sql).await.expect("no producer is refused");
    }
    let mut taken: Vec<i64> = Vec::new();
    for batch in take(&table, &*store).await {
        for one in &batch.messages {
            let body: Value = serde_json::from_str(one.message.payload.as_str()).expect("JSON");
            taken.extend(body["n"].as_i64());
        }
    }
    taken.sort_unstable();
    assert!(taken.starts_with(&[1, 6]), "{taken:?}");
    let found = store.diagnose().await.expect("a look");
    let said: Vec<_> = found.iter().map(|one| one.problem.as_str()).collect();
    assert!(said.iter().any(|one| one.starts_with("3 rows have the status (none)")), "{said:?}");
    assert!(said.iter().any(|one| one.starts_with("1 rows have the status parked")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_a_service_is_made_when_that_service_is_listed() {
    let database = Postgres::shared().await.database().await;
    let layout = Some(Arc::new(tables::metadata().layout));
    let options = MigrateOptions { layout, ..MigrateOptions::default() };
    let refused =
        postroom_store::migrate_with(database.url(), &options).await.expect_err("not listed");
    assert_eq!(refused.kind, StoreErrorKind::Refused);
    assert!(refused.to_string().contains("add billing_event"), "{refused}");
    let options = MigrateOptions { services: vec!["billing_event".to_owned()], ..options };
    let planned = postroom_store::plan(database.url(), &options).await.expect("a plan");
    assert!(planned[0].sql.contains("CREATE TABLE billing_events"), "{}", planned[0].sql);
    let client = database.client().await;
    let there = client
        .query_one("SELECT to_regclass('billing_events') IS NULL", &[])
        .await
        .expect("a look");
    assert!(there.get::<_, bool>(0), "a plan makes nothing");
}

/// `attempts` counts claims; a retry is PENDING, FAILED is final; SENDING is shown and never written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kata_reads_its_own_words() {
    let table = Table::start(tables::kata()).await;
    table.migrate().await;
    let store = table.store().await;
    table.execute(&table.words().insert.replace("{n}", "1")).await.expect("inserted");
    let row = "SELECT status || ' ' || attempts || ' ' || coalesce(length(last_error), 0) FROM ";
    let (owners, shown) = (format!("{row} outbox"), format!("{row} postroom_outbox.claimed"));

    let batches = take(&table, &*store).await;
    assert_eq!(table.value(&owners).await.as_deref(), Some("PENDING 0 0"));
    assert_eq!(table.value(&shown).await.as_deref(), Some("SENDING 1 0"));
    let long = "x".repeat(1_000);
    store
        .settle(&[settlement(&batches[0], &failed(Duration::from_secs(2), &long))])
        .await
        .expect("settled");
    assert_eq!(table.value(&owners).await.as_deref(), Some("PENDING 1 200"));
    let wait = "SELECT (next_attempt_at - (extract(epoch FROM now()) * 1000)::bigint) BETWEEN 1000 AND 2000 FROM outbox";
    assert_eq!(table.value(wait).await.as_deref(), Some("t"), "2 s, in milliseconds");

    table.execute("UPDATE outbox SET next_attempt_at = 0").await.expect("brought forward");
    take_and_settle(&table, &*store, Fate::Sent).await;
    assert_eq!(
        table.value(&owners).await.as_deref(),
        Some("SENT 2 200"),
        "the last claim counts too"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_older_dispatcher_was_sending_is_due_after_the_grace_time() {
    let table = Table::start(tables::kata()).await;
    let insert = table.words().insert.replace("'PENDING', 0", "'SENDING', 1");
    table.execute(&insert.replace("{n}", "1")).await.expect("inserted");
    let options = MigrateOptions {
        layout: Some(Arc::new(table.described.layout.clone())),
        claimed_grace: Duration::from_secs(600),
        ..MigrateOptions::default()
    };
    postroom_store::migrate_with(table.database.url(), &options).await.expect("migrated");
    let store = table.store().await;
    assert!(take(&table, &*store).await.is_empty());
    let due =
        "SELECT next_attempt_at > (extract(epoch FROM now()) * 1000)::bigint + 500000 FROM outbox";
    assert_eq!(table.value(due).await.as_deref(), Some("t"));
    table.execute("UPDATE outbox SET next_attempt_at = 0").await.expect("it is over");
    take_and_settle(&table, &*store, Fate::Sent).await;
}

/// Insert and delete in one transaction, as is enough for a reader of the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_is_deleted_with_its_insert_is_told_as_vanished() {
    let table = Table::start(tables::debezium()).await;
    table.migrate().await;
    let store = table.store().await;
    let insert = table.words().insert.replace("{n}", "1");
    table
        .execute(&format!("BEGIN; {insert}; DELETE FROM outboxevent; COMMIT"))
        .await
        .expect("as they do");
    assert!(take(&table, &*store).await.is_empty());
    let vanished = store.vanished();
    assert_eq!((vanished.len(), vanished[0].messages, vanished[0].pauses), (1, 1, true));
    assert_eq!(table.left_in_ledger().await, 0);

    let mut ignoring = tables::debezium();
    ignoring.layout.vanished = Some(postroom_store::layout::Vanished::Ignore);
    let table = Table::start(ignoring).await;
    table.migrate().await;
    let store = table.store().await;
    table
        .execute(&format!("BEGIN; {insert}; DELETE FROM outboxevent; COMMIT"))
        .await
        .expect("as they do");
    take(&table, &*store).await;
    assert!(!store.vanished()[0].pauses);
}

/// Byte for byte; and what is no JSON is its own row's fault.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_a_text_passes_as_it_is() {
    let Described { mut layout, words, made_by, .. } = tables::numbered();
    layout.message.payload = "m.body".to_owned();
    let table = Table::start(Described { name: "texts", layout, made_by, words }).await;
    table.migrate().await;
    let store = table.store().await;
    let odd = r#"{"z": 1.50,  "a":[ ],"z": "\u00e4"}"#;
    let large = format!(r#"{{"n": "{}"}}"#, "y".repeat(40_000));
    for (id, body) in [(1, odd), (2, "no JSON"), (3, &large)] {
        let sql =
            format!("INSERT INTO shop_events (id, topic, body) VALUES ({id}, 'orders', '{body}')");
        table.execute(&sql).await.expect("inserted");
    }
    let batches = take(&table, &*store).await;
    let bodies: Vec<_> = batches
        .iter()
        .flat_map(|batch| &batch.messages)
        .map(|one| (one.message.payload.as_str(), one.fault.is_some()))
        .collect();
    assert!(bodies.contains(&(odd, false)), "{bodies:?}");
    assert!(bodies.contains(&(large.as_str(), false)));
    assert_eq!(bodies.iter().filter(|(_, is_faulty)| *is_faulty).count(), 1);
    let listed = store
        .list(&postroom_core::Filter { limit: 10, ..Default::default() })
        .await
        .expect("a list");
    assert_eq!(listed.len(), 3, "a row of rubbish hides no other");
}

/// Each mismatch is named, with what mends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_names_each_mismatch_and_what_mends_it() {
    let table = Table::start(tables::numbered()).await;
    table.migrate().await;
    let store = table.store().await;
    store.ready().await.expect("ready");
    table
        .execute(
            "ALTER TABLE shop_events DISABLE TRIGGER postroom_follow;
             DROP TRIGGER postroom_feed ON shop_events",
        )
        .await
        .expect("altered");
    let found = table.store().await.diagnose().await.expect("a look");
    let said: Vec<String> =
        found.iter().map(|one| format!("{}; {}", one.problem, one.remedy)).collect();
    for trigger in ["postroom_follow", "postroom_feed"] {
        let names =
            |one: &&String| one.contains(&format!("the trigger {trigger} is missing or disabled"));
        assert_eq!(said.iter().filter(names).count(), 1, "{said:?}");
    }

    let mut wrong = tables::numbered();
    wrong.layout.message.stream = Some("m.shop_id".to_owned());
    wrong.layout.write.sent = Sent::Set([("processed".to_owned(), "'yes'".to_owned())].into());
    let mut unfit = Table::start(wrong).await;
    let refused = migrate_refused(&unfit).await;
    assert!(
        refused.contains("no column shop_id, which message.stream in its layout names"),
        "{refused}"
    );
    unfit.described.layout.message.stream = None;
    unfit.described.layout.key = vec!["topic".to_owned()];
    let refused = migrate_refused(&unfit).await;
    assert!(refused.contains("no unique index on its key (topic)"), "{refused}");
    unfit.described.layout.key = vec!["id".to_owned()];
    unfit.described.layout.state.status = "m.at + 1".to_owned();
    let refused = migrate_refused(&unfit).await;
    assert!(refused.contains("operator does not exist"), "{refused}");
}

async fn migrate_refused(table: &Table) -> String {
    let layout = Some(Arc::new(table.described.layout.clone()));
    let options = MigrateOptions { layout, ..MigrateOptions::default() };
    let refused = postroom_store::migrate_with(table.database.url(), &options).await;
    postroom_core::with_causes(&refused.expect_err("refused"))
}

/// A relay whose layout was changed and not migrated would write what its triggers do not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_layout_asks_for_a_migration() {
    let mut table = Table::start(tables::events()).await;
    table.migrate().await;
    table.described.layout.to =
        Some(postroom_store::layout::Destination::One("kafka:runs".to_owned()));
    let refused = table.store().await.ready().await.expect_err("another layout");
    assert_eq!(refused.kind, StoreErrorKind::Schema);
    assert!(refused.to_string().contains("run `postroom migrate`"), "{refused}");
    table.migrate().await;
    table.store().await.ready().await.expect("ready");
}

/// What `adopt` proposes for a table is a layout that fits it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_fits_the_table_it_was_made_for() {
    for described in [
        tables::numbered(),
        tables::composite(),
        tables::events_polled(),
        tables::kata(),
        tables::typeorm(),
    ] {
        let table = Table::start(described).await;
        fits(&table, table.database.url(), Dialect::Postgres).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposal_fits_the_table_it_was_made_for_on_sqlite() {
    for described in [
        sqlite_tables::numbered(),
        sqlite_tables::composite(),
        sqlite_tables::events(),
        sqlite_tables::kata(),
    ] {
        let table = sqlite::Table::start(described).await;
        fits(&table, &table.url(), Dialect::Sqlite).await;
    }
}

/// What is proposed for a table can be migrated.
async fn fits(table: &impl LayoutHarness, url: &str, dialect: Dialect) {
    let name = table.name();
    let proposed = postroom_store::propose_layout(url, table.words().table).await;
    let proposed = proposed.unwrap_or_else(|error| panic!("{name}: {error}"));
    let text = proposed.replace("[database]", "").replace("[database.", "[");
    let mut value: toml::Table =
        text.parse().unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    value.remove("url");
    let of = value.remove("layout");
    let of = of.as_ref().and_then(toml::Value::as_str).expect("a layout's name");
    let mut whole =
        toml::Table::try_from(Layout::built_in(of, dialect).expect("one of ours")).expect("TOML");
    whole.extend(value);
    let layout: Layout = whole.try_into().unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
    let options = MigrateOptions { layout: Some(Arc::new(layout)), ..MigrateOptions::default() };
    let migrated = postroom_store::migrate_with(url, &options).await;
    migrated
        .unwrap_or_else(|error| panic!("{name}: {}\n{text}", postroom_core::with_causes(&error)));
}
