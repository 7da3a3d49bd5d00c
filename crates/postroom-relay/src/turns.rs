//! Whose sink call is next, where several databases share a destination.
//!
//! Each database has one lane per integration, and each lane waits for at most one turn at a time. Turns
//! are given in the order in which they were asked for. So databases that all have something to deliver
//! take turns call by call, however deep the backlog of one of them is.

use crate::pauses::{Gate, Pauses};
use postroom_core::Rescued;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many sink calls with rescued messages may run at once in a process: more than ever do.
const RESCUED_CALLS_MAX: u32 = 1 << 16;

/// What a call's messages may do to the process, from harmless on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Danger {
    /// None of them was ever lost with its relay.
    None,
    /// Any of them may have killed a relay.
    Together,
    /// If the process dies meanwhile, it was this message: no rescued message of any database may be
    /// delivered at the same time.
    Alone,
}

impl Danger {
    pub(crate) fn of(which: Rescued) -> Self {
        match which {
            Rescued::Together => Self::Together,
            Rescued::Alone => Self::Alone,
        }
    }
}

/// Rescued messages of a whole process: many calls with some, or one call with a message alone.
///
/// A claimer takes no message alone while rescued ones of its own database are in hand. Of other
/// databases it knows nothing, so their calls meet here.
#[derive(Clone, Debug)]
pub(crate) struct RescuedCalls(Arc<Semaphore>);

impl Default for RescuedCalls {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(RESCUED_CALLS_MAX as usize)))
    }
}

impl RescuedCalls {
    async fn enter(&self, danger: Danger) -> Option<OwnedSemaphorePermit> {
        let calls = match danger {
            Danger::None => return None,
            Danger::Together => 1,
            Danger::Alone => RESCUED_CALLS_MAX,
        };
        // It is never closed.
        Arc::clone(&self.0).acquire_many_owned(calls).await.ok()
    }
}

/// The turns of one destination, over all databases.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    calls: Arc<Semaphore>,
    /// After a pause, one message is tried at a time.
    probe: Arc<Semaphore>,
    rescued: RescuedCalls,
}

/// The right to one sink call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _call: Option<OwnedSemaphorePermit>,
    _probe: Option<OwnedSemaphorePermit>,
    _rescued: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(crate) fn new(concurrency: usize, rescued: &RescuedCalls) -> Self {
        let concurrency = concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            calls: Arc::new(Semaphore::new(concurrency)),
            probe: Arc::new(Semaphore::new(1)),
            rescued: rescued.clone(),
        }
    }

    /// Waits for the next turn. In this order everywhere: whoever has one part of a turn waits only
    /// for those who have more of theirs, and they are delivering.
    pub(crate) async fn next(&self, danger: Danger, pauses: &Pauses) -> Turn {
        let rescued = self.rescued.enter(danger).await;
        // They are never closed.
        let call = Arc::clone(&self.calls).acquire_owned().await.ok();
        let mut probe = None;
        if pauses.gate() == Gate::OneAtATime {
            probe = Arc::clone(&self.probe).acquire_owned().await.ok();
            if pauses.gate() == Gate::Open {
                // Another message was accepted meanwhile.
                probe = None;
            }
        }
        Turn { _call: call, _probe: probe, _rescued: rescued }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::time::Duration;

    fn turns(concurrency: usize) -> (Turns, Pauses) {
        (Turns::new(concurrency, &RescuedCalls::default()), Pauses::new("a"))
    }

    #[tokio::test]
    async fn turns_are_given_in_the_order_in_which_they_were_asked_for() {
        let (turns, pauses) = turns(1);
        let running = turns.next(Danger::None, &pauses).await;
        let mut first = Box::pin(turns.next(Danger::None, &pauses));
        let mut second = Box::pin(turns.next(Danger::None, &pauses));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        drop(running);
        assert!((&mut second).now_or_never().is_none(), "the first has asked before");
        let running = first.await;
        assert!((&mut second).now_or_never().is_none(), "one call at a time");
        drop(running);
        second.await;
    }

    #[tokio::test]
    async fn a_message_that_is_handled_alone_meets_no_rescued_message_of_another_destination() {
        let rescued = RescuedCalls::default();
        let (one, other) = (Turns::new(16, &rescued), Turns::new(16, &rescued));
        let pauses = Pauses::new("a");
        let together = one.next(Danger::Together, &pauses).await;
        let mut alone = Box::pin(other.next(Danger::Alone, &pauses));
        assert!((&mut alone).now_or_never().is_none());
        drop(other.next(Danger::None, &pauses).now_or_never().expect("fresh ones go on"));
        drop(together);
        let alone = alone.await;
        assert!(one.next(Danger::Together, &pauses).now_or_never().is_none());
        drop(alone);
        assert!(one.next(Danger::Together, &pauses).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_pause_one_database_tries_one_message() {
        let (turns, pauses) = turns(16);
        let refused = postroom_core::Outcome::refuse("403");
        pauses.heard(&uuid::Uuid::new_v4().into(), &refused);
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(pauses.gate(), Gate::OneAtATime);
        let probe = turns.next(Danger::None, &pauses).await;
        let mut other = Box::pin(turns.next(Danger::None, &pauses));
        assert!((&mut other).now_or_never().is_none());
        pauses.heard(&uuid::Uuid::new_v4().into(), &postroom_core::Outcome::Delivered);
        drop(probe);
        let both = (other.await, turns.next(Danger::None, &pauses).await);
        drop(both);
    }
}
