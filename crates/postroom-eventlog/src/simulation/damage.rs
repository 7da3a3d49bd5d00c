//! A disk that changes what it was given.

use super::settings;
use crate::disk::simulated::{Dice, SimulatedDisk};
use crate::log::segment::HEADER;
use crate::upkeep::repair_on;
use crate::{
    Direction, EventLog, ExpectedRevision, NewEvent, OpenError, RecoveryError, StreamState,
};
use std::collections::HashSet;
use std::sync::Arc;
use uuid::Uuid;

/// A log of some segments, closed well; the ids of its events.
async fn written(disk: &SimulatedDisk) -> HashSet<Uuid> {
    let log = EventLog::open_on(Arc::new(disk.clone()), settings()).unwrap();
    let mut ids = HashSet::new();
    for n in 0..40 {
        let events =
            vec![NewEvent::json("t", vec![b'x'; 100]), NewEvent::json("t", vec![b'y'; 50])];
        ids.extend(events.iter().map(|event| event.id));
        log.append(&format!("s-{}", n % 3), ExpectedRevision::Any, events).await.unwrap();
    }
    log.close().await;
    ids
}

fn opening(disk: &SimulatedDisk) -> Result<EventLog, OpenError> {
    EventLog::open_on(Arc::new(disk.clone()), settings())
}

#[tokio::test]
async fn damage_anywhere_stops_the_start_and_names_its_place_and_repair_keeps_the_rest() {
    for seed in 1..=200 {
        let mut dice = Dice::new(seed);
        let disk = SimulatedDisk::default();
        let ids = written(&disk).await;
        let segment = format!("{:08}.log", dice.roll(4));
        let offset = dice.roll(disk.length(&segment));
        disk.damage(&segment, offset);
        let error = opening(&disk).unwrap_err();
        let OpenError::Recovery(RecoveryError::Damaged { segment: named, offset: at, .. }) = &error
        else {
            panic!("seed {seed}: {error}")
        };
        assert_eq!(*named, segment, "seed {seed}");
        // The record's beginning is named, and none has 500 bytes.
        assert!(*at <= offset && offset - at < 500, "seed {seed}: {at} for {offset}");
        // Nothing was changed by trying.
        assert_eq!(opening(&disk).unwrap_err().to_string(), error.to_string());

        repair_on(&disk).unwrap();
        let log = opening(&disk).unwrap();
        let page = log.read_all(0, Direction::Forwards, 1_000, None, false).await.unwrap();
        let left: HashSet<Uuid> =
            page.events.iter().map(|event| event.original().unwrap().id()).collect();
        assert!(left.is_subset(&ids));
        let lost = ids.len() - left.len();
        let allowed = if offset < HEADER as u64 { 0 } else { 1 };
        assert!(lost <= allowed, "seed {seed}: {lost} events lost");
        log.append("s-0", ExpectedRevision::Any, vec![NewEvent::json("t", "{}")]).await.unwrap();
        log.close().await;
        let log = opening(&disk).unwrap();
        assert!(matches!(log.stream_state("s-1").await, Ok(StreamState::There { .. })));
    }
}

#[tokio::test]
async fn an_end_that_was_acknowledged_and_is_gone_stops_the_start() {
    let disk = SimulatedDisk::default();
    written(&disk).await;
    let last = disk.cut_last_segment(10);
    let error = opening(&disk).unwrap_err().to_string();
    assert!(error.contains(&last), "{error}");
    repair_on(&disk).unwrap();
    opening(&disk).unwrap();
}

#[tokio::test]
async fn an_index_that_is_damaged_or_gone_is_made_again() {
    for remove in [true, false] {
        let disk = SimulatedDisk::default();
        let ids = written(&disk).await;
        if remove {
            crate::disk::Disk::remove(&disk, "index.redb").unwrap();
        } else {
            for offset in 0..64 {
                disk.damage("index.redb", offset);
            }
        }
        let log = opening(&disk).unwrap();
        let mut found = 0;
        for stream in ["s-0", "s-1", "s-2"] {
            let page = log.read_stream(stream, 0, Direction::Forwards, 1_000, false).await;
            found += page.unwrap().events.len();
        }
        assert_eq!(found, ids.len());
    }
}
