//! Tables that nobody here designed: outboxes of public projects, adopted by what `postroom adopt` proposes, their
//! producers unchanged.
//!
//! Names, types and values are facts about those projects; every statement here is in our own words.

mod on_mariadb;
mod on_sqlite;
mod scene;

use crate::faults_outbox::SOON;
use postroom_testkit::{OrSkip as _, Postgres, TestDatabase, eventually, python_with};
use scene::{Adopted, ROWS, Scene};

/// A database on PostgreSQL with this table.
async fn set(table: &str) -> Scene<TestDatabase> {
    let database = Postgres::shared().await.database().await;
    database.client().await.batch_execute(table).await.unwrap();
    Scene::of(database)
}

impl Adopted for TestDatabase {
    fn url(&self) -> &str {
        self.url()
    }

    fn python(&self) -> std::path::PathBuf {
        python_with(&["psycopg[binary]==3.2.10"]).or_skip()
    }

    async fn count(&self, sql: &str) -> i64 {
        self.client().await.query_one(sql, &[]).await.unwrap().get(0)
    }
}

/// The table `outbox_kafka` of <https://github.com/tomorrow-one/transactional-outbox> (Java, Apache-2.0), by its
/// documented columns: a key from a sequence, a topic, a body in bytes, headers, and `processed`, which is null
/// until its processor has sent the row. Its repository writes `created` by the clock of its own process, in a
/// column without a zone, and asks for rows whose `processed` is null.
#[tokio::test]
async fn the_outbox_of_tomorrows_transactional_outbox_is_adopted_and_delivered() {
    let scene = set(
        "CREATE SEQUENCE outbox_kafka_id_seq;
         CREATE TABLE outbox_kafka (
             id        bigint       NOT NULL DEFAULT nextval('outbox_kafka_id_seq'),
             created   timestamp    NOT NULL,
             processed timestamp,
             topic     varchar(128) NOT NULL,
             key       varchar(128),
             value     bytea        NOT NULL,
             headers   jsonb,
             PRIMARY KEY (id));
         CREATE INDEX idx_outbox_kafka_not_processed ON outbox_kafka (id) WHERE processed IS NULL;
         INSERT INTO outbox_kafka (created, processed, topic, key, value)
         VALUES (now() - interval '1 day', now() - interval '1 day', 'orders', 'old', '{\"n\": -1}');",
    )
    .await;
    scene.adopt(
        "outbox_kafka",
        &[("to = \"kafka:{topic}\"", "to = \"webhook:{topic}\"")],
        &["webhook:orders", "webhook:payments"],
    );
    scene.fail_now_and_then();
    let _relay = scene.relay();
    // Its clients set the zone of their session, as Java's driver does.
    scene
        .produce(
            r#"
import datetime, json, os, sys
import psycopg
from psycopg.types.json import Jsonb

with psycopg.connect(os.environ["DATABASE_URL"], options="-c TimeZone=America/New_York") as connection:
    for n in range(int(sys.argv[1])):
        connection.execute(
            "INSERT INTO outbox_kafka (created, topic, key, value, headers) VALUES (%s, %s, %s, %s, %s)",
            (
                datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None),
                "orders" if n % 3 else "payments",
                f"order-{n % 50}",
                json.dumps({"n": n}).encode(),
                Jsonb({"x-origin": "shop"}),
            ),
        )
        if n % 20 == 19:
            connection.commit()
"#,
        )
        .await;
    scene.everything_arrives("SELECT count(*) FROM outbox_kafka WHERE processed IS NULL").await;
    let request = &scene.deliveries()[0];
    assert_eq!(request.header("x-origin"), Some("shop"));
    assert!(request.header("postroom-stream").unwrap().starts_with("order-"));
    let odd = "SELECT count(*) FROM outbox_kafka WHERE processed < now() AT TIME ZONE 'UTC' - interval '2 days' \
               OR processed > now() AT TIME ZONE 'UTC' + interval '1 day'";
    assert_eq!(scene.count(odd).await, 0);
    let before = "SELECT count(*) FROM outbox_kafka WHERE key = 'old'";
    assert_eq!(scene.count(before).await, 1, "what was sent before is left alone");
}

