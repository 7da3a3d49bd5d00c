//! Connections that serve one batch at a time: kept while nobody uses them, and made again in the
//! background once the destination was lost.

use crate::connections::{Connections, Held};
use postroom_core::Outcome;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

type Connecting<C> = Pin<Box<dyn Future<Output = Result<C, Outcome>> + Send>>;
type Connect<C> = dyn Fn() -> Connecting<C> + Send + Sync;

/// Keeps as many connections as were in use at once.
pub(crate) struct Pool<C> {
    connect: Arc<Connect<C>>,
    idle: Arc<Idle<C>>,
    /// Whether the destination can be reached at all. While it cannot, one attempt after the
    /// other is made in the background, and whoever asks hears of the next.
    reach: Connections<()>,
}

/// Connections that nobody uses, and since when.
struct Idle<C> {
    connections: Mutex<Vec<(C, Instant)>>,
    /// Shorter than what servers allow, so that we close first.
    longest: Duration,
    is_open: fn(&C) -> bool,
}

impl<C> Idle<C> {
    fn lock(&self) -> MutexGuard<'_, Vec<(C, Instant)>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, connection: C) {
        self.lock().push((connection, Instant::now()));
    }

    fn pop(&self) -> Option<C> {
        let mut idle = self.lock();
        idle.retain(|(connection, since)| {
            since.elapsed() < self.longest && (self.is_open)(connection)
        });
        idle.pop().map(|(connection, _)| connection)
    }
}

/// A connection in use. Dropped, it is closed.
pub(crate) struct Lent<C> {
    pub(crate) connection: C,
    reach: Held<()>,
}

impl<C: Send + 'static> Pool<C> {
    /// Connections that are made by `connect`, each try within `limit`, and kept idle for
    /// `longest` as long as they are open. Makes none yet.
    pub(crate) fn new<F>(
        limit: Duration,
        longest: Duration,
        is_open: fn(&C) -> bool,
        connect: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<C, Outcome>> + Send + 'static,
    {
        let connect: Arc<Connect<C>> = Arc::new(move || Box::pin(connect()));
        let idle = Arc::new(Idle { connections: Mutex::default(), longest, is_open });
        let (reached, kept) = (Arc::clone(&connect), Arc::clone(&idle));
        let reach = Connections::new(limit, move || {
            let (attempt, kept) = (reached(), Arc::clone(&kept));
            async move {
                kept.push(attempt.await?);
                Ok(())
            }
        });
        Self { connect, idle, reach }
    }

    /// A connection for one batch: one that is idle, or a new one.
    ///
    /// # Errors
    /// How connecting failed, or that it took too long.
    pub(crate) async fn take(&self, deadline: Instant) -> Result<Lent<C>, Outcome> {
        let reach = self.reach.get(deadline).await?;
        if let Some(connection) = self.idle.pop() {
            return Ok(Lent { connection, reach });
        }
        // All of them are in use.
        match self.make(deadline).await {
            Ok(connection) => Ok(Lent { connection, reach }),
            Err(outcome) => {
                if matches!(outcome, Outcome::Retry { .. }) {
                    self.reach.lost(&reach);
                }
                Err(outcome)
            }
        }
    }

    /// A connection that is new for sure.
    ///
    /// # Errors
    /// How connecting failed, or that it took too long.
    pub(crate) async fn make(&self, deadline: Instant) -> Result<C, Outcome> {
        tokio::time::timeout_at(deadline, (self.connect)())
            .await
            .unwrap_or_else(|_| Err(Outcome::retry("no connection in time")))
    }

    /// Keeps a connection for the next batch.
    pub(crate) fn give_back(&self, lent: Lent<C>) {
        self.idle.push(lent.connection);
    }

    /// Says that this connection has ended. Those that are idle may have, too; another is made in
    /// the background.
    pub(crate) fn lost(&self, lent: Lent<C>) {
        self.doubt();
        self.reach.lost(&lent.reach);
    }

    /// Closes what is idle: the destination does not answer.
    pub(crate) fn doubt(&self) {
        self.idle.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LONGEST: Duration = Duration::from_secs(30);

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Connections numbered from 1, of which those `failing` from the first on fail.
    fn pool(failing: std::ops::Range<usize>) -> (Pool<usize>, Arc<AtomicUsize>) {
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let connect = move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let result =
                if failing.contains(&number) { Err(Outcome::retry("down")) } else { Ok(number) };
            async move { result }
        };
        (Pool::new(Duration::from_secs(1), LONGEST, |_| true, connect), tries)
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_are_made_as_are_in_use_at_once() {
        let (pool, tries) = pool(0..0);
        let first = pool.take(soon()).await.unwrap();
        let second = pool.take(soon()).await.unwrap();
        assert_eq!((first.connection, second.connection), (1, 2));
        pool.give_back(second);
        for _ in 0..3 {
            let again = pool.take(soon()).await.unwrap();
            assert_eq!(again.connection, 2);
            pool.give_back(again);
        }
        assert_eq!(tries.load(Ordering::SeqCst), 2);
        tokio::time::advance(LONGEST).await;
        assert_eq!(pool.take(soon()).await.unwrap().connection, 3, "too long idle");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_destination_is_looked_for_in_the_background() {
        let (pool, tries) = pool(2..5);
        let first = pool.take(soon()).await.unwrap();
        pool.lost(first);
        tokio::time::sleep(LONGEST / 2).await;
        assert_eq!(tries.load(Ordering::SeqCst), 5, "nobody has asked meanwhile");
        assert_eq!(pool.take(soon()).await.unwrap().connection, 5);
        assert_eq!(tries.load(Ordering::SeqCst), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_ask_while_it_is_down_share_each_try() {
        let (pool, tries) = pool(1..3);
        let asking = (0..10).map(|_| pool.take(soon()));
        for answer in futures_util::future::join_all(asking).await {
            assert_eq!(answer.map(|lent| lent.connection), Err(Outcome::retry("down")));
        }
        assert_eq!(tries.load(Ordering::SeqCst), 1);
    }
}
