//! A table on MariaDB or MySQL for the contract of layouts.

use super::tables::Described;
use postroom_core::Store;
use postroom_store::{MigrateOptions, OpenOptions};
use postroom_testkit::layout_contract::{End, LayoutHarness, Words};
use postroom_testkit::{MariaDatabase, MariaDb, MySql};
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _};
use std::sync::Arc;
use uuid::Uuid;

/// Whose server it is.
#[derive(Clone, Copy)]
pub(super) enum Server {
    MariaDb,
    MySql,
}

impl Server {
    async fn database(self) -> MariaDatabase {
        match self {
            Self::MariaDb => MariaDb::shared().await.database().await,
            Self::MySql => MySql::shared().await.database().await,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }
}

/// They are dropped in this order.
pub(super) struct Table {
    pub(super) described: Described,
    server: Server,
    pub(super) by_hand: MySqlPool,
    pub(super) database: MariaDatabase,
    ledger: Ledger,
}

const NO_BACKGROUND: &str = "SENT is recorded at once on MariaDB and MySQL";

impl Table {
    pub(super) async fn start(described: Described, server: Server) -> Self {
        let database = server.database().await;
        let options: MySqlConnectOptions = database.url().parse().expect("a URL");
        // As a program of another kind would connect, far away.
        let options = options.pipes_as_concat(false).timezone(Some("+05:30".to_owned()));
        let by_hand = MySqlPoolOptions::new().max_connections(1).connect_with(options).await;
        let ledger = Ledger {
            server_url: database.url().replace(database.name(), "information_schema"),
            name: described.layout.ledger_database(database.name()),
        };
        let by_hand = by_hand.expect("a connection");
        let table = Self { described, server, by_hand, database, ledger };
        match table.described.made_by {
            Some(ddl) => table.execute(ddl).await.expect("the owner's statements"),
            None => {
                // Made as `migrate` makes it, and left without a ledger.
                table.migrate().await;
                table.remove().await;
            }
        }
        table
    }

    pub(super) fn described_as(self, described: Described) -> Self {
        Self { described, ..self }
    }

    pub(super) fn options(&self) -> OpenOptions {
        let layout = Some(Arc::new(self.described.layout.clone()));
        OpenOptions { layout, ..OpenOptions::default() }
    }

    /// The database that the ledger is.
    pub(super) fn ledger(&self) -> &str {
        &self.ledger.name
    }

    /// The triggers on the table: their names, the modes they were made in, and their statements.
    async fn triggers(&self, connection: &mut MySqlConnection) -> Vec<(String, String, String)> {
        // Texts are converted, or taken as they come: MySQL says that some are bytes.
        let names = "SELECT CONVERT(TRIGGER_NAME USING utf8mb4) FROM information_schema.TRIGGERS
                     WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = ? ORDER BY ACTION_ORDER";
        let names: Vec<String> = sqlx::query_scalar(names)
            .bind(self.words().table)
            .fetch_all(&mut *connection)
            .await
            .expect("the triggers");
        let mut triggers = Vec::new();
        for name in names {
            let show = AssertSqlSafe(format!("SHOW CREATE TRIGGER `{name}`"));
            let row = sqlx::raw_sql(show).fetch_one(&mut *connection).await.expect("a trigger");
            triggers.push((name, row.get_unchecked(1), row.get_unchecked(2)));
        }
        triggers
    }
}

impl LayoutHarness for Table {
    fn name(&self) -> String {
        format!("{} on {}", self.described.name, self.server.name())
    }

    fn words(&self) -> Words {
        self.described.words
    }

    fn has_triggers(&self) -> Result<(), &'static str> {
        Ok(())
    }

    async fn migrate(&self) -> Vec<String> {
        let options = MigrateOptions {
            layout: Some(Arc::new(self.described.layout.clone())),
            services: vec!["billing_event".to_owned()],
            ..MigrateOptions::default()
        };
        let done = postroom_store::migrate_with(self.database.url(), &options).await;
        let done =
            done.unwrap_or_else(|error| panic!("migrated: {}", postroom_core::with_causes(&error)));
        done.applied.iter().map(ToString::to_string).chain(done.done).collect()
    }

    async fn remove(&self) {
        postroom_store::remove_ledger(self.database.url(), &self.described.layout)
            .await
            .expect("removed");
    }

    async fn store(&self) -> Arc<dyn Store> {
        postroom_store::open(self.database.url(), &self.options()).await.expect("store")
    }

