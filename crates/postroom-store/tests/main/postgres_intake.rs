//! Taking many messages in on PostgreSQL: by few statements, and with what the database itself
//! refuses told apart.

use crate::old_table::OldTable;
use postroom_core::{Checkpoint, Enqueued, NewMessage, Store, StoreErrorKind};
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, TestDatabase};
use std::sync::Arc;
use tokio_postgres::Client;

async fn outbox() -> (TestDatabase, Client, Arc<dyn Store>) {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let client = database.client().await;
    let store = postroom_store::open(database.url(), &OpenOptions::default()).await.expect("store");
    (database, client, store)
}

fn batch(n: usize) -> Vec<NewMessage> {
    (0..n).map(|i| NewMessage::new("noop", "t").event_id(format!("e-{i}"))).collect()
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("a count").get(0)
}

/// Duplicates among them cost no statement each either.
#[tokio::test]
async fn intake_of_many_messages_takes_few_statements() {
    let (_database, client, store) = outbox().await;
    client
        .batch_execute(
            "CREATE TABLE inserts (n int);
             CREATE FUNCTION count_insert() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN INSERT INTO public.inserts VALUES (1); RETURN NULL; END $$;
             CREATE TRIGGER count_inserts AFTER INSERT ON core_outbox.integration_outbox
                 FOR EACH STATEMENT EXECUTE FUNCTION count_insert()",
        )
        .await
        .expect("a trigger");
    store.accept(&batch(1_000), None).await.expect("accepted");
    assert_eq!(count(&client, "SELECT count(*) FROM inserts").await, 1);
    let answers = store.accept(&batch(2_500), None).await.expect("accepted");
    assert_eq!(answers.iter().filter(|answer| answer.is_new()).count(), 1_500);
    assert_eq!(count(&client, "SELECT count(*) FROM inserts").await, 4);
}

/// A constraint that somebody added: the error says which message it concerns, and nothing of the
/// batch is there, nor is the checkpoint moved.
#[tokio::test]
async fn intake_names_the_message_that_the_database_refuses() {
    let (_database, client, store) = outbox().await;
    let alter = "ALTER TABLE core_outbox.integration_outbox
                 ADD CONSTRAINT known CHECK (event_type <> 'unknown')";
    client.batch_execute(alter).await.expect("altered");
    let mut batch = batch(1_200);
    batch[1_100].event_type = "unknown".to_owned();
    let checkpoint =
        Checkpoint { name: "reader".to_owned(), position: "1".to_owned(), expected: None };
    let error = store.accept(&batch, Some(&checkpoint)).await.expect_err("refused");
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().starts_with("message 1100 of the batch"), "{error}");
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.integration_outbox").await, 0);
    assert_eq!(store.checkpoint("reader").await.expect("checkpoint"), None);
}

/// ON CONFLICT DO NOTHING passes over every unique index. Only the fence makes a duplicate.
#[tokio::test]
async fn intake_takes_no_other_conflict_for_a_duplicate() {
    let (_database, client, store) = outbox().await;
    let index = "CREATE UNIQUE INDEX by_hand ON core_outbox.integration_outbox (correlation_id)";
    client.batch_execute(index).await.expect("an index");
    let mut batch = batch(4);
    for place in [1, 3] {
        batch[place].correlation_id = Some("c".to_owned());
    }
    let error = store.accept(&batch, None).await.expect_err("refused");
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().starts_with("message 3 of the batch"), "{error}");
    assert_eq!(count(&client, "SELECT count(*) FROM core_outbox.integration_outbox").await, 0);
}

/// With the fence of an older schema, the same event for another integration is refused aloud.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intake_refuses_what_the_old_fence_would_lose() {
    let table = OldTable::filled(1).await;
    postroom_store::migrate(table.url()).await.expect("migrated");
    let store = table.store().await;
    let to = |integration: &str| NewMessage::new(integration, "t").event_id("e").stream("s");
    let same = [to("webhook:a"), to("webhook:a")];
    let answers = store.accept(&same, None).await.expect("accepted");
    assert_eq!(answers[1], Enqueued::Duplicate(answers[0].id().clone()));
    let other = [to("webhook:a"), to("webhook:b")];
    let error = store.accept(&other, None).await.expect_err("the old fence");
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.to_string().starts_with("message 1 of the batch"), "{error}");
    assert!(error.to_string().contains("--replace-fence"), "{error}");
}
