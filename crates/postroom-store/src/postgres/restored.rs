//! Noticing a restore.

use super::PgStore;
use super::error::store_error;
use super::transaction::{BEGIN, transact};
use postroom_core::{StoreResult, Upkeep};

const LOOKS_RESTORED: &str = include_str!("sql/looks_restored.sql");

impl PgStore {
    /// Whether sequences are behind the numbers in use, or messages came without a ledger.
    ///
    /// A restore of the data while triggers fire makes parcels of what is in parcels already, and sets
    /// their sequence back behind the numbers that were drawn for it: each message would be delivered twice, and
    /// new ones might never be found. One of the messages alone, while triggers are off, leaves messages that no
    /// relay would ever find.
    pub(super) async fn find_restore(&self) -> StoreResult<bool> {
        let failed = |error| store_error("looking for a restore", error);
        let client = self.connection().await?;
        let look = client.prepare_cached(LOOKS_RESTORED).await.map_err(failed)?;
        let rows = transact(&client, BEGIN, &look, &[]).await.map_err(failed)?;
        let Some(row) = rows.first() else { return Ok(false) };
        let behind: i64 = row.try_get(0).map_err(failed)?;
        let lacks_ledger: bool = row.try_get(1).map_err(failed)?;
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