    async fn store_in_background(&self) -> Result<Arc<dyn Store>, &'static str> {
        Err(NO_BACKGROUND)
    }

    async fn store_of_relay(&self) -> Result<Arc<dyn Store>, &'static str> {
        let url = self.database.url();
        let grants = postroom_store::grants(url, Some(&self.described.layout)).expect("grants");
        let user = format!("relay_{}", &Uuid::new_v4().simple().to_string()[..20]);
        let default = match self.server {
            Server::MariaDb => "FOR",
            Server::MySql => "TO",
        };
        let user_sql = format!(
            "CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'secret'; \
             GRANT postroom_relay TO {user}@'127.0.0.1'; \
             SET DEFAULT ROLE postroom_relay {default} {user}@'127.0.0.1'"
        );
        // On a connection of its own: the statements may enter another database.
        let mut owner = self.database.connection().await;
        for sql in [grants, user_sql] {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut owner).await.expect("granted");
        }
        owner.close().await.expect("closed");
        let url = url.replace("root@", &format!("{user}:secret@"));
        Ok(postroom_store::open(&url, &self.options()).await.expect("store"))
    }

    async fn execute(&self, sql: &str) -> Result<(), String> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.by_hand).await;
        done.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn execute_uncommitted(&self, sql: &str) -> End {
        self.database.open_transaction(sql).await
    }

    async fn value(&self, sql: &str) -> Option<String> {
        let sql = format!("SELECT CAST(({sql}) AS CHAR)");
        let row = sqlx::raw_sql(AssertSqlSafe(sql.clone())).fetch_optional(&self.by_hand).await;
        row.unwrap_or_else(|error| panic!("{sql}: {error}")).and_then(|row| row.get(0))
    }

    async fn described(&self) -> Vec<String> {
        // It ends with the indexes, and names no trigger.
        let show = AssertSqlSafe(format!("SHOW CREATE TABLE {}", self.words().table));
        let row = sqlx::raw_sql(show).fetch_one(&self.by_hand).await.expect("the catalogue");
        let statement: String = row.get_unchecked(1);
        statement.lines().map(str::to_owned).collect()
    }

    async fn enqueue(
        &self,
        event: &str,
        stream: &str,
        payload: &str,
    ) -> Result<(String, bool), &'static str> {
        if self.described.layout.insert.is_empty() {
            return Err("its layout has no `insert`");
        }
        let mut message = postroom_core::NewMessage::new(self.words().lane, "order.created")
            .event_id(event)
            .raw(payload);
        message.stream_id = self.described.held("$stream", stream).map(str::to_owned);
        message.tenant_id = self.described.held("$tenant_id", "acme").map(str::to_owned);
        let mut tx = self.by_hand.begin().await.expect("begun");
        let outbox = postroom::Outbox::of_table(self.words().table);
        let enqueued = outbox.enqueue(&mut tx, message).await.expect("enqueued");
        tx.commit().await.expect("committed");
        Ok(match enqueued {
            postroom_core::Enqueued::New(id) => (id.to_string(), true),
            postroom_core::Enqueued::Duplicate(id) => (id.to_string(), false),
        })
    }

    /// Triggers cannot be turned off here: they are dropped, and made again as they were.
    async fn execute_unseen(&self, sql: &str) {
        let mut owner = self.database.connection().await;
        let triggers = self.triggers(&mut owner).await;
        assert!(!triggers.is_empty(), "there is nothing to be unseen by");
        let mut run: Vec<String> =
            triggers.iter().map(|(name, ..)| format!("DROP TRIGGER `{name}`")).collect();
        run.push(sql.to_owned());
        for (_, mode, statement) in triggers {
            run.push(format!("SET SESSION sql_mode = '{mode}'"));
            run.push(statement);
        }
        for sql in run {
            let done = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut owner).await;
            done.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        owner.close().await.expect("closed");
    }

    async fn expire_claims(&self) {
        let sql = format!("UPDATE {}.outbox_relay SET until = '2000-01-01'", self.ledger());
        self.execute(&sql).await.expect("expired");
    }

    async fn left_in_ledger(&self) -> u64 {
        let ledger = self.ledger();
        let sql = format!(
            "SELECT (SELECT count(*) FROM {ledger}.outbox_parcel) + (SELECT count(*) FROM {ledger}.outbox_claim)
                  + (SELECT count(*) FROM {ledger}.outbox_delivery)"
        );
        self.value(&sql).await.expect("a count").parse().expect("a number")
    }

    async fn truncate(&self) {
        let sql = format!("TRUNCATE TABLE {}", self.words().table);
        self.execute(&sql).await.expect("emptied");
    }
}

/// The database of a ledger, dropped with the value, whoever is still connected to it.
struct Ledger {
    /// The server's, without a database of the test.
    server_url: String,
    name: String,
}

impl Drop for Ledger {
    fn drop(&mut self) {
        let (url, name) = (self.server_url.clone(), self.name.clone());
        // As the test's own database is dropped: a destructor cannot await.
        let dropping = std::thread::spawn(move || -> Result<(), sqlx::Error> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(drop_ledger(&url, &name))
        });
        // Best effort: the server may be stopped, or gone.
        let _ = dropping.join();
    }
}

async fn drop_ledger(server_url: &str, name: &str) -> Result<(), sqlx::Error> {
    let mut connection = MySqlConnection::connect(server_url).await?;
    let connected = "SELECT CAST(ID AS SIGNED) FROM information_schema.PROCESSLIST WHERE DB = ?";
    let connected: Vec<i64> =
        sqlx::query_scalar(connected).bind(name).fetch_all(&mut connection).await?;
    for id in connected {
        // It may have ended by itself.
        let kill = AssertSqlSafe(format!("KILL {id}"));
        let _ = sqlx::raw_sql(kill).execute(&mut connection).await;
    }
    let drop = format!("SET lock_wait_timeout = 5; DROP DATABASE IF EXISTS `{name}`");
    sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await?;
    Ok(())
}
