//! Tables that somebody else made: what is read of them follows the batch, whatever their history and statistics.

use super::{LIMIT, RELAY, explain, explain_under, rows_read};
use crate::layout::{Destination, Dialect, Layout};
use crate::postgres::content::READ_PARCELS;
use crate::postgres::layout::Foreign;
use crate::postgres::outcomes::{PARCELS_FAILED, PARCELS_SENT, PARCELS_SENT_DELETE, SENT_DELETE};
use crate::postgres::parcels::TAKE_PARCELS;
use crate::postgres::statements::{SETTLE_SENT, TAKE};
use crate::postgres::transaction::{BEGIN, BEGIN_CLAIMING, BEGIN_SETTLING, JOIN_BY_HASH};
use crate::{MigrateOptions, migrate_with};
use postroom_testkit::{Postgres, TestDatabase};
use serde_json::Value;
use std::sync::Arc;
use tokio_postgres::Client;
use uuid::Uuid;

/// Rows that were delivered long ago.
pub(super) const HISTORY: i64 = 20_000;

pub(super) struct Table {
    _database: TestDatabase,
    pub(super) client: Client,
    pub(super) foreign: Foreign,
    /// As plans name it.
    pub(super) name: String,
}

impl Table {
    /// A table with a history and as many open rows as two batches.
    pub(super) async fn filled(layout: Layout, insert: &str, close: &str) -> Self {
        let database = Postgres::shared().await.database().await;
        let client = database.client().await;
        if layout.table.starts_with("core_outbox.") {
            client.batch_execute("CREATE SCHEMA core_outbox").await.unwrap();
        }
        let layout = Arc::new(layout);
        let options = MigrateOptions {
            layout: Some(Arc::clone(&layout)),
            services: vec!["billing_event".to_owned()],
            ..MigrateOptions::default()
        };
        migrate_with(database.url(), &options).await.unwrap();
        let foreign = Foreign::find(&client, &layout).await.unwrap();
        let schema = foreign.layout.ledger_schema();
        let rows = |from: i64, to: i64| {
            insert.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())
        };
        client
            .batch_execute(&format!(
                "ALTER TABLE {table} SET (autovacuum_enabled = off);
                 {history};
                 BEGIN; SET LOCAL core_outbox.relay = 'on'; UPDATE {table} SET {close}; COMMIT;
                 DELETE FROM {schema}.parcel; DELETE FROM {schema}.delivery;
                 {open};
                 INSERT INTO {schema}.relay VALUES ({RELAY}, 'w', now(), now() + interval '1 day', '1', 1);
                 INSERT INTO {schema}.lane_cursor (lane) VALUES ({schema}.lane_of('noop'))",
                table = layout.table,
                history = rows(1, HISTORY),
                open = rows(HISTORY + 1, HISTORY + 2 * LIMIT),
            ))
            .await
            .unwrap();
        let name = layout.table.rsplit('.').next().unwrap_or_default().to_owned();
        Self { _database: database, client, foreign, name }
    }

    pub(super) async fn prepare(&self, name: &str, types: &str, sql: &str) {
        let sql = self.foreign.rendered(sql);
        self.client
            .batch_execute(&format!("PREPARE {name} ({types}) AS {sql}"))
            .await
            .unwrap_or_else(|error| panic!("{name}: {error:?}\n{sql}"));
    }

    /// As many rows as two look-ups of a batch by key read, and nothing of the history.
    pub(super) fn assert_reads_a_batch(&self, plan: &Value, what: &str) {
        let rows = rows_read(plan, &self.name);
        assert!(rows <= 2.0 * LIMIT as f64, "{what} reads {rows} rows of {}: {plan:#}", self.name);
    }

    /// Takes a batch, reads it, records one half as sent and the other as failed, and takes that again.
    async fn look_at_every_plan(&self) {
        let Self { client, .. } = self;
        let id = self.foreign.key_type();
        self.prepare(
            "take_parcels",
            "uuid, text, uuid, text[], int[], bigint, bigint, int, boolean",
            TAKE_PARCELS,
        )
        .await;
        self.prepare("read_parcels", "int, uuid", READ_PARCELS).await;
        let (of_parcels, of_deliveries, seconds, zero) = if self.foreign.layout.deletes_sent() {
            (PARCELS_SENT_DELETE, SENT_DELETE, ", float8", ", 0")
        } else {
            (PARCELS_SENT, SETTLE_SENT, "", "")
        };
        self.prepare("sent", &format!("uuid, {id}[]{seconds}"), of_parcels).await;
        self.prepare("sent_again", &format!("uuid, {id}[]{seconds}"), of_deliveries).await;
        self.prepare(
            "failed",
            &format!("int, uuid, {id}[], float8[], text[], boolean[], text[], bigint[]"),
            PARCELS_FAILED,
        )
        .await;
        self.prepare(
            "take",
            "int, uuid, text, uuid, text[], int[], timestamptz[], bigint[], bigint, bigint, boolean",
            TAKE,
        )
        .await;
        let token = Uuid::new_v4();
        let execute = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE take_parcels ('{token}', 'w', {RELAY}, ARRAY['noop'], \
             ARRAY[{LIMIT}], {LIMIT}, 67108864, 64, true)"
        );
        explain_under(client, BEGIN_CLAIMING, &execute).await;
        let schema = self.foreign.layout.ledger_schema();
        let sql =
            format!("SELECT message_id::text FROM {schema}.in_flight WHERE token = '{token}'");
        let ids: Vec<String> =
            client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        assert!(ids.len() >= 900, "{} were taken of {}", ids.len(), self.name);

        self.prepare("shown", id, "SELECT status FROM core_outbox.messages WHERE id = $1").await;
        let execute = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE shown ('{}')",
            ids[0].replace('\'', "''")
        );
        let plan = explain(client, &execute).await;
        let rows = rows_read(&plan, &self.name);
        assert!(rows <= 2.0, "one message is shown by reading {rows} rows: {plan:#}");

        let execute =
            format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE read_parcels (262144, '{token}')");
        let plan = explain(client, &execute).await;
        self.assert_reads_a_batch(&plan, "reading");

        let (sent, failed) = ids.split_at(ids.len() / 2);
        let list = |ids: &[String]| self.list(ids);
        let execute = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE sent ('{token}', {}{zero})",
            list(sent)
        );
        let plan = explain_under(client, BEGIN_SETTLING, &execute).await;
        self.assert_reads_a_batch(&plan, "recording SENT");

        let of = |value: &str, kind: &str| {
            format!("array_fill({value}, ARRAY[{}])::{kind}[]", failed.len())
        };
        let execute = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE failed (100, '{token}', {}, {}, {}, {}, {}, {})",
            list(failed),
            of("0::float8", "float8"),
            of("'e'::text", "text"),
            of("false", "boolean"),
            of("'retry'::text", "text"),
            of("1::bigint", "bigint"),
        );
        let plan =
            explain_under(client, &format!("{BEGIN_SETTLING}; {JOIN_BY_HASH}"), &execute).await;
        let rows = rows_read(&plan, &self.name);
        assert!(
            rows <= 4.0 * LIMIT as f64,
            "recording failures reads {rows} rows of {}: {plan:#}",
            self.name
        );

        let execute = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE take (262144, gen_random_uuid(), 'w', {RELAY}, \
             ARRAY['noop'], ARRAY[{LIMIT}], ARRAY['epoch'::timestamptz], ARRAY[0::bigint], {LIMIT}, 67108864, false)"
        );
        let plan = explain_under(client, BEGIN, &execute).await;
        self.assert_reads_a_batch(&plan, "taking what failed");

        let sql =
            format!("SELECT claim::text FROM {schema}.delivery WHERE claim IS NOT NULL LIMIT 1");
        let token: String = client.query_one(&sql, &[]).await.unwrap().get(0);
        let execute = format!(
            "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE sent_again ('{token}', {}{zero})",
            list(failed)
        );
        let plan = explain_under(client, BEGIN_SETTLING, &execute).await;
        self.assert_reads_a_batch(&plan, "recording SENT of what was taken again");
        // Once to end them, and once for each that counts its rescues.
        let deliveries = rows_read(&plan, "delivery");
        assert!(deliveries <= 2.0 * LIMIT as f64, "{deliveries} deliveries read: {plan:#}");
    }

    /// These keys as an array.
    pub(super) fn list(&self, ids: &[String]) -> String {
        let ids: Vec<String> =
            ids.iter().map(|id| format!("'{}'", id.replace('\'', "''"))).collect();
        format!("ARRAY[{}]::{}[]", ids.join(", "), self.foreign.key_type())
    }
}

