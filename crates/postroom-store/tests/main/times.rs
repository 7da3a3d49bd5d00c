//! Times that no client can read back are refused by the table itself.

use postroom_testkit::Postgres;

#[tokio::test]
async fn fault_41_times_that_no_relay_could_read_are_refused() {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let client = database.client().await;
    for column in ["due_at", "occurred_at", "created_at", "updated_at", "sent_at"] {
        for time in ["infinity", "-infinity", "200000-01-01Z"] {
            let insert = format!(
                "INSERT INTO core_outbox.integration_outbox
                     (source_stream_id, source_event_id, integration_type, event_type, payload, {column})
                 VALUES ('s', 'e', 'noop', 't', '{{}}', '{time}')"
            );
            let refused = client.batch_execute(&insert).await.expect_err("must be refused");
            let code = refused.code().map(|code| code.code().to_owned());
            assert_eq!(code.as_deref(), Some("23514"), "{column} = {time}");
        }
    }
}
