//! A disk that changes what it was given.

use super::settings;
use crate::disk::simulated::{Dice, SimulatedDisk};
use crate::log::record::{HEAD, Parts};
use crate::log::segment::HEADER;
use crate::upkeep::repair_on;
use crate::{
    Direction, EventLog, ExpectedRevision, METADATA_TYPE, NewEvent, OpenError, RecoveryError,
    StreamState,
};
use std::collections::HashSet;
use std::sync::Arc;
use uuid::Uuid;

/// A log of some segments, closed well; the ids of its events.
async fn written(disk: &SimulatedDisk) -> HashSet<Uuid> {
    let log = opening(disk).unwrap();
    let mut ids = HashSet::new();
    for n in 0..40 {
        let events = [vec![b'x'; 100], vec![b'y'; 50]].map(|data| NewEvent::json("t", data));
        ids.extend(events.iter().map(|event| event.id));
        let stream = format!("s-{}", n % 3);
        log.append(&stream, ExpectedRevision::Any, events.to_vec()).await.unwrap();
    }
    log.close().await;
    ids
}

/// The same log after a scavenge that took most of one stream out of every segment.
async fn scavenged(disk: &SimulatedDisk) -> HashSet<Uuid> {
    written(disk).await;
    let log = opening(disk).unwrap();
    let metadata = vec![NewEvent::json(METADATA_TYPE, "{\"$maxCount\":1}")];
    log.append("$$s-1", ExpectedRevision::Any, metadata).await.unwrap();
    assert!(log.scavenge().await.unwrap().events > 20);
    let ids = ids(&log).await;
    log.close().await;
    ids
}

async fn ids(log: &EventLog) -> HashSet<Uuid> {
    let (mut from, mut ids) = (0, HashSet::new());
    loop {
        let page = log.read_all(from, Direction::Forwards, 1_000, None, false).await.unwrap();
        ids.extend(page.events.iter().map(|event| event.original().unwrap().id()));
        from = page.next;
        if page.is_end {
            return ids;
        }
    }
}

fn opening(disk: &SimulatedDisk) -> Result<EventLog, OpenError> {
    EventLog::open_on(Arc::new(disk.clone()), settings())
}

#[tokio::test]
async fn damage_anywhere_stops_the_start_and_names_its_place_and_repair_keeps_the_rest() {
    for seed in 1..=200 {
        let mut dice = Dice::new(seed);
        let disk = SimulatedDisk::default();
        let written_ids = if seed % 2 == 0 { written(&disk).await } else { scavenged(&disk).await };
        let segment = format!("{:08}.log", dice.roll(4));
        let offset = dice.roll(disk.length(&segment));
        disk.damage(&segment, offset);
        let error = opening(&disk).unwrap_err();
        let OpenError::Recovery(RecoveryError::Damaged { segment: named, offset: at, .. }) = &error
        else {
            panic!("seed {seed}: {error}")
        };
        assert_eq!(*named, segment, "seed {seed}");
        // The record's beginning is named, or the table's; neither has 500 bytes.
        assert!(*at <= offset && offset - at < 500, "seed {seed}: {at} for {offset}");
        // Nothing was changed by trying.
        assert_eq!(opening(&disk).unwrap_err().to_string(), error.to_string());

        repair_on(&disk).unwrap();
        let log = opening(&disk).unwrap();
        let left = ids(&log).await;
        assert!(left.is_subset(&written_ids));
        let lost = written_ids.len() - left.len();
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
    let last = disk.cut(None, 10);
    let error = opening(&disk).unwrap_err().to_string();
    assert!(error.contains(&last), "{error}");
    repair_on(&disk).unwrap();
    opening(&disk).unwrap();
}

#[tokio::test]
async fn a_segment_that_is_missing_or_shorter_than_it_was_stops_the_start_until_it_is_repaired() {
    for cut in [Some(0), Some(1), None] {
        let disk = SimulatedDisk::default();
        let all = written(&disk).await;
        match cut {
            Some(number) => {
                // Just before a record, so that nothing in the file looks wrong.
                let name = disk.cut(Some(number), disk.last_record(number));
                let error = opening(&disk).unwrap_err().to_string();
                assert!(error.contains(&name), "{error}");
            }
            None => crate::disk::Disk::remove(&disk, "00000001.log").unwrap(),
        }
        opening(&disk).unwrap_err();
        repair_on(&disk).unwrap();
        let log = opening(&disk).unwrap();
        let lost = all.len() - ids(&log).await.len();
        assert!(lost > 0 && lost < 20, "{lost} events lost");
        log.close().await;
    }
}

#[tokio::test]
async fn a_new_segment_whose_making_fails_at_any_step_loses_nothing() {
    for step in 0..12 {
        let disk = SimulatedDisk::default();
        let log = opening(&disk).unwrap();
        let append = async || {
            let events = vec![NewEvent::json("t", vec![b'x'; 200])];
            log.append("s", ExpectedRevision::Any, events).await
        };
        append().await.unwrap();
        disk.fail_once_after(step);
        let _ = log.scavenge().await;
        disk.fail_once_after(u64::MAX);
        let acknowledged = 1 + u64::from(append().await.is_ok());
        log.close().await;
        let log = opening(&disk).unwrap_or_else(|error| panic!("step {step}: {error}"));
        let there = ids(&log).await.len() as u64;
        assert_eq!(there, acknowledged, "step {step}");
        log.close().await;
    }
}

#[tokio::test]
async fn an_index_whose_disk_failed_is_written_again_once_it_is_well() {
    for step in 0..12 {
        let disk = SimulatedDisk::default();
        let log = opening(&disk).unwrap();
        let append = async || {
            let events = vec![NewEvent::json("t", vec![b'x'; 200])];
            log.append("s", ExpectedRevision::Any, events).await.unwrap();
        };
        append().await;
        disk.fail_once_after(step);
        let _ = log.reader().index.flush();
        disk.fail_once_after(u64::MAX);
        append().await;
        log.reader().index.flush().unwrap_or_else(|error| panic!("step {step}: {error}"));
        let end = log.reader().log.end();
        assert_eq!(log.reader().index.checkpoint().unwrap(), end, "step {step}");
        assert_eq!(ids(&log).await.len(), 2);
        log.close().await;
    }
}

#[tokio::test]
async fn what_the_index_knows_does_not_go_back_when_the_log_is_opened() {
    let disk = SimulatedDisk::default();
    let log = opening(&disk).unwrap();
    let events: Vec<NewEvent> = (0..1_000).map(|_| NewEvent::json("t", "{}")).collect();
    log.append("s", ExpectedRevision::Any, events).await.unwrap();
    let end = log.reader().log.end();
    log.close().await;
    crate::disk::Disk::remove(&disk, "index.redb").unwrap();
    let log = opening(&disk).unwrap();
    log.reader().index.flush().unwrap();
    assert_eq!(log.reader().index.checkpoint().unwrap(), end);
    log.close().await;
}

#[tokio::test]
async fn data_that_looks_like_a_record_is_none() {
    let disk = SimulatedDisk::default();
    let log = opening(&disk).unwrap();
    let append = async |data: Vec<u8>| {
        let events = vec![NewEvent::json("t", data)];
        log.append("s", ExpectedRevision::Any, events).await.unwrap().position.unwrap()
    };
    let first = append(b"{}".to_vec()).await;
    let record = log.reader().at(first).unwrap().unwrap().record().to_vec();
    // A record as a client would make it, which cannot know the salt, at its right place.
    let at = first + record.len() as u64;
    let stream = "account-1";
    let inside = at + (HEAD + "s".len() + "t".len()) as u64;
    let mut forged = bytes::BytesMut::new();
    forgery(stream, inside).write(0, &mut forged);
    append(forged.to_vec()).await;
    let page = log.read_all(inside, Direction::Forwards, 10, None, false).await.unwrap();
    assert!(page.events.is_empty());
    let page = log.read_all(inside, Direction::Backwards, 10, None, false).await.unwrap();
    assert_eq!(page.events.len(), 2);
    log.close().await;
}

fn forgery(stream: &str, position: u64) -> Parts<'_> {
    Parts {
        is_json: true,
        is_first: true,
        is_last: true,
        position,
        durable: position,
        revision: 0,
        category_number: 0,
        type_number: 0,
        created: 0,
        id: Uuid::new_v4(),
        stream,
        event_type: "credited",
        metadata: &[],
        data: b"{}",
    }
}

