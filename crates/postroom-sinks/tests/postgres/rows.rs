//! What stands in the rows, and what the table's owner can do wrong.

use super::{TABLE, configured, database, psql};
use crate::destination::{refused, rejected};
use crate::page;
use postroom_core::{Message, Outcome, RawJson};
use postroom_testkit::eventually;
use postroom_testkit::sink_contract::{deliver_all, message};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn columns_are_chosen_and_values_take_their_types() {
    let database = database(
        "CREATE SCHEMA other;
         CREATE TABLE other.\"Inbox\" (n bigserial, id text UNIQUE, message uuid, kind varchar(40),
            version int, at timestamptz, body json, who text, seen timestamptz DEFAULT now())",
    )
    .await;
    let sink = configured(
        database.url(),
        json!({
            "table": "other.Inbox",
            "columns": {
                "id": "idempotency_key", "message": "message_id", "kind": "event_type",
                "version": "schema_version", "at": "occurred_at", "body": "payload", "who": "user",
            },
        }),
    );
    let payload = "{\"b\": 1.50, \"a\": \"é\", \"b\": 18446744073709551616}";
    let sent = Message { payload: RawJson::trusted(payload), ..message("e-1") };
    assert_eq!(deliver_all(&*sink, std::slice::from_ref(&sent)).await, [Outcome::Delivered]);
    let query = "SELECT json_build_object('n', n, 'id', id, 'message', message, 'kind', kind,
        'version', version, 'at', extract(epoch FROM at), 'body', body::text, 'who', who,
        'seen', seen IS NOT NULL) FROM other.\"Inbox\"";
    let row = psql(database.url(), query);
    assert_eq!(
        (&row["id"], &row["kind"]),
        (&json!("test:contract/order-1/e-1"), &json!("order.placed.v1"))
    );
    assert_eq!(row["message"], sent.id.to_string());
    assert_eq!((&row["n"], &row["version"], &row["who"]), (&json!(1), &json!(3), &json!("u-1")));
    assert_eq!(row["body"], payload, "a column of type json keeps the text");
    assert_eq!(row["seen"], true, "columns that are not named keep their default");
    let at = sent.occurred_at.unwrap().timestamp_micros() as f64 / 1e6;
    assert!((row["at"].as_f64().unwrap() - at).abs() < 1e-3);
}

#[tokio::test]
async fn a_key_is_inserted_once_and_another_conflict_is_no_success() {
    let database = database(&format!("{TABLE}; CREATE UNIQUE INDEX ON events (event_id)")).await;
    let sink = configured(database.url(), json!({"idempotency_key": "message_id"}));
    let first = message("e-1");
    let batch = [first.clone(), first.clone(), message("e-2")];
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 3]);
    assert_eq!(deliver_all(&*sink, &[first]).await, [Outcome::Delivered]);
    // Another row of the same event: the key is new, the event id is not.
    let outcomes = deliver_all(&*sink, &[message("e-1"), message("e-3")]).await;
    assert!(rejected(&outcomes[0]).contains("23505"), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Delivered);
    assert_eq!(psql(database.url(), "SELECT count(*) FROM events"), 3);
}

/// As a primary is that became a standby; a new session may be let in elsewhere.
#[tokio::test]
async fn a_session_that_may_only_read_is_left() {
    let database = database(TABLE).await;
    let owner = database.client().await;
    let set = |value: &str| {
        format!(
            "DO $$BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = \
             {value}', current_database()); END$$"
        )
    };
    owner.batch_execute(&set("on")).await.unwrap();
    let sink = configured(database.url(), json!({}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(format!("{outcomes:?}").contains("25006"), "{outcomes:?}");
    owner.batch_execute(&set("off")).await.unwrap();
    eventually("a session that may write", Duration::from_secs(60), async || {
        (deliver_all(&*sink, &[message("e-1")]).await == [Outcome::Delivered]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_concerns_the_table_pauses_the_lane() {
    let keyless = TABLE.replace("PRIMARY KEY", "NOT NULL");
    let guarded = format!(
        "{TABLE};
         CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN RAISE 'no: %', NEW.payload; END$$;
         CREATE TRIGGER no BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION no()"
    );
    for (table, code) in [
        ("SELECT 1", "42P01"),
        (keyless.as_str(), "42P10"),
        ("CREATE TABLE events (idempotency_key text PRIMARY KEY)", "42703"),
    ] {
        let database = database(table).await;
        let sink = configured(database.url(), json!({}));
        let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
        assert!(refused(&outcomes[0]).contains(code), "{outcomes:?}");
        let probe = sink.probe().await.unwrap_err().to_string();
        assert!(probe.contains(code), "{probe}");
    }
    let database = database(&guarded).await;
    let sink = configured(database.url(), json!({}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    let error = rejected(&outcomes[0]);
    assert!(error.contains("P0001") && !error.contains("12.5"), "no payload: {error}");
    let nowhere = database.url().replace(database.name(), "nowhere");
    let outcomes = deliver_all(&*configured(&nowhere, json!({})), &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("3D000"), "{outcomes:?}");
}

#[tokio::test]
async fn the_configuration_and_the_table_on_its_page_deliver() {
    let database = database(&page::fence("postgres", "sql")).await;
    page::deliver("postgres", json!({"url": database.url()})).await;
    assert_eq!(psql(database.url(), "SELECT count(*) FROM events"), 1);
}
