//! A table on SQLite for the contract of layouts.

use super::tables::Described;
use postroom_core::Store;
use postroom_store::{MigrateOptions, OpenOptions};
use postroom_testkit::layout_contract::{End, LayoutHarness, Words};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row as _};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(super) struct Table {
    described: Described,
    folder: TempDir,
    by_hand: SqlitePool,
}

const NO_BACKGROUND: &str = "SENT is recorded at once on SQLite";
const NO_ROLES: &str = "SQLite has no roles: whoever may open the file may do everything";

impl Table {
    pub(super) async fn start(described: Described) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // As another program would connect: with the driver's defaults.
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("shop.db"))
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(20));
        let by_hand = SqlitePoolOptions::new().max_connections(1).connect_with(options).await;
        let table = Self { described, folder, by_hand: by_hand.expect("the file opens") };
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

    /// The same table, described otherwise.
    pub(super) fn described_as(self, described: Described) -> Self {
        Self { described, ..self }
    }

    pub(super) fn url(&self) -> String {
        format!("sqlite://{}", self.folder.path().join("shop.db").display())
    }
}

impl LayoutHarness for Table {
    fn name(&self) -> String {
        format!("{} on SQLite", self.described.name)
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
        let done = postroom_store::migrate_with(&self.url(), &options).await;
        let done = done.unwrap_or_else(|error| panic!("migrated: {error}"));
        done.applied.iter().map(ToString::to_string).chain(done.done).collect()
    }

    async fn remove(&self) {
        postroom_store::remove_ledger(&self.url(), &self.described.layout).await.expect("removed");
    }

    async fn store(&self) -> Arc<dyn Store> {
        let layout = Some(Arc::new(self.described.layout.clone()));
        let options = OpenOptions { layout, ..OpenOptions::default() };
        postroom_store::open(&self.url(), &options).await.expect("store")
    }

    async fn store_in_background(&self) -> Result<Arc<dyn Store>, &'static str> {
        Err(NO_BACKGROUND)
    }

    async fn store_of_relay(&self) -> Result<Arc<dyn Store>, &'static str> {
        Err(NO_ROLES)
    }

    async fn execute(&self, sql: &str) -> Result<(), String> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.by_hand).await;
        done.map(|_| ()).map_err(|error| error.to_string())
    }

    /// One writer at a time: what is not committed yet is not there yet, in no sense of the word.
    async fn execute_uncommitted(&self, sql: &str) -> End {
        let (pool, sql) = (self.by_hand.clone(), sql.to_owned());
        Box::pin(async move {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.expect("committed");
        })
    }

    async fn value(&self, sql: &str) -> Option<String> {
        let sql = format!("SELECT CAST(({sql}) AS TEXT)");
        let row = sqlx::query(AssertSqlSafe(sql.clone())).fetch_optional(&self.by_hand).await;
        row.unwrap_or_else(|error| panic!("{sql}: {error}")).and_then(|row| row.get(0))
    }

    async fn described(&self) -> Vec<String> {
        let sql = format!(
            "SELECT sql FROM sqlite_schema WHERE tbl_name = '{}' AND type IN ('table', 'index') AND sql IS NOT NULL
             ORDER BY 1",
            self.words().table
        );
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_all(&self.by_hand)
            .await
            .expect("the catalogue")
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

    async fn execute_unseen(&self, sql: &str) {
        let triggers =
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND sql LIKE '% AFTER %'";
        let triggers: Vec<(String, String)> =
            sqlx::query_as(triggers).fetch_all(&self.by_hand).await.expect("the triggers");
        for (name, _) in &triggers {
            self.execute(&format!("DROP TRIGGER {name}")).await.expect("dropped");
        }
        self.execute(sql).await.expect("restored");
        for (_, sql) in &triggers {
            self.execute(sql).await.expect("made again");
        }
    }

    async fn expire_claims(&self) {
        let ledger = self.described.layout.ledger_schema();
        self.execute(&format!("UPDATE {ledger}_relay SET until = 0")).await.expect("expired");
    }

    async fn left_in_ledger(&self) -> u64 {
        let ledger = self.described.layout.ledger_schema();
        let sql = format!(
            "SELECT (SELECT count(*) FROM {ledger}_parcel) + (SELECT count(*) FROM {ledger}_claim)
                    + (SELECT count(*) FROM {ledger}_delivery)"
        );
        self.value(&sql).await.expect("a count").parse().expect("a number")
    }

    async fn truncate(&self) {
        let table = self.words().table;
        let has_numbers = "SELECT count(*) FROM sqlite_schema WHERE name = 'sqlite_sequence'";
        self.execute(&format!("DELETE FROM {table}")).await.expect("emptied");
        if self.value(has_numbers).await.as_deref() == Some("1") {
            let sql = format!("DELETE FROM sqlite_sequence WHERE name = '{table}'");
            self.execute(&sql).await.expect("restarted");
        }
    }
}