#[tokio::test]
async fn the_last_acknowledged_append_is_missed_after_a_kill_however_much_of_the_end_is_gone() {
    for gone in [1, 100, 700] {
        let disk = SimulatedDisk::default();
        let log = opening(&disk).unwrap();
        for _ in 0..4 {
            let events = vec![NewEvent::json("t", vec![b'x'; 200])];
            log.append("s", ExpectedRevision::Any, events).await.unwrap();
        }
        let killed = disk.after_kill();
        killed.cut(None, gone);
        let error = opening(&killed).unwrap_err().to_string();
        assert!(error.contains("00000000.log"), "{error}");
        repair_on(&killed).unwrap();
        let repaired = opening(&killed).unwrap();
        assert!(ids(&repaired).await.len() >= 4 - 1 - gone / 200);
        opening(&disk.after_kill()).unwrap();
    }
}

#[tokio::test]
async fn a_bit_that_is_wrong_anywhere_in_the_index_hides_no_event() {
    let disk = SimulatedDisk::default();
    let all = written(&disk).await;
    let length = disk.length("index.redb");
    let mut dice = Dice::new(1);
    for _ in 0..200 {
        let damaged = disk.after_kill();
        let offset = dice.roll(length);
        damaged.damage("index.redb", offset);
        let log = opening(&damaged).unwrap();
        let mut found = 0;
        for stream in ["s-0", "s-1", "s-2"] {
            let page = log.read_stream(stream, 0, Direction::Forwards, 1_000, false).await;
            found += page.unwrap_or_else(|error| panic!("{offset}: {error}")).events.len();
        }
        assert_eq!(found, all.len(), "offset {offset}");
        log.close().await;
    }
}

#[tokio::test]
async fn an_index_is_not_made_again_after_a_restart_or_a_kill() {
    let disk = SimulatedDisk::default();
    written(&disk).await;
    let log = opening(&disk).unwrap();
    let indexed = log.reader().index.checkpoint().unwrap();
    assert_eq!(indexed, log.reader().log.end());
    let events = vec![NewEvent::json("t", "{}")];
    log.append("s-0", ExpectedRevision::Any, events).await.unwrap();
    let killed = opening(&disk.after_kill()).unwrap();
    assert_eq!(killed.reader().index.checkpoint().unwrap(), indexed);
}

#[tokio::test]
async fn an_index_that_is_damaged_or_gone_is_made_again() {
    for remove in [true, false] {
        let disk = SimulatedDisk::default();
        let all = written(&disk).await;
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
        assert_eq!(found, all.len());
    }
}
