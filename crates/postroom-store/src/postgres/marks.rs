//! Marks: where in each lane the last take of deliveries ended.
//!
//! What is in flight stays in the index of its lane, and so does, while an old snapshot is open,
//! what is done. A claim that begins where the one before ended skips both. What became due below
//! the mark (a late commit, a retry, an edit by hand) is found by a scan from the beginning: once
//! a second, and whenever a lane gave less than it was asked for.

use chrono::{DateTime, Utc};
use postroom_core::Quota;
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

    /// Notes what a claim that began after `began`, at this `time`, found: the last place taken
    /// in each lane, and how many.
    pub(super) fn note(
        &self,
        quotas: &[Quota],
        began: &[Place],
        time: Instant,
        found: &HashMap<&str, (Place, usize)>,
    ) {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (quota, began) in quotas.iter().zip(began) {
            let lane = &quota.integration;
            match found.get(lane.as_str()) {
                Some((last, rows)) if *rows >= quota.rows => {
                    if *began == BEGINNING {
                        marks.insert(lane.clone(), Mark { place: *last, scanned_from_start: time });
                    } else if let Some(mark) = marks.get_mut(lane) {
                        // Of two claims side by side the further one counts. Where the other has
                        // just taken the mark away, the lane is to be scanned from its beginning.
                        mark.place = mark.place.max(*last);
                    }
                }
                _ => {
                    marks.remove(lane);
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
pub(super) const BEGINNING: Place =
    (DateTime::from_timestamp(-210_866_803_200, 0).unwrap(), i64::MIN);

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas() -> Vec<Quota> {
        vec![Quota { integration: "a".to_owned(), rows: 10 }]
    }

    fn place(seq: i64) -> Place {
        (DateTime::UNIX_EPOCH, seq)
    }

    fn note(marks: &Marks, began: &[Place], last: i64, rows: usize) {
        let found = HashMap::from([("a", (place(last), rows))]);
        marks.note(&quotas(), began, Instant::now(), &found);
    }

    #[test]
    fn a_full_claim_is_followed_by_one_that_begins_where_it_ended() {
        let marks = Marks::default();
        assert!(is_from_start(&marks.begin(&quotas())));
        note(&marks, &[BEGINNING], 10, 10);
        assert_eq!(marks.begin(&quotas()), [place(10)]);
        // Two side by side: the further one counts, whoever comes last.
        note(&marks, &[place(10)], 30, 10);
        note(&marks, &[place(10)], 20, 10);
        assert_eq!(marks.begin(&quotas()), [place(30)]);
    }

    #[test]
    fn a_claim_that_got_less_than_it_asked_for_leads_back_to_the_beginning() {
        let marks = Marks::default();
        note(&marks, &[BEGINNING], 10, 10);
        note(&marks, &[place(10)], 12, 2);
        assert!(is_from_start(&marks.begin(&quotas())));
        // Another that began at the mark and was full does not bring it back: nobody has looked
        // at the beginning meanwhile.
        note(&marks, &[place(10)], 22, 10);
        assert!(is_from_start(&marks.begin(&quotas())));
    }
}