/// Whatever a producer writes, its INSERT goes through: what cannot be delivered is dead, and the rest is delivered.
#[tokio::test]
async fn a_body_in_bytes_that_is_no_json_fails_no_producer_and_holds_up_no_other() {
    let scene = set("CREATE TABLE outbox (
             id bigserial PRIMARY KEY, topic text NOT NULL, value bytea NOT NULL,
             created timestamp NOT NULL DEFAULT now(), processed timestamp);")
    .await;
    let chosen = ("to = \"kafka:{topic}\"", "to = \"webhook:{topic}\"");
    scene.adopt("outbox", &[chosen], &["webhook:orders"]);
    let _relay = scene.relay();
    let insert = "INSERT INTO outbox (topic, value)
                  VALUES ('orders', '{\"n\": 1}'), ('orders', 'no JSON'), ('orders', '\\xff00'),
                         ('orders', '{\"n\": 2}')";
    scene.database.client().await.batch_execute(insert).await.unwrap();
    eventually("both to be delivered", SOON, async || {
        (scene.count("SELECT count(*) FROM outbox WHERE processed IS NOT NULL").await == 2)
            .then_some(())
    })
    .await;
    let dead = eventually("both others to be dead", SOON, async || {
        let printed = scene.run(&["messages", "list", "--status", "dead", "--json"]);
        let dead: serde_json::Value = serde_json::from_str(&printed).ok()?;
        (dead.as_array()?.len() == 2).then_some(printed)
    })
    .await;
    assert!(dead.contains("the body is no JSON"), "{dead}");
    assert_eq!(scene.deliveries().len(), 2);
}

/// The table `cap.published` of <https://github.com/dotnetcore/CAP> (.NET, MIT), by the columns that its PostgreSQL
/// storage names: a number that the process makes, the message as JSON text in `Content`, its state as a word in
/// `StatusName`. A row is `Scheduled` when it is stored and `Succeeded` when it was published. What is still to be
/// sent are rows of its version that are `Scheduled` or `Failed` with retries left.
#[tokio::test]
async fn the_published_messages_of_cap_are_adopted_and_delivered() {
    let scene = set(
        r#"CREATE SCHEMA cap;
           CREATE TABLE cap.published (
               "Id"         bigint       NOT NULL PRIMARY KEY,
               "Version"    varchar(20)  NOT NULL,
               "Name"       varchar(200) NOT NULL,
               "Content"    text,
               "Retries"    int          NOT NULL,
               "Added"      timestamp    NOT NULL,
               "ExpiresAt"  timestamp,
               "StatusName" varchar(50)  NOT NULL);
           INSERT INTO cap.published
           VALUES (1, 'v1', 'order.placed', '{"n": -1}', 0, now(), now() + interval '1 day', 'Succeeded'),
                  (2, 'v1', 'order.placed', '{"n": 0}', 0, now(), NULL, 'Scheduled');"#,
    )
    .await;
    scene.adopt(
        "cap.published",
        &[("to = \"kafka:events\"", "to = \"webhook:events\"")],
        &["webhook:events"],
    );
    scene.fail_now_and_then();
    let _relay = scene.relay();
    scene
        .produce(
            r#"
import datetime, json, os, sys
import psycopg

def now():
    return datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)

with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    for n in range(1, int(sys.argv[1])):
        connection.execute(
            """INSERT INTO cap.published
                   ("Id", "Version", "Name", "Content", "Retries", "Added", "ExpiresAt", "StatusName")
               VALUES (%s, 'v1', 'order.placed', %s, 0, %s, NULL, 'Scheduled')""",
            (2_000_000_000_000_000_000 + n, json.dumps({"n": n}), now()),
        )
        if n % 20 == 19:
            connection.commit()
"#,
        )
        .await;
    scene
        .everything_arrives(
            r#"SELECT count(*) FROM cap.published
               WHERE "Version" = 'v1' AND "Retries" < 50 AND "StatusName" IN ('Failed', 'Scheduled')"#,
        )
        .await;
    let succeeded = r#"SELECT count(*) FROM cap.published WHERE "StatusName" = 'Succeeded'"#;
    assert_eq!(scene.count(succeeded).await, ROWS as i64 + 1);
    assert_eq!(scene.deliveries()[0].header("postroom-event-type"), Some("order.placed"));
}
