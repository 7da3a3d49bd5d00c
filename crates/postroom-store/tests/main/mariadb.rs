//! The contract on MariaDB, and once more as on a server that cannot pass over locked rows.

use chrono::{DateTime, NaiveDateTime, Utc};
use postroom_core::{MessageId, NewMessage, Store};
use postroom_store::OpenOptions;
use postroom_store::mysql::MySqlStore;
use postroom_testkit::contract::{Commit, Harness, PlainRow, Save};
use postroom_testkit::{MariaDatabase, MariaDb};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// MySQL 8.0.15 takes a column whose default is an expression for one with an invalid default when it
/// copies the table's definition in its strict mode.
const LENIENT: &str = "SET SESSION sql_mode = ''";

/// A migrated outbox in a database of its own, and a connection for changes by hand.
pub(crate) struct Maria {
    pub(crate) database: MariaDatabase,
    pub(crate) by_hand: MySqlPool,
    name: &'static str,
    /// What stores connect by.
    url: String,
    skip_locked: bool,
}

pub(crate) async fn start() -> Maria {
    Maria::on(MariaDb::shared().await.database().await, "mariadb").await
}

/// An outbox whose stores have the rights of `migrate --print-grants`, and no others.
pub(crate) async fn start_with_least_rights() -> Maria {
    let mut outbox = start().await;
    let grants = postroom_store::grants(outbox.database.url(), None).expect("grants");
    outbox.execute(grants.to_owned()).await.expect("granted");
    let user = format!("relay_{}", &Uuid::new_v4().simple().to_string()[..20]);
    outbox
        .execute(format!(
            "CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'secret'; \
             GRANT postroom_relay TO {user}@'127.0.0.1'; \
             SET DEFAULT ROLE postroom_relay FOR {user}@'127.0.0.1'"
        ))
        .await
        .expect("a relay's user");
    outbox.url = outbox.url.replace("root@", &format!("{user}:secret@"));
    outbox
}

impl Maria {
    /// Makes an outbox in an empty database of the server with this name.
    pub(crate) async fn on(database: MariaDatabase, name: &'static str) -> Self {
        postroom_store::migrate(database.url()).await.expect("migrate");
        // As another program would connect: with the driver's defaults.
        let by_hand = MySqlPoolOptions::new().max_connections(1).connect(database.url()).await;
        let (by_hand, url) = (by_hand.expect("a connection"), database.url().to_owned());
        Self { database, by_hand, name, url, skip_locked: true }
    }

    /// MySQL has no RETURNING, so the row is looked up by its event.
    async fn insert_and_look(&self, row: &PlainRow) -> Result<Hyphenated, String> {
        let insert = insert_sql(row);
        self.execute(insert.trim_end_matches(" RETURNING id").to_owned()).await?;
        let event = row.get("source_event_id").unwrap_or_default();
        let integration = row.get("integration_type").unwrap_or_default();
        let look = "SELECT id FROM integration_outbox WHERE source_event_id = ? \
                    AND integration_type = ? ORDER BY seq DESC LIMIT 1";
        let look = sqlx::query_scalar(look).bind(event).bind(integration);
        look.fetch_one(&self.by_hand).await.map_err(|error| error.to_string())
    }

    fn open(&self, keep_sent: bool) -> Arc<dyn Store> {
        self.open_with(&OpenOptions { keep_sent, ..OpenOptions::default() })
    }

    fn open_with(&self, options: &OpenOptions) -> Arc<dyn Store> {
        let store = MySqlStore::new(&self.url, options).expect("a store");
        Arc::new(if self.skip_locked { store } else { store.without_skip_locked() })
    }

    pub(crate) async fn execute(&self, sql: String) -> Result<(), String> {
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.by_hand).await;
        done.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn count(&self, table: &str) -> u64 {
        let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&self.by_hand).await.expect("a count");
        count.unsigned_abs()
    }
}

/// A time as MariaDB reads it: in UTC, since it knows no zones. What is no time stays as it is.
fn in_utc(text: &str) -> String {
    match text.parse::<DateTime<Utc>>() {
        Ok(at) => at.naive_utc().to_string(),
        Err(_) => text.to_owned(),
    }
}

/// What follows the INTO of a plain row's INSERT, in MariaDB's way of writing text and times.
fn values_sql(row: &PlainRow) -> String {
    let mut row = row.clone();
    if let Some(due_at) = row.get("due_at") {
        let due_at = in_utc(due_at);
        row = row.with("due_at", &due_at);
    }
    row.values_sql("integration_outbox").replace('\\', "\\\\")
}

fn insert_sql(row: &PlainRow) -> String {
    format!("INSERT INTO {} RETURNING id", values_sql(row))
}

