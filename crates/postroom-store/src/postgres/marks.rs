//! Low-water marks: where in each lane the last claim ended.
//!
//! What is in flight stays in the index of its lane, and so does, while an old snapshot is open,
//! what is done. A claim that begins where the one before ended skips both. What became due below
//! the mark (a late commit, a retry, an edit by hand) is found by a scan from the beginning: once
//! a second, and whenever a lane gave less than it was asked for.

use chrono::{DateTime, Utc};
use postroom_core::{Quota, Taken};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const FULL_SCAN_EVERY: Duration = Duration::from_secs(1);

/// A place in the order of a lane: by due time, then by number.
pub(super) type Place = (DateTime<Utc>, i64);

#[derive(Debug, Default)]
pub(super) struct Marks(Mutex<HashMap<String, Mark>>);

#[derive(Debug)]
struct Mark {
    place: Place,
    scanned_from_start: Instant,
}

impl Marks {
    /// After which place to begin for each quota.
    pub(super) fn begin(&self, quotas: &[Quota]) -> Vec<Place> {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        quotas
            .iter()
            .map(|quota| match marks.get(&quota.integration) {
                Some(mark) if mark.scanned_from_start.elapsed() < FULL_SCAN_EVERY => mark.place,
                _ => {
                    marks.remove(&quota.integration);
                    BEGINNING
                }
            })
            .collect()
    }

    /// Notes what a claim that began after `began` found, with the due time of each delivery.
    pub(super) fn note(&self, quotas: &[Quota], began: &[Place], taken: &[(DateTime<Utc>, Taken)]) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (quota, began) in quotas.iter().zip(began) {
            let of_lane = |(_, taken): &&(DateTime<Utc>, Taken)| {
                taken.message.integration == quota.integration
            };
            let (mut rows, mut last) = (0, *began);
            for (due, taken) in taken.iter().filter(of_lane) {
                rows += 1;
                last = last.max((*due, taken.message.seq));
            }
            if rows < quota.rows {
                marks.remove(&quota.integration);
                continue;
            }
            match marks.get_mut(&quota.integration) {
                // Of two claims side by side the further one counts.
                Some(mark) if *began != BEGINNING => mark.place = mark.place.max(last),
                _ => {
                    let mark = Mark { place: last, scanned_from_start: Instant::now() };
                    marks.insert(quota.integration.clone(), mark);
                }
            }
        }
    }
}

/// Whether every lane was scanned from its beginning, so that what was not found is not there.
pub(super) fn is_from_start(began: &[Place]) -> bool {
    began.iter().all(|began| *began == BEGINNING)
}

/// The first moment that PostgreSQL knows, in 4714 BC. Producers whose zero time is the year 1
/// exist, and what they write is due.
const BEGINNING: Place = (DateTime::from_timestamp(-210_866_803_200, 0).unwrap(), i64::MIN);
