//! Recording SENT: at once, by deleting the message, or in the background.

use super::PgStore;
use super::error::store_error;
use super::ids::Id;
use super::transaction::{BEGIN, JOIN_BY_HASH, transact};
use super::upkeep::count;
use crate::OpenOptions;
use postroom_core::{MessageId, StoreResult};
use std::time::Duration;

pub(super) const RECORD: &str = include_str!("sql/record.sql");

/// What becomes of messages that were delivered.
#[derive(Debug)]
pub(super) enum Recording {
    /// They say SENT at once.
    AtOnce,
    /// Those of these integrations say SENT some time later, the others at once.
    Later(Vec<String>),
    /// They are deleted: the outbox keeps no history. Their events are remembered for a while.
    Deleted { remembered: Duration },
}

impl Recording {
    pub(super) fn of(options: &OpenOptions) -> Self {
        match options.record_later.as_slice() {
            _ if options.layout.as_ref().is_some_and(|layout| layout.deletes_sent()) => {
                Self::Deleted { remembered: Duration::ZERO }
            }
            _ if !options.keep_sent => Self::Deleted { remembered: options.remember_events },
            [] => Self::AtOnce,
            later => Self::Later(later.to_vec()),
        }
    }
}

impl PgStore {
    /// For how many seconds events are remembered.
    pub(super) fn remembered(&self) -> f64 {
        self.remember_events.as_secs_f64()
    }

    /// Writes SENT into messages that were delivered at least so long ago, of at most `limit`
    /// settlements: of all, or of those that name one of `ids`.
    pub(super) async fn record(
        &self,
        noted_before: Duration,
        limit: usize,
        ids: Option<&[Id<&MessageId>]>,
    ) -> StoreResult<u64> {
        let doing = "recording what was delivered";
        let client = self.connection().await?;
        let statement = client.prepare_cached(RECORD).await.map_err(|e| store_error(doing, e))?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let begin = format!("{BEGIN}; {JOIN_BY_HASH}");
        let rows =
            transact(&client, &begin, &statement, &[&limit, &noted_before.as_secs_f64(), &ids])
                .await
                .map_err(|e| store_error(doing, e))?;
        rows.first().map_or(Ok(0), |row| count(row, 0)).map_err(|e| store_error(doing, e))
    }
}
