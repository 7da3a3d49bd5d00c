//! Feeding the ledger by looking, where the table's owner allows no trigger.

use super::PgStore;
use super::error::store_error;
use super::transaction::{BEGIN, transact};
use postroom_core::StoreResult;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const POLL: &str = "SELECT core_outbox.poll()";

/// Looking takes at most this part of a relay's time.
const PART: u32 = 20;
/// New rows wait no longer for the next look than this, while looks are quick.
const PAUSE: Duration = Duration::from_millis(50);

/// When this process looks again.
#[derive(Debug, Default)]
pub(super) struct NextLook(Mutex<Option<Instant>>);

impl NextLook {
    fn is_due(&self) -> bool {
        let next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        next.is_none_or(|next| Instant::now() >= next)
    }

    fn looked(&self, took: Duration) {
        let pause = PAUSE.max(took * PART);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + pause);
    }
}

/// Reads the whole table where no index finds what is open.
pub(super) fn begin() -> String {
    format!("{BEGIN}; SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on")
}

impl PgStore {
    /// Looks for new rows, if nothing tells of them and it is time to.
    pub(super) async fn poll_when_due(&self) -> StoreResult<()> {
        if self.is_polled() && self.next_look.is_due() { self.poll().await } else { Ok(()) }
    }

    /// Looks for new rows, if nothing tells of them: whoever asks wants to know now.
    pub(super) async fn poll(&self) -> StoreResult<()> {
        if !self.is_polled() {
            return Ok(());
        }
        let doing = "looking for new rows";
        let began = Instant::now();
        let client = self.connection().await?;
        let statement = client.prepare_cached(POLL).await.map_err(|e| store_error(doing, e))?;
        transact(&client, &begin(), &statement, &[]).await.map_err(|e| store_error(doing, e))?;
        self.next_look.looked(began.elapsed());
        Ok(())
    }

    fn is_polled(&self) -> bool {
        self.layout.as_ref().is_some_and(|layout| !layout.has_triggers())
    }
}
