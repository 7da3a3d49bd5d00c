//! An outbox on a real database, and relays on it in processes of their own.

use crate::command::Folder;
use postroom_core::{MessageId, NewMessage, Record, Store};
use postroom_store::OpenOptions;
use postroom_testkit::{
    MariaDatabase, MariaDb, Postgres, Process, Receiver, TestDatabase, eventually,
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, MySqlConnection};
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_postgres::Client;

/// Long enough for a loaded machine; nothing waits this long when all is well.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A claim time that a test can wait for, and how it is written.
pub(crate) const CLAIM_TIME: Duration = Duration::from_secs(2);
pub(crate) const SHORT_CLAIMS: &str = "claim_time = \"2s\"";

/// A migrated, empty outbox.
pub(crate) struct Outbox {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) folder: Folder,
    database: Database,
    relays: AtomicUsize,
}

enum Database {
    MariaDb(MariaDatabase),
    Postgres(TestDatabase),
    Sqlite,
}

impl Outbox {
    pub(crate) async fn mariadb() -> Self {
        Self::on_mariadb(MariaDb::shared().await.database().await).await
    }

    /// On a MariaDB of the test's own, or one of several that are one database.
    pub(crate) async fn on_mariadb(database: MariaDatabase) -> Self {
        let url = database.url().to_owned();
        Self::new(Folder::new(), Database::MariaDb(database), &url).await
    }

    pub(crate) async fn postgres() -> Self {
        Self::on(Postgres::shared().await).await
    }

    /// On a server of the test's own, which it can break.
    pub(crate) async fn on(server: &Postgres) -> Self {
        Self::on_postgres(server.database().await).await
    }

    /// On a database of PostgreSQL, where there may be an outbox already.
    pub(crate) async fn on_postgres(database: TestDatabase) -> Self {
        // Another name than the relays', so that their connections can be told from this one.
        let url = format!("{}?application_name=test", database.url());
        Self::new(Folder::new(), Database::Postgres(database), &url).await
    }

    pub(crate) async fn sqlite() -> Self {
        let folder = Folder::new();
        let url = sqlite_url(&folder);
        Self::new(folder, Database::Sqlite, &url).await
    }

    async fn new(folder: Folder, database: Database, url: &str) -> Self {
        folder.run(&["migrate", "--database", url]).ok();
        let store = postroom_store::open(url, &OpenOptions::default()).await.unwrap();
        Self { store, folder, database, relays: AtomicUsize::new(0) }
    }

    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    pub(crate) fn url(&self) -> String {
        match &self.database {
            Database::MariaDb(database) => database.url().to_owned(),
            Database::Postgres(database) => database.url().to_owned(),
            Database::Sqlite => sqlite_url(&self.folder),
        }
    }

    /// Starts `postroom run` with these keys in `[relay]` and these integrations.
    pub(crate) fn relay(&self, keys: &str, integrations: &str) -> Process {
        Process::spawn(&mut self.relay_command(&self.configure(keys, integrations)))
    }

    /// Starts it with another way to the database.
    pub(crate) fn relay_at(&self, url: &str, keys: &str, integrations: &str) -> Process {
        let config = self.configure_at(url, keys, integrations);
        Process::spawn(&mut self.relay_command(&config))
    }

    /// The command that runs a relay with this configuration.
    pub(crate) fn relay_command(&self, config: &str) -> Command {
        let mut command = self.folder.command(&["run", "--config", config]);
        command.env("RUST_LOG", "info,postroom_relay=debug");
        command
    }

    /// Writes a configuration and returns its name.
    pub(crate) fn configure(&self, keys: &str, integrations: &str) -> String {
        self.configure_at(&self.url(), keys, integrations)
    }

    /// The same with another way to the database.
    pub(crate) fn configure_at(&self, url: &str, keys: &str, integrations: &str) -> String {
        let name = format!("relay-{}.toml", self.relays.fetch_add(1, Ordering::AcqRel));
        let text = format!(
            "[database]\nurl = \"{url}\"\n[relay]\n{keys}\n[server]\nlisten = \"127.0.0.1:0\"\n\
             {integrations}\n"
        );
        self.folder.write(&name, &text);
        name
    }

