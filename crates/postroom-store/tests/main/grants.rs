//! Producers and relays with exactly the rights that `migrate --print-grants` gives them.

use postroom::{NewMessage, enqueue};
use postroom_store::{Layout, OpenOptions};
use postroom_testkit::{Postgres, TestDatabase};
use tokio_postgres::Client;

/// Everything that the contract asks of a store, as a relay's role.
mod relay {
    use crate::postgres::start_with_least_rights as start;
    postroom_testkit::contract_tests!(start);
}

/// Runs the statements as they are printed. The roles belong to the server: another test may
/// have made them.
pub(crate) async fn grant(client: &Client, url: &str, layout: Option<&Layout>) {
    let script = postroom_store::grants(url, layout).expect("grants");
    let script: Vec<_> = script.lines().filter(|line| !line.starts_with("--")).collect();
    for statement in script.join("\n").split(';') {
        let Err(error) = client.batch_execute(statement).await else { continue };
        let code = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
        let is_there = statement.contains("CREATE ROLE") && ["42710", "23505"].contains(&&*code);
        assert!(is_there, "{statement}: {error:?}");
    }
}

/// A URL whose sessions have the rights of `role`.
pub(crate) fn as_role(url: &str, role: &str) -> String {
    format!("{url}?options=-c%20role%3D{role}")
}

struct Outbox {
    database: TestDatabase,
    producer: Client,
}

async fn start() -> Outbox {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    grant(&database.client().await, database.url(), None).await;
    let producer = database.client().await;
    producer.batch_execute("SET ROLE postroom_producer").await.expect("the role");
    Outbox { database, producer }
}

