//! Messages that were deleted before anybody delivered them.

use super::connection::Connection;
use super::ids::Id;
use super::transaction::{BEGIN, transact};
use crate::vanished::Untold;
use tokio_postgres::Error;

const VANISHED: &str = include_str!("sql/vanished.sql");

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
            self.note(&integration, u64::try_from(messages).unwrap_or(0));
        }
        Ok(())
    }
}
