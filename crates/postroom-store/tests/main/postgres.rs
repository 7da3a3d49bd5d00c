//! The contract on PostgreSQL.

use crate::grants;
use chrono::{DateTime, SecondsFormat, Utc};
use postroom_core::{MessageId, NewMessage, Store};
use postroom_store::OpenOptions;
use postroom_testkit::contract::{Commit, Harness, PlainRow, Save};
use postroom_testkit::{PgBouncer, Postgres, TestDatabase};
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio_postgres::Client;
use uuid::Uuid;

const TABLE: &str = "core_outbox.integration_outbox";

/// A migrated outbox in a database of its own, and a connection for changes by hand.
pub(crate) struct Database {
    database: TestDatabase,
    by_hand: Client,
    /// What stores connect to.
    store_url: String,
    transaction_pooler: bool,
    /// Where SENT is recorded in the background.
    record_later: Vec<String>,
}

pub(crate) async fn start() -> Database {
    Database::on(Postgres::shared().await.database().await).await
}

/// The same, for stores that have no right but those of a relay.
pub(crate) async fn start_with_least_rights() -> Database {
    let mut outbox = start().await;
    grants::grant(&outbox.by_hand, outbox.database.url(), None).await;
    outbox.store_url = grants::as_role(outbox.database.url(), "postroom_relay");
    outbox
}

/// The same, for stores that record SENT in the background. Whoever changes a message by hand comes after
/// that: `ledger_background.rs` has those who come before.
pub(crate) async fn start_recording_later() -> Database {
    Database { record_later: vec!["noop".to_owned()], ..start().await }
}

/// The same, for stores behind a pooler in transaction mode that all tests share.
pub(crate) async fn start_behind_a_pooler() -> Database {
    static POOLER: OnceCell<PgBouncer> = OnceCell::const_new();
    let server = Postgres::shared().await;
    let pooler = async || PgBouncer::start(server.url(), 2).await.expect("a pooler");
    let pooler = POOLER.get_or_init(pooler).await;
    let mut outbox = start().await;
    outbox.store_url = pooler.before(outbox.database.url());
    outbox.transaction_pooler = true;
    outbox
}

impl Database {
    /// Makes an outbox in an empty database.
    pub(crate) async fn on(database: TestDatabase) -> Self {
        postroom_store::migrate(database.url()).await.expect("migrate");
        let by_hand = database.client().await;
        let store_url = database.url().to_owned();
        let record_later = Vec::new();
        Self { database, by_hand, store_url, transaction_pooler: false, record_later }
    }

    async fn open(&self, keep_sent: bool) -> Arc<dyn Store> {
        self.open_with(OpenOptions { keep_sent, ..OpenOptions::default() }).await
    }

    async fn open_with(&self, options: OpenOptions) -> Arc<dyn Store> {
        let options = OpenOptions {
            transaction_pooler: self.transaction_pooler,
            record_later: self.record_later.clone(),
            ..options
        };
        postroom_store::open(&self.store_url, &options).await.expect("a store")
    }

    /// Changes a message by hand.
    async fn change(&self, id: &MessageId, set: &str) -> Result<(), String> {
        self.record().await;
        self.execute(&format!("UPDATE {TABLE} SET {set} WHERE id = '{id}'")).await
    }

    /// Records what is recorded in the background.
    async fn record(&self) {
        if !self.record_later.is_empty() {
            let store = self.open(true).await;
            store.record_sent(Duration::ZERO, usize::MAX).await.expect("recorded");
        }
    }

    /// Another connection for changes by hand.
    pub(crate) async fn client(&self) -> Client {
        self.database.client().await
    }

    async fn execute(&self, sql: &str) -> Result<(), String> {
        self.by_hand.batch_execute(sql).await.map_err(|error| reason(&error))
    }

    async fn count(&self, table: &str) -> u64 {
        self.counted(&format!("core_outbox.{table}")).await
    }

    async fn counted(&self, rows: &str) -> u64 {
        let sql = format!("SELECT count(*) FROM {rows}");
        let row = self.by_hand.query_one(&sql, &[]).await.expect("a count");
        row.get::<_, i64>(0).unsigned_abs()
    }
}

