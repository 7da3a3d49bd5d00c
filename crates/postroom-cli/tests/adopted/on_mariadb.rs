//! The same on MariaDB and MySQL.

use super::scene::{Adopted, ROWS, Scene};
use postroom_testkit::{MariaDatabase, MariaDb, MySql, OrSkip as _, python_with};
use sqlx::AssertSqlSafe;
use std::path::PathBuf;

/// A database with somebody else's table, whose ledger goes with it.
struct Database {
    database: MariaDatabase,
    ledger: String,
}

impl Adopted for Database {
    fn url(&self) -> &str {
        self.database.url()
    }

    fn python(&self) -> PathBuf {
        python_with(&["PyMySQL==1.1.2"]).or_skip()
    }

    async fn count(&self, sql: &str) -> i64 {
        let mut connection = self.database.connection().await;
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap()
    }
}

impl Scene<Database> {
    /// The relay has stopped by now.
    async fn leave(self) {
        let drop = format!("DROP DATABASE {}", self.database.ledger);
        let mut connection = self.database.database.connection().await;
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await.unwrap();
    }
}

async fn set(database: MariaDatabase, name: &str, table: &'static str) -> Scene<Database> {
    sqlx::raw_sql(table).execute(&mut database.connection().await).await.unwrap();
    let ledger = format!("postroom_{}_{name}", database.name());
    Scene::of(Database { database, ledger })
}

/// What producers have in common: a connection in a time zone of its own, and a commit for every twenty rows.
macro_rules! producer {
    ($insert:literal) => {
        concat!(
            "import datetime, json, os, sys, time, uuid\nfrom urllib.parse import urlparse\nimport pymysql\n",
            "url = urlparse(os.environ['DATABASE_URL'])\n",
            "db = pymysql.connect(host=url.hostname, port=url.port, user=url.username, password=url.password or '',\n",
            "                     database=url.path[1:], init_command=\"SET time_zone = '-05:00'\")\n",
            "cursor = db.cursor()\n",
            "for n in range(int(sys.argv[1])):\n    ",
            $insert,
            "\n    if n % 20 == 19:\n        db.commit()\n",
        )
    };
}

/// The table `message` of <https://github.com/eventuate-tram/eventuate-tram-core> (Java, Apache-2.0), by its documented
/// columns: the producer's id, where it goes, headers and body as texts, `published`, which its own relay sets to 1,
/// and the time of creation in milliseconds.
async fn eventuate(database: MariaDatabase) {
    let scene = set(
        database,
        "message",
        "CREATE TABLE message (
             id                VARCHAR(255) NOT NULL,
             destination       LONGTEXT     NOT NULL,
             headers           LONGTEXT     NOT NULL,
             payload           LONGTEXT     NOT NULL,
             published         SMALLINT     DEFAULT 0,
             message_partition SMALLINT,
             creation_time     BIGINT,
             PRIMARY KEY (id)) DEFAULT CHARACTER SET utf8mb4;
         CREATE INDEX message_published_idx ON message (published, id);
         INSERT INTO message (id, destination, headers, payload, published, creation_time)
         VALUES ('old', 'orders', '{}', '{\"n\": -1}', 1, 1763500000000)",
    )
    .await;
    scene.adopt(
        "message",
        &[("to = \"kafka:{destination}\"", "to = \"webhook:{destination}\"")],
        &["webhook:orders", "webhook:payments"],
    );
    scene.fail_now_and_then();
    let relay = scene.relay();
    scene
        .produce(producer!(
            "cursor.execute('INSERT INTO message (id, destination, headers, payload, published, creation_time) \
             VALUES (%s, %s, %s, %s, 0, %s)', (f'{int(time.time() * 1000):016x}-{n:016x}', \
             'orders' if n % 3 else 'payments', json.dumps({'PARTITION_ID': f'order-{n % 50}'}), \
             json.dumps({'n': n}), int(time.time() * 1000)))"
        ))
        .await;
    scene.everything_arrives("SELECT count(*) FROM message WHERE published = 0").await;
    assert_eq!(scene.count("SELECT count(*) FROM message").await, ROWS as i64 + 1);
    assert!(scene.deliveries()[0].header("PARTITION_ID").unwrap().starts_with("order-"));
    drop(relay);
    scene.leave().await;
}

#[tokio::test]
async fn the_messages_of_eventuate_tram_are_adopted_and_delivered_on_mariadb() {
    eventuate(MariaDb::shared().await.database().await).await;
}

#[tokio::test]
async fn the_messages_of_eventuate_tram_are_adopted_and_delivered_on_mysql() {
    eventuate(MySql::shared().await.database().await).await;
}

/// The table of a program on an object mapper: a uuid in bytes, a status from a list, attempts, times without a zone,
/// and a foreign key.
#[tokio::test]
async fn a_table_with_a_uuid_in_bytes_and_a_status_is_adopted_and_delivered() {
    let scene = set(
        MariaDb::shared().await.database().await,
        "outbox_event",
        "CREATE TABLE orders (id BIGINT PRIMARY KEY AUTO_INCREMENT) ENGINE = InnoDB;
         INSERT INTO orders () VALUES ();
         CREATE TABLE outbox_event (
             id           BINARY(16)   NOT NULL PRIMARY KEY,
             orderId      BIGINT       NOT NULL,
             eventType    VARCHAR(100) NOT NULL,
             payload      JSON         NOT NULL,
             status       ENUM('NEW', 'SENT', 'FAILED') NOT NULL DEFAULT 'NEW',
             retryCount   INT          NOT NULL DEFAULT 0,
             nextRetryAt  DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
             lastError    TEXT,
             createdAt    TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
             FOREIGN KEY (orderId) REFERENCES orders (id)) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4",
    )
    .await;
    let layout = scene.adopt(
        "outbox_event",
        &[("to = \"kafka:events\"", "to = \"webhook:events\"")],
        &["webhook:events"],
    );
    assert!(layout.contains("retryCount = \"$attempts\""), "{layout}");
    scene.fail_now_and_then();
    let relay = scene.relay();
    scene
        .produce(producer!(
            "cursor.execute('INSERT INTO outbox_event (id, orderId, eventType, payload) VALUES (%s, 1, %s, %s)', \
             (uuid.uuid4().bytes, 'order.placed', json.dumps({'n': n}))); assert cursor.rowcount == 1"
        ))
        .await;
    scene.everything_arrives("SELECT count(*) FROM outbox_event WHERE status <> 'SENT'").await;
    let retried =
        "SELECT count(*) FROM outbox_event WHERE retryCount > 0 AND lastError IS NOT NULL";
    assert!(scene.count(retried).await > 0);
    let request = &scene.deliveries()[0];
    assert_eq!(request.header("postroom-event-type"), Some("order.placed"));
    assert_eq!(request.header("webhook-id").map(str::len), Some(36));
    drop(relay);
    scene.leave().await;
}
