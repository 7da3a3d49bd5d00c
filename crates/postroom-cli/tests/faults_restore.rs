//! Dumps of PostgreSQL that are restored in four ways, and then `postroom run`, with nothing in between.

use crate::faults_outbox::{Outbox, SOON, arrivals, webhook};
use postroom_testkit::{Behaviour, Dump, Postgres, Receiver, TestDatabase, eventually, skip};
use std::collections::{BTreeMap, BTreeSet};

/// What is restored, and how.
struct Form {
    name: &'static str,
    /// For `pg_dump`.
    dumped: &'static [&'static str],
    /// Whether the outbox is there before, and empty.
    into_an_outbox: bool,
    /// For the sessions that restore.
    settings: &'static str,
    has_messages: bool,
}

const FULL: Form = Form {
    name: "restore: full",
    dumped: &[],
    into_an_outbox: false,
    settings: "",
    has_messages: true,
};
const DATA_WITH_TRIGGERS_ON: Form = Form {
    name: "restore: data with triggers on",
    dumped: &[
        "--data-only",
        "--schema=core_outbox",
        "--exclude-table-data=core_outbox.schema_migration",
    ],
    into_an_outbox: true,
    settings: "",
    has_messages: true,
};
const MESSAGES_WITHOUT_LEDGER: Form = Form {
    name: "restore: messages without the ledger",
    dumped: &["--data-only", "--table=core_outbox.integration_outbox"],
    into_an_outbox: true,
    settings: "-c session_replication_role=replica",
    has_messages: true,
};
const LEDGER_WITHOUT_MESSAGES: Form = Form {
    name: "restore: the ledger without messages",
    dumped: &[
        "--data-only",
        "--table=core_outbox.parcel",
        "--table=core_outbox.delivery",
        "--table=core_outbox.claim",
        "--table=core_outbox.lane_cursor",
    ],
    into_an_outbox: true,
    settings: "",
    has_messages: false,
};

/// Messages that were SENT, fresh ones in parcels, some that failed, some that are due in a moment, dead ones;
/// and the event ids of those that are open.
async fn filled() -> (Outbox, BTreeSet<String>) {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    let mut relay = outbox.relay("", &webhook(&receiver, ""));
    let sent = outbox.enqueue("webhook:a", 150).await;
    outbox.wait_for_all(&sent, "SENT").await;
    // The parcels of these are held by a relay that is gone.
    receiver.always(Behaviour::HoldResponse);
    outbox.enqueue("webhook:a", 70).await;
    outbox.wait_for_claims(70).await;
    outbox.crash(&mut relay).await;
    outbox.enqueue("webhook:a", 200).await;
    let client = outbox.client().await;
    let others = "INSERT INTO core_outbox.integration_outbox
            (source_stream_id, source_event_id, integration_type, event_type, payload, status, attempts, due_at)
        SELECT 's', gen_random_uuid()::text, 'webhook:a', 't', '{}',
               (ARRAY['PENDING', 'FAILED', 'DEAD'])[1 + n % 3], n % 3,
               now() + CASE n % 2 WHEN 0 THEN interval '2 s' ELSE interval '0' END
        FROM generate_series(1, 60) AS n";
    client.batch_execute(others).await.unwrap();
    let open = "SELECT source_event_id FROM core_outbox.integration_outbox \
                WHERE status IN ('PENDING', 'FAILED')";
    let open: BTreeSet<String> =
        client.query(open, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(open.len(), 310);
    (outbox, open)
}

/// A database into which an older outbox can be restored: with the numbers of a younger one.
async fn target(form: &Form) -> TestDatabase {
    let database = Postgres::shared().await.database().await;
    if form.into_an_outbox {
        postroom_store::migrate(database.url()).await.unwrap();
    }
    database
}

async fn each_open_message_is_delivered_once(form: Form) {
    let (source, open) = filled().await;
    let Some(dump) = Dump::of(source.postgres_database(), form.dumped) else {
        return skip(form.name, "pg_dump of the server's version is not installed");
    };
    let database = target(&form).await;
    dump.restore(&database, form.settings);
    let outbox = Outbox::on_postgres(database).await;
    let receiver = Receiver::start();
    let _relay = outbox.relay("claim_time = \"2s\"", &webhook(&receiver, ""));

    let mut expected: BTreeMap<String, usize> = BTreeMap::new();
    if form.has_messages {
        expected.extend(open.into_iter().map(|event| (event, 1)));
    }
    let client = outbox.client().await;
    let left = "SELECT (SELECT count(*) FROM core_outbox.integration_outbox
                        WHERE status IN ('PENDING', 'FAILED'))
                     + (SELECT count(*) FROM core_outbox.claim)";
    let everything_is_sent = async || {
        eventually("nothing to be open or claimed", SOON, async || {
            let left: i64 = client.query_one(left, &[]).await.unwrap().get(0);
            (left == 0).then_some(())
        })
        .await;
    };
    everything_is_sent().await;
    // What is written after the restore is found as well.
    let later = outbox.enqueue("webhook:a", 100).await;
    outbox.wait_for_all(&later, "SENT").await;
    expected.extend(outbox.records(&later).await.into_iter().map(|one| (one.message.event_id, 1)));
    everything_is_sent().await;
    let arrived: BTreeMap<String, usize> = arrivals(&receiver).into_iter().collect();
    assert_eq!(arrived.len(), expected.len(), "{}", form.name);
    assert!(arrived == expected, "{}: some arrived twice, or were never open", form.name);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_restore_then_run() {
    each_open_message_is_delivered_once(FULL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_of_the_data_with_triggers_on_then_run() {
    each_open_message_is_delivered_once(DATA_WITH_TRIGGERS_ON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_of_messages_without_the_ledger_then_run() {
    each_open_message_is_delivered_once(MESSAGES_WITHOUT_LEDGER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_of_the_ledger_without_messages_then_run() {
    each_open_message_is_delivered_once(LEDGER_WITHOUT_MESSAGES).await;
}
