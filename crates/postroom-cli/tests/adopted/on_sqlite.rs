//! The same in SQLite files. Producers are programs in another language, with a SQLite of their own.

use super::scene::{Adopted, ROWS, Scene};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{AssertSqlSafe, ConnectOptions as _};
use std::path::PathBuf;
use tempfile::TempDir;

/// A file that somebody else's table is in.
struct File {
    url: String,
    by_owner: SqlitePool,
    _folder: TempDir,
}

impl Adopted for File {
    fn url(&self) -> &str {
        &self.url
    }

    fn python(&self) -> PathBuf {
        "python3".into()
    }

    async fn count(&self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(sql.to_owned());
        sqlx::query_scalar(sql).fetch_one(&self.by_owner).await.unwrap()
    }
}

/// A file with this table.
async fn set(table: &'static str) -> Scene<File> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let by_owner = SqlitePool::connect_with(options.disable_statement_logging()).await.unwrap();
    sqlx::raw_sql(table).execute(&by_owner).await.unwrap();
    Scene::of(File { url: format!("sqlite://{}", path.display()), by_owner, _folder: folder })
}

/// What producers have in common: a connection, and a commit for every twenty rows.
macro_rules! producer {
    ($insert:literal) => {
        concat!(
            "import datetime, json, os, sqlite3, sys, time, uuid\n",
            "path = os.environ['DATABASE_URL'].removeprefix('sqlite://')\n",
            "db = sqlite3.connect(path, timeout=60, isolation_level=None)\n",
            "for n in range(int(sys.argv[1])):\n",
            "    if n % 20 == 0:\n        db.execute('BEGIN IMMEDIATE')\n",
            "    ",
            $insert,
            "\n    if n % 20 == 19:\n        db.execute('COMMIT')\n",
        )
    };
}

/// A table as Node programs make it (better-sqlite3, Drizzle, Knex): a number for a key, times in milliseconds by
/// `Date.now()`, and a status that its own worker writes, with attempts and the time of the next one.
#[tokio::test]
async fn a_table_with_a_status_and_times_in_milliseconds_is_adopted_and_delivered() {
    let scene = set("CREATE TABLE outbox_messages (
             id              INTEGER PRIMARY KEY AUTOINCREMENT,
             topic           TEXT    NOT NULL,
             message_key     TEXT,
             payload         TEXT    NOT NULL,
             headers         TEXT,
             status          TEXT    NOT NULL DEFAULT 'pending'
                 CHECK (status IN ('pending', 'processing', 'sent', 'failed')),
             attempts        INTEGER NOT NULL DEFAULT 0,
             next_attempt_at INTEGER NOT NULL,
             last_error      TEXT,
             created_at      INTEGER NOT NULL,
             sent_at         INTEGER);
         CREATE INDEX outbox_messages_due ON outbox_messages (status, next_attempt_at);
         INSERT INTO outbox_messages (topic, payload, status, next_attempt_at, created_at, sent_at)
         VALUES ('orders', '{\"n\": -1}', 'sent', 1763500000000, 1763500000000, 1763500000500)")
    .await;
    let layout = scene.adopt(
        "outbox_messages",
        &[("to = \"kafka:{topic}\"", "to = \"webhook:{topic}\"")],
        &["webhook:orders", "webhook:payments"],
    );
    assert!(layout.contains("next_attempt_at = \"$due_ms\""), "{layout}");
    scene.fail_now_and_then();
    let _relay = scene.relay();
    scene
        .produce(producer!(
            "now = int(time.time() * 1000); db.execute('INSERT INTO outbox_messages (topic, message_key, payload, \
             headers, next_attempt_at, created_at) VALUES (?, ?, ?, ?, ?, ?)', ('orders' if n % 3 else 'payments', \
             f'order-{n % 50}', json.dumps({'n': n}), json.dumps({'x-origin': 'shop'}), now, now))"
        ))
        .await;
    scene.everything_arrives("SELECT count(*) FROM outbox_messages WHERE status <> 'sent'").await;
    let request = &scene.deliveries()[0];
    assert_eq!(request.header("x-origin"), Some("shop"));
    assert!(request.header("postroom-stream").unwrap().starts_with("order-"));
    let retried =
        "SELECT count(*) FROM outbox_messages WHERE attempts > 0 AND last_error IS NOT NULL";
    assert!(scene.count(retried).await > 0);
    let odd = "SELECT count(*) FROM outbox_messages WHERE sent_at NOT BETWEEN created_at AND created_at + 86400000";
    assert_eq!(
        scene.count(odd).await,
        0,
        "what was sent before is left alone, and no time is of another unit"
    );
}