/// No statistics, true ones, and those of a queue that was just emptied.
pub(super) const STATISTICS: [&str; 3] =
    ["SELECT 1", "ANALYZE", "UPDATE pg_class SET reltuples = 0, relpages = 0 WHERE relkind = 'r'"];

pub(super) fn to_noop(layout: Layout) -> Layout {
    Layout { to: Some(Destination::One("noop".to_owned())), ..layout }
}

pub(super) fn built_in(name: &str) -> Layout {
    to_noop(Layout::built_in(name, Dialect::Postgres).unwrap())
}

async fn look_at(layout: Layout, insert: &str, close: &str) {
    let layout = to_noop(layout);
    for statistics in STATISTICS {
        let table = Table::filled(layout.clone(), insert, close).await;
        table.client.batch_execute(statistics).await.unwrap();
        table.look_at_every_plan().await;
    }
}

#[tokio::test]
async fn a_key_that_is_a_uuid() {
    let insert = "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
        SELECT gen_random_uuid(), gen_random_uuid(), 't', n::text, '{}' FROM generate_series({from}, {to}) n";
    look_at(built_in("events"), insert, "delivered_at = now()").await;
}

#[tokio::test]
async fn a_key_that_is_a_text_and_state_inside_a_document() {
    let insert = "INSERT INTO billing_events (id, subject, tenant_id, payload)
        SELECT 'e' || n, 's', 't', '{\"outbox_status\": \"pending\"}' FROM generate_series({from}, {to}) n";
    let close = "payload = '{\"outbox_status\": \"dispatched\"}'";
    look_at(built_in("metadata"), insert, close).await;
}

