//! Notices when somebody migrates the outbox under a running relay.

use crate::background::about;
use crate::relay::Shared;
use postroom_core::{StoreError, StoreErrorKind};
use std::sync::Arc;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(2);

/// Returns once the schema is no longer the one this program was built for.
pub(crate) async fn changed(shared: Arc<Shared>) -> StoreError {
    loop {
        about(&shared, INTERVAL).await;
        match shared.store.ready().await {
            Ok(()) => {}
            Err(error) => match error.kind {
                StoreErrorKind::Schema => return error,
                // The claimer meets these too, and says so.
                StoreErrorKind::Unavailable
                | StoreErrorKind::Conflict
                | StoreErrorKind::Refused => {}
            },
        }
    }
}
