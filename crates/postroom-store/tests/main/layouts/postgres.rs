//! A table on PostgreSQL for the contract of layouts.

use super::tables::Described;
use crate::grants::{as_role, grant};
use postroom_core::Store;
use postroom_store::{MigrateOptions, OpenOptions};
use postroom_testkit::layout_contract::{End, LayoutHarness, Words};
use postroom_testkit::{Postgres, TestDatabase};
use std::sync::Arc;
use tokio_postgres::{Client, SimpleQueryMessage};

pub(super) struct Table {
    pub(super) described: Described,
    pub(super) database: TestDatabase,
    pub(super) client: Client,
}

impl Table {
    pub(super) async fn start(described: Described) -> Self {
        let database = Postgres::shared().await.database().await;
        let client = database.client().await;
        if let Some(ddl) = described.made_by {
            client.batch_execute(ddl).await.expect("the owner's statements");
        } else if described.layout.table.starts_with("core_outbox.") {
            client.batch_execute("CREATE SCHEMA core_outbox").await.expect("a schema");
        }
        let table = Self { described, database, client };
        if table.described.made_by.is_none() {
            // Made as `migrate` makes it, and left without a ledger.
            table.migrate().await;
            table.remove().await;
        }
        table
    }

    pub(super) fn options(&self) -> OpenOptions {
        let layout = Some(Arc::new(self.described.layout.clone()));
        OpenOptions { layout, ..OpenOptions::default() }
    }

    pub(super) fn schema(&self) -> String {
        self.described.layout.ledger_schema()
    }
}

impl LayoutHarness for Table {
    fn name(&self) -> String {
        format!("{} on PostgreSQL", self.described.name)
    }

    fn words(&self) -> Words {
        self.described.words
    }

    fn has_triggers(&self) -> Result<(), &'static str> {
        if self.described.layout.has_triggers() { Ok(()) } else { Err("a poll feeds its ledger") }
    }

    async fn migrate(&self) -> Vec<String> {
        let options = MigrateOptions {
            layout: Some(Arc::new(self.described.layout.clone())),
            services: vec!["billing_event".to_owned()],
            ..MigrateOptions::default()
        };
        let done = postroom_store::migrate_with(self.database.url(), &options).await;
        let done = done.unwrap_or_else(|error| {
            panic!(
                "migrated: {error}: {}",
                std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default()
            )
        });
        done.applied.iter().map(ToString::to_string).chain(done.done).collect()
    }

    async fn remove(&self) {
        postroom_store::remove_ledger(self.database.url(), &self.described.layout)
            .await
            .expect("removed");
    }

    async fn store(&self) -> Arc<dyn Store> {
        postroom_store::open(self.database.url(), &self.options()).await.expect("store")
    }

    async fn store_in_background(&self) -> Result<Arc<dyn Store>, &'static str> {
        if self.words().leaves {
            return Err("rows that leave are not recorded later");
        }
        let options =
            OpenOptions { record_later: vec![self.words().lane.to_owned()], ..self.options() };
        Ok(postroom_store::open(self.database.url(), &options).await.expect("store"))
    }

    async fn store_of_relay(&self) -> Result<Arc<dyn Store>, &'static str> {
        grant(&self.client, self.database.url(), Some(&self.described.layout)).await;
        let url = as_role(self.database.url(), "postroom_relay");
        Ok(postroom_store::open(&url, &self.options()).await.expect("store"))
    }

    async fn execute(&self, sql: &str) -> Result<(), String> {
        self.client.batch_execute(sql).await.map_err(|error| format!("{error:?}"))
    }

    async fn execute_uncommitted(&self, sql: &str) -> End {
        let client = self.database.client().await;
        client.batch_execute(&format!("BEGIN; {sql}")).await.expect("begun");
        Box::pin(async move { client.batch_execute("COMMIT").await.expect("committed") })
    }

    async fn value(&self, sql: &str) -> Option<String> {
        let answer =
            self.client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
    }

    async fn described(&self) -> Vec<String> {
        let sql = "SELECT 'column ' || attname || ' ' || format_type(atttypid, atttypmod) FROM pg_attribute
                   WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
                   UNION ALL SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = to_regclass($1)
                   UNION ALL SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = to_regclass($1)
                   ORDER BY 1";
        let rows = self.client.query(sql, &[&self.words().table]).await.expect("the catalogue");
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn enqueue(
        &self,
        event: &str,
        stream: &str,
        payload: &str,
    ) -> Result<(String, bool), &'static str> {
        if self.described.layout.insert.is_empty() {
            return Err("its layout has no `insert`");
        }
        let sql = format!(
            "SELECT id::text, is_new FROM {}.enqueue($1, 'order.created', $2::text::jsonb, stream => $3, event_id => $4, \
             tenant => $5)",
            self.schema()
        );
        let lane = self.words().lane;
        let row = self
            .client
            .query_one(
                &sql,
                &[
                    &lane,
                    &payload,
                    &self.described.held("$stream", stream),
                    &event,
                    &self.described.held("$tenant_id", "acme"),
                ],
            )
            .await
            .expect("enqueued");
        Ok((row.get(0), row.get(1)))
    }

    async fn execute_unseen(&self, sql: &str) {
        let sql = format!(
            "SET session_replication_role = replica; {sql}; RESET session_replication_role"
        );
        self.client.batch_execute(&sql).await.expect("restored");
    }

    async fn expire_claims(&self) {
        let sql = format!("UPDATE {}.relay SET until = now() - interval '1 second'", self.schema());
        self.client.batch_execute(&sql).await.expect("expired");
    }

    async fn left_in_ledger(&self) -> u64 {
        let schema = self.schema();
        let sql = format!(
            "SELECT (SELECT count(*) FROM {schema}.parcel) + (SELECT count(*) FROM {schema}.claim)
                  + (SELECT count(*) FROM {schema}.delivery) + (SELECT count(*) FROM {schema}.pending_edit)
                  + (SELECT count(*) FROM {schema}.sent)"
        );
        let count = self.value(&sql).await.expect("a count");
        count.parse().expect("a number")
    }

    async fn truncate(&self) {
        let sql = format!("TRUNCATE {} RESTART IDENTITY", self.words().table);
        self.client.batch_execute(&sql).await.expect("emptied");
    }
}
