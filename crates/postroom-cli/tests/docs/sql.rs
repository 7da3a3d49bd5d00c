//! Every SQL fence runs on an outbox that holds a message in every state, and finds what it is
//! about: a statement that touches no row there is as wrong as one that fails.

use super::pages::{Fence, Page, pages};
use crate::command::Folder;
use postroom_testkit::{MariaDb, Postgres};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;
use tokio_postgres::SimpleQueryMessage;

const POSTGRES: &str = "
    CREATE TABLE orders (id text PRIMARY KEY, total int NOT NULL);
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload, status,
         created_at, sent_at)
    SELECT name, name || '-created', 'webhook:partnerX', 'order.created.v1', '{}', status,
           now() - interval '8 days', CASE status WHEN 'SENT' THEN now() - interval '8 days' END
    FROM (VALUES ('ord_1', 'PENDING'), ('ord_failed', 'FAILED'), ('ord_dead', 'DEAD'),
                 ('ord_sent', 'SENT'), ('ord_retried', 'FAILED'))
        AS message (name, status);
    INSERT INTO core_outbox.relay VALUES (gen_random_uuid(), 'relay-1', now(), now(), '1', 1);
    -- A parcel of its own that a relay holds, and a delivery that another holds.
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    VALUES ('ord_claimed', 'ord_claimed-created', 'webhook:partnerX', 'order.created.v1', '{}');
    INSERT INTO core_outbox.claim (token, worker, since, relay, lanes, numbers, messages)
    SELECT gen_random_uuid(), 'relay-1', now(), (SELECT id FROM core_outbox.relay), ARRAY[lane], ARRAY[number], 1
    FROM core_outbox.parcel
    WHERE refs && ARRAY(SELECT id FROM core_outbox.messages WHERE source_stream_id = 'ord_claimed');
    WITH held AS (
        INSERT INTO core_outbox.claim (token, worker, since, relay, ids)
        SELECT gen_random_uuid(), 'relay-2', now(), (SELECT id FROM core_outbox.relay), ARRAY[id]
        FROM core_outbox.messages WHERE source_stream_id = 'ord_retried'
        RETURNING token, ids
    )
    UPDATE core_outbox.delivery SET claim = held.token FROM held WHERE message_id = ANY (held.ids);
    -- Loaded around the triggers.
    SET session_replication_role = replica;
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    VALUES ('ord_bare', 'ord_bare-created', 'webhook:partnerX', 'order.created.v1', '{}');
    RESET session_replication_role;
    INSERT INTO core_outbox.attempt (message_id, number, at, took_ms, outcome, error)
    SELECT id, 1, now(), 12, 'reject', '400' FROM core_outbox.messages WHERE status = 'DEAD';
    INSERT INTO core_outbox.action (actor, operation, target) VALUES ('ann', 'redrive', 'all');";

const SQLITE: &str = "
    INSERT INTO integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload, status, sent_at)
    VALUES ('ord_1', 'ord_1-created', 'stdout', 'order.created.v1', '{}', 'PENDING', NULL),
           ('ord_dead', 'ord_dead-created', 'stdout', 'order.created.v1', '{}', 'DEAD', NULL),
           ('ord_sent', 'ord_sent-created', 'stdout', 'order.created.v1', '{}', 'SENT', '2020-01-01');";

const MARIADB: &str = "
    INSERT INTO integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload, status)
    VALUES ('ord_1', 'ord_1-created', 'stdout', 'order.created.v1', '{}', 'PENDING'),
           ('ord_dead', 'ord_dead-created', 'stdout', 'order.created.v1', '{}', 'DEAD');";

