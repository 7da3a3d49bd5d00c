//! Low-water marks: where in each lane the last claim began.
//!
//! While an old snapshot is open, rows that are done stay in the index as dead entries, and
//! every claim from the beginning walks over them. A claim that begins at the lowest due time of
//! the one before skips them. What became due below the mark (a late commit, a retry, an edit by
//! hand) is found by a scan from the beginning, once a second and whenever a lane runs dry.

use chrono::{DateTime, Utc};
use postroom_core::Quota;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const FULL_SCAN_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<HashMap<String, Mark>>);

#[derive(Debug)]
struct Mark {
    lowest_due: DateTime<Utc>,
    scanned_from_start: Instant,
}

impl Marks {
    /// Where to begin for each quota.
    pub(super) fn begin(&self, quotas: &[Quota]) -> Vec<DateTime<Utc>> {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        quotas
            .iter()
            .map(|quota| match marks.get(&quota.integration) {
                Some(mark) if mark.scanned_from_start.elapsed() < FULL_SCAN_EVERY => {
                    mark.lowest_due
                }
                _ => {
                    marks.remove(&quota.integration);
                    BEGINNING
                }
            })
            .collect()
    }

    /// Notes what a claim that began at `began` found: the lowest due time per integration.
    pub(super) fn note(
        &self,
        quotas: &[Quota],
        began: &[DateTime<Utc>],
        lowest_due: &HashMap<String, DateTime<Utc>>,
    ) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (quota, began) in quotas.iter().zip(began) {
            match lowest_due.get(&quota.integration) {
                None => {
                    marks.remove(&quota.integration);
                }
                Some(due) => {
                    let scanned_from_start = match marks.get(&quota.integration) {
                        Some(mark) if *began != BEGINNING => mark.scanned_from_start,
                        _ => Instant::now(),
                    };
                    let mark = Mark { lowest_due: *due, scanned_from_start };
                    marks.insert(quota.integration.clone(), mark);
                }
            }
        }
    }
}

/// Whether every lane was scanned from its beginning, so that what was not found is not there.
pub(super) fn is_from_start(began: &[DateTime<Utc>]) -> bool {
    began.iter().all(|began| *began == BEGINNING)
}

/// The first moment that PostgreSQL knows, in 4714 BC. Producers whose zero time is the year 1
/// exist, and what they write is due.
const BEGINNING: DateTime<Utc> = DateTime::from_timestamp(-210_866_803_200, 0).unwrap();
