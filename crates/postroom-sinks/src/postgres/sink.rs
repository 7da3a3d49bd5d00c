//! One statement for a batch, and one for each message where the batch fails over one of them.

use super::classify::{Fault, classify};
use super::config::PostgresConfig;
use super::connection::Server;
use crate::registry::BuildError;
use async_trait::async_trait;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use std::sync::Mutex;
use std::sync::PoisonError;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

/// Inserts messages into one table. A key that is there already counts as delivered.
pub struct PostgresSink {
    config: PostgresConfig,
    place: String,
    insert: String,
    server: Server,
}

impl PostgresSink {
    /// A sink for `config`. Connects to nothing yet.
    ///
    /// # Errors
    /// When TLS cannot be set up, such as without the file of authorities.
    pub fn new(config: PostgresConfig) -> Result<Self, BuildError> {
        let server = Server::new(&config)?;
        let (place, insert) = (config.place(), config.statement.insert());
        Ok(Self { config, place, insert, server })
    }

    /// Inserts rows in one transaction.
    async fn insert(&self, client: &Client, rows: &[&str]) -> Result<(), Fault> {
        let rows = format!("[{}]", rows.join(","));
        let inserted = client.execute_typed(&self.insert, &[(&rows, Type::TEXT)]).await;
        inserted.map(drop).map_err(|error| Fault::of(&error))
    }

    /// Inserts all of them, or finds the one that stands in the way.
    async fn insert_all(&self, rows: &[(usize, String)], report: impl Fn(usize, Outcome)) {
        let all: Vec<&str> = rows.iter().map(|(_, row)| row.as_str()).collect();
        let (client, whole) = match self.first(&all).await {
            Ok(both) => both,
            Err(fault) => {
                return rows.iter().for_each(|(i, _)| report(*i, classify(&self.place, &fault)));
            }
        };
        match whole {
            Ok(()) => rows.iter().for_each(|(index, _)| report(*index, Outcome::Delivered)),
            Err(fault) if fault.concerns_a_row() && rows.len() > 1 => {
                for (index, row) in rows {
                    match self.insert(&client, &[row]).await {
                        Ok(()) => report(*index, Outcome::Delivered),
                        Err(fault) => report(*index, classify(&self.place, &fault)),
                    }
                }
            }
            Err(fault) => rows.iter().for_each(|(i, _)| report(*i, classify(&self.place, &fault))),
        }
        self.server.put_back(client);
    }

    /// A connection, and what it says to the whole batch. The database may have closed what was
    /// idle; since a key is inserted once, trying again on a new connection does no harm.
    async fn first(&self, rows: &[&str]) -> Result<(Client, Result<(), Fault>), Fault> {
        if let Some(client) = self.server.take() {
            match self.insert(&client, rows).await {
                Err(Fault::Lost(_)) => {}
                answered => return Ok((client, answered)),
            }
        }
        let client = self.server.connect().await.map_err(|error| Fault::of(&error))?;
        let answered = self.insert(&client, rows).await;
        Ok((client, answered))
    }

    fn too_slow(&self) -> Outcome {
        Outcome::retry(format!("no answer from {} within {:?}", self.place, self.config.timeout))
    }
}

#[async_trait]
impl Sink for PostgresSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let mut rows = Vec::with_capacity(batch.len());
        for (index, message) in batch.iter().enumerate() {
            match self.config.statement.row(&self.config.wrapping, message) {
                Ok(row) => rows.push((index, row)),
                Err(rejection) => report.outcome(index, rejection),
            }
        }
        if rows.is_empty() {
            return;
        }
        let settled = Mutex::new(vec![false; batch.len()]);
        let settle = |index: usize, outcome: Outcome| {
            settled.lock().unwrap_or_else(PoisonError::into_inner)[index] = true;
            report.outcome(index, outcome);
        };
        if timeout(self.config.timeout, self.insert_all(&rows, settle)).await.is_err() {
            let settled = settled.into_inner().unwrap_or_else(PoisonError::into_inner);
            for (index, _) in rows.iter().filter(|(index, _)| !settled[*index]) {
                report.outcome(*index, self.too_slow());
            }
        }
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let explain = async {
            let client = self.server.connect().await?;
            client.simple_query(&self.config.statement.explain()).await.map(drop)
        };
        let outcome = match timeout(self.config.timeout, explain).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => classify(&self.place, &Fault::of(&error)),
            Err(_) => self.too_slow(),
        };
        match outcome {
            Outcome::Delivered => Ok(()),
            Outcome::Retry { error, .. }
            | Outcome::Reject { error }
            | Outcome::Gone { error }
            | Outcome::Refuse { error } => Err(ProbeError(error)),
        }
    }
}