/// The table of the outbox pattern as .NET programs have it on Entity Framework: names in capitals, a uuid as text in
/// upper case, times as text, and `ProcessedOnUtc`, which is null until the row was sent.
#[tokio::test]
async fn a_table_of_entity_framework_is_adopted_and_delivered() {
    let scene = set(
        "CREATE TABLE \"OutboxMessages\" (
             \"Id\"             TEXT NOT NULL CONSTRAINT \"PK_OutboxMessages\" PRIMARY KEY,
             \"Type\"           TEXT NOT NULL,
             \"Content\"        TEXT NOT NULL,
             \"OccurredOnUtc\"  TEXT NOT NULL,
             \"ProcessedOnUtc\" TEXT NULL,
             \"Error\"          TEXT NULL);
         INSERT INTO \"OutboxMessages\"
         VALUES ('00000000-0000-0000-0000-00000000000A', 'OrderPlaced', '{\"n\": -1}', '2026-01-01 10:00:00.1234567',
                 '2026-01-01 10:00:01', NULL)",
    )
    .await;
    scene.adopt(
        "OutboxMessages",
        &[("to = \"kafka:events\"", "to = \"webhook:events\"")],
        &["webhook:events"],
    );
    scene.fail_now_and_then();
    let _relay = scene.relay();
    scene
        .produce(producer!(
            "db.execute('INSERT INTO \"OutboxMessages\" (\"Id\", \"Type\", \"Content\", \"OccurredOnUtc\") \
             VALUES (?, ?, ?, ?)', (str(uuid.uuid4()).upper(), 'OrderPlaced', json.dumps({'n': n}), \
             datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%d %H:%M:%S.%f') + '0'))"
        ))
        .await;
    let unsent = "SELECT count(*) FROM \"OutboxMessages\" WHERE \"ProcessedOnUtc\" IS NULL";
    scene.everything_arrives(unsent).await;
    assert_eq!(scene.deliveries()[0].header("postroom-event-type"), Some("OrderPlaced"));
    // As such programs compare them: texts of one form.
    let odd = "SELECT count(*) FROM \"OutboxMessages\" WHERE \"ProcessedOnUtc\" < \"OccurredOnUtc\"
               OR \"ProcessedOnUtc\" NOT LIKE '____-__-__ __:__:__%'";
    assert_eq!(scene.count(odd).await, 0);
}

/// The table as Django makes it for a model: `bool`, `datetime`, JSON under a CHECK of its own, a uuid of 32 digits.
#[tokio::test]
async fn a_table_of_a_django_model_is_adopted_and_delivered() {
    let scene = set(
        "CREATE TABLE \"shop_outboxevent\" (
             \"id\"             char(32)     NOT NULL PRIMARY KEY,
             \"aggregate_type\" varchar(100) NOT NULL,
             \"aggregate_id\"   varchar(100) NOT NULL,
             \"event_type\"     varchar(100) NOT NULL,
             \"payload\"        text         NOT NULL CHECK ((JSON_VALID(\"payload\") OR \"payload\" IS NULL)),
             \"created_at\"     datetime     NOT NULL,
             \"processed\"      bool         NOT NULL)",
    )
    .await;
    scene.adopt(
        "shop_outboxevent",
        &[("to = \"kafka:{aggregate_type}\"", "to = \"webhook:{aggregate_type}\"")],
        &["webhook:order"],
    );
    scene.fail_now_and_then();
    let _relay = scene.relay();
    scene
        .produce(producer!(
            "db.execute('INSERT INTO shop_outboxevent VALUES (?, ?, ?, ?, ?, ?, ?)', (uuid.uuid4().hex, 'order', \
             f'order-{n % 50}', 'order.placed', json.dumps({'n': n}), \
             datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%d %H:%M:%S.%f'), False))"
        ))
        .await;
    scene.everything_arrives("SELECT count(*) FROM shop_outboxevent WHERE NOT processed").await;
    let processed = "SELECT count(*) FROM shop_outboxevent WHERE processed = 1";
    assert_eq!(scene.count(processed).await, ROWS as i64);
}

