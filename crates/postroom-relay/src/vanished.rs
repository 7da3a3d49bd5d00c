//! Rows that were deleted before anybody delivered them: counted, told, and where the table is one whose users
//! delete each row right after its INSERT, the end of their lane until somebody has looked at it.

use crate::metrics::Metrics;
use crate::relay::Shared;
use postroom_core::{Store, Vanished};

/// Counts what has vanished, and pauses lanes where that is asked for.
pub(crate) fn tell(shared: &Shared) {
    for one in warn(&*shared.store, &shared.metrics) {
        if let Some(room) = shared.lane(&one.integration).filter(|_| one.pauses)
            && room.hold(PAUSED.to_owned())
        {
            tracing::error!(integration = one.integration, "{PAUSED}");
        }
    }
}

/// What an operator is told of a lane that was paused.
const PAUSED: &str = "rows of its table are deleted before they are delivered, as is usual where a reader of the \
    database's log delivers them: their messages are lost. Have the application leave its rows in the table, or set \
    vanished = \"ignore\" in the database's section; then start the relay again";

/// Counts what has vanished and logs it, for every transport; what that was.
pub fn warn(store: &dyn Store, metrics: &Metrics) -> Vec<Vanished> {
    let vanished = store.vanished();
    for Vanished { integration, messages, .. } in &vanished {
        metrics.vanished(integration, *messages);
        tracing::warn!(
            integration,
            messages,
            "vanished: rows were deleted before anybody delivered them"
        );
    }
    vanished
}
