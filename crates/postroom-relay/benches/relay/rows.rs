//! The cycle of before the ledger, in tables of its own: every message has a row that is claimed by an
//! UPDATE and deleted when the message is SENT. As many connections as `bare.rs`, used likewise.

use crate::BATCH;
use crate::outbox::{connect, settle_down};
use crate::singles::singly;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

const PAIRS: usize = 2;

const TABLES: &str = "
    DROP SCHEMA IF EXISTS row_outbox CASCADE;
    CREATE SCHEMA row_outbox;
    CREATE TABLE row_outbox.integration_outbox (LIKE core_outbox.integration_outbox INCLUDING ALL)
        WITH (fillfactor = 50);
    CREATE TABLE row_outbox.delivery (
        seq         bigint       PRIMARY KEY,
        message_id  uuid         NOT NULL,
        due_at      timestamptz  NOT NULL,
        claim       uuid,
        rescues     int          NOT NULL DEFAULT 0,
        bytes       int          NOT NULL,
        failed      boolean      NOT NULL,
        dead        boolean      NOT NULL,
        integration varchar(120) NOT NULL,
        dispatch    int          NOT NULL DEFAULT 0
    ) WITH (
        fillfactor = 45, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_scale_factor = 0,
        autovacuum_vacuum_cost_delay = 0
    );
    CREATE INDEX delivery_lane ON row_outbox.delivery
        (hashtextextended(integration, 0), due_at, seq) WHERE NOT dead AND rescues = 0;
    CREATE TRIGGER outbox_follow
        AFTER UPDATE OF status, due_at, integration_type ON row_outbox.integration_outbox
        FOR EACH ROW
        WHEN ((OLD.status IS DISTINCT FROM NEW.status OR OLD.due_at IS DISTINCT FROM NEW.due_at
               OR OLD.integration_type IS DISTINCT FROM NEW.integration_type)
              AND current_setting('core_outbox.relay', true) IS DISTINCT FROM 'on')
        EXECUTE FUNCTION core_outbox.follow_change();
    CREATE TABLE row_outbox.claim (
        token  uuid         PRIMARY KEY,
        worker varchar(120) NOT NULL,
        since  timestamptz  NOT NULL,
        until  timestamptz  NOT NULL,
        seqs   bigint[]     NOT NULL
    );";

/// What the trigger of that time did for each row.
const DELIVERIES: &str = "
    INSERT INTO row_outbox.delivery (seq, message_id, due_at, bytes, failed, dead, integration)
    SELECT seq, id, due_at, pg_column_size(payload), false, false, integration_type
    FROM row_outbox.integration_outbox ORDER BY seq";

/// As the store began its transactions.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = '2s'; \
    SET LOCAL core_outbox.relay = 'on'; SET LOCAL synchronous_commit = off; \
    SET LOCAL lock_timeout = '1s'; SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_sort = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// $1 token, $2 rows, $3 and $4 the place of the last row that was taken, $5 bytes.
const TAKE: &str = "
    WITH taken AS (
        UPDATE row_outbox.delivery
        SET claim = $1
        WHERE ctid = ANY (ARRAY(
            SELECT picked.ctid
            FROM (
                SELECT due.ctid,
                       sum(due.bytes) OVER (ROWS UNBOUNDED PRECEDING) - due.bytes AS bytes_before
                FROM (
                    SELECT d.ctid, d.bytes
                    FROM row_outbox.delivery d
                    WHERE hashtextextended(d.integration, 0) = hashtextextended('noop', 0)
                      AND d.integration = 'noop'
                      AND d.claim IS NULL AND NOT d.dead AND d.rescues = 0
                      AND (d.due_at, d.seq) > ($3::timestamptz, $4::bigint) AND d.due_at <= now()
                    ORDER BY d.due_at, d.seq
                    LIMIT $2::bigint
                    FOR UPDATE SKIP LOCKED
                ) AS due
            ) AS picked
            WHERE picked.bytes_before < $5::bigint
        ))
        RETURNING seq, message_id, rescues, due_at, claim, dispatch,
                  (bytes > 16384)::int AS caution
    ),
    held AS (
        INSERT INTO row_outbox.claim (token, worker, since, until, seqs)
        SELECT $1, 'bare', now(), now() + interval '1 minute', array_agg(seq)
        FROM taken
        HAVING count(*) > 0
    )
    SELECT t.seq, t.due_at AS delivery_due_at, t.rescues, t.claim, t.dispatch,
           m.id, m.source_event_id, m.source_stream_id, m.integration_type, m.event_type,
           CASE WHEN octet_length(m.payload_text) <= 262144 THEN m.payload_text END AS payload,
           CASE WHEN octet_length(m.headers_text) <= 262144 THEN m.headers_text END AS headers,
           m.tenant_id, m.user_id, m.correlation_id,
           m.causation_id, m.source, m.ordering_key, m.schema_version, m.copy, m.occurred_at,
           m.due_at, m.attempts, m.max_attempts, m.created_at, m.headers IS NOT NULL AS has_headers
    FROM taken t
    LEFT JOIN LATERAL (
        SELECT o.*, CASE t.caution WHEN 0 THEN o.payload::text END AS payload_text,
               CASE t.caution WHEN 0 THEN o.headers::text END AS headers_text
        FROM row_outbox.integration_outbox o
        WHERE o.id = t.message_id AND o.status IN ('PENDING', 'FAILED')
        OFFSET 0
    ) AS m ON true";

