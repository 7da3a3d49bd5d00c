//! What stands in the rows, and what the table's owner can do wrong.

use super::{TABLE, configured, database, psql};
use crate::destination::{refused, rejected, retried};
use crate::page;
use postroom_core::{Message, Outcome, RawJson};
use postroom_testkit::sink_contract::{deliver_all, message};
use serde_json::json;

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

/// A message of this tenant.
fn of(tenant: &str, event_id: &str) -> Message {
    Message { tenant_id: Some(tenant.to_owned()), ..message(event_id) }
}

/// Delivers three messages of which the second is one that the table's owner does not want.
async fn expect_one_rejected(url: &str, code: &str) {
    let columns = json!({"id": "idempotency_key", "tenant": "tenant"});
    let sink = configured(url, json!({ "columns": columns }));
    let batch = [of("acme", "e-1"), of("other", "e-2"), of("acme", "e-3")];
    let outcomes = deliver_all(&*sink, &batch).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Delivered, &Outcome::Delivered));
    let error = rejected(&outcomes[1]);
    assert!(error.contains(code) && error.contains("correct the row"), "{error}");
    assert!(!error.contains("other"), "{error}");
}

#[tokio::test]
async fn a_row_that_a_policy_or_a_trigger_refuses_holds_up_no_other() {
    let table = "CREATE TABLE events (id text PRIMARY KEY, tenant text NOT NULL)";
    let policed = database(table).await;
    // Policies do not hold for whoever is all-powerful; the name is nobody else's.
    let (admin, role) = (policed.client().await, policed.name());
    let role_and_policy = format!(
        "CREATE ROLE {role} LOGIN;
         GRANT INSERT, SELECT ON events TO {role};
         ALTER TABLE events ENABLE ROW LEVEL SECURITY;
         CREATE POLICY reads ON events FOR SELECT USING (true);
         CREATE POLICY own ON events FOR INSERT WITH CHECK (tenant = 'acme')"
    );
    admin.batch_execute(&role_and_policy).await.unwrap();
    let mut url = url::Url::parse(policed.url()).unwrap();
    url.set_username(role).unwrap();
    expect_one_rejected(url.as_str(), "42501").await;
    assert_eq!(psql(policed.url(), "SELECT count(*) FROM events"), 2);

    // The same code of a right that is missing concerns all.
    admin.batch_execute(&format!("REVOKE INSERT ON events FROM {role}")).await.unwrap();
    let columns = json!({"id": "idempotency_key", "tenant": "tenant"});
    let sink = configured(url.as_str(), json!({ "columns": columns }));
    let outcomes = deliver_all(&*sink, &[of("acme", "e-4"), of("acme", "e-5")]).await;
    for outcome in &outcomes {
        assert!(refused(outcome).contains("42501"), "{outcome:?}");
    }
    let drop_role = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    admin.batch_execute(&drop_role).await.unwrap();

    for code in ["insufficient_privilege", "feature_not_supported"] {
        let guarded = database(&format!(
            "{table};
             CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
                IF NEW.tenant <> 'acme' THEN RAISE {code} USING MESSAGE = NEW.tenant; END IF;
                RETURN NEW;
             END$$;
             CREATE TRIGGER guard BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION guard()"
        ))
        .await;
        let code = if code == "insufficient_privilege" { "42501" } else { "0A000" };
        expect_one_rejected(guarded.url(), code).await;
    }
}

#[tokio::test]
async fn a_connection_to_a_server_that_has_become_read_only_is_given_up() {
    let database = database(TABLE).await;
    let (admin, name) = (database.client().await, database.name());
    // Who connects from now on may only read, for as long as the connection lasts.
    let read_only = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    admin.batch_execute(&read_only).await.unwrap();
    let sink = configured(database.url(), json!({}));
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(retried(&outcomes[0]).contains("25006"), "{outcomes:?}");
    let writable = format!("ALTER DATABASE {name} RESET default_transaction_read_only");
    admin.batch_execute(&writable).await.unwrap();
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
}

#[tokio::test]
async fn the_configuration_and_the_table_on_its_page_deliver() {
    let database = database(&page::fence("postgres", "sql")).await;
    page::deliver("postgres", json!({"url": database.url()})).await;
    assert_eq!(psql(database.url(), "SELECT count(*) FROM events"), 1);
}
