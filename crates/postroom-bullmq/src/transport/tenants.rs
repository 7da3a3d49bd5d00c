//! How fast a tenant's messages are delivered by one process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The most turns that are remembered; more than that wait without one.
const TURNS_MAX: usize = 100_000;
/// How long a turn that nobody came for is kept.
const TURN_KEPT: Duration = Duration::from_secs(60);

/// How many deliveries may begin in a second, and how many at once after a quiet time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TenantRate {
    /// In the long run.
    pub per_second: f64,
    /// At once.
    pub burst: u32,
}

/// The rates by tenant. One that is not named has the default, a bucket for each.
#[derive(Clone, Debug, Default)]
pub struct TenantRates {
    /// By name.
    pub named: HashMap<String, TenantRate>,
    /// For every other tenant.
    pub default: Option<TenantRate>,
}

/// Gives out turns: a job that comes too early is told when to come again, and that turn is its
/// own, so that jobs do not race for the same one.
#[derive(Debug)]
pub(crate) struct Turns {
    rates: TenantRates,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the next delivery of a tenant may begin, were there no burst.
    next: HashMap<String, Instant>,
    /// The turns that were given out, by job.
    turns: HashMap<String, Instant>,
}

impl Turns {
    pub(crate) fn new(rates: TenantRates) -> Self {
        Self { rates, state: Mutex::default() }
    }

    /// How long a job of this tenant has to wait; `None` when it is its turn.
    pub(crate) fn wait(&self, job: &str, tenant: Option<&str>) -> Option<Duration> {
        let tenant = tenant?;
        let rate = self.rates.named.get(tenant).copied().or(self.rates.default)?;
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = state.turns.get(job).copied() {
            if turn > now {
                return Some(turn - now);
            }
            state.turns.remove(job);
            return None;
        }
        let each = Duration::from_secs_f64(1.0 / rate.per_second.max(f64::MIN_POSITIVE));
        // What was not used in the past is there at once, up to the burst.
        let earliest = now.checked_sub(each.saturating_mul(rate.burst.max(1) - 1)).unwrap_or(now);
        let turn = state.next.get(tenant).copied().unwrap_or(earliest).max(earliest);
        state.next.insert(tenant.to_owned(), turn + each);
        if turn <= now {
            return None;
        }
        if state.turns.len() >= TURNS_MAX {
            state.turns.retain(|_, turn| *turn + TURN_KEPT > now);
        }
        if state.turns.len() < TURNS_MAX {
            state.turns.insert(job.to_owned(), turn);
        }
        Some(turn - now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns() -> Turns {
        let acme = TenantRate { per_second: 10.0, burst: 3 };
        let named = HashMap::from([("acme".to_owned(), acme)]);
        Turns::new(TenantRates { named, default: None })
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_in_turn() {
        let turns = turns();
        let waits: Vec<_> = (0..6).map(|n| turns.wait(&format!("job-{n}"), Some("acme"))).collect();
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(waits, [None, None, None, ms(100), ms(200), ms(300)]);
        // Whoever comes back too early has the same turn, and at its time it may go.
        assert_eq!(turns.wait("job-4", Some("acme")), ms(200));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(turns.wait("job-4", Some("acme")), None);
        assert_eq!(turns.wait("job-6", Some("acme")), ms(200));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_used_is_there_up_to_the_burst() {
        let turns = turns();
        for n in 0..5 {
            turns.wait(&format!("job-{n}"), Some("acme"));
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        let free = (5..20).filter(|n| turns.wait(&format!("job-{n}"), Some("acme")).is_none());
        assert_eq!(free.count(), 3);
    }

    #[tokio::test]
    async fn others_are_not_held_up() {
        let turns = turns();
        for n in 0..100 {
            assert_eq!(turns.wait(&n.to_string(), Some("globex")), None);
            assert_eq!(turns.wait(&n.to_string(), None), None);
        }
    }
}
