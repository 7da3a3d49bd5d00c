//! What producers write by plain SQL on MariaDB, in sessions of every kind.

use crate::mariadb::{Maria, start};
use chrono::{DateTime, Utc};
use postroom_core::{ContentFault, Enqueued, MessageId, NewMessage};
use postroom_testkit::contract::Harness as _;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const COLUMNS: &str = "source_stream_id, source_event_id, integration_type, event_type, payload";

async fn execute(connection: &mut MySqlConnection, sql: &str) -> Result<u64, sqlx::Error> {
    let sql = AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(connection).await.map(|done| done.rows_affected())
}

async fn insert(connection: &mut MySqlConnection, event: &str) -> MessageId {
    let sql = format!(
        "INSERT INTO integration_outbox ({COLUMNS}) VALUES ('s', '{event}', 'noop', 't', '{{}}') \
         RETURNING id"
    );
    let id: Hyphenated =
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection).await.expect("a plain row");
    Uuid::from(id).into()
}

#[tokio::test]
async fn a_session_in_another_time_zone_gives_the_same_instants() {
    let outbox = start().await;
    let store = outbox.store().await;
    let mut producer = outbox.database.connection().await;
    execute(&mut producer, "SET time_zone = '+05:00'").await.expect("a zone");

    let before = store.now().await.expect("now");
    let plain = insert(&mut producer, "plain").await;
    let at: DateTime<Utc> = "2026-03-29T01:30:00.123Z".parse().expect("a time");
    let message = NewMessage::new("noop", "t").occurred_at(at).due_at(at);
    let own = postroom::enqueue(&mut producer, message).await.expect("enqueue").into_id();
    let soon = postroom::enqueue(&mut producer, NewMessage::new("noop", "t")).await;
    let soon = soon.expect("enqueue").into_id();
    let after = store.now().await.expect("now");

    for id in [plain, soon] {
        let record = store.find(&id).await.expect("find").expect("the message");
        for at in [record.message.created_at, record.message.due_at, record.updated_at] {
            assert!(before <= at && at <= after, "{at} is not between {before} and {after}");
        }
    }
    let own = store.find(&own).await.expect("find").expect("the message").message;
    assert_eq!((own.occurred_at, own.due_at), (Some(at), at));
}

#[tokio::test]
async fn a_time_with_a_zone_is_refused_and_not_misread() {
    let outbox = start().await;
    for due_at in ["2026-01-01T02:00:00+02:00", "2026-01-01T02:00:00Z"] {
        let sql = format!(
            "INSERT INTO integration_outbox ({COLUMNS}, due_at) \
             VALUES ('s', 'e', 'noop', 't', '{{}}', '{due_at}')"
        );
        let refused = outbox.execute(sql).await.expect_err("must be refused");
        assert!(refused.contains("Incorrect datetime value"), "{refused}");
    }
}

#[tokio::test]
async fn fault_41_times_that_no_relay_could_read_are_refused_in_every_mode() {
    let outbox = start().await;
    let mut producer = outbox.database.connection().await;
    for column in ["due_at", "created_at", "updated_at", "sent_at", "occurred_at"] {
        for (mode, time) in [
            ("", "soon"),
            ("", "0000-00-00"),
            ("", "2026-00-05"),
            ("ALLOW_INVALID_DATES", "2026-02-31"),
        ] {
            execute(&mut producer, &format!("SET sql_mode = '{mode}'")).await.expect("a mode");
            let sql = format!(
                "INSERT INTO integration_outbox ({COLUMNS}, {column}) \
                 VALUES ('s', 'e', 'noop', 't', '{{}}', '{time}')"
            );
            let refused = execute(&mut producer, &sql).await.expect_err("must be refused");
            assert!(refused.to_string().contains(&format!("{column}_is_a_time")), "{refused}");
        }
    }
}

#[tokio::test]
async fn ids_that_differ_in_case_or_in_a_space_are_different_events() {
    let outbox = start().await;
    let mut producer = outbox.database.connection().await;
    for event in ["evt", "EVT", "evt ", "évt", "e\u{301}vt"] {
        insert(&mut producer, event).await;
        let message = NewMessage::new("other", "t").stream("s").event_id(event);
        let enqueued = postroom::enqueue(&mut producer, message).await.expect("enqueue");
        assert!(enqueued.is_new(), "{event:?}");
    }
    assert_eq!(outbox.deliveries().await, 10);
}

#[tokio::test]
async fn a_payload_passes_byte_for_byte() {
    let outbox = start().await;
    let store = outbox.store().await;
    let text = r#"{"b":1,  "a" : 1.50, "a":"\u00e9é📮"}"#;
    let message = NewMessage::new("noop", "t").raw(text);
    let id = store.enqueue(&message).await.expect("enqueue").into_id();
    let record = store.find(&id).await.expect("find").expect("the message");
    assert_eq!(record.message.payload.as_str(), text);
}

