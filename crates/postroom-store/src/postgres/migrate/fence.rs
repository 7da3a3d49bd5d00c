//! The fence of an adopted table, which lets one event reach one integration only.

use super::plan::Work;
use super::script::Step;
use crate::postgres::error::store_error;
use postroom_core::StoreResult;
use tokio_postgres::{Client, Error};

const OLD_FENCES: &str = include_str!("../sql/old_fences.sql");

/// A unique index on stream and event alone.
pub(in crate::postgres) struct OldFence {
    /// Its name, as it is written in SQL.
    pub(in crate::postgres) name: String,
    /// Whether a constraint of that name owns it.
    is_constraint: bool,
}

/// The unique indexes that keep one event from reaching several integrations.
pub(in crate::postgres) async fn old_fences(client: &Client) -> StoreResult<Vec<OldFence>> {
    let doing = "looking for the old fence";
    let rows = client.query_typed(OLD_FENCES, &[]).await.map_err(|e| store_error(doing, e))?;
    let read = rows
        .iter()
        .map(|row| Ok(OldFence { name: row.try_get(0)?, is_constraint: row.try_get(1)? }));
    read.collect::<Result<_, Error>>().map_err(|e| store_error(doing, e))
}

/// Drops them. The wider fence stands by then: it is part of migration 0001.
pub(super) async fn replace(client: &Client) -> StoreResult<Vec<Work>> {
    let steps = |fence: &OldFence| {
        vec![if fence.is_constraint {
            Step::transaction(format!(
                "ALTER TABLE core_outbox.integration_outbox DROP CONSTRAINT {};",
                fence.name
            ))
        } else {
            Step::alone(format!("DROP INDEX CONCURRENTLY IF EXISTS core_outbox.{};", fence.name))
        }]
    };
    let fences = old_fences(client).await?;
    Ok(fences
        .iter()
        .map(|fence| Work {
            number: None,
            name: format!("replacing the fence {}", fence.name),
            steps: steps(fence),
        })
        .collect())
}
