//! The seed's own table, indexes and statements, in batches on two connections.

use crate::BATCH;
use crate::outbox::{connect, settle_down};
use std::time::Instant;
use tokio_postgres::Client;
use uuid::Uuid;

const TABLE: &str = "
    DROP SCHEMA IF EXISTS seed_outbox CASCADE;
    CREATE SCHEMA seed_outbox;
    CREATE TABLE seed_outbox.integration_outbox (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        source_stream_id varchar(200) NOT NULL, source_event_id varchar(100) NOT NULL,
        integration_type varchar(120) NOT NULL, event_type varchar(120) NOT NULL,
        payload jsonb NOT NULL, headers jsonb,
        tenant_id varchar(60), user_id varchar(60), correlation_id varchar(120),
        due_at timestamptz NOT NULL DEFAULT now(),
        attempts int NOT NULL DEFAULT 0, max_attempts int NOT NULL DEFAULT 10,
        status varchar(20) NOT NULL DEFAULT 'PENDING',
        locked_at timestamptz, locked_by varchar(120),
        created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(),
        sent_at timestamptz, last_error text);
    CREATE UNIQUE INDEX ux_outbox_source ON seed_outbox.integration_outbox (source_stream_id, source_event_id);
    CREATE INDEX ix_outbox_status_due ON seed_outbox.integration_outbox (status, due_at);";

/// The claim as the seed writes it, its updates made one statement per batch: whole rows are
/// locked and read, then marked, in one transaction.
const DUE: &str = "
    SELECT id, source_stream_id, source_event_id, integration_type, event_type, payload::text,
           headers::text, tenant_id, user_id, correlation_id, due_at, attempts, max_attempts,
           status, locked_at, locked_by, created_at, updated_at, sent_at, last_error
    FROM seed_outbox.integration_outbox
    WHERE status = 'PENDING' AND due_at <= now()
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED";
const CLAIM: &str = "
    UPDATE seed_outbox.integration_outbox
    SET status = 'CLAIMED', locked_by = $1, locked_at = now()
    WHERE id = ANY ($2) AND status = 'PENDING'";
const MARK: &str = "
    UPDATE seed_outbox.integration_outbox SET status = 'SENT', sent_at = now(), updated_at = now()
    WHERE id = ANY ($1)";

pub(crate) async fn fill(url: &str, messages: usize) -> anyhow::Result<()> {
    let client = connect(url).await?;
    client.batch_execute(TABLE).await?;
    client
        .batch_execute(&format!(
            "INSERT INTO seed_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload)
             SELECT 'order-' || n, gen_random_uuid()::text, 'noop', 'order.created.v1',
                    jsonb_build_object('orderId', n, 'note', repeat('x', 265))
             FROM generate_series(1, {messages}) n"
        ))
        .await?;
    settle_down(&client, &["seed_outbox.integration_outbox"]).await
}

pub(crate) async fn drain(url: &str, messages: usize) -> anyhow::Result<f64> {
    let clients = [connect(url).await?, connect(url).await?];
    let started = Instant::now();
    let workers = clients.map(|client| tokio::spawn(work(client)));
    let mut done = 0;
    for worker in workers {
        done += worker.await??;
    }
    anyhow::ensure!(done == messages, "{done} of {messages} were completed");
    Ok(messages as f64 / started.elapsed().as_secs_f64())
}

async fn work(mut client: Client) -> anyhow::Result<usize> {
    let due = client.prepare(DUE).await?;
    let claim = client.prepare(CLAIM).await?;
    let mark = client.prepare(MARK).await?;
    let mut done = 0;
    loop {
        let tx = client.transaction().await?;
        let rows = tx.query(&due, &[&i64::try_from(BATCH)?]).await?;
        if rows.is_empty() {
            return Ok(done);
        }
        let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        tx.execute(&claim, &[&"seed", &ids]).await?;
        tx.commit().await?;
        client.execute(&mark, &[&ids]).await?;
        done += rows.len();
    }
}