#[tokio::test(flavor = "multi_thread")]
async fn sql_runs_on_postgresql_and_finds_what_it_is_about() {
    let database = Postgres::shared().await.database().await;
    Folder::new().run(&["migrate", "--database", database.url()]).ok();
    let client = database.client().await;
    client.batch_execute(POSTGRES).await.unwrap();
    let mut seen = 0;
    for (page, fence) in
        fences(|fence| !["here", "mariadb", "sqlite"].iter().any(|tag| fence.has_tag(tag)))
    {
        client.batch_execute("BEGIN").await.unwrap();
        for statement in statements(&fence.text) {
            let answers = client.simple_query(&statement).await;
            let answers = answers.unwrap_or_else(|error| {
                panic!("{}: {:?}\n{statement}", page.place(&fence), error.as_db_error())
            });
            let rows = answers.iter().find_map(|answer| match answer {
                SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
                _ => None,
            });
            assert_found(&page, &fence, &statement, rows.unwrap_or(0));
        }
        client.batch_execute("ROLLBACK").await.unwrap();
        seen += 1;
    }
    assert!(seen > 10, "only {seen} fences were found");
}

#[tokio::test]
async fn sql_for_sqlite_runs_there_and_finds_what_it_is_about() {
    let folder = Folder::new();
    folder.run(&["migrate"]).ok();
    let options = SqliteConnectOptions::new().filename(folder.path().join("postroom.db"));
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql(SQLITE).execute(&mut connection).await.unwrap();
    let mut seen = 0;
    for (page, fence) in fences(|fence| fence.has_tag("sqlite")) {
        sqlx::raw_sql("BEGIN").execute(&mut connection).await.unwrap();
        for statement in statements(&fence.text) {
            let query = sqlx::AssertSqlSafe(statement.clone());
            let rows = if statement.starts_with("SELECT") {
                sqlx::query(query).fetch_all(&mut connection).await.map(|rows| rows.len() as u64)
            } else {
                sqlx::query(query).execute(&mut connection).await.map(|done| done.rows_affected())
            };
            let rows =
                rows.unwrap_or_else(|error| panic!("{}: {error}\n{statement}", page.place(&fence)));
            assert_found(&page, &fence, &statement, rows);
        }
        sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.unwrap();
        seen += 1;
    }
    assert!(seen > 2, "only {seen} fences were found");
}

#[tokio::test]
async fn sql_for_mariadb_runs_there_and_finds_what_it_is_about() {
    let database = MariaDb::shared().await.database().await;
    Folder::new().run(&["migrate", "--database", database.url()]).ok();
    let mut connection = database.connection().await;
    sqlx::raw_sql(MARIADB).execute(&mut connection).await.unwrap();
    let mut seen = 0;
    for (page, fence) in fences(|fence| fence.has_tag("mariadb")) {
        sqlx::raw_sql("BEGIN").execute(&mut connection).await.unwrap();
        for statement in statements(&fence.text) {
            let query = sqlx::raw_sql(sqlx::AssertSqlSafe(statement.clone()));
            let rows = if statement.starts_with("SELECT") {
                query.fetch_all(&mut connection).await.map(|rows| rows.len() as u64)
            } else {
                query.execute(&mut connection).await.map(|done| done.rows_affected())
            };
            let rows =
                rows.unwrap_or_else(|error| panic!("{}: {error}\n{statement}", page.place(&fence)));
            assert_found(&page, &fence, &statement, rows);
        }
        sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.unwrap();
        seen += 1;
    }
    assert!(seen > 1, "only {seen} fences were found");
}

fn fences(wanted: impl Fn(&Fence) -> bool) -> Vec<(Page, Fence)> {
    let mut fences = Vec::new();
    for page in pages() {
        for fence in page.fences() {
            if fence.language() == "sql" && wanted(&fence) {
                fences.push((Page { path: page.path.clone(), text: String::new() }, fence));
            }
        }
    }
    fences
}

/// A fence's statements: each ends with a semicolon at the end of a line.
pub(super) fn statements(text: &str) -> Vec<String> {
    let parts = text.split(";\n").map(str::trim);
    parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

fn assert_found(page: &Page, fence: &Fence, statement: &str, rows: u64) {
    let first = statement.split_whitespace().next().unwrap_or_default();
    let finds = ["DELETE", "INSERT", "SELECT", "UPDATE"].contains(&first);
    assert!(!finds || rows > 0, "{}: no row for\n{statement}", page.place(fence));
}
