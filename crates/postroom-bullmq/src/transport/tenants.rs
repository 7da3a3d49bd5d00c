//! How fast a tenant's messages are delivered by one process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The most turns that are remembered; more than that wait without one.
const TURNS_MAX: usize = 100_000;
/// How long a turn that nobody came for is kept.
const TURN_KEPT: Duration = Duration::from_secs(60);
/// How many turns and tenants are remembered before any of them is forgotten.
const LOOK_AT: usize = 1_000;

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
    /// The turns that were given out, by queue and job.
    turns: HashMap<(String, String), Instant>,
    /// With so many of both, those that lie in the past are forgotten.
    look_at: usize,
}

impl Turns {
    pub(crate) fn new(rates: TenantRates) -> Self {
        Self { rates, state: Mutex::default() }
    }

    /// How long a job of this tenant has to wait; `None` when it is its turn.
    pub(crate) fn wait(&self, queue: &str, job: &str, tenant: Option<&str>) -> Option<Duration> {
        let tenant = tenant?;
        let rate = self.rate(tenant)?;
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let job = (queue.to_owned(), job.to_owned());
        if let Some(turn) = state.turns.get(&job).copied() {
            if turn > now {
                return Some(turn - now);
            }
            state.turns.remove(&job);
            return None;
        }
        let earliest = rate.earliest(now);
        let turn = state.next.get(tenant).copied().unwrap_or(earliest).max(earliest);
        state.next.insert(tenant.to_owned(), turn + rate.each());
        if state.turns.len() + state.next.len() >= state.look_at.max(LOOK_AT) {
            state.turns.retain(|_, turn| *turn + TURN_KEPT > now);
            // One that is as far back as the burst reaches says no more than none.
            state.next.retain(|tenant, next| {
                self.rate(tenant).is_some_and(|rate| *next > rate.earliest(now))
            });
            state.look_at = 2 * (state.turns.len() + state.next.len());
        }
        if turn <= now {
            return None;
        }
        if state.turns.len() < TURNS_MAX {
            state.turns.insert(job, turn);
        }
        Some(turn - now)
    }

    fn rate(&self, tenant: &str) -> Option<TenantRate> {
        self.rates.named.get(tenant).copied().or(self.rates.default)
    }
}

impl TenantRate {
    /// How far apart deliveries are in the long run.
    fn each(self) -> Duration {
        Duration::from_secs_f64(1.0 / self.per_second.max(f64::MIN_POSITIVE))
    }

    /// From when on what was not used is there at once: as much as the burst.
    fn earliest(self, now: Instant) -> Instant {
        now.checked_sub(self.each().saturating_mul(self.burst.max(1) - 1)).unwrap_or(now)
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
        let waits: Vec<_> =
            (0..6).map(|n| turns.wait("q", &format!("job-{n}"), Some("acme"))).collect();
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(waits, [None, None, None, ms(100), ms(200), ms(300)]);
        // Whoever comes back too early has the same turn, and at its time it may go.
        assert_eq!(turns.wait("q", "job-4", Some("acme")), ms(200));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(turns.wait("q", "job-4", Some("acme")), None);
        assert_eq!(turns.wait("q", "job-6", Some("acme")), ms(200));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_used_is_there_up_to_the_burst() {
        let turns = turns();
        for n in 0..5 {
            turns.wait("q", &format!("job-{n}"), Some("acme"));
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        let free = (5..20).filter(|n| turns.wait("q", &format!("job-{n}"), Some("acme")).is_none());
        assert_eq!(free.count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_of_one_name_in_two_queues_have_a_turn_each() {
        let turns = turns();
        for n in 0..3 {
            assert_eq!(turns.wait("a", &n.to_string(), Some("acme")), None);
        }
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(turns.wait("a", "x", Some("acme")), ms(100));
        assert_eq!(turns.wait("b", "x", Some("acme")), ms(200));
    }

    #[tokio::test(start_paused = true)]
    async fn what_lies_in_the_past_is_forgotten() {
        let rate = TenantRate { per_second: 10.0, burst: 2 };
        let turns = Turns::new(TenantRates { named: HashMap::new(), default: Some(rate) });
        for tenant in 0..20 * LOOK_AT {
            // The third of each has a turn that it never comes for.
            for job in 0..3 {
                turns.wait("q", &format!("{tenant}-{job}"), Some(&tenant.to_string()));
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let state = turns.state.lock().unwrap();
        let kept = (state.next.len(), state.turns.len());
        assert!(kept.0 <= LOOK_AT && kept.1 <= LOOK_AT, "{kept:?}");
    }

    #[tokio::test]
    async fn others_are_not_held_up() {
        let turns = turns();
        for n in 0..100 {
            assert_eq!(turns.wait("q", &n.to_string(), Some("globex")), None);
            assert_eq!(turns.wait("q", &n.to_string(), None), None);
        }
    }
}
