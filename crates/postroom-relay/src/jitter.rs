//! Randomness as a dependency, so that a seed repeats a run.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Where a relay draws its jitter from. Nothing is drawn while all goes well.
#[derive(Debug)]
pub struct Jitter(Mutex<StdRng>);

impl Jitter {
    /// Repeats itself for the same seed; differs each time without one.
    #[must_use]
    pub fn new(seed: Option<u64>) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed.unwrap_or_else(rand::random))))
    }

    /// Draws from it.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Between `least` and all of `whole`.
    pub fn share(&self, whole: Duration, least: f64) -> Duration {
        whole.mul_f64(self.draw(|rng| rng.random_range(least..=1.0)))
    }
}
