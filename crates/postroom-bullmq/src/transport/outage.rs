//! Something that everything here needs, and that may be away.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// Whether it is away, and why. Says in the log when that begins and when it ends, once each.
#[derive(Debug)]
pub(crate) struct Outage {
    what: &'static str,
    state: Mutex<Option<(String, Instant)>>,
}

impl Outage {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, state: Mutex::default() }
    }

    /// Notes that it cannot be used.
    pub(crate) fn begin(&self, error: String) {
        let what = self.what;
        let mut state = self.state();
        let (known, since) =
            state.take().map_or((None, Instant::now()), |(known, since)| (Some(known), since));
        if known.as_deref() != Some(error.as_str()) {
            tracing::warn!(
                error,
                "{what} cannot be used: lanes through BullMQ pause, no attempt is used"
            );
        }
        *state = Some((error, since));
    }

    /// Notes that it answers.
    pub(crate) fn end(&self) {
        if let Some((_, since)) = self.state().take() {
            tracing::info!(after = ?since.elapsed(), "{} answers again: lanes go on", self.what);
        }
    }

    /// Why it cannot be used.
    pub(crate) fn error(&self) -> Option<String> {
        self.state().as_ref().map(|(error, _)| error.clone())
    }

    fn state(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
