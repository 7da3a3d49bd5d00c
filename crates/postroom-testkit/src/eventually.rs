//! Waiting for a condition, never for a time.

use std::future::Future;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const PAUSE: Duration = Duration::from_millis(5);

/// Asks `condition` again and again until it gives a value; `what` says what is waited for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// # use postroom_testkit::eventually; use std::time::Duration;
/// # let count = std::cell::Cell::new(0);
/// let third = eventually("the third look", Duration::from_secs(5), async || {
///     count.set(count.get() + 1);
///     (count.get() == 3).then_some("here")
/// })
/// .await;
/// assert_eq!(third, "here");
/// # }
/// ```
///
/// # Panics
/// When there is no value within `deadline`.
pub async fn eventually<T>(
    what: &str,
    deadline: Duration,
    condition: impl AsyncFnMut() -> Option<T>,
) -> T {
    match within(deadline, condition).await {
        Some(value) => value,
        None => panic!("waited {deadline:?} in vain for {what}"),
    }
}

/// The same for those who have more to say when there is no value in time.
pub(crate) async fn within<T>(
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = condition().await {
            return Some(value);
        }
        if !pause(end).await {
            return None;
        }
    }
}

/// The same where it has to be `Send`, which the compiler cannot see of an async closure.
pub(crate) async fn polled<T, F: Future<Output = Option<T>>>(
    deadline: Duration,
    mut condition: impl FnMut() -> F,
) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = condition().await {
            return Some(value);
        }
        if !pause(end).await {
            return None;
        }
    }
}

/// Waits for the next look; says whether there is time for one.
async fn pause(end: Instant) -> bool {
    let in_time = Instant::now() < end;
    if in_time {
        tokio::time::sleep(PAUSE).await;
    }
    in_time
}
