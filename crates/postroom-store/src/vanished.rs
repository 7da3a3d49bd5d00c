//! Messages that were deleted before anybody delivered them.

use crate::layout::Vanished as Setting;
use postroom_core::Vanished;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What has vanished and was not told yet, by integration.
#[derive(Debug, Default)]
pub(crate) struct Untold(Mutex<BTreeMap<String, u64>>);

impl Untold {
    /// Counts some.
    pub(crate) fn note(&self, integration: &str, messages: u64) {
        if messages == 0 {
            return;
        }
        let mut untold = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *untold.entry(integration.to_owned()).or_default() += messages;
    }

    /// Tells each once.
    pub(crate) fn tell(&self, setting: Option<Setting>) -> Vec<Vanished> {
        let mut untold = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pauses = setting == Some(Setting::Pause);
        let told = std::mem::take(&mut *untold).into_iter();
        told.map(|(integration, messages)| Vanished { integration, messages, pauses }).collect()
    }
}
