//! The postgres sink against a real server, read back by psql.

mod contract;
mod hosts;
mod rows;
mod tls;

use crate::destination::sink;
use postroom_core::Sink;
use postroom_testkit::{Postgres, TestDatabase, find_postgres};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;

const TABLE: &str = "CREATE TABLE events (
    idempotency_key text PRIMARY KEY,
    event_id text NOT NULL,
    event_type text NOT NULL,
    stream text NOT NULL,
    occurred_at timestamptz,
    headers jsonb NOT NULL,
    payload jsonb NOT NULL CHECK (octet_length(payload::text) < 100000)
)";

/// A database of its own with the table of the documentation.
async fn database(table: &str) -> TestDatabase {
    let database = Postgres::shared().await.database().await;
    database.client().await.batch_execute(table).await.unwrap();
    database
}

fn configured(url: &str, mut options: Value) -> Arc<dyn Sink> {
    options["url"] = json!(url);
    sink("postgres:events", options)
}

/// What PostgreSQL's own client answers to a query with one JSON document.
fn psql(url: &str, query: &str) -> Value {
    let program = find_postgres().map_or("psql".into(), |folder| folder.join("psql"));
    let output = Command::new(program).args([url, "-XAtc", query]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