#[tokio::test]
async fn a_status_and_times_as_numbers() {
    let insert =
        "INSERT INTO outbox (event_id, type, aggregate_id, payload, next_attempt_at, created_at)
        SELECT gen_random_uuid(), 't', 'o' || n, '{}', 0, 0 FROM generate_series({from}, {to}) n";
    look_at(built_in("kata"), insert, "status = 'SENT'").await;
}

/// Rows that the ledger knows nothing of stand for a backlog of another relay's.
#[tokio::test]
async fn rows_that_leave_when_they_were_delivered() {
    let insert = "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type)
        SELECT gen_random_uuid(), 'order', 'o' || n, 't' FROM generate_series({from}, {to}) n";
    look_at(built_in("debezium"), insert, "type = 't'").await;
}

#[tokio::test]
async fn a_key_of_several_columns_or_of_a_number() {
    for key in ["[\"no\"]", "[\"shop\", \"no\"]"] {
        let layout = Layout::from_toml(&format!(
            r#"
            table = "shop_events"
            key = {key}
            [message]
            event_type = "m.topic"
            payload = "m.body"
            created_at = "m.at"
            [state]
            status = "CASE WHEN m.done THEN 'SENT' ELSE 'PENDING' END"
            [write]
            sent = {{ done = "true" }}
            [create]
            sql = """
            CREATE TABLE {{table}} (shop int NOT NULL, no bigint NOT NULL, topic text NOT NULL, body jsonb NOT NULL,
                at timestamptz NOT NULL DEFAULT now(), done boolean NOT NULL DEFAULT false, PRIMARY KEY ({columns}))"""
            "#,
            columns = key.replace(['[', ']', '"'], ""),
        ));
        let insert = "INSERT INTO shop_events (shop, no, topic, body)
            SELECT n % 7, n, 't', '{}' FROM generate_series({from}, {to}) n";
        look_at(layout.unwrap(), insert, "done = true").await;
    }
}