/// Two relays of one process share the file with its producer: one for the table, one for Postroom's own outbox.
#[tokio::test]
async fn further_destinations_of_rows_are_delivered_while_producers_write() {
    let scene =
        set("CREATE TABLE outbox (id INTEGER PRIMARY KEY, payload TEXT NOT NULL, sent_at TEXT)")
            .await;
    scene.adopt(
        "outbox",
        &[("to = \"kafka:events\"", "to = [\"webhook:events\", \"webhook:audit\"]")],
        &["webhook:events", "webhook:audit"],
    );
    scene.fail_now_and_then();
    let _relay = scene.relay();
    scene
        .produce(producer!(
            "db.execute('INSERT INTO outbox (payload) VALUES (?)', (json.dumps({'n': n}),))"
        ))
        .await;
    scene.everything_arrives("SELECT count(*) FROM outbox WHERE sent_at IS NULL").await;
    let unsent = "SELECT count(*) FROM integration_outbox WHERE status <> 'SENT'";
    scene.everything_arrives(unsent).await;
    let audited = "SELECT count(DISTINCT payload) FROM integration_outbox WHERE integration_type = 'webhook:audit'";
    assert_eq!(scene.count(audited).await, ROWS as i64);
}

/// A table of a Go or Python worker: times in whole seconds by the database's own clock, bodies as bytes, and a unique
/// index in place of a primary key.
#[tokio::test]
async fn a_table_with_times_in_seconds_is_adopted_and_delivered() {
    let scene = set("CREATE TABLE event_queue (
             uuid        TEXT NOT NULL UNIQUE,
             event_name  TEXT NOT NULL,
             body        BLOB NOT NULL,
             state       TEXT NOT NULL DEFAULT 'NEW',
             retries     INT  NOT NULL DEFAULT 0,
             run_at      INT  NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INT)),
             created_at  INT  NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INT)),
             finished_at INT);
         INSERT INTO event_queue (uuid, event_name, body, state)
         VALUES ('a', 'old', x'7b7d', 'DONE'), ('b', 'old', x'7b7d', 'FAILED')")
    .await;
    let layout = scene.adopt(
        "event_queue",
        &[("to = \"kafka:events\"", "to = \"webhook:events\"")],
        &["webhook:events"],
    );
    assert!(layout.contains("run_at = \"$due_ms / 1000\""), "{layout}");
    scene.fail_now_and_then();
    let _relay = scene.relay();
    scene
        .produce(producer!(
            "db.execute('INSERT INTO event_queue (uuid, event_name, body) VALUES (?, ?, ?)', \
             (str(uuid.uuid4()), 'order.placed', json.dumps({'n': n}).encode()))"
        ))
        .await;
    scene.everything_arrives("SELECT count(*) FROM event_queue WHERE state = 'NEW'").await;
    let odd = "SELECT count(*) FROM event_queue WHERE abs(run_at - created_at) > 3600";
    assert_eq!(scene.count(odd).await, 0, "no time is of another unit");
    assert_eq!(scene.count("SELECT count(*) FROM event_queue WHERE state = 'FAILED'").await, 1);
}

/// Where nothing says what a number counts, the proposal says that it guesses.
#[tokio::test]
async fn what_an_empty_table_cannot_tell_is_said_to_be_a_guess() {
    let scene = set("CREATE TABLE queue (id INTEGER PRIMARY KEY, body TEXT NOT NULL, created_at INTEGER NOT NULL,
                                         due_at INTEGER NOT NULL DEFAULT (strftime('%s', 'now')),
                                         done INTEGER NOT NULL DEFAULT 0)").await;
    let proposed = scene.run(&["adopt", "queue"]);
    assert!(proposed.contains("whether created_at counts seconds or milliseconds"), "{proposed}");
    assert!(proposed.contains("open = \"m.done IS NOT TRUE\""), "{proposed}");
}
