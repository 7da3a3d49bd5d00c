//! Asks the database now and then whether it answers. A relay does that anyway; a worker whose queues
//! are empty would not notice that the database is gone, and would call itself ready.

use super::shared::Shared;
use postroom_core::StoreErrorKind;
use std::sync::Arc;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(2);

/// Runs until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        match shared.store.ready().await {
            Ok(()) => shared.database_outage.end(),
            Err(error) => match error.kind {
                StoreErrorKind::Unavailable | StoreErrorKind::Schema | StoreErrorKind::Refused => {
                    shared.database_away(&error);
                }
                // Somebody was faster; the next look tells.
                StoreErrorKind::Conflict => {}
            },
        }
        tokio::time::sleep(shared.jitter.share(INTERVAL, 0.8)).await;
    }
}
