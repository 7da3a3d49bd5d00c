//! A table as an older outbox made it, with rows in every status, and those who work on it.

use postroom_core::Store;
use postroom_store::OpenOptions;
use postroom_testkit::{Postgres, TestDatabase};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// Its definition, word for word.
const DEFINITION: &str = "
    CREATE SCHEMA IF NOT EXISTS core_outbox;
    CREATE TABLE IF NOT EXISTS core_outbox.integration_outbox (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      source_stream_id varchar(200) NOT NULL,
      source_event_id varchar(100) NOT NULL,
      integration_type varchar(120) NOT NULL,
      event_type varchar(120) NOT NULL,
      payload jsonb NOT NULL,
      headers jsonb,
      tenant_id varchar(60),
      user_id varchar(60),
      correlation_id varchar(120),
      due_at timestamptz NOT NULL DEFAULT now(),
      attempts int NOT NULL DEFAULT 0,
      max_attempts int NOT NULL DEFAULT 10,
      status varchar(20) NOT NULL DEFAULT 'PENDING',
      locked_at timestamptz,
      locked_by varchar(120),
      created_at timestamptz NOT NULL DEFAULT now(),
      updated_at timestamptz NOT NULL DEFAULT now(),
      sent_at timestamptz,
      last_error text
    );
    CREATE UNIQUE INDEX IF NOT EXISTS ux_outbox_source ON core_outbox.integration_outbox (source_stream_id, source_event_id);
    CREATE INDEX IF NOT EXISTS ix_outbox_status_due ON core_outbox.integration_outbox (status, due_at);";

/// How its dispatcher claims.
pub(crate) const CLAIM: &str = "
    UPDATE core_outbox.integration_outbox
    SET status = 'CLAIMED', locked_by = 'old-worker', locked_at = now()
    WHERE status = 'PENDING' AND id IN (
        SELECT id FROM core_outbox.integration_outbox
        WHERE status = 'PENDING' AND due_at <= now()
        ORDER BY due_at LIMIT 100 FOR UPDATE SKIP LOCKED
    )
    RETURNING id";

/// How its projector enqueues.
const INSERT: &str = "
    INSERT INTO core_outbox.integration_outbox
        (source_stream_id, source_event_id, integration_type, event_type, payload)
    VALUES ($1, $2, 'noop', 'order.created.v1', '{}')
    ON CONFLICT (source_stream_id, source_event_id) DO NOTHING";

pub(crate) struct OldTable {
    pub(crate) database: TestDatabase,
    pub(crate) client: Client,
}

impl OldTable {
    pub(crate) async fn empty() -> Self {
        let database = Postgres::shared().await.database().await;
        let client = database.client().await;
        client.batch_execute(DEFINITION).await.expect("the old table");
        Self { database, client }
    }

    /// With `each` rows in every status there is, and one nobody knows; the event ids say which.
    /// FAILED rows have tried once; every second CLAIMED row too.
    pub(crate) async fn filled(each: u32) -> Self {
        let table = Self::empty().await;
        table
            .execute(&format!(
                "INSERT INTO core_outbox.integration_outbox
                     (source_stream_id, source_event_id, integration_type, event_type, payload,
                      status, attempts, created_at, due_at, sent_at, locked_by, locked_at)
                 SELECT 'stream', status || '-' || n, 'noop', 'order.created.v1',
                        jsonb_build_object('n', n), status,
                        CASE status WHEN 'FAILED' THEN 1 WHEN 'CLAIMED' THEN n % 2 ELSE 0 END,
                        now() - interval '1 day' + n * interval '1 second',
                        now() - interval '1 day',
                        CASE status WHEN 'SENT' THEN now() END,
                        CASE status WHEN 'CLAIMED' THEN 'old-worker' END,
                        CASE status WHEN 'CLAIMED' THEN now() END
                 FROM unnest(ARRAY['PENDING', 'CLAIMED', 'SENT', 'FAILED', 'DEAD', 'ON_HOLD'])
                          AS status,
                      generate_series(1, {each}) n"
            ))
            .await;
        table
    }

    pub(crate) fn url(&self) -> &str {
        self.database.url()
    }

    pub(crate) async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The answer to a query for one text.
    pub(crate) async fn text(&self, query: &str) -> String {
        let row = self.client.query_one(query, &[]).await.expect("an answer");
        row.get::<_, Option<String>>(0).unwrap_or_default()
    }

    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        postroom_store::open(self.url(), &OpenOptions::default()).await.expect("a store")
    }

    /// A producer of the old kind on a connection of its own, as `role` if one is named, with
    /// events of its own: while two fences stand, PostgreSQL may refuse the same event of two
    /// producers at the same moment instead of leaving one out.
    pub(crate) async fn producer(&self, role: Option<&str>) -> Producer {
        let client = self.database.client().await;
        if let Some(role) = role {
            client.batch_execute(&format!("SET ROLE {role}")).await.expect("the role");
        }
        let (stop, committed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&committed));
        let own = role.unwrap_or("known").to_owned();
        let work = tokio::spawn(async move {
            while !stopped.load(Ordering::Acquire) {
                let n = count.load(Ordering::Acquire);
                // Each event twice, as after a crash of the projector.
                for _ in 0..2 {
                    client
                        .execute(INSERT, &[&format!("live-{}", n % 7), &format!("{own}-{n}")])
                        .await
                        .expect("a producer never fails");
                }
                count.fetch_add(1, Ordering::AcqRel);
            }
        });
        Producer { stop, committed, work }
    }
}

pub(crate) struct Producer {
    stop: Arc<AtomicBool>,
    committed: Arc<AtomicU32>,
    work: JoinHandle<()>,
}

impl Producer {
    /// How many events it has committed so far.
    pub(crate) fn committed(&self) -> u32 {
        self.committed.load(Ordering::Acquire)
    }

    /// Ends it, and returns how many events it has committed.
    pub(crate) async fn end(self) -> u32 {
        self.stop.store(true, Ordering::Release);
        self.work.await.expect("the producer did not fail");
        self.committed.load(Ordering::Acquire)
    }
}
