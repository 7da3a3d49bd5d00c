//! The claims of the lanes that deliver directly.

use crate::heartbeat::Holder;
use crate::metrics::Metrics;
use async_trait::async_trait;
use postroom_core::Token;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long a completer may take to see the answer to a settlement that the database has carried
/// out.
const SETTLING: Duration = Duration::from_millis(100);

/// One batch's claim, shared by the messages taken under it.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) token: Token,
    unsettled: AtomicUsize,
    lost: AtomicBool,
    /// Some outcome came after the claim was lost.
    late: AtomicBool,
    /// Some outcome was given up.
    left: AtomicBool,
}

impl Claim {
    /// Whether another relay may have these messages by now: what has not begun must not begin.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether these messages are all that is left, so that the claim can go with them.
    pub(crate) fn ends_with(&self, messages: usize) -> bool {
        self.unsettled.load(Ordering::Acquire) == messages
    }

    /// Notes that an outcome came after the claim was lost.
    pub(crate) fn was_late(&self) {
        self.late.store(true, Ordering::Release);
    }

    /// Notes that an outcome was given up. Its message is free once the claim has expired, and no sooner: what
    /// the database refuses would come again at once.
    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Release);
    }

    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Whether every message has its outcome recorded under this claim.
    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled.load(Ordering::Acquire) == 0 && !self.late.load(Ordering::Acquire)
    }

    /// Counts messages that are settled, or given up; whether they were the last of the batch.
    pub(crate) fn settled(&self, messages: usize) -> bool {
        self.unsettled.fetch_sub(messages, Ordering::AcqRel) == messages
    }
}

/// Every claim with messages that are not settled. A claim is held as long as one of its messages
/// is in hand: what a dropped run held is not kept by the next.
#[derive(Debug, Default)]
pub(crate) struct ClaimRegistry(Mutex<BTreeMap<Token, Weak<Claim>>>);

impl ClaimRegistry {
    pub(crate) fn add(&self, token: Token, messages: usize) -> Arc<Claim> {
        let claim = Arc::new(Claim {
            token,
            unsettled: AtomicUsize::new(messages),
            lost: AtomicBool::new(false),
            late: AtomicBool::new(false),
            left: AtomicBool::new(false),
        });
        self.claims().insert(token, Arc::downgrade(&claim));
        claim
    }

    pub(crate) fn remove(&self, token: Token) {
        self.claims().remove(&token);
    }

    pub(crate) fn tokens(&self) -> Vec<Token> {
        let mut claims = self.claims();
        claims.retain(|_, claim| claim.strong_count() > 0);
        claims.keys().copied().collect()
    }

    /// Marks claims that are lost, and returns those that were held until now.
    pub(crate) fn lose(&self, tokens: &[Token]) -> Vec<Arc<Claim>> {
        let mut claims = self.claims();
        let lost = tokens.iter().filter_map(|token| claims.remove(token)?.upgrade());
        lost.inspect(|claim| claim.lost.store(true, Ordering::Release)).collect()
    }

    fn claims(&self) -> std::sync::MutexGuard<'_, BTreeMap<Token, Weak<Claim>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The claims of a relay's own lanes, as its heartbeat knows them.
pub(crate) struct OwnLanes {
    pub(crate) claims: Arc<ClaimRegistry>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) lanes: usize,
}

#[async_trait]
impl Holder for OwnLanes {
    fn lanes(&self) -> usize {
        self.lanes
    }

    fn held(&self) -> Vec<Token> {
        self.claims.tokens()
    }

    async fn gone(&self, tokens: &[Token]) {
        // A claim that was settled while the heartbeat was under way is gone too, but not lost.
        let mut lost = self.claims.lose(tokens);
        if !lost.is_empty() {
            // One whose last outcomes have just been recorded is gone as well, and its completer is
            // about to know.
            tokio::time::sleep(SETTLING).await;
            lost.retain(|claim| !claim.is_settled());
        }
        if !lost.is_empty() {
            tracing::warn!(
                claims = lost.len(),
                "claims expired; what has not begun is left to others"
            );
            self.metrics.claims_lost(lost.len() as u64);
        }
    }
}
