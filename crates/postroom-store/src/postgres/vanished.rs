//! Messages that were deleted before anybody delivered them.

use super::connection::Connection;
use super::ids::Id;
use super::transaction::{BEGIN, transact};
use crate::layout::Vanished as Setting;
use postroom_core::Vanished;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio_postgres::Error;

const VANISHED: &str = include_str!("sql/vanished.sql");

/// What has vanished and was not told yet, by integration.
#[derive(Debug, Default)]
pub(super) struct Untold(Mutex<BTreeMap<String, u64>>);

impl Untold {
    /// Counts those of these messages that are gone, while the ledger still names them.
    pub(super) async fn look_for(&self, client: &Connection, left_out: &[Id]) -> Result<(), Error> {
        if left_out.is_empty() {
            return Ok(());
        }
        let statement = client.prepare_cached(VANISHED).await?;
        let rows = transact(client, BEGIN, &statement, &[&left_out]).await?;
        for row in rows {
            let (integration, messages): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            let mut untold = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *untold.entry(integration).or_default() += u64::try_from(messages).unwrap_or(0);
        }
        Ok(())
    }

    /// Tells each once.
    pub(super) fn tell(&self, setting: Option<Setting>) -> Vec<Vanished> {
        let mut untold = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pauses = setting == Some(Setting::Pause);
        let told = std::mem::take(&mut *untold).into_iter();
        told.map(|(integration, messages)| Vanished { integration, messages, pauses }).collect()
    }
}
