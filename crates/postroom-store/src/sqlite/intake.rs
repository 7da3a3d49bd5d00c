//! Taking messages in: one after the other, since a statement costs no round trip here.

use super::SqliteStore;
use super::error::{enqueue_error, store_error};
use super::session::Session;
use super::time::now_ms;
use crate::intake::{DOING, check, concerning, expect};
use crate::layout::Layout;
use async_trait::async_trait;
use postroom::Outbox;
use postroom_core::{Checkpoint, Enqueued, Intake, NewMessage, StoreResult};
use sqlx::Sqlite;

/// `?1` name.
const POSITION: &str = "SELECT position FROM outbox_checkpoint WHERE name = ?1";

/// `?1` name, `?2` position, `?3` now.
const MOVE: &str = "
    INSERT INTO outbox_checkpoint (name, position, updated_at) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE
    SET position = excluded.position, updated_at = excluded.updated_at";

#[async_trait]
impl Intake for SqliteStore {
    async fn accept(
        &self,
        batch: &[NewMessage],
        checkpoint: Option<&Checkpoint>,
    ) -> StoreResult<Vec<Enqueued>> {
        check(batch, checkpoint)?;
        let mut tx = self.begin(DOING).await?;
        if let Some(checkpoint) = checkpoint {
            advance(&mut tx, checkpoint).await?;
        }
        let layout = self.readers.lookup.layout();
        let outbox = match layout.map(Layout::enqueued_table).transpose()? {
            Some(table) => Outbox::of_table(table),
            None => Outbox::default(),
        };
        let mut answers = Vec::with_capacity(batch.len());
        for (index, message) in batch.iter().enumerate() {
            let enqueued = outbox.enqueue(tx.connection(), message.clone()).await;
            let refused = |error| concerning(index, batch.len(), enqueue_error(error));
            answers.push(enqueued.map_err(refused)?);
        }
        tx.commit().await.map_err(|e| store_error(DOING, e))?;
        Ok(answers)
    }

    async fn checkpoint(&self, name: &str) -> StoreResult<Option<String>> {
        let doing = "reading a checkpoint";
        position(&self.readers, name).await.map_err(|e| store_error(doing, e))
    }
}

/// Moves a checkpoint from the position that its caller expects. The transaction holds the write
/// lock: nobody moves it in between.
async fn advance(tx: &mut Session, checkpoint: &Checkpoint) -> StoreResult<()> {
    let found = position(&mut *tx, &checkpoint.name).await.map_err(|e| store_error(DOING, e))?;
    expect(checkpoint, found.as_deref())?;
    sqlx::query(MOVE)
        .bind(&checkpoint.name)
        .bind(&checkpoint.position)
        .bind(now_ms())
        .execute(tx)
        .await
        .map_err(|e| store_error(DOING, e))?;
    Ok(())
}

async fn position<'c>(
    connection: impl sqlx::Executor<'c, Database = Sqlite>,
    name: &str,
) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(POSITION).bind(name).fetch_optional(connection).await
}
