//! The sink contract.

use super::{TABLE, configured, database, psql};
use postroom_core::{Message, RawJson, Sink};
use postroom_testkit::TestDatabase;
use postroom_testkit::sink_contract::{Received, SinkHarness, message};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;

struct Table {
    database: TestDatabase,
    port: u16,
}

async fn start() -> Table {
    let database = database(TABLE).await;
    let config: tokio_postgres::Config = database.url().parse().unwrap();
    let port = config.get_ports().first().copied().unwrap_or(5432);
    Table { database, port }
}

impl SinkHarness for Table {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn server(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        let (from, to) = (format!(":{}/", self.port), format!(":{}/", address.port()));
        configured(&self.database.url().replacen(&from, &to, 1), json!({}))
    }

    async fn received(&self) -> Vec<Received> {
        let query = "SELECT coalesce(json_agg(e), '[]') FROM events e";
        let rows = psql(self.database.url(), query);
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| Received {
            key: row["headers"]["idempotency-key"].as_str().unwrap().to_owned(),
            body: row["payload"].to_string(),
            attributes: row["headers"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
                .collect(),
        })
        .collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        Ok(Message { payload: RawJson::trusted(r#""nul \u0000""#), ..message("bad") })
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        let payload = RawJson::trusted(format!("\"{}\"", "x".repeat(200_000)));
        Ok(Message { payload, ..message("large") })
    }

    fn recovers_by_itself(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

postroom_testkit::sink_contract_tests!(start);
