//! The tables that are measured, filled as their producers fill them.

use anyhow::Context as _;
use postroom_store::layout::{Destination, Dialect};
use postroom_store::{Layout, MigrateOptions};
use std::sync::Arc;
use tokio_postgres::{Client, NoTls};

/// A table, and its owner's own statements.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) layout: Arc<Layout>,
    /// Inserts `$1` rows with about 300 bytes of payload each.
    pub(crate) insert: &'static str,
    /// What its owner's poller looks for, and in which order.
    pub(crate) open: &'static str,
    /// What it writes; `None` where it deletes.
    pub(crate) sent: Option<&'static str>,
}

const PAYLOAD: &str = "jsonb_build_object('orderId', n, 'note', repeat('x', 265))";

/// Every built-in layout, and a custom one with numbered rows.
pub(crate) fn all() -> anyhow::Result<Vec<Table>> {
    let built_in = |name: &str| {
        let layout = Layout::built_in(name, Dialect::Postgres)
            .with_context(|| format!("no layout {name}"))?;
        anyhow::Ok(Arc::new(Layout { to: Some(Destination::One("noop".to_owned())), ..layout }))
    };
    let typeorm =
        Arc::new(Layout::built_in("typeorm", Dialect::Postgres).context("no layout typeorm")?);
    let numbered = Layout::from_toml(
        r#"
        table = "shop_events"
        key = ["id"]
        to = "noop"
        [message]
        event_type = "m.topic"
        payload = "m.body"
        created_at = "m.at"
        [state]
        status = "CASE WHEN m.done THEN 'SENT' ELSE 'PENDING' END"
        open = "NOT m.done"
        [write]
        sent = { done = "true" }
        [create]
        sql = """
        CREATE TABLE {table} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL,
            body jsonb NOT NULL, at timestamptz NOT NULL DEFAULT now(), done boolean NOT NULL DEFAULT false);
        CREATE INDEX shop_events_open ON {table} (id) WHERE NOT done"""
        "#,
    )?;
    Ok(vec![
        Table {
            name: "events",
            layout: built_in("events")?,
            insert: "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
                     SELECT gen_random_uuid(), gen_random_uuid(), 'run.started', gen_random_uuid()::text, {payload}
                     FROM generate_series(1, $1::int) n",
            open: "delivered_at IS NULL ORDER BY created_at",
            sent: Some("delivered_at = now()"),
        },
        Table {
            name: "metadata",
            layout: built_in("metadata")?,
            insert: "INSERT INTO billing_events (id, subject, tenant_id, resource_id, payload)
                     SELECT upper(substr(replace(gen_random_uuid()::text, '-', ''), 1, 26)), 'invoice', 'acme',
                            'res_' || n, {payload} || '{\"outbox_status\": \"pending\"}'
                     FROM generate_series(1, $1::int) n",
            open: "payload->>'outbox_status' IN ('pending', 'failed') ORDER BY created_at",
            sent: Some("payload = payload || '{\"outbox_status\": \"dispatched\"}'"),
        },
        Table {
            name: "kata",
            layout: built_in("kata")?,
            insert: "INSERT INTO outbox (event_id, type, aggregate_id, payload, next_attempt_at, created_at)
                     SELECT gen_random_uuid(), 'order.created', 'ord_' || n, {payload},
                            (extract(epoch FROM now()) * 1000)::bigint, (extract(epoch FROM now()) * 1000)::bigint
                     FROM generate_series(1, $1::int) n",
            open: "status = 'PENDING' ORDER BY next_attempt_at",
            sent: Some("status = 'SENT', attempts = attempts + 1"),
        },
        Table {
            name: "debezium",
            layout: built_in("debezium")?,
            insert: "INSERT INTO outboxevent (id, aggregatetype, aggregateid, type, payload)
                     SELECT gen_random_uuid(), 'order', 'ord_' || n, 'OrderCreated', {payload}
                     FROM generate_series(1, $1::int) n",
            open: "true",
            sent: None,
        },
        Table {
            name: "typeorm",
            layout: typeorm,
            insert: "INSERT INTO core_outbox.integration_outbox
                         (\"sourceStreamId\", \"sourceEventId\", \"integrationType\", \"eventType\", payload)
                     SELECT 's', gen_random_uuid()::text, 'noop', 'payment.completed.v1', {payload}
                     FROM generate_series(1, $1::int) n",
            open: "status = 'PENDING' AND \"dueAt\" <= now() ORDER BY \"dueAt\"",
            sent: Some("status = 'SENT', \"sentAt\" = now(), \"updatedAt\" = now()"),
        },
        Table {
            name: "numbered",
            layout: Arc::new(numbered),
            insert: "INSERT INTO shop_events (topic, body) SELECT 'orders', {payload}
                     FROM generate_series(1, $1::int) n",
            open: "NOT done ORDER BY id",
            sent: Some("done = true"),
        },
    ])
}

impl Table {
    /// Its only key column.
    pub(crate) fn key(&self) -> &str {
        self.layout.key.first().map_or("id", String::as_str)
    }

    /// The statement that inserts `$1` rows.
    pub(crate) fn insert(&self) -> String {
        self.insert.replace("{payload}", PAYLOAD)
    }

    /// An empty table, and a connection.
    pub(crate) async fn empty(&self, url: &str) -> anyhow::Result<Client> {
        let client = connect(url).await?;
        if self.layout.table.starts_with("core_outbox.") {
            client.batch_execute("CREATE SCHEMA IF NOT EXISTS core_outbox").await?;
        }
        let options = MigrateOptions {
            layout: Some(Arc::clone(&self.layout)),
            services: vec!["billing_event".to_owned()],
            ..MigrateOptions::default()
        };
        postroom_store::migrate_with(url, &options).await?;
        let schema = self.layout.ledger_schema();
        let sql = format!(
            "TRUNCATE {}, {schema}.parcel, {schema}.delivery, {schema}.claim, {schema}.lane_cursor,
                 {schema}.pending_edit, {schema}.sent",
            self.layout.table
        );
        client.batch_execute(&sql).await?;
        Ok(client)
    }

    /// Empties the table and fills it. Leaves nothing to do in the background that could fall into a measurement.
    pub(crate) async fn fill(&self, url: &str, rows: usize) -> anyhow::Result<()> {
        let client = self.empty(url).await?;
        client.execute(&self.insert(), &[&i32::try_from(rows)?]).await?;
        self.settle_down(&client).await
    }

    pub(crate) async fn settle_down(&self, client: &Client) -> anyhow::Result<()> {
        let schema = self.layout.ledger_schema();
        for table in
            [&self.layout.table, &format!("{schema}.parcel"), &format!("{schema}.delivery")]
        {
            client.batch_execute(&format!("VACUUM ANALYZE {table}")).await?;
        }
        client.batch_execute("CHECKPOINT").await.context("checkpoint")
    }
}

pub(crate) async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("connecting")?;
    tokio::spawn(connection);
    Ok(client)
}
