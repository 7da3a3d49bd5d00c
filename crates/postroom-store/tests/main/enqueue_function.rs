//! What `core_outbox.enqueue` refuses, in the library's words.

use postroom_testkit::Postgres;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_relay_could_deliver_is_refused_before_it_is_written() {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    let client = database.client().await;
    for (arguments, part) in [
        ("'', 't', '{}'", "integration_type is empty: give it a value"),
        ("NULL, 't', '{}'", "integration_type is empty: give it a value"),
        ("'noop', '', '{}'", "event_type is empty: give it a value"),
        ("'noop', 't', NULL", "payload is empty: give it a value"),
        ("'noop', 't', '{}', stream => ''", "source_stream_id is empty: give it a value"),
        ("'noop', 't', '{}', event_id => ''", "source_event_id is empty: give it a value"),
        ("'noop', 't', '{}', tenant => ''", "tenant_id is empty: give it a value"),
        (
            "'noop', 't', '{}', tenant => repeat('ü', 61)",
            "tenant_id has 61 characters, at most 60 are allowed",
        ),
        (
            "'noop', 't', '{}', event_id => repeat('e', 101)",
            "source_event_id has 101 characters, at most 100 are allowed",
        ),
        ("'noop', 't', '{}', headers => '[1]'", "headers must be a JSON object"),
        ("'noop', 't', '{}', headers => 'null'", "headers must be a JSON object"),
        ("'noop', 't', '{}', max_attempts => 0", "max_attempts is 0, the least allowed is 1"),
        ("'noop', 't', '{}', copy => -1", "copy is -1, the least allowed is 0"),
        ("'noop', 't', '{}', schema_version => -1", "schema_version is -1, the least allowed is 0"),
        (
            "'noop', 't', to_jsonb(repeat('x', 262143))",
            "payload has 262145 bytes, at most 262144 are allowed",
        ),
        (
            "'noop', 't', '{}', headers => jsonb_build_object('h', repeat('x', 65536))",
            "headers has 65545 bytes, at most 65536 are allowed",
        ),
    ] {
        let call = format!("SELECT * FROM core_outbox.enqueue({arguments})");
        let refused = client.query(&call, &[]).await.expect_err(&call);
        let error = refused.as_db_error().expect("the server's words");
        assert_eq!(error.code().code(), "22023", "{error}");
        assert!(error.message().contains(part), "{arguments}: {error}");
    }
    // At the limits it is taken.
    let call = "SELECT is_new FROM core_outbox.enqueue('noop', 't', to_jsonb(repeat('x', 262142)),
                    headers => '{}', tenant => repeat('ü', 60), max_attempts => 1)";
    assert!(client.query_one(call, &[]).await.expect("enqueued").get::<_, bool>(0));
    let count = client.query_one("SELECT count(*) FROM core_outbox.integration_outbox", &[]).await;
    assert_eq!(count.expect("a count").get::<_, i64>(0), 1);
}
