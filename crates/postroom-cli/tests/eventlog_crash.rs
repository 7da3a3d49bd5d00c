//! An event log whose server is killed while eight writers append.
//!
//! `cargo xtask soak eventlog` runs the same with more kills.

use crate::command::Folder;
use crate::eventlog::{Serving, client};
use kurrentdb::{
    BatchAppendClient, BatchAppendOptions, EventData, ReadAllOptions, StreamPosition, StreamState,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::{HashMap, HashSet};
use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use uuid::Uuid;

const WRITERS: usize = 8;
/// All of them write to this stream, each to one of its own besides.
const SHARED: &str = "order-shared";
/// How long a writer may take to get through to a server that was restarted.
const RECOVERY: Duration = Duration::from_secs(60);

/// Where an event stands, as its acknowledgement or a read told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Place {
    revision: u64,
    position: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_events_survive_kills_once_and_where_they_were() {
    let kills: u32 = env::var("EVENTLOG_KILLS").map_or(5, |kills| kills.parse().unwrap());
    let seed = env::var("EVENTLOG_SEED").map_or_else(|_| rand::random(), |s| s.parse().unwrap());
    println!("seed {seed}, {kills} kills");
    let mut random = StdRng::seed_from_u64(seed);
    let folder = Folder::new();
    let serving = Serving::new();
    let mut server = serving.start(&folder).await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let random = StdRng::seed_from_u64(seed.wrapping_add(writer as u64));
            tokio::spawn(write(serving.url.clone(), writer, random, Arc::clone(&stop)))
        })
        .collect();
    for _ in 0..kills {
        // The moment of a kill is random: there is nothing to wait for.
        let moment = Duration::from_millis(random.random_range(50..1_200));
        tokio::time::sleep(moment).await;
        server.kill9();
        server = serving.start(&folder).await;
    }
    // Some are acknowledged by the server that is not killed any more.
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = HashMap::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    assert!(acknowledged.len() > kills as usize * WRITERS, "only {} events", acknowledged.len());
    let before = compare(&serving.url, &acknowledged).await;
    server.kill9();
    let _again = serving.start(&folder).await;
    let after = compare(&serving.url, &acknowledged).await;
    assert!(before == after, "an event came, went or moved by a restart");
}

/// Appends until it is told to stop; says what was acknowledged, the last event of each append with
/// its place. An append that failed is tried again with the same ids until it succeeds.
async fn write(
    url: String,
    writer: usize,
    mut random: StdRng,
    stop: Arc<AtomicBool>,
) -> HashMap<Uuid, Option<Place>> {
    let own = format!("order-{writer}");
    let mut acknowledged = HashMap::new();
    let mut session = None;
    while !stop.load(Ordering::Relaxed) {
        let stream = if random.random_bool(0.3) { SHARED } else { own.as_str() };
        let ids: Vec<Uuid> = (0..random.random_range(1..8)).map(|_| Uuid::new_v4()).collect();
        let size = random.random_range(0..2_000);
        let place = append_until_acknowledged(&url, &mut session, stream, &ids, size).await;
        let (last, before) = ids.split_last().unwrap();
        acknowledged.extend(before.iter().map(|id| (*id, None)));
        acknowledged.insert(*last, Some(place));
    }
    acknowledged
}

async fn append_until_acknowledged(
    url: &str,
    session: &mut Option<BatchAppendClient>,
    stream: &str,
    ids: &[Uuid],
    size: usize,
) -> Place {
    let end = Instant::now() + RECOVERY;
    loop {
        assert!(Instant::now() < end, "an append was not acknowledged within {RECOVERY:?}");
        if session.is_none() {
            // A client whose server was away for a while is of no use any more.
            let options = BatchAppendOptions::default();
            *session = client(url).batch_append(&options).await.ok();
        }
        let Some(appender) = session else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let data = vec![b'x'; size];
        let events = ids.iter().map(|id| EventData::binary("placed", data.clone().into()).id(*id));
        let append = appender.append_to_stream(stream, StreamState::Any, events.collect());
        match tokio::time::timeout(Duration::from_secs(5), append).await {
            Ok(Ok(done)) => {
                let revision = done.current_revision().unwrap();
                let position = done.current_position().unwrap().commit;
                return Place { revision, position };
            }
            Ok(Err(_)) | Err(_) => *session = None,
        }
    }
}

/// Compares the log with what its writers know, and gives every event's place.
async fn compare(url: &str, acknowledged: &HashMap<Uuid, Option<Place>>) -> HashMap<Uuid, Place> {
    let client = client(url);
    let options = ReadAllOptions::default().position(StreamPosition::Start);
    let mut read = client.read_all(&options).await.unwrap();
    let mut found: HashMap<Uuid, Place> = HashMap::new();
    let mut streams: HashMap<String, HashSet<u64>> = HashMap::new();
    let mut last = 0;
    while let Some(event) = read.next().await.unwrap() {
        let event = event.event.unwrap();
        let place = Place { revision: event.revision, position: event.position.commit };
        assert!(place.position > last, "positions rise");
        last = place.position;
        assert_eq!(found.insert(event.id, place), None, "{} is there twice", event.id);
        assert!(streams.entry(event.stream_id().to_owned()).or_default().insert(event.revision));
    }
    for (stream, revisions) in streams {
        let gapless = (0..revisions.len() as u64).all(|revision| revisions.contains(&revision));
        assert!(gapless, "{stream} has a gap");
    }
    for (id, place) in acknowledged {
        let found = found.get(id).unwrap_or_else(|| panic!("{id} was acknowledged and is lost"));
        if let Some(place) = place {
            assert_eq!(found, place, "{id} has moved");
        }
    }
    println!("{} events, {} acknowledged", found.len(), acknowledged.len());
    found
}
