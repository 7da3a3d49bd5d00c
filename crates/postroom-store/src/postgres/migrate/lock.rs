//! Processes that migrate at once take turns.

use crate::postgres::connect::ask;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::time::Duration;
use tokio::time::Instant;
use tokio_postgres::Client;

/// Asked again and again, and not waited for: an index built CONCURRENTLY waits for every
/// transaction that is open, also for one that waits for this lock.
const TRY: &str = "SELECT pg_try_advisory_lock(7305804401)";
const PAUSE: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_secs(600);

/// Takes the lock for as long as the connection lasts.
///
/// # Errors
/// When another process keeps it.
pub(super) async fn acquire(client: &Client) -> StoreResult<()> {
    let deadline = Instant::now() + WAIT;
    let mut told = false;
    while !ask::<bool>(client, "waiting for my turn to migrate", TRY).await? {
        if Instant::now() > deadline {
            return Err(StoreError::plain(
                StoreErrorKind::Conflict,
                format!("another process has been migrating for {WAIT:?}: wait for it, then again"),
            ));
        }
        if !told {
            tracing::info!("another process is migrating; waiting for it");
            told = true;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
