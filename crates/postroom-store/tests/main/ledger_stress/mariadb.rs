//! The ledger on MariaDB.

use super::outbox::{Edit, NewRow, Outbox, Session};
use async_trait::async_trait;
use postroom_core::{Key, MessageId, Store};
use postroom_store::OpenOptions;
use postroom_store::mysql::MySqlStore;
use postroom_testkit::{MariaDatabase, MariaDb};
use sqlx::{AssertSqlSafe, MySqlConnection, Row as _};
use std::collections::HashMap;
use std::sync::Arc;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const OPEN: &str = "SELECT COUNT(*) FROM integration_outbox WHERE status IN ('PENDING', 'FAILED')";
/// What may be left of the ledger when nothing is open: the deliveries of dead messages.
const LEFT: &str = "
    SELECT CONCAT('parcel ', seq, ' of ', integration, ': ', message_id) FROM outbox_parcel
    UNION ALL SELECT CONCAT('claim ', HEX(token), ' of ', worker) FROM outbox_claim
    UNION ALL SELECT CONCAT('pending edit of ', message_id) FROM outbox_pending_edit
    UNION ALL
    SELECT CONCAT('delivery of ', d.message_id, ': ', d.state, ' ', COALESCE(HEX(d.claim), 'free'))
    FROM outbox_delivery AS d
    LEFT JOIN integration_outbox AS m ON m.id = d.message_id
    WHERE COALESCE(m.status, '') <> 'DEAD' OR d.state <> 'd' OR d.claim IS NOT NULL";
/// Open messages, and everything the ledger knows of them.
const STUCK: &str = "
    SELECT CONCAT_WS(' ', m.id, 'is open:', m.status, m.due_at, m.integration_type, m.seq,
        '; delivery', (SELECT CONCAT_WS(' ', d.state, d.due_at, d.integration, d.rescues,
                              COALESCE(HEX(d.claim), 'free'))
                       FROM outbox_delivery AS d WHERE d.message_id = m.id),
        '; parcels', (SELECT GROUP_CONCAT(p.integration) FROM outbox_parcel AS p
                      WHERE p.message_id = m.id),
        '; claims', (SELECT COUNT(*) FROM outbox_claim AS c WHERE LOCATE(m.id, c.parcels) > 0),
        '; edits', (SELECT COUNT(*) FROM outbox_pending_edit AS e WHERE e.message_id = m.id),
        '; mark', (SELECT c.mark FROM outbox_lane_cursor AS c
                   WHERE c.integration = m.integration_type))
    FROM integration_outbox AS m WHERE m.status IN ('PENDING', 'FAILED') LIMIT 5";
/// Deliveries that do not say what their messages say.
const UNLIKE: &str = "
    SELECT CONCAT_WS(' ', m.id, m.due_at, m.integration_type, m.status, COALESCE(m.last_error, ''),
                     ';', d.due_at, d.integration, d.state)
    FROM outbox_delivery AS d JOIN integration_outbox AS m ON m.id = d.message_id
    WHERE d.due_at <> m.due_at OR d.integration <> m.integration_type
       OR d.state <> CASE m.status WHEN 'FAILED' THEN 'f' WHEN 'DEAD' THEN 'd' ELSE 'w' END
    LIMIT 5";

const INSERT: &str = "INSERT INTO integration_outbox (id, source_stream_id, source_event_id, \
    integration_type, event_type, payload, due_at, status) VALUES ";

pub(super) struct MariaOutbox {
    database: MariaDatabase,
    skip_locked: bool,
}

pub(super) async fn start(skip_locked: bool) -> MariaOutbox {
    let database = MariaDb::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    MariaOutbox { database, skip_locked }
}

impl MariaOutbox {
    async fn texts(&self, sql: &'static str) -> Vec<String> {
        let mut connection = self.database.connection().await;
        sqlx::query_scalar(sql).fetch_all(&mut connection).await.expect("rows")
    }
}

#[async_trait]
impl Outbox for MariaOutbox {
    fn name(&self) -> &'static str {
        if self.skip_locked { "MariaDB" } else { "MariaDB without SKIP LOCKED" }
    }

    fn relays_may_deadlock(&self) -> bool {
        !self.skip_locked
    }

    async fn store(&self) -> Arc<dyn Store> {
        let options = OpenOptions { connections: 3, notify: false, ..OpenOptions::default() };
        let store = MySqlStore::new(self.database.url(), &options).expect("store");
        Arc::new(if self.skip_locked { store } else { store.without_skip_locked() })
    }

    async fn session(&self) -> Box<dyn Session> {
        Box::new(MariaSession(self.database.connection().await))
    }

    async fn open(&self) -> i64 {
        let mut connection = self.database.connection().await;
        sqlx::query_scalar(OPEN).fetch_one(&mut connection).await.expect("a count")
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
        let mut connection = self.database.connection().await;
        let sql = "SELECT id, status FROM integration_outbox";
        let rows: Vec<(Hyphenated, String)> =
            sqlx::query_as(sql).fetch_all(&mut connection).await.expect("messages");
        rows.into_iter().map(|(id, status)| (Uuid::from(id).into(), status)).collect()
    }
}

/// In the server's default isolation, REPEATABLE READ, which locks gaps.
struct MariaSession(MySqlConnection);

#[async_trait]
impl Session for MariaSession {
    async fn execute(&mut self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(sql).execute(&mut self.0).await.expect("executed");
    }

    async fn insert(&mut self, rows: &[NewRow]) -> Vec<Key> {
        let values = rows.iter().map(|NewRow { id, lane, delay_ms, status }| {
            format!(
                "('{id}', 's', '{id}', '{lane}', 't', '{{\"n\": 1}}', \
                  UTC_TIMESTAMP(6) + INTERVAL {delay_ms} * 1000 MICROSECOND, '{status}')"
            )
        });
        let values: Vec<String> = values.collect();
        let sql = AssertSqlSafe(format!("{INSERT} {} RETURNING seq, id", values.join(", ")));
        let inserted = sqlx::raw_sql(sql).fetch_all(&mut self.0).await.expect("insert");
        let key = |row: &sqlx::mysql::MySqlRow| {
            let id: Hyphenated = row.get(1);
            Key { seq: row.get(0), id: Uuid::from(id).into() }
        };
        inserted.iter().map(key).collect()
    }

    async fn change(&mut self, edit: &Edit, ids: &[MessageId]) -> Result<u64, String> {
        let set = match edit {
            Edit::DueSoon => {
                "due_at = UTC_TIMESTAMP(6) + INTERVAL FLOOR(RAND() * 300000) MICROSECOND \
                              WHERE status IN ('PENDING', 'FAILED')"
                    .to_owned()
            }
            Edit::Elsewhere(lane) => {
                format!("integration_type = '{lane}' WHERE status IN ('PENDING', 'FAILED')")
            }
            Edit::Sent => "status = 'SENT' WHERE status IN ('PENDING', 'FAILED')".to_owned(),
            Edit::Opened => "status = 'PENDING' WHERE status = 'SENT'".to_owned(),
        };
        let ids: Vec<String> = ids.iter().map(|id| format!("'{id}'")).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        let sql = format!("UPDATE integration_outbox SET {set} AND id IN ({})", ids.join(", "));
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.0).await;
        done.map(|done| done.rows_affected()).map_err(|error| error.to_string())
    }
}