/// A producer in the default isolation sees the past; the fence does not.
#[tokio::test]
async fn a_duplicate_that_was_committed_after_the_snapshot_is_found() {
    let outbox = start().await;
    let store = outbox.store().await;
    let mut producer = outbox.database.connection().await;
    let mut tx = producer.begin().await.expect("begin");
    let seen: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM integration_outbox")
        .fetch_one(&mut *tx)
        .await
        .expect("a snapshot");
    assert_eq!(seen, 0);
    let message = NewMessage::new("noop", "t").event_id("evt-1");
    let first = store.enqueue(&message).await.expect("enqueue").into_id();
    let again = postroom::enqueue(&mut tx, message).await.expect("enqueue");
    assert_eq!(again, Enqueued::Duplicate(first));
    // What was done before is still there to be committed.
    let other = postroom::enqueue(&mut tx, NewMessage::new("noop", "t")).await.expect("enqueue");
    tx.commit().await.expect("commit");
    assert!(store.find(other.id()).await.expect("find").is_some());
}

#[tokio::test]
async fn a_producer_needs_no_rights_but_those_of_its_role() {
    let outbox = start().await;
    let grants = postroom_store::grants(outbox.database.url(), None).expect("grants");
    outbox.execute(grants.to_owned()).await.expect("granted");
    let name = format!("p_{}", &Uuid::new_v4().simple().to_string()[..20]);
    outbox
        .execute(format!(
            "CREATE USER {name}@'127.0.0.1' IDENTIFIED BY 'secret'; \
             GRANT postroom_producer TO {name}@'127.0.0.1'; \
             SET DEFAULT ROLE postroom_producer FOR {name}@'127.0.0.1'"
        ))
        .await
        .expect("a user");
    let url = outbox.database.url().replace("root@", &format!("{name}:secret@"));
    let mut producer = MySqlConnection::connect(&url).await.expect("connected");
    let plain = format!(
        "INSERT INTO integration_outbox ({COLUMNS}) VALUES ('s', 'e', 'noop', 't', '{{}}')"
    );
    execute(&mut producer, &plain).await.expect("inserted");
    let message = NewMessage::new("noop", "t").event_id("evt-1");
    let first = postroom::enqueue(&mut producer, message.clone()).await.expect("enqueue");
    let again = postroom::enqueue(&mut producer, message).await.expect("enqueue");
    assert_eq!(again, Enqueued::Duplicate(first.id().clone()));
    for forbidden in [
        "SELECT payload FROM integration_outbox",
        "UPDATE integration_outbox SET status = 'SENT'",
        "DELETE FROM integration_outbox",
        "SELECT seq FROM outbox_delivery",
        "SELECT seq FROM outbox_parcel",
        "INSERT INTO outbox_delivery (message_id, seq, integration, due_at, since, bytes, state) \
         VALUES (UUID(), 9, 'noop', '2020-01-01', '2020-01-01', 1, 'w')",
        "INSERT INTO outbox_parcel (integration, seq, message_id, due_at, bytes) \
         VALUES ('noop', 9, UUID(), '2020-01-01', 1)",
    ] {
        execute(&mut producer, forbidden).await.expect_err(forbidden);
    }
    assert_eq!(outbox.deliveries().await, 2);
    outbox.execute(format!("DROP USER {name}@'127.0.0.1'")).await.expect("dropped");
}

/// Whatever way rows come in, each open message has a delivery, and nothing else has.
#[tokio::test]
async fn ignore_replace_and_upsert_leave_deliveries_right() {
    let outbox = start().await;
    let store = outbox.store().await;
    let mut producer = outbox.database.connection().await;
    let first = insert(&mut producer, "e-1").await;
    let rows = "('s', 'e-1', 'noop', 't', '{}'), ('s', 'e-2', 'noop', 't', '{}')";
    let sql = format!("INSERT IGNORE INTO integration_outbox ({COLUMNS}) VALUES {rows}");
    execute(&mut producer, &sql).await.expect("ignored");
    assert_eq!(outbox.deliveries().await, 2);
    assert!(store.find(&first).await.expect("find").is_some());

    let sql = format!(
        "INSERT INTO integration_outbox ({COLUMNS}) VALUES {rows} \
         ON DUPLICATE KEY UPDATE due_at = '2999-01-01'"
    );
    execute(&mut producer, &sql).await.expect("updated");
    assert_eq!(outbox.deliveries().await, 2);
    assert!(store.take(&everything(&*store).await).await.expect("take").is_empty());

    // REPLACE deletes and inserts: the old delivery has no message, and is found to have none.
    let sql = format!("REPLACE INTO integration_outbox ({COLUMNS}) VALUES {rows}");
    execute(&mut producer, &sql).await.expect("replaced");
    let batch = store.take(&everything(&*store).await).await.expect("take").pop().expect("due");
    assert_eq!(batch.messages.len(), 2);
    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!((mended.made, mended.removed, mended.freed), (0, 2, 0));
}

