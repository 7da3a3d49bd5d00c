//! The ledger on PostgreSQL.

use super::outbox::{Edit, NewRow, Outbox, Session};
use async_trait::async_trait;
use postroom_core::{Key, MessageId, Store};
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, TestDatabase};
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::Client;
use uuid::Uuid;

/// Where SENT is recorded in the background.
const RECORDED_LATER: [&str; 2] = ["noop:c", "noop:d"];

const OPEN: &str = "SELECT count(*) FROM core_outbox.integration_outbox \
    WHERE status IN ('PENDING', 'FAILED')";
/// What may be left of the ledger when nothing is open: the deliveries of dead messages.
const LEFT: &str = "
    SELECT format('parcel %s of %s', number, integration) FROM core_outbox.parcel
    UNION ALL SELECT format('claim %s of %s', token, worker) FROM core_outbox.claim
    UNION ALL SELECT format('pending edit of %s', message_id) FROM core_outbox.pending_edit
    UNION ALL SELECT format('noted as sent under %s', token) FROM core_outbox.sent
    UNION ALL
    SELECT format('delivery of %s: %s', d.message_id, d)
    FROM core_outbox.delivery d
    LEFT JOIN core_outbox.integration_outbox m ON m.id = d.message_id
    WHERE m.status IS DISTINCT FROM 'DEAD' OR d.state <> 'd' OR d.claim IS NOT NULL";
/// Open messages, and everything the ledger knows of them.
const STUCK: &str = "
    SELECT format('%s is open: %s; delivery %s; parcels %s; claims %s; edits %s; cursor %s', m.id,
        (m.status, m.due_at, m.integration_type, m.settled, m.attempts),
        (SELECT d FROM core_outbox.delivery d WHERE d.message_id = m.id),
        (SELECT array_agg((p.lane, p.number)) FROM core_outbox.parcel p WHERE m.id = ANY (p.refs)),
        (SELECT array_agg((f.token)) FROM core_outbox.in_flight f WHERE f.message_id = m.id),
        (SELECT count(*) FROM core_outbox.pending_edit e WHERE e.message_id = m.id),
        (SELECT c FROM core_outbox.lane_cursor c
         WHERE c.lane = core_outbox.lane_of(m.integration_type)))
    FROM core_outbox.integration_outbox m WHERE m.status IN ('PENDING', 'FAILED') LIMIT 5";

/// Deliveries that do not say what their messages say.
const UNLIKE: &str = "
    SELECT format('%s; %s', d, (m.id, m.due_at, m.integration_type, m.status, m.settled, m.last_error))
    FROM core_outbox.delivery d JOIN core_outbox.integration_outbox m ON m.id = d.message_id
    WHERE (d.due_at, d.integration, d.state)
        IS DISTINCT FROM (m.due_at, m.integration_type, core_outbox.state_of(m.status)) LIMIT 5";

const INSERT: &str = "
    INSERT INTO core_outbox.integration_outbox
        (id, source_stream_id, source_event_id, integration_type, event_type, payload, due_at, status)
    SELECT m.id, 's', m.id::text, m.lane, 't', '{\"n\": 1}',
           clock_timestamp() + make_interval(secs => m.delay), m.status
    FROM unnest($1::uuid[], $2::text[], $3::float8[], $4::text[]) AS m (id, lane, delay, status)
    RETURNING seq, id";

pub(super) struct PostgresOutbox(TestDatabase);

pub(super) async fn start() -> PostgresOutbox {
    let database = Postgres::shared().await.database().await;
    postroom_store::migrate(database.url()).await.expect("migrated");
    PostgresOutbox(database)
}

impl PostgresOutbox {
    async fn texts(&self, sql: &str) -> Vec<String> {
        let client = self.0.client().await;
        client.query(sql, &[]).await.expect("rows").iter().map(|row| row.get(0)).collect()
    }
}

#[async_trait]
impl Outbox for PostgresOutbox {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn relays_may_deadlock(&self) -> bool {
        false
    }

    async fn store(&self) -> Arc<dyn Store> {
        let options = OpenOptions {
            connections: 3,
            notify: false,
            record_later: RECORDED_LATER.map(str::to_owned).to_vec(),
            ..OpenOptions::default()
        };
        postroom_store::open(self.0.url(), &options).await.expect("store")
    }

    async fn session(&self) -> Box<dyn Session> {
        Box::new(PostgresSession(self.0.client().await))
    }

    async fn open(&self) -> i64 {
        self.0.client().await.query_one(OPEN, &[]).await.expect("a count").get(0)
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
        let sql = "SELECT id, status FROM core_outbox.integration_outbox";
        let rows = self.0.client().await.query(sql, &[]).await.expect("messages");
        rows.iter().map(|row| (row.get::<_, Uuid>(0).into(), row.get(1))).collect()
    }
}

struct PostgresSession(Client);

#[async_trait]
impl Session for PostgresSession {
    async fn execute(&mut self, sql: &str) {
        self.0.batch_execute(sql).await.expect("executed");
    }

    async fn insert(&mut self, rows: &[NewRow]) -> Vec<Key> {
        let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
        let lanes: Vec<&str> = rows.iter().map(|row| row.lane).collect();
        let delays: Vec<f64> = rows.iter().map(|row| f64::from(row.delay_ms) / 1_000.0).collect();
        let statuses: Vec<&str> = rows.iter().map(|row| row.status).collect();
        let inserted = self.0.query(INSERT, &[&ids, &lanes, &delays, &statuses]).await;
        let inserted = inserted.expect("insert");
        inserted
            .iter()
            .map(|row| Key { seq: row.get(0), id: row.get::<_, Uuid>(1).into() })
            .collect()
    }

    async fn change(&mut self, edit: &Edit, ids: &[MessageId]) -> Result<u64, String> {
        let set = match edit {
            Edit::DueSoon => "due_at = clock_timestamp() + random() * interval '300 ms'
                              WHERE status IN ('PENDING', 'FAILED')"
                .to_owned(),
            Edit::Elsewhere(lane) => {
                format!("integration_type = '{lane}' WHERE status IN ('PENDING', 'FAILED')")
            }
            Edit::Sent => "status = 'SENT' WHERE status IN ('PENDING', 'FAILED')".to_owned(),
            Edit::Opened => "status = 'PENDING' WHERE status = 'SENT'".to_owned(),
        };
        let sql = format!("UPDATE core_outbox.integration_outbox SET {set} AND id = ANY ($1)");
        let ids: Vec<Option<Uuid>> = ids.iter().map(MessageId::as_uuid).collect();
        self.0.execute(&sql, &[&ids]).await.map_err(|error| error.to_string())
    }
}
