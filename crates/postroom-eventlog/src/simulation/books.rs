//! What writers know of the log, to compare it with.

use crate::disk::simulated::Dice;
use crate::event::RecordedEvent;
use crate::{Appended, Direction, EventLog, NewEvent, ResolvedEvent};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// What was planned, and what was acknowledged.
pub(super) struct Books {
    seed: u64,
    /// Every append by the ids of its events: its stream, and its ids in order.
    planned: HashMap<Uuid, (String, Vec<Uuid>)>,
    /// Appends to streams that are kept and that have no answer: they may be there or not.
    unknown: Vec<(String, Vec<NewEvent>)>,
    /// Where events stand, as far as it is known: acknowledged, or seen once.
    places: BTreeMap<Uuid, Place>,
    /// By number of `$ce-kept`: an event.
    category: BTreeMap<u64, Uuid>,
}

#[derive(Clone, Debug, PartialEq)]
struct Place {
    stream: String,
    revision: u64,
    position: u64,
}

/// Streams of which nothing is ever cut.
fn is_kept(stream: &str) -> bool {
    stream.starts_with("kept-")
}

impl Books {
    pub(super) fn new(seed: u64) -> Self {
        let (planned, places, unknown) = (HashMap::new(), BTreeMap::new(), Vec::new());
        Self { seed, planned, unknown, places, category: BTreeMap::new() }
    }

    /// Some events for some stream.
    pub(super) fn plan(&mut self, dice: &mut Dice) -> (String, Vec<NewEvent>) {
        let stream = match dice.roll(9) {
            0 => "cut-1".to_owned(),
            1 => "cut-2".to_owned(),
            2 => "ended-1".to_owned(),
            _ => format!("kept-{}", dice.roll(4)),
        };
        let events: Vec<NewEvent> = (0..=dice.roll(4))
            .map(|_| {
                let data = vec![b'x'; dice.roll(300) as usize];
                NewEvent::json(&format!("type-{}", dice.roll(3)), data)
            })
            .collect();
        let ids: Vec<Uuid> = events.iter().map(|event| event.id).collect();
        for id in &ids {
            self.planned.insert(*id, (stream.clone(), ids.clone()));
        }
        if is_kept(&stream) {
            self.unknown.push((stream.clone(), events.clone()));
        }
        (stream, events)
    }

    /// An append that has no answer yet.
    pub(super) fn unknown(&self, dice: &mut Dice) -> Option<(String, Vec<NewEvent>)> {
        let at = dice.roll(self.unknown.len() as u64) as usize;
        self.unknown.get(at).cloned()
    }

    /// Takes back what was planned and refused.
    pub(super) fn forget(&mut self, events: &[NewEvent]) {
        for event in events {
            self.planned.remove(&event.id);
        }
    }

    pub(super) fn acknowledged(&mut self, stream: &str, events: &[NewEvent], appended: Appended) {
        self.unknown.retain(|(_, unknown)| unknown[0].id != events[0].id);
        let last = appended.revision.unwrap() + 1;
        let first = last - events.len() as u64;
        for (event, revision) in events.iter().zip(first..) {
            let is_last = revision + 1 == last;
            let position = if is_last { appended.position.unwrap() } else { 0 };
            let place = Place { stream: stream.to_owned(), revision, position };
            self.places.insert(event.id, place);
        }
    }

    /// Looks at everything, in every way, and notes what was seen for the next life.
    pub(super) async fn compare(&mut self, log: &EventLog, life: u64) {
        let at = format!("seed {}, life {life}", self.seed);
        let events = all(log).await;
        let positions: Vec<u64> = events.iter().map(RecordedEvent::position).collect();
        assert!(positions.is_sorted_by(|a, b| a < b), "{at}: positions rise");
        let found: HashMap<Uuid, &RecordedEvent> =
            events.iter().map(|event| (event.id(), event)).collect();
        assert_eq!(found.len(), events.len(), "{at}: an event is there twice");
        let mut backwards = all_backwards(log).await;
        backwards.reverse();
        assert_eq!(backwards, positions, "{at}: backwards is not forwards");
        for (id, place) in &self.places {
            match found.get(id) {
                Some(event) => {
                    let position = if place.position == 0 { 0 } else { event.position() };
                    let stream = event.stream().to_owned();
                    let is = Place { stream, revision: event.revision(), position };
                    assert_eq!(is, *place, "{at}: an event has moved");
                }
                None => assert!(!is_kept(&place.stream), "{at}: lost {place:?}"),
            }
        }
        for event in &events {
            // Metadata and what deletes is not in the books.
            let Some((stream, ids)) = self.planned.get(&event.id()) else { continue };
            assert_eq!(event.stream(), stream, "{at}");
            if is_kept(stream) {
                let whole = ids.iter().all(|id| found.contains_key(id));
                assert!(whole, "{at}: a part of an append is there");
            }
        }
        for number in 0..4 {
            let stream = format!("kept-{number}");
            let in_order: Vec<&RecordedEvent> =
                events.iter().filter(|event| event.stream() == stream).collect();
            let revisions = in_order.iter().map(|event| event.revision());
            assert!(revisions.eq(0..in_order.len() as u64), "{at}: {stream} has a gap");
            let page = log.read_stream(&stream, 0, Direction::Forwards, 10_000, false).await;
            let read = page.unwrap().events.into_iter().filter_map(|read| read.event);
            assert!(
                read.map(|event| event.id()).eq(in_order.iter().map(|event| event.id())),
                "{at}: the index and the log differ about {stream}"
            );
        }
        self.compare_category(log, &at).await;
        for event in &events {
            if self.planned.contains_key(&event.id()) {
                let (stream, revision) = (event.stream().to_owned(), event.revision());
                let place = Place { stream, revision, position: event.position() };
                self.places.insert(event.id(), place);
            }
        }
    }

    async fn compare_category(&mut self, log: &EventLog, at: &str) {
        let page = log.read_stream("$ce-kept", 0, Direction::Forwards, 10_000, true).await;
        let links: Vec<ResolvedEvent> = page.unwrap().events;
        for (link, number) in links.iter().zip(0..) {
            let (link, event) = (link.link.as_ref().unwrap(), link.event.as_ref().unwrap());
            assert_eq!(link.revision(), number, "{at}: $ce-kept has a gap");
            let known = self.category.entry(number).or_insert(event.id());
            assert_eq!(*known, event.id(), "{at}: a link of $ce-kept has changed");
        }
        assert!(links.len() >= self.category.len(), "{at}: links are gone");
    }
}

async fn all_backwards(log: &EventLog) -> Vec<u64> {
    let (mut from, mut positions) = (u64::MAX, Vec::new());
    loop {
        let page = log.read_all(from, Direction::Backwards, 50, None, false).await.unwrap();
        positions.extend(page.events.iter().map(|event| event.original().unwrap().position()));
        if page.is_end {
            return positions;
        }
        from = page.next;
    }
}

async fn all(log: &EventLog) -> Vec<RecordedEvent> {
    let (mut from, mut events) = (0, Vec::new());
    loop {
        let page = log.read_all(from, Direction::Forwards, 50, None, false).await.unwrap();
        events.extend(page.events.into_iter().filter_map(|read| read.event));
        if page.is_end {
            return events;
        }
        from = page.next;
    }
}
