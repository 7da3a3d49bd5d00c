//! When a failed message is due again, and when it is dead.

use rand::{Rng, RngExt};
use std::time::Duration;

/// How many failed attempts a message may have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AttemptLimit {
    /// As many as the message's own `max_attempts` says.
    Message,
    /// This many, whatever the message says.
    AtMost(u32),
    /// No limit.
    Forever,
}

/// Exponential backoff: `min(base · multiplier^(n−1), cap) + [0, jitter)`, where `n` counts the
/// failed attempts, the latest included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The delay after the first failure.
    pub base: Duration,
    /// What each further failure multiplies it by.
    pub multiplier: f64,
    /// The longest delay, before jitter.
    pub cap: Duration,
    /// Up to this much is added at random, so that retries do not arrive together.
    pub jitter: Duration,
    /// When to stop.
    pub max_attempts: AttemptLimit,
}

impl Default for RetryPolicy {
    /// 60 s doubling to 15 min, plus up to 10 s; the message says how often.
    fn default() -> Self {
        Self {
            base: Duration::from_secs(60),
            multiplier: 2.0,
            cap: Duration::from_secs(15 * 60),
            jitter: Duration::from_secs(10),
            max_attempts: AttemptLimit::Message,
        }
    }
}

impl RetryPolicy {
    /// The delay before the next attempt, once `failed` attempts have failed.
    pub fn delay(&self, failed: u32, rng: &mut impl Rng) -> Duration {
        let exponent = f64::from(failed.saturating_sub(1));
        let seconds = self.base.as_secs_f64() * self.multiplier.powf(exponent);
        // A product beyond the cap may be infinite or not a number: the cap answers for both.
        let backoff = if seconds < self.cap.as_secs_f64() {
            Duration::from_secs_f64(seconds.max(0.0))
        } else {
            self.cap
        };
        backoff + self.jitter.mul_f64(rng.random::<f64>())
    }

    /// Whether `failed` attempts are all that a message with this `max_attempts` may have.
    #[must_use]
    pub fn is_exhausted(&self, failed: u32, message_max_attempts: u32) -> bool {
        match self.max_attempts {
            AttemptLimit::Message => failed >= message_max_attempts,
            AttemptLimit::AtMost(limit) => failed >= limit,
            AttemptLimit::Forever => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn policy(base: Duration, cap: Duration, jitter: Duration) -> RetryPolicy {
        RetryPolicy { base, cap, jitter, ..RetryPolicy::default() }
    }

    /// Checks a policy against its written formula for many n, jitter included.
    fn assert_formula(policy: RetryPolicy, formula_ms: impl Fn(u32) -> u128) {
        let mut rng = StdRng::seed_from_u64(7);
        for n in 1..=200 {
            for _ in 0..20 {
                let delay = policy.delay(n, &mut rng).as_millis();
                let low = formula_ms(n);
                let high = low + policy.jitter.as_millis();
                assert!((low..=high).contains(&delay), "n = {n}: {delay} not in {low}..={high}");
            }
        }
    }

    fn doubling(first: u128, n: u32, cap: u128) -> u128 {
        2u128.checked_pow(n - 1).map_or(cap, |factor| (first.saturating_mul(factor)).min(cap))
    }

    #[test]
    fn integration_outbox_60s_doubling_capped_at_15_minutes_plus_up_to_10s() {
        assert_formula(RetryPolicy::default(), |n| doubling(60_000, n, 900_000));
    }

    #[test]
    fn delivery_worker_100ms_doubling_capped_at_30s_for_ever() {
        let mut forever = policy(MS(100), MS(30_000), MS(0));
        forever.max_attempts = AttemptLimit::Forever;
        assert_formula(forever, |n| doubling(100, n, 30_000));
        assert!(!forever.is_exhausted(u32::MAX, 1));
    }

    #[test]
    fn billing_events_base_1s_capped_at_5_minutes() {
        assert_formula(policy(MS(1_000), MS(300_000), MS(0)), |n| doubling(1_000, n, 300_000));
    }

    #[test]
    fn kata_1s_times_two_to_the_n_capped_at_60s() {
        // 1 s · 2^n is a doubling that starts at 2 s.
        assert_formula(policy(MS(2_000), MS(60_000), MS(0)), |n| {
            2u128
                .checked_pow(n)
                .map_or(60_000, |factor| (1_000u128.saturating_mul(factor)).min(60_000))
        });
    }

    #[test]
    fn jitter_varies() {
        let mut rng = StdRng::seed_from_u64(1);
        let policy = RetryPolicy::default();
        let delays: std::collections::HashSet<_> =
            (0..50).map(|_| policy.delay(1, &mut rng)).collect();
        assert!(delays.len() > 40);
    }

    #[test]
    fn the_integration_decides_before_the_message() {
        let mut policy = RetryPolicy::default();
        assert!(policy.is_exhausted(10, 10));
        assert!(!policy.is_exhausted(9, 10));
        policy.max_attempts = AttemptLimit::AtMost(3);
        assert!(policy.is_exhausted(3, 10));
        assert!(!policy.is_exhausted(2, 1));
    }
}