    /// Enqueues `count` messages to `integration`, in one transaction where there is one.
    pub(crate) async fn enqueue(&self, integration: &str, count: usize) -> Vec<MessageId> {
        let messages =
            (0..count).map(|n| NewMessage::new(integration, "order.created.v1").json(&n)).collect();
        let enqueued = match &self.database {
            Database::MariaDb(database) => {
                let mut connection = database.connection().await;
                let mut tx = connection.begin().await.unwrap();
                let enqueued = postroom::enqueue_all(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
                enqueued
            }
            Database::Postgres(database) => {
                let mut client = database.client().await;
                let mut tx = client.transaction().await.unwrap();
                let enqueued = postroom::enqueue_all(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
                enqueued
            }
            Database::Sqlite => {
                let mut connection = self.sqlite_connection().await;
                let mut tx = connection.begin().await.unwrap();
                let enqueued = postroom::enqueue_all(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
                enqueued
            }
        };
        enqueued.into_iter().map(postroom::Enqueued::into_id).collect()
    }

    pub(crate) async fn record(&self, id: &MessageId) -> Record {
        self.store.find(id).await.unwrap().expect("the message is there")
    }

    pub(crate) async fn records(&self, ids: &[MessageId]) -> Vec<Record> {
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            records.push(self.record(id).await);
        }
        records
    }

    pub(crate) async fn wait_for(&self, id: &MessageId, status: &str) -> Record {
        eventually(&format!("{id} to be {status}"), SOON, async || {
            Some(self.record(id).await).filter(|record| record.status == status)
        })
        .await
    }

    pub(crate) async fn wait_for_all(&self, ids: &[MessageId], status: &str) {
        for id in ids {
            self.wait_for(id, status).await;
        }
    }

    /// Waits until relays hold so many messages.
    pub(crate) async fn wait_for_claims(&self, count: u64) {
        eventually(&format!("{count} claimed messages"), SOON, async || {
            let backlog = self.store.backlog().await.unwrap();
            (backlog.total(|lane| lane.claimed) == count).then_some(())
        })
        .await;
    }

    /// The database, on PostgreSQL.
    pub(crate) fn postgres_database(&self) -> &TestDatabase {
        match &self.database {
            Database::Postgres(database) => database,
            Database::MariaDb(_) | Database::Sqlite => panic!("this outbox is not on PostgreSQL"),
        }
    }

    /// A connection of the test's own, on PostgreSQL.
    pub(crate) async fn client(&self) -> Client {
        self.postgres_database().client().await
    }

    /// A connection of the test's own, on MariaDB.
    pub(crate) async fn mariadb_connection(&self) -> MySqlConnection {
        match &self.database {
            Database::MariaDb(database) => database.connection().await,
            Database::Postgres(_) | Database::Sqlite => panic!("this outbox is not on MariaDB"),
        }
    }

    /// A connection as another program has it, on SQLite.
    pub(crate) async fn sqlite_connection(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.folder.path().join("outbox.db"))
            .busy_timeout(SOON);
        SqliteConnection::connect_with(&options).await.unwrap()
    }

    /// Keeps every relay from recording what became of a message, until the value is dropped.
    pub(crate) async fn block_completion(&self, id: &MessageId) -> Blocked {
        match &self.database {
            // A claim does not touch the message's row, a completion does.
            Database::MariaDb(database) => {
                let mut connection = database.connection().await;
                sqlx::query("BEGIN").execute(&mut connection).await.unwrap();
                sqlx::query("SELECT seq FROM integration_outbox WHERE id = ? FOR UPDATE")
                    .bind(id.to_string())
                    .fetch_one(&mut connection)
                    .await
                    .unwrap();
                Blocked::MariaDb(connection)
            }
            Database::Postgres(database) => {
                let client = database.client().await;
                client.batch_execute("BEGIN").await.unwrap();
                let lock = "SELECT FROM core_outbox.integration_outbox WHERE id = $1 FOR UPDATE";
                client.query_one(lock, &[&id.as_uuid()]).await.unwrap();
                Blocked::Postgres(client)
            }
            // There is one writer at a time, and now it is this one.
            Database::Sqlite => {
                let mut connection = self.sqlite_connection().await;
                sqlx::query("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
                Blocked::Sqlite(connection)
            }
        }
    }

    /// Kills a relay. What it had sent to the database and is not done yet never will be: a
    /// statement that waits for a lock would otherwise still succeed after its sender's death.
    pub(crate) async fn crash(&self, relay: &mut Process) {
        relay.kill9();
        if let Database::MariaDb(database) = &self.database {
            eventually("the killed relay's statements to end", SOON, async || {
                let waiting = database.lock_waits().await;
                for id in &waiting {
                    // It may have ended by itself.
                    let kill = sqlx::AssertSqlSafe(format!("KILL {id}"));
                    let _ = sqlx::raw_sql(kill).execute(&mut database.connection().await).await;
                }
                waiting.is_empty().then_some(())
            })
            .await;
        }
        if let Database::Postgres(database) = &self.database {
            let client = database.client().await;
            eventually("the killed relay's connections to end", SOON, async || {
                let theirs = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                              WHERE datname = current_database() AND application_name = 'postroom'";
                let left: i64 = client.query_one(theirs, &[]).await.unwrap().get(0);
                (left == 0).then_some(())
            })
            .await;
        }
    }

    /// Stops the completion of a message on PostgreSQL in its middle, after it has written other
    /// rows and before it commits, until the answer is ended. Not by a lock: a completion passes
    /// over what is locked.
    pub(crate) async fn stall_completion(&self, id: &MessageId) -> Stalled {
        let client = self.client().await;
        let sql = format!(
            "CREATE TABLE stalled AS SELECT 1; \
             CREATE FUNCTION stall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 WHILE EXISTS (SELECT FROM public.stalled) LOOP \
                     PERFORM pg_sleep(0.01); \
                 END LOOP; \
                 RETURN NEW; END $$; \
             CREATE TRIGGER stall BEFORE UPDATE ON core_outbox.integration_outbox \
                 FOR EACH ROW WHEN (NEW.id = '{id}') EXECUTE FUNCTION stall();"
        );
        client.batch_execute(&sql).await.unwrap();
        Stalled(client)
    }

    /// Waits until a statement of a relay or a command waits for a lock of the test's.
    pub(crate) async fn wait_until_blocked(&self) {
        if let Database::MariaDb(database) = &self.database {
            return eventually("a statement that waits for a lock", SOON, async || {
                (!database.lock_waits().await.is_empty()).then_some(())
            })
            .await;
        }
        let client = self.client().await;
        eventually("a statement that waits for a lock", SOON, async || {
            let waiting = "SELECT count(*) FROM pg_stat_activity \
                           WHERE datname = current_database() AND application_name = 'postroom' \
                             AND wait_event_type = 'Lock'";
            let waiting: i64 = client.query_one(waiting, &[]).await.unwrap().get(0);
            (waiting > 0).then_some(())
        })
        .await;
    }
}

/// A completion that a test stops in its middle.
pub(crate) struct Stalled(Client);

impl Stalled {
    /// Waits until a relay's completion has come that far.
    pub(crate) async fn wait(&self) {
        eventually("a completion in its middle", SOON, async || {
            let stalled = "SELECT count(*) FROM pg_stat_activity \
                           WHERE datname = current_database() AND wait_event = 'PgSleep'";
            let stalled: i64 = self.0.query_one(stalled, &[]).await.unwrap().get(0);
            (stalled > 0).then_some(())
        })
        .await;
    }

    /// Lets it go on.
    pub(crate) async fn end(self) {
        self.0.batch_execute("DELETE FROM stalled").await.unwrap();
    }
}

/// A lock that a test holds; it ends with the value.
pub(crate) enum Blocked {
    MariaDb(MySqlConnection),
    Postgres(Client),
    Sqlite(SqliteConnection),
}

impl Blocked {
    /// Runs these statements in the transaction that holds the lock, on PostgreSQL.
    pub(crate) async fn execute(&self, sql: &str) {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await.unwrap(),
            Self::MariaDb(_) | Self::Sqlite(_) => panic!("this outbox is not on PostgreSQL"),
        }
    }

    pub(crate) async fn end(self) {
        match self {
            Self::MariaDb(mut connection) => {
                sqlx::query("ROLLBACK").execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Postgres(client) => client.batch_execute("ROLLBACK").await.unwrap(),
            Self::Sqlite(mut connection) => {
                sqlx::query("ROLLBACK").execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }
}

fn sqlite_url(folder: &Folder) -> String {
    format!("sqlite://{}", folder.path().join("outbox.db").display())
}

/// The integration `webhook:a`, delivered to `receiver`. Nothing but an answer ends an attempt
/// within a test, and what failed is tried again at once.
pub(crate) fn webhook(receiver: &Receiver, keys: &str) -> String {
    format!(
        "[integrations.\"webhook:a\"]\nurl = \"{}\"\ntimeout = \"5m\"\n\
         allow_addresses = [\"127.0.0.0/8\"]\n\
         retry = {{ base = \"1ms\", cap = \"1ms\", jitter = \"0s\" }}\n{keys}\n",
        receiver.url()
    )
}

/// How often each event id has arrived.
pub(crate) fn arrivals(receiver: &Receiver) -> HashMap<String, usize> {
    let mut arrivals = HashMap::new();
    for request in receiver.requests() {
        let event = request.header("idempotency-key").expect("the event id").to_owned();
        *arrivals.entry(event).or_default() += 1;
    }
    arrivals
}

/// The value of a metric without labels.
pub(crate) async fn metric(relay: &Process, name: &str) -> Option<u64> {
    let page = page(relay, "/metrics").await?;
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Whether a relay says that it can do its work.
pub(crate) async fn is_ready(relay: &Process) -> bool {
    page(relay, "/readyz").await.is_some_and(|page| page.starts_with("HTTP/1.1 200"))
}

/// Waits until a relay says so, or says the opposite.
pub(crate) async fn wait_until_ready(relay: &Process, ready: bool) {
    eventually(&format!("ready = {ready}"), SOON, async || {
        (is_ready(relay).await == ready).then_some(())
    })
    .await;
}

/// What a relay answers at one of its own addresses, with the answer's head.
pub(crate) async fn page(relay: &Process, path: &str) -> Option<String> {
    let line = relay.wait_for_line("serving /healthz", SOON).await;
    let address = line.rsplit("address=").next().unwrap().trim().to_owned();
    let mut stream = std::net::TcpStream::connect(&address).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    Some(page)
}
