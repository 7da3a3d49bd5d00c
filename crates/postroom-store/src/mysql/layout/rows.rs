//! The table of a layout, as a store has it.

use super::Foreign;
use crate::layout::{Layout, backticked};
use crate::mysql::pool::Pool;
use crate::mysql::session::Session;
use postroom::Outbox;
use postroom_core::StoreResult;
use sqlx::Error;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// A layout, and its table, which is looked up when it is first needed: there may be none before the first migration.
#[derive(Debug)]
pub(in crate::mysql) struct Rows {
    layout: Arc<Layout>,
    /// The database that the URL names.
    database: String,
    found: OnceCell<Foreign>,
}

impl Rows {
    pub(in crate::mysql) fn new(layout: Arc<Layout>, database: &str) -> Self {
        Self { layout, database: database.to_owned(), found: OnceCell::new() }
    }

    pub(in crate::mysql) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(in crate::mysql) fn database(&self) -> &str {
        &self.database
    }

    /// The database that is the ledger.
    pub(in crate::mysql) fn ledger(&self) -> String {
        self.layout.ledger_database(&self.database)
    }

    /// Postroom's own outbox beside the table.
    pub(in crate::mysql) fn own_outbox(&self) -> Outbox {
        Outbox::of_table(&format!("{}.integration_outbox", backticked(&self.database)))
    }

    /// Where messages are enqueued as rows.
    ///
    /// # Errors
    /// When the layout does not say how.
    pub(in crate::mysql) fn outbox(&self) -> StoreResult<Outbox> {
        let table = self.layout.enqueued_table()?;
        Ok(match table.contains('.') {
            true => Outbox::of_table(table),
            false => Outbox::of_table(&format!("{}.{table}", backticked(&self.database))),
        })
    }

    /// The table as it stands.
    pub(in crate::mysql) async fn foreign(&self, pool: &Pool) -> Result<&Foreign, Error> {
        self.found
            .get_or_try_init(async || {
                let mut connection = pool.acquire().await?;
                let found = self.look_up(&mut connection).await;
                connection.answered();
                found.map_err(|error| Error::Configuration(error.into()))
            })
            .await
    }

    /// The same, looked up again.
    pub(in crate::mysql) async fn look_up(&self, connection: &mut Session) -> StoreResult<Foreign> {
        Foreign::find(connection, &self.layout, &self.database).await
    }
}
