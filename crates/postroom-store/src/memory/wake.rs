//! Every write of a message is a signal.

use async_trait::async_trait;
use postroom_core::Wake;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Counts writes, and wakes those who wait for one in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Written {
    count: AtomicU64,
    changed: Notify,
}

impl Written {
    pub(super) fn signal(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    pub(super) fn wake(self: &Arc<Self>) -> Box<dyn Wake> {
        Box::new(MemoryWake { seen: self.count.load(Ordering::Acquire), written: Arc::clone(self) })
    }
}

struct MemoryWake {
    written: Arc<Written>,
    seen: u64,
}

#[async_trait]
impl Wake for MemoryWake {
    async fn woken(&mut self) {
        loop {
            // Made before the look: a write in between is not missed.
            let changed = self.written.changed.notified();
            let count = self.written.count.load(Ordering::Acquire);
            if count != self.seen {
                self.seen = count;
                return;
            }
            changed.await;
        }
    }

    async fn busy(&mut self, _busy: bool) {}
}