#[tokio::test]
async fn ids_made_by_the_database_are_different_and_in_order_of_time() {
    let outbox = start().await;
    outbox
        .execute(format!(
            "INSERT INTO integration_outbox ({COLUMNS}) \
             SELECT 's', seq, 'noop', 't', '{{}}' FROM seq_1_to_5000"
        ))
        .await
        .expect("inserted");
    let mut later = outbox.database.connection().await;
    let last = insert(&mut later, "last").await;
    let (count, greatest): (i64, Hyphenated) =
        sqlx::query_as("SELECT COUNT(DISTINCT id), MAX(id) FROM integration_outbox")
            .fetch_one(&mut later)
            .await
            .expect("counted");
    assert_eq!((count, MessageId::Uuid(greatest.into())), (5_001, last.clone()));
    assert_eq!(last.as_uuid().expect("a UUID").get_version_num(), 7);
}

#[tokio::test]
async fn what_is_wrong_is_diagnosed_and_mended() {
    let outbox: Maria = start().await;
    let store = outbox.store().await;
    assert!(store.diagnose().await.expect("diagnose").is_empty());
    let mut producer = outbox.database.connection().await;
    for event in ["unfed", "closed", "held"] {
        insert(&mut producer, event).await;
    }
    for sql in [
        "CREATE INDEX by_status ON integration_outbox (status)",
        "DELETE FROM outbox_parcel WHERE seq = 1",
        "DELETE FROM integration_outbox WHERE seq = 2",
        "DELETE FROM outbox_parcel WHERE seq = 3",
        "INSERT INTO outbox_delivery (message_id, seq, integration, due_at, since, bytes, state, claim) \
         SELECT id, seq, integration_type, due_at, due_at, 2, 'w', x'00112233445566778899aabbccddeeff' \
         FROM integration_outbox WHERE seq = 3",
    ] {
        outbox.execute(sql.to_owned()).await.expect("broken");
    }
    let found = store.diagnose().await.expect("diagnose");
    let problems: Vec<&str> = found.iter().map(|finding| finding.problem.as_str()).collect();
    assert_eq!(
        problems,
        [
            "1 open messages are missing in the ledger: no relay sees them",
            "1 deliveries are under a claim that does not exist: they are stuck",
            "1 deliveries or parcels have no open message",
            "the index by_status names a column that changes: every outcome writes to it",
        ]
    );
    outbox.execute("DROP INDEX by_status ON integration_outbox".to_owned()).await.expect("gone");
    let mended = store.reconcile().await.expect("reconcile");
    assert_eq!((mended.made, mended.removed, mended.freed), (1, 1, 1));
    assert!(store.diagnose().await.expect("diagnose").is_empty());
    let batch = store.take(&everything(&*store).await).await.expect("take").pop().expect("due");
    assert_eq!(batch.messages.len(), 2);
}

#[tokio::test]
async fn fault_48_a_row_written_without_checks_is_a_fault_of_its_own() {
    let outbox = start().await;
    let store = outbox.store().await;
    let mut producer = outbox.database.connection().await;
    let good = insert(&mut producer, "good").await;
    execute(&mut producer, "SET check_constraint_checks = 0, sql_mode = ''").await.expect("set");
    let sql = format!(
        "INSERT INTO integration_outbox ({COLUMNS}, created_at) \
         VALUES ('s', 'odd', 'noop', 't', '{{}}', '0000-00-00')"
    );
    execute(&mut producer, &sql).await.expect("a row that no message can be");
    let batch = store.take(&everything(&*store).await).await.expect("take").pop().expect("due");
    assert_eq!(batch.messages.len(), 2);
    for taken in &batch.messages {
        let is_unreadable = matches!(taken.fault, Some(ContentFault::Unreadable { .. }));
        assert_eq!(is_unreadable, taken.message.id != good);
    }
}

async fn everything(store: &dyn postroom_core::Store) -> postroom_core::Take<'static> {
    static QUOTAS: std::sync::LazyLock<Vec<postroom_core::Quota>> =
        std::sync::LazyLock::new(|| {
            vec![postroom_core::Quota { integration: "noop".to_owned(), rows: 100 }]
        });
    postroom_core::Take {
        worker: "worker",
        relay: postroom_testkit::living_relay(store, std::time::Duration::from_secs(600)).await,
        quotas: &QUOTAS,
        rows: 100,
        bytes: 1 << 20,
        payload_limit: 1 << 20,
        for_queue: false,
    }
}
