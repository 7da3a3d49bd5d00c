//! What was committed, what arrived, and whether the two agree.

use super::faults::Window;
use crate::Request;
use anyhow::Context as _;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A fault's effects outlast it: claims expire, and what failed is tried again.
const AFTERMATH: Duration = Duration::from_secs(15);
/// The most event ids that a report names.
const NAMED_MAX: usize = 10;

/// What producers know of their messages, by event id.
#[derive(Debug, Default)]
pub(super) struct Books(Mutex<HashMap<String, Written>>);

/// What a producer knows of one transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Written {
    Committed,
    RolledBack,
    /// The database went away before it acknowledged the commit.
    Unknown,
}

/// One arrival at the receiver.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) event_id: String,
    pub(super) at: Instant,
}

impl Arrival {
    pub(super) fn of(request: &Request) -> anyhow::Result<Self> {
        let event_id =
            request.header("idempotency-key").context("a request without its event id")?;
        Ok(Self { event_id: event_id.to_owned(), at: request.at })
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Balance {
    /// The kind of database.
    pub database: &'static str,
    /// The seed that repeats the faults.
    pub seed: u64,
    /// How long it took.
    pub seconds: f64,
    /// Messages whose commit was acknowledged.
    pub committed: usize,
    /// Messages that were rolled back.
    pub rolled_back: usize,
    /// Messages whose commit was not acknowledged: they may arrive or not.
    pub unknown: usize,
    /// Of these, how many the outbox turned out to hold.
    pub recovered: usize,
    /// Different messages that arrived.
    pub delivered: usize,
    /// Messages that the outbox holds and that never arrived. Must be 0.
    pub lost: usize,
    /// Messages that arrived and were never committed. Must be 0.
    pub unexpected: usize,
    /// Arrivals beyond the first.
    pub duplicates: Duplicates,
    /// How often each fault struck.
    pub faults: BTreeMap<&'static str, usize>,
    /// Some of the event ids that are lost, unexpected, or duplicate without a reason.
    pub named: Vec<String>,
}

/// Arrivals beyond the first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Duplicates {
    /// How many.
    pub count: usize,
    /// By the fault that explains them.
    pub explained: BTreeMap<&'static str, usize>,
    /// No fault was near. Must be 0.
    pub unexplained: usize,
}

impl Balance {
    /// Whether the books balance.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.lost == 0 && self.unexpected == 0 && self.duplicates.unexplained == 0
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |counts: &BTreeMap<&str, usize>| {
            let words: Vec<_> =
                counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
            if words.is_empty() { "none".to_owned() } else { words.join(", ") }
        };
        writeln!(f, "{} with seed {}, {:.0} s", self.database, self.seed, self.seconds)?;
        writeln!(f, "  faults       {}", words(&self.faults))?;
        writeln!(f, "  committed    {} ({} rolled back)", self.committed, self.rolled_back)?;
        writeln!(f, "  unknown      {} ({} of them committed)", self.unknown, self.recovered)?;
        writeln!(f, "  delivered    {}", self.delivered)?;
        writeln!(
            f,
            "  duplicates   {}: {}",
            self.duplicates.count,
            words(&self.duplicates.explained)
        )?;
        writeln!(f, "  unexplained  {}", self.duplicates.unexplained)?;
        writeln!(f, "  lost         {}", self.lost)?;
        writeln!(f, "  unexpected   {}", self.unexpected)?;
        for event_id in &self.named {
            writeln!(f, "    {event_id}")?;
        }
        write!(
            f,
            "{}",
            if self.is_well() { "the books balance" } else { "THE BOOKS DO NOT BALANCE" }
        )
    }
}

impl Books {
    pub(super) fn write(&self, event_ids: impl IntoIterator<Item = String>, written: Written) {
        self.entries().extend(event_ids.into_iter().map(|event_id| (event_id, written)));
    }