/// $1 token, $2 seqs.
const SENT: &str = "
    WITH gone AS (
        DELETE FROM row_outbox.delivery
        WHERE seq = ANY ($2) AND claim = $1
        RETURNING seq, message_id
    ),
    marked AS (
        UPDATE row_outbox.integration_outbox
        SET status = 'SENT', sent_at = now(), updated_at = now(), settled = $1
        WHERE id = ANY (ARRAY(SELECT message_id FROM gone))
    ),
    ended AS (
        DELETE FROM row_outbox.claim
        WHERE token = $1 AND cardinality(seqs) = (SELECT count(*) FROM gone)
    )
    SELECT seq FROM gone";

/// As much as the relay takes at once.
const TAKE_BYTES: i64 = 4 << 20;

type Batch = (Uuid, Vec<i64>);

pub(crate) async fn fill(url: &str, messages: usize) -> anyhow::Result<()> {
    let client = connect(url).await?;
    client.batch_execute(TABLES).await?;
    singly(&client, "row_outbox.integration_outbox", messages).await?;
    client.batch_execute(DELIVERIES).await?;
    settle_down(&client, &["row_outbox.integration_outbox", "row_outbox.delivery"]).await
}

pub(crate) async fn drain(url: &str, messages: usize) -> anyhow::Result<f64> {
    let mut connections = Vec::new();
    for _ in 0..PAIRS {
        connections.push((connect(url).await?, connect(url).await?));
    }
    let started = Instant::now();
    let mut tasks = Vec::new();
    for (taking, completing) in connections {
        let (hand_over, batches) = mpsc::channel(1);
        let taker = tokio::spawn(take(taking, hand_over));
        tasks.push((taker, tokio::spawn(complete(completing, batches))));
    }
    let mut done = 0;
    for (taker, completer) in tasks {
        taker.await??;
        done += completer.await??;
    }
    anyhow::ensure!(done == messages, "{done} of {messages} were completed");
    Ok(messages as f64 / started.elapsed().as_secs_f64())
}

async fn take(client: Client, hand_over: mpsc::Sender<Batch>) -> anyhow::Result<()> {
    let statement = client.prepare(TAKE).await?;
    let rows = i64::try_from(BATCH)?;
    let mut last = (chrono::DateTime::UNIX_EPOCH, 0_i64);
    loop {
        let token = Uuid::new_v4();
        let params: [&(dyn ToSql + Sync); 5] = [&token, &rows, &last.0, &last.1, &TAKE_BYTES];
        let (began, taken, ended) = tokio::join!(
            client.batch_execute(BEGIN),
            client.query(&statement, &params),
            client.batch_execute("COMMIT"),
        );
        began?;
        ended?;
        let taken: Vec<Row> = taken?;
        let seqs: Vec<i64> = taken.iter().map(|row| row.get("seq")).collect();
        if seqs.is_empty() {
            return Ok(());
        }
        for row in &taken {
            last = last.max((row.get("delivery_due_at"), row.get("seq")));
        }
        hand_over.send((token, seqs)).await?;
    }
}

async fn complete(client: Client, mut batches: mpsc::Receiver<Batch>) -> anyhow::Result<usize> {
    let statement = client.prepare(SENT).await?;
    let mut done = 0;
    while let Some((token, seqs)) = batches.recv().await {
        let params: [&(dyn ToSql + Sync); 2] = [&token, &seqs];
        let (began, sent, ended) = tokio::join!(
            client.batch_execute(BEGIN),
            client.query(&statement, &params),
            client.batch_execute("COMMIT"),
        );
        began?;
        ended?;
        done += sent?.len();
    }
    Ok(done)
}
