//! Whether messages are read with caution: for a while after some that should not have been made
//! text at all, and never otherwise, since estimating costs more than reading does.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long caution lasts after the last reason for it.
const LASTS: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Caution(Mutex<Option<State>>);

#[derive(Clone, Copy, Debug)]
struct State {
    until: Instant,
    /// The most rows to claim at once.
    rows: usize,
}

impl Caution {
    pub(super) fn is_on(&self) -> bool {
        self.with(|state| state.is_some())
    }

    /// The most rows to claim at once.
    pub(super) fn rows_max(&self) -> usize {
        self.with(|state| state.map_or(usize::MAX, |state| state.rows))
    }

    /// Some row could not be read, or should not have been.
    pub(super) fn begin(&self) {
        self.with(|state| {
            let rows = state.map_or(usize::MAX, |state| state.rows);
            *state = Some(State { until: Instant::now() + LASTS, rows });
        });
    }

    /// More was claimed than may be held: only this many rows fitted.
    pub(super) fn rows_fit(&self, rows: usize) {
        self.with(|state| {
            *state = Some(State { until: Instant::now() + LASTS, rows: rows.max(1) });
        });
    }

    /// Everything that was claimed fitted: more may, next time.
    pub(super) fn ease(&self) {
        self.with(|state| {
            if let Some(state) = state {
                state.rows = state.rows.saturating_mul(2);
            }
        });
    }

    fn with<T>(&self, look: impl FnOnce(&mut Option<State>) -> T) -> T {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_some_and(|state| state.until <= Instant::now()) {
            *state = None;
        }
        look(&mut state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_few_after_too_many_and_grow_again() {
        let caution = Caution::default();
        assert_eq!((caution.is_on(), caution.rows_max()), (false, usize::MAX));
        caution.begin();
        assert_eq!((caution.is_on(), caution.rows_max()), (true, usize::MAX));
        caution.rows_fit(3);
        caution.begin();
        caution.ease();
        assert_eq!((caution.is_on(), caution.rows_max()), (true, 6));
        caution.rows_fit(0);
        assert_eq!(caution.rows_max(), 1);
    }
}