    /// Compares with what arrived, and with the event ids that the outbox holds.
    pub(super) fn compare(
        &self,
        arrivals: &[Arrival],
        windows: &[Window],
        present: &HashSet<String>,
    ) -> Balance {
        let entries = self.entries();
        let mut balance = Balance::default();
        for window in windows {
            *balance.faults.entry(window.what).or_default() += 1;
        }
        let mut by_event: HashMap<&str, Vec<Instant>> = HashMap::new();
        for arrival in arrivals {
            by_event.entry(&arrival.event_id).or_default().push(arrival.at);
        }
        let mut named = Vec::new();
        for (event_id, written) in entries.iter() {
            let in_outbox = present.contains(event_id);
            let expected = match written {
                Written::Committed => {
                    balance.committed += 1;
                    true
                }
                Written::RolledBack => {
                    balance.rolled_back += 1;
                    false
                }
                Written::Unknown => {
                    balance.unknown += 1;
                    balance.recovered += usize::from(in_outbox);
                    in_outbox
                }
            };
            // A committed message that the outbox has forgotten is lost too, even if it arrived:
            // SENT messages are kept in these runs.
            let arrived = by_event.contains_key(event_id.as_str());
            if expected && !(arrived && in_outbox) {
                balance.lost += 1;
                named.push(format!("lost: {event_id}"));
            }
        }
        for (event_id, times) in &mut by_event {
            balance.delivered += 1;
            let known = entries.get(*event_id);
            if matches!(known, None | Some(Written::RolledBack)) {
                balance.unexpected += 1;
                named.push(format!("unexpected: {event_id}"));
            }
            times.sort_unstable();
            for pair in times.windows(2) {
                balance.duplicates.count += 1;
                match explain(windows, pair[0], pair[1]) {
                    Some(what) => *balance.duplicates.explained.entry(what).or_default() += 1,
                    None => {
                        balance.duplicates.unexplained += 1;
                        named.push(format!("duplicate: {event_id}"));
                    }
                }
            }
        }
        named.sort();
        named.truncate(NAMED_MAX);
        balance.named = named;
        balance
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Written>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fault that kept the first arrival from being recorded: the one that was under way then,
/// or the next one before the second arrival, or else the aftermath of one before.
fn explain(windows: &[Window], first: Instant, second: Instant) -> Option<&'static str> {
    let under_way = |window: &&Window| window.began <= first && first <= window.ended;
    let next = |window: &&Window| first < window.began && window.began <= second;
    let before = |window: &&Window| window.ended < first && first <= window.ended + AFTERMATH;
    let found = windows.iter().find(under_way).or_else(|| windows.iter().find(next));
    found.or_else(|| windows.iter().rev().find(before)).map(|window| window.what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(began: Instant, seconds: &[(&str, u64)]) -> Vec<Arrival> {
        let arrival = |(event_id, second): &(&str, u64)| Arrival {
            event_id: (*event_id).to_owned(),
            at: began + Duration::from_secs(*second),
        };
        seconds.iter().map(arrival).collect()
    }

    fn books(entries: &[(&str, Written)]) -> Books {
        let books = Books::default();
        for (event_id, written) in entries {
            books.write([(*event_id).to_owned()], *written);
        }
        books
    }

    fn present(event_ids: &[&str]) -> HashSet<String> {
        event_ids.iter().map(|id| (*id).to_owned()).collect()
    }

    #[test]
    fn what_was_committed_and_arrived_balances() {
        let now = Instant::now();
        let books = books(&[("a", Written::Committed), ("b", Written::RolledBack)]);
        let balance = books.compare(&arrivals(now, &[("a", 0)]), &[], &present(&["a"]));
        assert!(balance.is_well(), "{balance}");
        assert_eq!((balance.committed, balance.rolled_back, balance.delivered), (1, 1, 1));
    }

    #[test]
    fn what_was_committed_and_did_not_arrive_is_lost() {
        let books = books(&[("a", Written::Committed)]);
        let balance = books.compare(&[], &[], &present(&["a"]));
        assert_eq!((balance.lost, balance.is_well()), (1, false));
        assert_eq!(balance.named, ["lost: a"]);
    }

    #[test]
    fn what_the_outbox_forgot_is_lost() {
        let now = Instant::now();
        let books = books(&[("a", Written::Committed)]);
        let balance = books.compare(&arrivals(now, &[("a", 0)]), &[], &present(&[]));
        assert_eq!((balance.lost, balance.is_well()), (1, false));
    }

    #[test]
    fn what_was_rolled_back_or_never_written_and_arrives_is_unexpected() {
        let now = Instant::now();
        let books = books(&[("a", Written::RolledBack)]);
        let arrivals = arrivals(now, &[("a", 0), ("b", 0)]);
        let balance = books.compare(&arrivals, &[], &present(&[]));
        assert_eq!((balance.unexpected, balance.is_well()), (2, false));
    }

    #[test]
    fn an_unknown_commit_may_arrive_or_not_unless_the_outbox_holds_it() {
        let now = Instant::now();
        let unknown = [("a", Written::Unknown), ("b", Written::Unknown)];
        let arrived = arrivals(now, &[("a", 0)]);
        let balance = books(&unknown).compare(&arrived, &[], &present(&["a"]));
        assert!(balance.is_well(), "{balance}");
        assert_eq!((balance.unknown, balance.recovered), (2, 1));
        let balance = books(&unknown).compare(&arrived, &[], &present(&["a", "b"]));
        assert_eq!(balance.lost, 1, "the outbox holds it, and it never arrived");
    }

    #[test]
    fn a_duplicate_needs_a_fault_that_explains_it() {
        let now = Instant::now();
        let books = books(&[("a", Written::Committed)]);
        let arrivals = arrivals(now, &[("a", 100), ("a", 102)]);
        let at = |second| now + Duration::from_secs(second);
        let window = |began, ended| Window { what: "kill", began: at(began), ended: at(ended) };
        for (windows, explained) in [
            (vec![window(101, 101)], true),
            (vec![window(90, 99)], true),
            (vec![window(10, 50)], false),
            (vec![window(103, 110)], false),
            (vec![], false),
        ] {
            let balance = books.compare(&arrivals, &windows, &present(&["a"]));
            assert_eq!(balance.duplicates.count, 1);
            assert_eq!(balance.is_well(), explained, "{windows:?}");
            assert_eq!(balance.duplicates.explained.contains_key("kill"), explained);
        }
    }
}
