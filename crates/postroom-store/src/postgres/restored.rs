//! Noticing a restore, before the first take.

use super::PgStore;
use super::error::store_error;
use postroom_core::{StoreResult, Upkeep};

const NUMBERS_BEHIND: &str = "SELECT core_outbox.numbers_behind()";

impl PgStore {
    /// A restore of the data while triggers fire makes parcels of what is in parcels already, and sets
    /// their sequence back behind the numbers that were drawn for it: each message would be delivered twice, and
    /// new ones might never be found. So a store looks once, before it takes anything.
    pub(super) async fn mend_restore(&self) -> StoreResult<()> {
        let look = async || {
            let doing = "looking for a restore";
            let client = self.connection().await?;
            let row =
                client.query_one(NUMBERS_BEHIND, &[]).await.map_err(|e| store_error(doing, e))?;
            let behind: i64 = row.try_get(0).map_err(|e| store_error(doing, e))?;
            drop(client);
            if behind > 0 {
                let mended = self.reconcile().await?;
                tracing::warn!(
                    behind,
                    ?mended,
                    "the outbox was restored: its sequences were behind the numbers in use, so \
                     messages and ledger were reconciled before anything is taken"
                );
            }
            Ok(())
        };
        self.restore_looked_for.get_or_try_init(look).await.copied()
    }
}
