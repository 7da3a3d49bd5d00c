//! One statement for a batch, and one for each message where the batch fails over one of them.

use super::classify::{Fault, classify};
use super::config::PostgresConfig;
use super::connection::connections;
use crate::batch::Batch;
use crate::pool::{Lent, Pool};
use crate::registry::BuildError;
use async_trait::async_trait;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

/// Inserts messages into one table. A key that is there already counts as delivered.
pub struct PostgresSink {
    config: PostgresConfig,
    place: String,
    insert: String,
    connections: Pool<Client>,
}

impl PostgresSink {
    /// A sink for `config`. Connects to nothing yet.
    ///
    /// # Errors
    /// When TLS cannot be set up, such as without the file of authorities.
    pub fn new(config: PostgresConfig) -> Result<Self, BuildError> {
        let connections = connections(&config)?;
        let (place, insert) = (config.place(), config.statement.insert());
        Ok(Self { config, place, insert, connections })
    }

    /// Inserts rows in one transaction.
    async fn insert(&self, client: &Client, rows: &[&str]) -> Result<(), Fault> {
        let rows = format!("[{}]", rows.join(","));
        let inserted = client.execute_typed(&self.insert, &[(&rows, Type::TEXT)]).await;
        inserted.map(drop).map_err(|error| Fault::of(&error))
    }

    /// Inserts all of them, or finds the one that stands in the way.
    async fn insert_all(&self, rows: &[(usize, String)], batch: &Batch<'_>, deadline: Instant) {
        let all: Vec<&str> = rows.iter().map(|(_, row)| row.as_str()).collect();
        let (lent, whole) = match self.first(&all, deadline).await {
            Ok(both) => both,
            Err(outcome) => return batch.settle_rest(&outcome),
        };
        // A standby, or a primary that became one: its name may lead to another by now.
        let is_read_only = matches!(&whole, Err(Fault::Code(code, _)) if code == "25006");
        match whole {
            Ok(()) => batch.settle_rest(&Outcome::Delivered),
            Err(fault) if fault.concerns_a_row() && rows.len() > 1 => {
                for (index, row) in rows {
                    let inserted = self.insert(&lent.connection, &[row]).await;
                    batch.settle(*index, self.judge(inserted));
                }
            }
            Err(fault) => batch.settle_rest(&self.judge(Err(fault))),
        }
        if lent.connection.is_closed() || is_read_only {
            self.connections.lost(lent);
        } else {
            self.connections.give_back(lent);
        }
    }

    /// A connection, and what it says to the whole batch. The database may have closed what was
    /// idle; since a key is inserted once, trying again on another connection does no harm.
    async fn first(
        &self,
        rows: &[&str],
        deadline: Instant,
    ) -> Result<(Lent<Client>, Result<(), Fault>), Outcome> {
        let lent = self.connections.take(deadline).await?;
        match self.insert(&lent.connection, rows).await {
            Err(Fault::Lost(_)) => self.connections.lost(lent),
            answered => return Ok((lent, answered)),
        }
        let lent = self.connections.take(deadline).await?;
        let answered = self.insert(&lent.connection, rows).await;
        Ok((lent, answered))
    }

    fn judge(&self, inserted: Result<(), Fault>) -> Outcome {
        inserted.map_or_else(|fault| classify(&self.place, &fault), |()| Outcome::Delivered)
    }

    fn too_slow(&self) -> Outcome {
        Outcome::retry(format!("no answer from {} within {:?}", self.place, self.config.timeout))
    }
}

#[async_trait]
impl Sink for PostgresSink {
    async fn deliver(&self, messages: &[Message], report: &Report<'_>) {
        let batch = Batch::new(report, messages.len());
        let deadline = Instant::now() + self.config.timeout;
        let rows = batch.prepare(messages, |index, message| {
            Ok((index, self.config.statement.row(&self.config.wrapping, message)?))
        });
        if rows.is_empty() {
            return;
        }
        if timeout_at(deadline, self.insert_all(&rows, &batch, deadline)).await.is_err() {
            self.connections.doubt();
            batch.settle_rest(&self.too_slow());
        }
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.config.timeout;
        let client = self.connections.make(deadline).await.map_err(ProbeError::from)?;
        let explain = self.config.statement.explain();
        match timeout_at(deadline, client.simple_query(&explain)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(classify(&self.place, &Fault::of(&error)).into()),
            Err(_) => Err(self.too_slow().into()),
        }
    }
}
