//! Noticing a restore.

use super::PgStore;
use super::error::store_error;
use postroom_core::{StoreResult, Upkeep};
use tokio_postgres::Error;

const DOING: &str = "looking for a restore";
const LOOKS_RESTORED: &str = include_str!("sql/looks_restored.sql");
/// Somebody may have locked the table of messages, and then a relay says so.
const WAIT: &str = "SET LOCAL lock_timeout = '1s'";

impl PgStore {
    /// Whether sequences are behind the numbers in use, or messages came without a ledger.
    ///
    /// A restore of the data while triggers fire makes parcels of what is in parcels already, and sets
    /// their sequence back behind the numbers that were drawn for it: each message would be delivered twice, and
    /// new ones might never be found. One of the messages alone, while triggers are off, leaves messages that no
    /// relay would ever find.
    pub(super) async fn find_restore(&self) -> StoreResult<bool> {
        let mut client = self.connection().await?;
        let tx = client.transaction().await.map_err(|e| store_error(DOING, e))?;
        let looked = async {
            tx.batch_execute(WAIT).await?;
            // Not prepared before, which would wait for that lock too, and without a limit.
            let rows = tx.query_typed(LOOKS_RESTORED, &[]).await?;
            let Some(row) = rows.first() else { return Ok((0, false)) };
            Ok::<(i64, bool), Error>((row.try_get(0)?, row.try_get(1)?))
        };
        let looked = looked.await.map_err(|e| store_error(DOING, e));
        let (behind, lacks_ledger) = tx.end(DOING, looked).await?;
        let is_restored = behind > 0 || lacks_ledger;
        if is_restored {
            tracing::warn!(
                behind,
                lacks_ledger,
                "the outbox looks restored: its sequences are behind the numbers in use, or its messages \
                 came without their ledger"
            );
        }
        Ok(is_restored)
    }

    /// Looks once, before this store takes anything. A relay has looked before, and then once a minute; this is
    /// for callers without one.
    pub(super) async fn mend_restore(&self) -> StoreResult<()> {
        let mend = async || {
            if self.find_restore().await? {
                self.reconcile().await?;
            }
            Ok(())
        };
        self.restore_looked_for.get_or_try_init(mend).await.copied()
    }
}
