//! The ledger on SQLite. There is one writer: transactions are short, and take the lock at their beginning.

use super::outbox::{Edit, NewRow, Outbox, Session};
use async_trait::async_trait;
use postroom_core::{Key, MessageId, Store};
use postroom_store::OpenOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Row as _};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// How long they wait for other writers.
const BUSY_WAIT: Duration = Duration::from_secs(30);

/// `?1` id, `?2` lane, `?3` seconds until it is due, `?4` status, `?5` its number, or null for the next one.
const INSERT: &str = "
    INSERT INTO integration_outbox
        (id, source_stream_id, source_event_id, integration_type, event_type, payload, due_at, status, seq)
    VALUES (?1, 's', ?1, ?2, 't', '{\"n\": 1}',
            strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+' || ?3 || ' seconds'), ?4, ?5)
    RETURNING seq";

const OPEN: &str = "SELECT count(*) FROM integration_outbox WHERE status IN ('PENDING', 'FAILED')";
const LEFT: &str = "
    SELECT 'parcel ' || seq || ' of ' || integration FROM outbox_parcel
    UNION ALL SELECT 'claim ' || token || ' of ' || worker FROM outbox_claim
    UNION ALL
    SELECT 'delivery of ' || d.message_id || ' in state ' || d.state || ' under ' || coalesce(d.claim, '-')
    FROM outbox_delivery AS d LEFT JOIN integration_outbox AS m ON m.id = d.message_id
    WHERE m.status IS NOT 'DEAD' OR d.state <> 'd' OR d.claim IS NOT NULL";
const STUCK: &str = "
    SELECT m.id || ' is open: ' || json_array(m.seq, m.status, m.due_at, m.integration_type, m.settled)
           || '; delivery ' || coalesce((
               SELECT json_array(d.state, d.due_at, d.claim, d.rescues, d.integration)
               FROM outbox_delivery AS d WHERE d.message_id = m.id), '-')
           || '; parcels ' || (
               SELECT json_group_array(p.integration) FROM outbox_parcel AS p WHERE p.message_id = m.id)
           || '; claims ' || (
               SELECT json_group_array(f.token) FROM outbox_in_flight AS f WHERE f.message_id = m.id)
    FROM integration_outbox AS m WHERE m.status IN ('PENDING', 'FAILED') LIMIT 5";
const UNLIKE: &str = "
    SELECT json_array(d.message_id, d.state, d.due_at, d.integration, m.status, m.due_at, m.integration_type)
    FROM outbox_delivery AS d JOIN integration_outbox AS m ON m.id = d.message_id
    WHERE d.integration <> m.integration_type LIMIT 5";

/// An outbox in a file of its own.
pub(super) struct SqliteOutbox(TempDir);

pub(super) async fn start() -> SqliteOutbox {
    let file = SqliteOutbox(tempfile::tempdir().expect("a temporary folder"));
    postroom_store::migrate(&file.url()).await.expect("migrated");
    file
}

impl SqliteOutbox {
    fn url(&self) -> String {
        format!("sqlite://{}", self.0.path().join("outbox.db").display())
    }

    async fn connect(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new()
            .filename(self.0.path().join("outbox.db"))
            .busy_timeout(BUSY_WAIT);
        options.connect().await.expect("the file opens")
    }

    async fn texts(&self, sql: &'static str) -> Vec<String> {
        sqlx::query_scalar(sql).fetch_all(&mut self.connect().await).await.expect("rows")
    }
}

#[async_trait]
impl Outbox for SqliteOutbox {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn relays_may_deadlock(&self) -> bool {
        false
    }

    fn messages_per_second(&self) -> usize {
        600
    }

    fn longest_pause_ms(&self) -> u64 {
        20
    }

    async fn store(&self) -> Arc<dyn Store> {
        let options = OpenOptions { connections: 3, notify: false, ..OpenOptions::default() };
        postroom_store::open(&self.url(), &options).await.expect("store")
    }

    async fn session(&self) -> Box<dyn Session> {
        Box::new(SqliteSession(self.connect().await))
    }

    async fn open(&self) -> i64 {
        let mut file = self.connect().await;
        sqlx::query_scalar(OPEN).fetch_one(&mut file).await.expect("a count")
    }

    async fn left(&self) -> Vec<String> {
        self.texts(LEFT).await
    }

    async fn stuck(&self) -> Vec<String> {
        self.texts(STUCK).await
    }

    async fn unlike(&self) -> Vec<String> {
        self.texts(UNLIKE).await
    }

    async fn statuses(&self) -> HashMap<MessageId, String> {
        let statuses = sqlx::query("SELECT id, status FROM integration_outbox");
        let rows = statuses.fetch_all(&mut self.connect().await).await.expect("messages");
        let id = |row: &sqlx::sqlite::SqliteRow| row.get::<String, _>(0).parse().expect("an id");
        rows.iter().map(|row| (id(row), row.get(1))).collect()
    }
}

struct SqliteSession(SqliteConnection);

#[async_trait]
impl Session for SqliteSession {
    async fn execute(&mut self, sql: &str) {
        let sql = if sql == "BEGIN" { "BEGIN IMMEDIATE" } else { sql };
        let done = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut self.0).await;
        done.expect("executed");
    }

    async fn insert(&mut self, rows: &[NewRow]) -> Vec<Key> {
        let mut keys = Vec::new();
        for row in rows {
            // A few have a number that lies below every mark.
            let low = row.id.as_bytes()[0] < 5;
            let seq = low.then(|| -i64::from(row.id.as_fields().0) - 1);
            let inserted = sqlx::query(INSERT)
                .bind(row.id.to_string())
                .bind(row.lane)
                .bind(f64::from(row.delay_ms) / 1_000.0)
                .bind(row.status)
                .bind(seq)
                .fetch_one(&mut self.0)
                .await
                .expect("insert");
            keys.push(Key { seq: inserted.get(0), id: row.id.into() });
        }
        keys
    }

    async fn change(&mut self, edit: &Edit, ids: &[MessageId]) -> Result<u64, String> {
        let set = match edit {
            Edit::DueSoon => {
                "due_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+0.' || abs(random() % 3) || ' seconds')
                 WHERE status IN ('PENDING', 'FAILED')"
                    .to_owned()
            }
            Edit::Elsewhere(lane) => {
                format!("integration_type = '{lane}' WHERE status IN ('PENDING', 'FAILED')")
            }
            Edit::Sent => "status = 'SENT' WHERE status IN ('PENDING', 'FAILED')".to_owned(),
            Edit::Opened => "status = 'PENDING' WHERE status = 'SENT'".to_owned(),
        };
        let ids: Vec<String> = ids.iter().map(MessageId::to_string).collect();
        let sql = format!(
            "UPDATE integration_outbox SET {set} AND id IN (SELECT value FROM json_each(?1))"
        );
        let changed = sqlx::query(AssertSqlSafe(sql))
            .bind(serde_json::to_string(&ids).expect("a list"))
            .execute(&mut self.0)
            .await;
        changed.map(|done| done.rows_affected()).map_err(|error| error.to_string())
    }
}