/// What the server said.
fn reason(error: &tokio_postgres::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl Harness for Database {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn store(&self) -> Arc<dyn Store> {
        self.open(true).await
    }

    async fn store_without_history(&self) -> Arc<dyn Store> {
        self.open(false).await
    }

    fn notes_sent(&self) -> bool {
        !self.record_later.is_empty()
    }

    async fn store_that_remembers(&self, keep_sent: bool) -> Arc<dyn Store> {
        let remember_events = Duration::from_secs(3_600);
        self.open_with(OpenOptions { keep_sent, remember_events, ..OpenOptions::default() }).await
    }

    async fn insert(&self, row: &PlainRow) -> Result<MessageId, String> {
        let inserted = self.by_hand.query_one(&row.insert_sql(TABLE), &[]).await;
        inserted.map(|row| row.get::<_, Uuid>(0).into()).map_err(|error| reason(&error))
    }

    async fn insert_or_skip(&self, row: &PlainRow) -> Result<(), String> {
        let row = row.values_sql(TABLE);
        self.execute(&format!("INSERT INTO {row} ON CONFLICT DO NOTHING")).await
    }

    async fn set_status(&self, id: &MessageId, status: &str) -> Result<(), String> {
        self.change(id, &format!("status = '{status}'")).await
    }

    async fn set_due_at(&self, id: &MessageId, due_at: DateTime<Utc>) {
        let due_at = due_at.to_rfc3339_opts(SecondsFormat::Millis, false);
        self.change(id, &format!("due_at = '{due_at}'")).await.expect("updated");
    }

    async fn set_integration(&self, id: &MessageId, integration: &str) {
        let set = format!("integration_type = '{integration}'");
        self.change(id, &set).await.expect("updated");
    }

    async fn set_unseen(&self, id: &MessageId, column: &str, value: &str) {
        self.record().await;
        self.execute(&format!(
            "BEGIN; SET LOCAL session_replication_role = replica; \
             UPDATE {TABLE} SET {column} = '{value}' WHERE id = '{id}'; COMMIT"
        ))
        .await
        .expect("updated");
    }

    async fn make_older(&self, id: &MessageId, by: Duration) {
        let by = format!("interval '{} seconds'", by.as_secs());
        let set = format!(
            "created_at = created_at - {by}, sent_at = sent_at - {by}, \
             updated_at = updated_at - {by}"
        );
        self.change(id, &set).await.expect("updated");
    }

    async fn delete(&self, id: &MessageId) {
        self.execute(&format!("DELETE FROM {TABLE} WHERE id = '{id}'")).await.expect("deleted");
    }

    async fn read_whole(&self, id: &MessageId) -> Save {
        let orm = self.client().await;
        orm.batch_execute(&format!(
            "CREATE TEMP TABLE stale AS SELECT * FROM {TABLE} WHERE id = '{id}'"
        ))
        .await
        .expect("read");
        let columns = "SELECT string_agg(format('%1$I = stale.%1$I', attname), ', ') \
                       FROM pg_attribute WHERE attrelid = 'stale'::regclass AND attnum > 0";
        let columns: String = orm.query_one(columns, &[]).await.expect("columns").get(0);
        let store = self.open(true).await;
        Box::pin(async move {
            store.record_sent(Duration::ZERO, usize::MAX).await.expect("recorded");
            orm.batch_execute(&format!(
                "UPDATE {TABLE} m SET {columns} FROM stale WHERE m.id = stale.id"
            ))
            .await
            .expect("saved");
        })
    }

    async fn truncate(&self) {
        self.execute(&format!("TRUNCATE {TABLE} RESTART IDENTITY")).await.expect("truncated");
    }

    async fn restart_numbers(&self) {
        self.execute(&format!("ALTER TABLE {TABLE} ALTER COLUMN seq RESTART"))
            .await
            .expect("restarted");
    }

    async fn delete_deliveries(&self) {
        self.execute(
            "DELETE FROM core_outbox.delivery; DELETE FROM core_outbox.parcel; \
             DELETE FROM core_outbox.pending_edit",
        )
        .await
        .expect("deleted");
    }

    async fn delete_claims(&self) {
        self.execute("DELETE FROM core_outbox.claim").await.expect("deleted");
    }

    async fn expire_claims(&self) {
        self.execute("UPDATE core_outbox.relay SET until = now() - interval '1 second'")
            .await
            .expect("updated");
    }

    async fn deliveries(&self) -> u64 {
        let named = "(SELECT message_id FROM core_outbox.delivery UNION \
            SELECT unnest(refs) FROM core_outbox.parcel) AS named \
            WHERE NOT EXISTS (SELECT FROM core_outbox.integration_outbox m \
                WHERE m.id = named.message_id AND m.status = 'SENT' AND m.settled IS NOT NULL) \
            AND NOT core_outbox.is_noted_sent(named.message_id)";
        self.counted(named).await
    }

    async fn claims(&self) -> u64 {
        self.count("claim").await
    }

    async fn attempts(&self) -> u64 {
        self.count("attempt").await
    }

    async fn enqueue_uncommitted(&self, message: &NewMessage) -> Result<Commit, &'static str> {
        let row = PlainRow::new(&message.integration).with("source_event_id", &message.event_id);
        Ok(self.database.open_transaction(&row.insert_sql(TABLE)).await)
    }

    async fn lock(&self, id: &MessageId) -> Result<Commit, &'static str> {
        let lock = format!("SELECT FROM {TABLE} WHERE id = '{id}' FOR UPDATE");
        Ok(self.database.open_transaction(&lock).await)
    }
}

postroom_testkit::contract_tests!(start);