const COLUMNS: &str = "(source_stream_id, source_event_id, integration_type, event_type, payload)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_can_enqueue_in_every_way_there_is() {
    let mut outbox = start().await;
    let mut tx = outbox.producer.transaction().await.expect("begin");
    let message = NewMessage::new("noop", "t").event_id("library");
    let first = enqueue(&mut tx, message.clone()).await.expect("by the library");
    let second = enqueue(&mut tx, message).await.expect("a duplicate");
    assert_eq!((first.is_new(), second.is_new(), second.id()), (true, false, first.id()));
    tx.commit().await.expect("commit");
    let table = "core_outbox.integration_outbox";
    for statement in [
        // Plain.
        format!("INSERT INTO {table} {COLUMNS} VALUES ('s', 'plain', 'noop', 't', '{{}}')"),
        // As ORMs do: what the database fills in is read back.
        format!(
            "INSERT INTO {table} {COLUMNS} VALUES ('s', 'orm', 'noop', 't', '{{}}') \
             RETURNING id, seq, due_at, attempts, max_attempts, status, copy, schema_version, \
             created_at, updated_at"
        ),
        format!(
            "INSERT INTO {table} {COLUMNS} VALUES ('s', 'orm', 'noop', 't', '{{}}') \
             ON CONFLICT (source_event_id, source_stream_id, integration_type, copy) DO NOTHING \
             RETURNING id"
        ),
        "SELECT id, is_new FROM core_outbox.enqueue('noop', 't', '{}', event_id => 'f')".to_owned(),
        "SELECT id, is_new FROM core_outbox.enqueue('noop', 't', '{}', event_id => 'f')".to_owned(),
    ] {
        outbox.producer.batch_execute(&statement).await.unwrap_or_else(|error| {
            panic!("{statement}: {error:?}");
        });
    }
    let store = postroom_store::open(outbox.database.url(), &OpenOptions::default()).await;
    let backlog = store.expect("a store").backlog().await.expect("backlog");
    assert_eq!(backlog.lanes[0].pending, 4, "each is delivered once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_can_neither_read_nor_change_nor_forge() {
    let outbox = start().await;
    let insert = format!(
        "INSERT INTO core_outbox.integration_outbox {COLUMNS} VALUES ('s', 'e', 'noop', 't', '{{}}')"
    );
    outbox.producer.batch_execute(&insert).await.expect("enqueued");
    for statement in [
        "SELECT payload FROM core_outbox.integration_outbox",
        "SELECT headers, last_error FROM core_outbox.integration_outbox",
        "SELECT * FROM core_outbox.messages",
        "SELECT * FROM core_outbox.delivery",
        "SELECT * FROM core_outbox.claim",
        "UPDATE core_outbox.integration_outbox SET status = 'SENT'",
        "DELETE FROM core_outbox.integration_outbox",
        "INSERT INTO core_outbox.integration_outbox SELECT * FROM core_outbox.integration_outbox",
        "SELECT * FROM core_outbox.parcel",
        "INSERT INTO core_outbox.delivery (message_id, seq, due_at, since, lane, bytes, state, integration)
         VALUES (gen_random_uuid(), 99, now(), now(), 1, 1, 'w', 'noop')",
        "INSERT INTO core_outbox.parcel (lane, number, due_at, lowest, bytes, integration, refs)
         VALUES (1, 1, now(), 1, 1, 'noop', ARRAY[gen_random_uuid()])",
        "INSERT INTO core_outbox.claim (token, worker, since, alone, relay)
         VALUES (gen_random_uuid(), 'me', now(), false, gen_random_uuid())",
        "SELECT * FROM core_outbox.relay",
        "DELETE FROM core_outbox.relay",
        "ALTER TABLE core_outbox.integration_outbox DISABLE TRIGGER outbox_feed",
        "CREATE TABLE core_outbox.mine ()",
        // A table of its own that looks like messages, and our trigger on it.
        "CREATE TEMP TABLE mine (LIKE core_outbox.integration_outbox);
         CREATE TRIGGER forge AFTER INSERT ON mine REFERENCING NEW TABLE AS fresh
         FOR EACH STATEMENT EXECUTE FUNCTION core_outbox.feed_ledger()",
        "INSERT INTO core_outbox.schema_migration VALUES (99, 'mine')",
    ] {
        let refused = outbox.producer.batch_execute(statement).await.expect_err(statement);
        let code = refused.code().map(|code| code.code().to_owned());
        assert_eq!(code.as_deref(), Some("42501"), "{statement}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_is_woken_and_can_change_nothing_about_the_schema() {
    let outbox = start().await;
    let url = as_role(outbox.database.url(), "postroom_relay");
    let store = postroom_store::open(&url, &OpenOptions::default()).await.expect("a store");
    let mut wake = store.wake().await.expect("a signal");
    wake.busy(true).await;
    wake.busy(false).await;
    let insert = format!(
        "INSERT INTO core_outbox.integration_outbox {COLUMNS} VALUES ('s', 'e', 'noop', 't', '{{}}')"
    );
    outbox.producer.batch_execute(&insert).await.expect("enqueued");
    tokio::time::timeout(std::time::Duration::from_secs(20), wake.woken()).await.expect("woken");
    let relay = outbox.database.client().await;
    relay.batch_execute("SET ROLE postroom_relay").await.expect("the role");
    for statement in [
        "ALTER TABLE core_outbox.delivery ADD COLUMN mine int",
        "CREATE TABLE core_outbox.mine ()",
        "DROP TABLE core_outbox.claim",
        "TRUNCATE core_outbox.delivery",
        "INSERT INTO core_outbox.schema_migration VALUES (99, 'mine')",
    ] {
        let refused = relay.batch_execute(statement).await.expect_err(statement);
        let code = refused.code().map(|code| code.code().to_owned());
        assert_eq!(code.as_deref(), Some("42501"), "{statement}: {refused:?}");
    }
}

#[test]
fn only_postgresql_has_rights_to_grant() {
    let error = postroom_store::grants("sqlite://x.db", None).expect_err("no rights there");
    assert!(error.to_string().contains("no rights"), "{error}");
}
