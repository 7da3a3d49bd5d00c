//! The contract on SQLite.

use chrono::{DateTime, SecondsFormat, Utc};
use postroom_core::{MessageId, NewMessage, Store};
use postroom_store::OpenOptions;
use postroom_testkit::contract::{Commit, Harness, PlainRow, Save};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row as _};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

/// A migrated outbox in a file of its own, and a connection for changes by hand.
pub(crate) struct Sqlite {
    pub(crate) folder: TempDir,
    pub(crate) by_hand: SqlitePool,
}

pub(crate) async fn start() -> Sqlite {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = url(&folder);
    postroom_store::migrate(&url).await.expect("migrate");
    // As another program would connect: with the driver's defaults.
    let options = SqliteConnectOptions::new().filename(folder.path().join("outbox.db"));
    let by_hand = SqlitePoolOptions::new().max_connections(1).connect_with(options).await;
    Sqlite { folder, by_hand: by_hand.expect("the file opens") }
}

pub(crate) fn url(folder: &TempDir) -> String {
    format!("sqlite://{}", folder.path().join("outbox.db").display())
}

impl Sqlite {
    async fn open(&self, keep_sent: bool) -> Arc<dyn Store> {
        self.open_with(OpenOptions { keep_sent, ..OpenOptions::default() }).await
    }

    async fn open_with(&self, options: OpenOptions) -> Arc<dyn Store> {
        postroom_store::open(&url(&self.folder), &options).await.expect("the file opens")
    }

    async fn execute(&self, sql: String) -> Result<(), String> {
        let done = sqlx::query(AssertSqlSafe(sql)).execute(&self.by_hand).await;
        done.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn count(&self, table: &str) -> u64 {
        let sql = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&self.by_hand).await.expect("a count");
        count.unsigned_abs()
    }
}

impl Harness for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn store(&self) -> Arc<dyn Store> {
        self.open(true).await
    }

    async fn store_without_history(&self) -> Arc<dyn Store> {
        self.open(false).await
    }

    async fn store_that_remembers(&self, keep_sent: bool) -> Arc<dyn Store> {
        let remember_events = Duration::from_secs(3_600);
        self.open_with(OpenOptions { keep_sent, remember_events, ..OpenOptions::default() }).await
    }

    async fn insert(&self, row: &PlainRow) -> Result<MessageId, String> {
        let sql = AssertSqlSafe(row.insert_sql("integration_outbox"));
        let inserted = sqlx::query(sql).fetch_one(&self.by_hand).await;
        let id: String = inserted.map_err(|error| error.to_string())?.get(0);
        Ok(id.parse().expect("an id"))
    }

    async fn insert_or_skip(&self, row: &PlainRow) -> Result<(), String> {
        let row = row.values_sql("integration_outbox");
        self.execute(format!("INSERT OR IGNORE INTO {row}")).await
    }

    async fn set_status(&self, id: &MessageId, status: &str) -> Result<(), String> {
        self.execute(format!("UPDATE integration_outbox SET status = '{status}' WHERE id = '{id}'"))
            .await
    }

    async fn set_due_at(&self, id: &MessageId, due_at: DateTime<Utc>) {
        let due_at = due_at.to_rfc3339_opts(SecondsFormat::Millis, false);
        self.execute(format!(
            "UPDATE integration_outbox SET due_at = '{due_at}' WHERE id = '{id}'"
        ))
        .await
        .expect("updated");
    }

    async fn set_integration(&self, id: &MessageId, integration: &str) {
        self.execute(format!(
            "UPDATE integration_outbox SET integration_type = '{integration}' WHERE id = '{id}'"
        ))
        .await
        .expect("updated");
    }

    async fn set_unseen(&self, id: &MessageId, column: &str, value: &str) {
        let trigger = "SELECT sql FROM sqlite_schema WHERE name = 'outbox_follow'";
        let trigger: String =
            sqlx::query_scalar(trigger).fetch_one(&self.by_hand).await.expect("the trigger");
        let update =
            format!("UPDATE integration_outbox SET {column} = '{value}' WHERE id = '{id}'");
        for statement in ["DROP TRIGGER outbox_follow".to_owned(), update, trigger] {
            self.execute(statement).await.expect("updated");
        }
    }

    async fn make_older(&self, id: &MessageId, by: Duration) {
        let by = by.as_secs();
        self.execute(format!(
            "UPDATE integration_outbox SET created_at = datetime(created_at, '-{by} seconds'), \
             sent_at = datetime(sent_at, '-{by} seconds'), \
             updated_at = datetime(updated_at, '-{by} seconds') WHERE id = '{id}'"
        ))
        .await
        .expect("updated");
    }

    async fn delete(&self, id: &MessageId) {
        self.execute(format!("DELETE FROM integration_outbox WHERE id = '{id}'"))
            .await
            .expect("deleted");
    }

    async fn read_whole(&self, id: &MessageId) -> Save {
        let stale = format!("stale_{}", Uuid::new_v4().simple());
        self.execute(format!(
            "CREATE TEMP TABLE {stale} AS SELECT * FROM integration_outbox WHERE id = '{id}'"
        ))
        .await
        .expect("read");
        let columns: String = sqlx::query_scalar(
            "SELECT group_concat(name, ', ') FROM pragma_table_info('integration_outbox')",
        )
        .fetch_one(&self.by_hand)
        .await
        .expect("columns");
        let orm = self.by_hand.clone();
        let save = AssertSqlSafe(format!(
            "UPDATE integration_outbox SET ({columns}) = (SELECT {columns} FROM {stale}) \
             WHERE id = '{id}'"
        ));
        Box::pin(async move {
            sqlx::query(save).execute(&orm).await.expect("saved");
        })
    }

    async fn truncate(&self) {
        self.execute("DELETE FROM integration_outbox".to_owned()).await.expect("deleted");
        self.restart_numbers().await;
    }

    async fn restart_numbers(&self) {
        self.execute("DELETE FROM sqlite_sequence WHERE name = 'integration_outbox'".to_owned())
            .await
            .expect("restarted");
    }

    async fn delete_deliveries(&self) {
        for table in ["outbox_delivery", "outbox_parcel"] {
            self.execute(format!("DELETE FROM {table}")).await.expect("deleted");
        }
    }

    async fn delete_claims(&self) {
        self.execute("DELETE FROM outbox_claim".to_owned()).await.expect("deleted");
    }

    async fn expire_claims(&self) {
        self.execute(
            "UPDATE outbox_relay \
                      SET until = CAST(strftime('%s', 'now') AS INTEGER) * 1000 - 1000"
                .to_owned(),
        )
        .await
        .expect("updated");
    }

    async fn deliveries(&self) -> u64 {
        self.count(
            "(SELECT message_id FROM outbox_delivery UNION SELECT message_id FROM outbox_parcel)",
        )
        .await
    }

    async fn claims(&self) -> u64 {
        self.count("outbox_claim").await
    }

    async fn attempts(&self) -> u64 {
        self.count("outbox_attempt").await
    }

    async fn enqueue_uncommitted(&self, _: &NewMessage) -> Result<Commit, &'static str> {
        Err("SQLite has one writer at a time: numbers are given in the order of commits")
    }

    async fn lock(&self, _: &MessageId) -> Result<Commit, &'static str> {
        Err("SQLite locks the whole file, and no single row")
    }
}

postroom_testkit::contract_tests!(start);