impl Harness for Maria {
    fn name(&self) -> &'static str {
        self.name
    }

    fn checks_constraints(&self) -> Result<(), &'static str> {
        match self.name {
            "mysql" => Err("MySQL before 8.0.16 parses CHECK constraints and ignores them"),
            _ => Ok(()),
        }
    }

    async fn store(&self) -> Arc<dyn Store> {
        self.open(true)
    }

    async fn store_without_history(&self) -> Arc<dyn Store> {
        self.open(false)
    }

    async fn store_that_remembers(&self, keep_sent: bool) -> Arc<dyn Store> {
        let remember_events = Duration::from_secs(3_600);
        self.open_with(&OpenOptions { keep_sent, remember_events, ..OpenOptions::default() })
    }

    async fn insert(&self, row: &PlainRow) -> Result<MessageId, String> {
        if self.name == "mysql" {
            return self.insert_and_look(row).await.map(|id| Uuid::from(id).into());
        }
        let sql = AssertSqlSafe(insert_sql(row));
        let id: Result<Hyphenated, _> = sqlx::query_scalar(sql).fetch_one(&self.by_hand).await;
        id.map(|id| Uuid::from(id).into()).map_err(|error| error.to_string())
    }

    async fn insert_or_skip(&self, row: &PlainRow) -> Result<(), String> {
        self.execute(format!("INSERT IGNORE INTO {}", values_sql(row))).await
    }

    async fn set_status(&self, id: &MessageId, status: &str) -> Result<(), String> {
        self.execute(format!("UPDATE integration_outbox SET status = '{status}' WHERE id = '{id}'"))
            .await
    }

    async fn set_due_at(&self, id: &MessageId, due_at: DateTime<Utc>) {
        let due_at: NaiveDateTime = due_at.naive_utc();
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
        // The trigger leaves alone what looks like a write of Postroom's own.
        self.execute(format!(
            "SET @postroom_relay = 1; \
             UPDATE integration_outbox SET {column} = '{}' WHERE id = '{id}'; \
             SET @postroom_relay = NULL",
            in_utc(value)
        ))
        .await
        .expect("updated");
    }

    async fn make_older(&self, id: &MessageId, by: Duration) {
        let by = format!("INTERVAL {} SECOND", by.as_secs());
        self.execute(format!(
            "UPDATE integration_outbox SET created_at = created_at - {by}, \
             sent_at = sent_at - {by}, updated_at = updated_at - {by} WHERE id = '{id}'"
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
        let mut orm = self.database.connection().await;
        let read = AssertSqlSafe(format!(
            "{LENIENT}; SET SESSION group_concat_max_len = 1000000; \
             CREATE TEMPORARY TABLE stale AS SELECT * FROM integration_outbox WHERE id = '{id}'"
        ));
        sqlx::raw_sql(read).execute(&mut orm).await.expect("read");
        let columns: String = sqlx::query_scalar(
            "SELECT GROUP_CONCAT(CONCAT('m.', COLUMN_NAME, ' = stale.', COLUMN_NAME)) \
             FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'integration_outbox'",
        )
        .fetch_one(&mut orm)
        .await
        .expect("columns");
        Box::pin(async move {
            let save = AssertSqlSafe(format!(
                "UPDATE integration_outbox AS m JOIN stale ON stale.id = m.id SET {columns}"
            ));
            sqlx::raw_sql(save).execute(&mut orm).await.expect("saved");
            orm.close().await.expect("closed");
        })
    }

    async fn truncate(&self) {
        self.execute("TRUNCATE TABLE integration_outbox".to_owned()).await.expect("truncated");
    }

    async fn restart_numbers(&self) {
        let mut owner = self.database.connection().await;
        let restart = format!("{LENIENT}; ALTER TABLE integration_outbox AUTO_INCREMENT = 1");
        sqlx::raw_sql(AssertSqlSafe(restart)).execute(&mut owner).await.expect("restarted");
        owner.close().await.expect("closed");
    }

    async fn delete_deliveries(&self) {
        let all = "DELETE FROM outbox_delivery; DELETE FROM outbox_parcel; \
                   DELETE FROM outbox_pending_edit";
        self.execute(all.to_owned()).await.expect("deleted");
    }

    async fn delete_claims(&self) {
        self.execute("DELETE FROM outbox_claim".to_owned()).await.expect("deleted");
    }

    async fn expire_claims(&self) {
        self.execute(
            "UPDATE outbox_relay SET until = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND".to_owned(),
        )
        .await
        .expect("updated");
    }

    async fn deliveries(&self) -> u64 {
        let named = "(SELECT message_id FROM outbox_delivery UNION \
                      SELECT message_id FROM outbox_parcel) AS named";
        self.count(named).await
    }

    async fn claims(&self) -> u64 {
        self.count("outbox_claim").await
    }

    async fn attempts(&self) -> u64 {
        self.count("outbox_attempt").await
    }

    async fn enqueue_uncommitted(&self, message: &NewMessage) -> Result<Commit, &'static str> {
        let row = PlainRow::new(&message.integration).with("source_event_id", &message.event_id);
        let insert = insert_sql(&row);
        Ok(self.database.open_transaction(insert.trim_end_matches(" RETURNING id")).await)
    }

    async fn lock(&self, id: &MessageId) -> Result<Commit, &'static str> {
        if !self.skip_locked {
            return Err("this server cannot pass over locked rows: a settlement waits for them");
        }
        let lock = format!("SELECT seq FROM integration_outbox WHERE id = '{id}' FOR UPDATE");
        Ok(self.database.open_transaction(&lock).await)
    }
}

postroom_testkit::contract_tests!(start);

/// The same with the rights of a relay's role.
mod with_least_rights {
    use super::start_with_least_rights as start;
    postroom_testkit::contract_tests!(start);
}

/// The same on a server without SKIP LOCKED.
mod without_skip_locked {
    async fn start() -> super::Maria {
        super::Maria { skip_locked: false, ..super::start().await }
    }

    postroom_testkit::contract_tests!(start);
}
