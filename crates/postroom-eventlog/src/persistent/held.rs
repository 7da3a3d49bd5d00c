//! How many bytes the messages of all groups take.
//!
//! A message counts until nobody has it any more: neither its group, nor a consumer that does not
//! read what it was sent.

use std::sync::Arc;
use tokio::sync::watch;

/// How many bytes there may be before groups stop to read ahead.
const BYTES_MAX: usize = 256 << 20;

/// How much all groups hold. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Holdings {
    level: Arc<watch::Sender<Level>>,
    max: usize,
}

/// How high it stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Level {
    bytes: usize,
    /// Whether it is as much as it may be.
    pub(super) is_full: bool,
}

/// Bytes that are held until this is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    bytes: usize,
    of: Holdings,
}

impl Default for Holdings {
    fn default() -> Self {
        Self { level: Arc::default(), max: BYTES_MAX }
    }
}

impl Holdings {
    /// Holds as many bytes more.
    pub(super) fn hold(&self, bytes: usize) -> Arc<Hold> {
        self.change(|held| held.saturating_add(bytes));
        Arc::new(Hold { bytes, of: self.clone() })
    }

    /// How high it stands. It changes when it is full, and when it no longer is.
    pub(super) fn level(&self) -> watch::Receiver<Level> {
        self.level.subscribe()
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        self.level.send_if_modified(|level| {
            level.bytes = change(level.bytes);
            let was_full = std::mem::replace(&mut level.is_full, level.bytes >= self.max);
            level.is_full != was_full
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.of.change(|held| held.saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn it_is_full_until_the_last_who_has_a_message_drops_it() {
        let holdings = Holdings { max: 10, ..Holdings::default() };
        let mut level = holdings.level();
        let small = holdings.hold(4);
        assert!(!level.borrow().is_full);
        let large = holdings.hold(6);
        let other = Arc::clone(&large);
        assert!(level.borrow_and_update().is_full);
        drop(large);
        assert!(level.wait_for(|level| !level.is_full).now_or_never().is_none());
        drop(other);
        assert!(!level.borrow_and_update().is_full);
        drop(small);
        assert_eq!(level.borrow().bytes, 0);
    }
}
