//! One connection to a destination: made when it is first needed, shared by all batches, and made
//! again in the background when it is lost.

use postroom_core::Outcome;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The pause after the first failure; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

type Connecting<C> = Pin<Box<dyn Future<Output = Result<C, Outcome>> + Send>>;

/// Keeps one connection.
pub(crate) struct Connections<C> {
    shared: Arc<Shared<C>>,
}

struct Shared<C> {
    connect: Box<dyn Fn() -> Connecting<C> + Send + Sync>,
    /// The longest that one try may take.
    limit: Duration,
    state: watch::Sender<State<C>>,
}

struct State<C> {
    stage: Stage<C>,
    /// How many tries have come to their end, well or not.
    tries: u64,
    failure: Option<Outcome>,
}

enum Stage<C> {
    /// Nobody has asked yet, or the destination refused: the next who asks begins.
    Idle,
    Connecting,
    Up(C),
}

/// A connection, and which one it is.
#[derive(Clone, Debug)]
pub(crate) struct Held<C> {
    pub(crate) connection: C,
    number: u64,
}

impl<C: Clone + Send + Sync + 'static> Connections<C> {
    /// Connections that are made by `connect`, each try within `limit`. Makes none yet.
    pub(crate) fn new<F>(limit: Duration, connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<C, Outcome>> + Send + 'static,
    {
        let state = State { stage: Stage::Idle, tries: 0, failure: None };
        let shared = Shared {
            connect: Box::new(move || Box::pin(connect())),
            limit,
            state: watch::Sender::new(state),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The connection there is. When there is none, the next try decides.
    ///
    /// # Errors
    /// How that try failed, or that it took too long.
    pub(crate) async fn get(&self, deadline: Instant) -> Result<Held<C>, Outcome> {
        let mut state = self.shared.state.subscribe();
        let before = self.begin();
        let decided = async {
            let decided =
                state.wait_for(|state| matches!(state.stage, Stage::Up(_)) || state.tries > before);
            match decided.await {
                Ok(state) => match &state.stage {
                    Stage::Up(connection) => {
                        Ok(Held { connection: connection.clone(), number: state.tries })
                    }
                    Stage::Idle | Stage::Connecting => Err(failure(&state)),
                },
                Err(_) => Err(Outcome::retry("the sink is gone")),
            }
        };
        match tokio::time::timeout_at(deadline, decided).await {
            Ok(result) => result,
            Err(_) => Err(failure(&self.shared.state.borrow())),
        }
    }

    /// The same, of which `is_up` says that it works as far as anyone knows.
    ///
    /// # Errors
    /// How the next try failed, or that it took too long.
    pub(crate) async fn get_up(
        &self,
        deadline: Instant,
        is_up: impl Fn(&C) -> bool,
    ) -> Result<Held<C>, Outcome> {
        loop {
            let held = self.get(deadline).await?;
            if is_up(&held.connection) {
                return Ok(held);
            }
            self.lost(&held);
        }
    }

    /// Says that this connection is of no use any more. A newer one stays.
    pub(crate) fn lost(&self, held: &Held<C>) {
        let begins = self.shared.state.send_if_modified(|state| {
            let is_current = matches!(state.stage, Stage::Up(_)) && state.tries == held.number;
            if is_current {
                state.stage = Stage::Connecting;
                state.failure = None;
            }
            is_current
        });
        if begins {
            tokio::spawn(connect(Arc::downgrade(&self.shared)));
        }
    }

    /// Begins to connect unless someone has. Returns how many tries there were before.
    fn begin(&self) -> u64 {
        let mut tries = 0;
        let begins = self.shared.state.send_if_modified(|state| {
            tries = state.tries;
            let is_idle = matches!(state.stage, Stage::Idle);
            if is_idle {
                state.stage = Stage::Connecting;
            }
            is_idle
        });
        if begins {
            tokio::spawn(connect(Arc::downgrade(&self.shared)));
        }
        tries
    }
}

/// Someone who connects. When the task ends before its work does, by a panic, the next who asks
/// begins anew.
struct Connector<C> {
    shared: Weak<Shared<C>>,
    is_done: bool,
}

impl<C> Drop for Connector<C> {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade().filter(|_| !self.is_done) else { return };
        shared.state.send_modify(|state| {
            state.stage = Stage::Idle;
            state.tries += 1;
            state.failure = Some(Outcome::retry(
                "connecting broke off by a fault of this program: its output says more",
            ));
        });
    }
}

/// Tries until there is a connection, the destination refuses, or the sink is gone.
async fn connect<C>(shared: Weak<Shared<C>>) {
    let mut connector = Connector { shared: Weak::clone(&shared), is_done: false };
    let mut pause = PAUSE_MIN;
    loop {
        let (attempt, limit) = match shared.upgrade() {
            Some(shared) => ((shared.connect)(), shared.limit),
            None => return,
        };
        let result = tokio::time::timeout(limit, attempt)
            .await
            .unwrap_or_else(|_| Err(Outcome::retry(format!("no connection within {limit:?}"))));
        let Some(shared) = shared.upgrade() else { return };
        let goes_on = matches!(result, Err(Outcome::Retry { .. }));
        connector.is_done = !goes_on;
        shared.state.send_modify(|state| {
            state.tries += 1;
            match result {
                Ok(connection) => {
                    state.stage = Stage::Up(connection);
                    state.failure = None;
                }
                Err(outcome) => {
                    // Bad credentials are not hammered with: whoever needs them asks again.
                    state.stage = if goes_on { Stage::Connecting } else { Stage::Idle };
                    state.failure = Some(outcome);
                }
            }
        });
        drop(shared);
        if !goes_on {
            return;
        }
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn failure<C>(state: &State<C>) -> Outcome {
    state.failure.clone().unwrap_or_else(|| Outcome::retry("no connection in time"))
}

/// Between half and all of `pause`, so that many relays do not come back in one moment.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    let random = RandomState::new().hash_one(()) % 1024;
    half + half * u32::try_from(random).unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Connections numbered from 1, of which the first `failing` fail by `outcome`.
    fn connections(failing: usize, outcome: Outcome) -> (Connections<usize>, Arc<AtomicUsize>) {
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let connections = Connections::new(Duration::from_secs(1), move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let result = if number > failing { Ok(number) } else { Err(outcome.clone()) };
            async move { result }
        });
        (connections, tries)
    }

    #[tokio::test(start_paused = true)]
    async fn one_connection_is_made_at_first_use_and_shared() {
        let (connections, tries) = connections(0, Outcome::retry("down"));
        assert_eq!(tries.load(Ordering::SeqCst), 0);
        for _ in 0..3 {
            assert_eq!(connections.get(soon()).await.unwrap().connection, 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_connection_is_replaced_once() {
        let (connections, _) = connections(0, Outcome::retry("down"));
        let first = connections.get(soon()).await.unwrap();
        connections.lost(&first);
        assert_eq!(connections.get(soon()).await.unwrap().connection, 2);
        connections.lost(&first);
        assert_eq!(connections.get(soon()).await.unwrap().connection, 2, "the newer one stays");
    }

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_in_the_background_and_each_asker_hears_of_one_try() {
        let (connections, tries) = connections(3, Outcome::retry("down"));
        assert_eq!(connections.get(soon()).await.unwrap_err(), Outcome::retry("down"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(tries.load(Ordering::SeqCst), 4);
        assert_eq!(connections.get(soon()).await.unwrap().connection, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_not_repeated_until_someone_asks() {
        let (connections, tries) = connections(1, Outcome::refuse("no"));
        assert_eq!(connections.get(soon()).await.unwrap_err(), Outcome::refuse("no"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(tries.load(Ordering::SeqCst), 1);
        assert_eq!(connections.get(soon()).await.unwrap().connection, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_while_connecting_is_one_failed_try() {
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let connections = Connections::new(Duration::from_secs(1), move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            assert_ne!(number, 1, "at once");
            async move {
                assert_ne!(number, 2, "on the way");
                Ok(number)
            }
        });
        for _ in 0..2 {
            let outcome = connections.get(soon()).await.unwrap_err();
            let Outcome::Retry { error, .. } = outcome else { panic!("{outcome:?}") };
            assert!(error.contains("a fault of this program"), "{error}");
        }
        let third = connections.get(soon()).await.unwrap();
        assert_eq!(third.connection, 3);
        connections.lost(&third);
        assert_eq!(connections.get(soon()).await.unwrap().connection, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_hangs_is_given_up_on() {
        let connections: Connections<()> =
            Connections::new(Duration::from_secs(1), std::future::pending);
        let outcome = connections.get(soon()).await.unwrap_err();
        assert_eq!(outcome, Outcome::retry("no connection within 1s"));
    }
}
