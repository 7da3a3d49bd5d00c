//! Tables that nobody here designed: outboxes of public projects, adopted by what `postroom adopt` proposes, their
//! producers unchanged.
//!
//! Names, types and values are facts about those projects; every statement here is in our own words.

use crate::command::Folder;
use crate::faults_outbox::SOON;
use postroom_testkit::{
    Behaviour, OrSkip as _, Postgres, Process, Receiver, Request, TestDatabase, eventually,
    python_with,
};
use std::collections::BTreeSet;
use std::process::Command;

const ROWS: usize = 1_000;

/// A table of somebody else's, and what Postroom makes of it.
struct Scene {
    database: TestDatabase,
    receiver: Receiver,
    folder: Folder,
}

impl Scene {
    async fn set(table: &str) -> Self {
        let database = Postgres::shared().await.database().await;
        database.client().await.batch_execute(table).await.unwrap();
        Self { database, receiver: Receiver::start(), folder: Folder::new() }
    }

    /// Runs a command that must succeed, and returns what it printed.
    fn run(&self, words: &[&str]) -> String {
        let output = self.folder.command(words).env("DATABASE_URL", self.database.url()).output();
        let output = output.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {printed}{errors}");
        printed
    }

    /// Adopts the table: the proposal with what the user has to choose, which is where its rows go.
    fn adopt(&self, table: &str, chosen: &[(&str, &str)], integrations: &[&str]) -> String {
        let mut text = self.run(&["adopt", table]);
        for (proposed, instead) in chosen {
            assert!(text.contains(proposed), "no {proposed} in\n{text}");
            text = text.replace(proposed, instead);
        }
        text.push_str("\n[relay]\nclaim_time = \"2s\"\n");
        text.push_str("retry = { base = \"50ms\", cap = \"200ms\", jitter = \"0s\" }\n");
        text.push_str("[server]\nlisten = \"127.0.0.1:0\"\n");
        for name in integrations {
            text.push_str(&format!(
                "[integrations.\"{name}\"]\nurl = \"{}\"\nallow_addresses = [\"127.0.0.0/8\"]\n",
                self.receiver.url()
            ));
        }
        self.folder.write("postroom.toml", &text);
        self.run(&["migrate", "--dry-run"]);
        self.run(&["migrate"]);
        self.run(&["check"]);
        text
    }

    fn relay(&self) -> Process {
        let mut command = self.folder.command(&["run"]);
        Process::spawn(command.env("DATABASE_URL", self.database.url()))
    }

    /// Runs a producer to its end. It inserts as the project does.
    async fn produce(&self, script: &str) {
        let mut command = Command::new(python_with(&["psycopg[binary]==3.2.10"]).or_skip());
        command.arg(self.folder.write("producer.py", script)).arg(ROWS.to_string());
        let mut producer = Process::spawn(command.env("DATABASE_URL", self.database.url()));
        assert!(producer.wait(SOON).await.success(), "{}", producer.stderr());
    }

    /// What has been delivered. A check asks a receiver too, and sends nothing.
    fn deliveries(&self) -> Vec<Request> {
        let requests = self.receiver.requests().into_iter();
        requests.filter(|request| request.method == "POST").collect()
    }

    async fn count(&self, sql: &str) -> i64 {
        self.database.client().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Waits until the project's own question finds nothing, and checks what has arrived.
    async fn everything_arrives(&self, unsent: &str) {
        eventually("nothing unsent", SOON, async || (self.count(unsent).await == 0).then_some(()))
            .await;
        let numbers: BTreeSet<u64> =
            self.deliveries().iter().map(|one| one.json()["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..ROWS as u64).collect());
    }

    fn fail_now_and_then(&self) {
        self.receiver.next((0..3 * ROWS).map(|number| match number % 10 {
            9 => Behaviour::Answer(503),
            _ => Behaviour::Accept,
        }));
    }
}

/// The table `outbox_kafka` of <https://github.com/tomorrow-one/transactional-outbox> (Java, Apache-2.0), by its
/// documented columns: a key from a sequence, a topic, a body in bytes, headers, and `processed`, which is null
/// until its processor has sent the row. Its repository writes `created` by the clock of its own process, in a
/// column without a zone, and asks for rows whose `processed` is null.
#[tokio::test]
async fn the_outbox_of_tomorrows_transactional_outbox_is_adopted_and_delivered() {
    let scene = Scene::set(
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

/// The table `cap.published` of <https://github.com/dotnetcore/CAP> (.NET, MIT), by the columns that its PostgreSQL
/// storage names: a number that the process makes, the message as JSON text in `Content`, its state as a word in
/// `StatusName`. A row is `Scheduled` when it is stored and `Succeeded` when it was published. What is still to be
/// sent are rows of its version that are `Scheduled` or `Failed` with retries left.
#[tokio::test]
async fn the_published_messages_of_cap_are_adopted_and_delivered() {
    let scene = Scene::set(
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
