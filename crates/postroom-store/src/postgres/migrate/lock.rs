//! Processes that migrate at once take turns.

use crate::postgres::connect::ask;
use crate::postgres::locks::{self, MIGRATION};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::time::Duration;
use tokio::time::Instant;
use tokio_postgres::Client;

const PAUSE: Duration = Duration::from_millis(200);
/// As long as the other may wait for transactions that are in its way.
const WAIT: Duration = Duration::from_secs(600);

/// Takes the lock for as long as the connection lasts.
///
/// # Errors
/// When another process keeps it.
pub(super) async fn acquire(client: &Client) -> StoreResult<()> {
    // Asked again and again, and not waited for: an index built CONCURRENTLY waits for every
    // transaction that is open, also for one that waits for this lock.
    let try_lock = format!("SELECT pg_try_advisory_lock({MIGRATION})");
    let deadline = Instant::now() + WAIT;
    let mut told = false;
    while !ask::<bool>(client, "waiting for the migration lock", &try_lock).await? {
        if Instant::now() > deadline {
            let holder = locks::holder(client, MIGRATION).await;
            return Err(StoreError::plain(
                StoreErrorKind::Conflict,
                format!(
                    "another `postroom migrate` has held the migration lock for {WAIT:?} ({holder}): \
                     wait for it to finish, then run this again"
                ),
            ));
        }
        if !told {
            let holder = locks::holder(client, MIGRATION).await;
            tracing::info!(
                holder,
                "another `postroom migrate` is running; waiting up to {WAIT:?} for it to finish"
            );
            told = true;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
