//! The log in the same process: appending, reading, following, deleting, scavenging.

use postroom_eventlog::{
    AppendError, Direction, EventLog, ExpectedRevision, Filter, FilterOn, METADATA_TYPE, NewEvent,
    Notice, ReadError, ResolvedEvent, Settings, Start, StreamState, Subscription,
    SubscriptionError, TOMBSTONE_TYPE,
};
use std::collections::HashSet;
use std::time::Duration;

const ANY: ExpectedRevision = ExpectedRevision::Any;

fn open(folder: &tempfile::TempDir) -> EventLog {
    EventLog::open(folder.path(), Settings::default()).unwrap()
}

fn events(count: usize) -> Vec<NewEvent> {
    (0..count).map(|n| NewEvent::json("happened", format!("{{\"n\":{n}}}"))).collect()
}

async fn append(log: &EventLog, stream: &str, count: usize) -> Vec<NewEvent> {
    let events = events(count);
    log.append(stream, ANY, events.clone()).await.unwrap();
    events
}

async fn set_metadata(log: &EventLog, stream: &str, metadata: &str) {
    let event = NewEvent::json(METADATA_TYPE, metadata.to_owned());
    log.append(&format!("$${stream}"), ANY, vec![event]).await.unwrap();
}

async fn revisions(log: &EventLog, stream: &str, direction: Direction) -> Vec<u64> {
    let from = if direction == Direction::Forwards { 0 } else { u64::MAX };
    let page = log.read_stream(stream, from, direction, 1_000, false).await.unwrap();
    page.events.iter().map(|event| event.original().unwrap().revision()).collect()
}

/// All events of the log, read forwards in small pages.
async fn all(log: &EventLog, page: usize) -> Vec<(u64, String, u64)> {
    let (mut from, mut found) = (0, Vec::new());
    loop {
        let page = log.read_all(from, Direction::Forwards, page, None, false).await.unwrap();
        found.extend(
            page.events
                .iter()
                .filter_map(ResolvedEvent::original)
                .map(|event| (event.position(), event.stream().to_owned(), event.revision())),
        );
        if page.is_end {
            return found;
        }
        from = page.next;
    }
}

async fn next(subscription: &mut Subscription) -> Notice {
    tokio::time::timeout(Duration::from_secs(10), subscription.next()).await.unwrap().unwrap()
}

async fn next_event(subscription: &mut Subscription) -> ResolvedEvent {
    match next(subscription).await {
        Notice::Event(event) => event,
        other => panic!("expected an event: {other:?}"),
    }
}

#[tokio::test]
async fn events_are_read_as_they_were_appended_also_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(&folder);
    let first = NewEvent {
        id: uuid::Uuid::new_v4(),
        event_type: "order-placed".to_owned(),
        is_json: false,
        data: vec![0, 159, 146, 150].into(),
        metadata: "{\"user\":1}".into(),
    };
    let appended = log.append("order-1", ExpectedRevision::NoStream, vec![first.clone()]).await;
    assert_eq!(appended.unwrap().revision, Some(0));
    append(&log, "order-1", 2).await;
    append(&log, "order-2", 1).await;
    for _ in 0..2 {
        let page = log.read_stream("order-1", 0, Direction::Forwards, 10, false).await.unwrap();
        assert_eq!(page.state, StreamState::There { first: 0, last: 2 });
        let event = page.events[0].event.as_ref().unwrap();
        assert_eq!((event.id(), event.event_type()), (first.id, "order-placed"));
        assert_eq!((event.data(), event.metadata()), (first.data.clone(), first.metadata.clone()));
        assert!(!event.is_json());
        assert_eq!(revisions(&log, "order-1", Direction::Backwards).await, [2, 1, 0]);
        let found = all(&log, 2).await;
        let names: Vec<&str> = found.iter().map(|(_, stream, _)| stream.as_str()).collect();
        assert_eq!(names, ["order-1", "order-1", "order-1", "order-2"]);
        assert!(found.is_sorted_by(|a, b| a.0 < b.0));
        log.close().await;
        log = open(&folder);
    }
}

#[tokio::test]
async fn a_second_server_is_refused_and_told_who_has_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let _log = open(&folder);
    let error = EventLog::open(folder.path(), Settings::default()).unwrap_err().to_string();
    assert!(error.contains("in use by another server (process "), "{error}");
}

#[tokio::test]
async fn an_append_is_refused_where_the_stream_is_not_as_expected() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    append(&log, "s", 3).await;
    for (stream, expected, current) in [
        ("s", ExpectedRevision::NoStream, Some(2)),
        ("s", ExpectedRevision::Exact(1), Some(2)),
        ("s", ExpectedRevision::Exact(3), Some(2)),
        ("t", ExpectedRevision::StreamExists, None),
        ("t", ExpectedRevision::Exact(0), None),
    ] {
        let error = log.append(stream, expected, events(1)).await.unwrap_err();
        let AppendError::WrongExpectedRevision { current: found, .. } = error else {
            panic!("{error}")
        };
        assert_eq!(found, current, "{stream} {expected:?}");
    }
    for (stream, expected) in [
        ("s", ExpectedRevision::Exact(2)),
        ("s", ExpectedRevision::StreamExists),
        ("t", ExpectedRevision::NoStream),
    ] {
        log.append(stream, expected, events(1)).await.unwrap();
    }
    assert_eq!(revisions(&log, "s", Direction::Forwards).await, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn the_same_append_again_succeeds_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(&folder);
    let first = events(3);
    let appended = log.append("s", ExpectedRevision::NoStream, first.clone()).await.unwrap();
    let second = events(2);
    log.append("s", ExpectedRevision::Exact(2), second.clone()).await.unwrap();
    for _ in 0..2 {
        for expected in [ExpectedRevision::NoStream, ANY, ExpectedRevision::StreamExists] {
            let again = log.append("s", expected, first.clone()).await.unwrap();
            assert_eq!(again, appended, "{expected:?}");
        }
        let again = log.append("s", ExpectedRevision::Exact(2), second.clone()).await.unwrap();
        assert_eq!(again.revision, Some(4));
        // Not the same: one event more than was there.
        let longer = [second.clone(), events(1)].concat();
        let error = log.append("s", ExpectedRevision::Exact(2), longer).await.unwrap_err();
        assert!(matches!(error, AppendError::WrongExpectedRevision { .. }), "{error}");
        assert_eq!(revisions(&log, "s", Direction::Forwards).await.len(), 5);
        log.close().await;
        log = open(&folder);
    }
}

#[tokio::test]
async fn appends_that_race_for_one_revision_have_one_winner() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    for revision in 0..20 {
        let expected = match revision {
            0 => ExpectedRevision::NoStream,
            n => ExpectedRevision::Exact(n - 1),
        };
        let tries = (0..8).map(|_| log.append("s", expected, events(1)));
        let done = futures_util::future::join_all(tries).await;
        assert_eq!(done.iter().filter(|one| one.is_ok()).count(), 1);
    }
    assert_eq!(revisions(&log, "s", Direction::Forwards).await, (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn metadata_hides_events_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    append(&log, "s", 10).await;
    set_metadata(&log, "s", r#"{"$maxCount": 3}"#).await;
    assert_eq!(revisions(&log, "s", Direction::Forwards).await, [7, 8, 9]);
    append(&log, "s", 1).await;
    assert_eq!(revisions(&log, "s", Direction::Backwards).await, [10, 9, 8]);
    set_metadata(&log, "s", r#"{"$tb": 10}"#).await;
    assert_eq!(revisions(&log, "s", Direction::Forwards).await, [10]);
    set_metadata(&log, "s", r#"{"$maxAge": 3600}"#).await;
    assert_eq!(revisions(&log, "s", Direction::Forwards).await.len(), 11);
    let metadata = log.read_stream("$$s", 0, Direction::Forwards, 10, false).await.unwrap();
    assert_eq!(metadata.events.len(), 1, "only the last metadata counts");
    assert_eq!(all(&log, 100).await.len(), 14, "the whole log still has everything");
}

#[tokio::test]
async fn a_deleted_stream_is_missing_and_goes_on_with_its_revisions() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(&folder);
    append(&log, "s", 3).await;
    set_metadata(&log, "s", r#"{"mine": 1}"#).await;
    log.delete("s", ExpectedRevision::Exact(2)).await.unwrap();
    for _ in 0..2 {
        assert_eq!(log.stream_state("s").await.unwrap(), StreamState::Missing);
        let error = log.append("s", ExpectedRevision::StreamExists, events(1)).await.unwrap_err();
        assert!(matches!(error, AppendError::StreamDeleted), "{error}");
        log.close().await;
        log = open(&folder);
    }
    let appended = log.append("s", ExpectedRevision::NoStream, events(2)).await.unwrap();
    assert_eq!(appended.revision, Some(4));
    assert_eq!(revisions(&log, "s", Direction::Forwards).await, [3, 4]);
    let metadata = log.read_stream("$$s", u64::MAX, Direction::Backwards, 1, false).await.unwrap();
    let data = metadata.events[0].event.as_ref().unwrap().data();
    assert_eq!(data, r#"{"$tb":3,"mine":1}"#);
}

#[tokio::test]
async fn a_tombstone_ends_a_stream_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = open(&folder);
    append(&log, "s", 2).await;
    log.tombstone("s", ANY).await.unwrap();
    for _ in 0..2 {
        assert_eq!(log.stream_state("s").await.unwrap(), StreamState::Tombstoned);
        let error = log.append("s", ANY, events(1)).await.unwrap_err();
        assert!(matches!(error, AppendError::StreamDeleted), "{error}");
        let error = log.append("$$s", ANY, events(1)).await.unwrap_err();
        assert!(matches!(error, AppendError::StreamDeleted), "{error}");
        let error = log.read_stream("s", 0, Direction::Forwards, 1, false).await.unwrap_err();
        assert!(matches!(error, ReadError::StreamDeleted), "{error}");
        let page = log.read_all(u64::MAX, Direction::Backwards, 1, None, false).await.unwrap();
        assert_eq!(page.events[0].event.as_ref().unwrap().event_type(), TOMBSTONE_TYPE);
        log.close().await;
        log = open(&folder);
    }
}

#[tokio::test]
async fn categories_and_types_are_streams_of_links() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    for (stream, count) in [("order-1", 2), ("other", 1), ("order-2", 1), ("$sys-1", 1)] {
        append(&log, stream, count).await;
    }
    let page = log.read_stream("$ce-order", 0, Direction::Forwards, 10, false).await.unwrap();
    let links: Vec<_> = page.events.iter().map(|one| one.event.as_ref().unwrap().data()).collect();
    assert_eq!(links, ["0@order-1", "1@order-1", "0@order-2"]);
    let ids: HashSet<_> = page.events.iter().map(|one| one.event.as_ref().unwrap().id()).collect();
    assert_eq!(ids.len(), 3);
    log.delete("order-1", ANY).await.unwrap();
    let page = log.read_stream("$ce-order", 2, Direction::Backwards, 10, true).await.unwrap();
    let read: Vec<_> = page
        .events
        .iter()
        .map(|one| (one.link.as_ref().unwrap().revision(), one.event.is_some()))
        .collect();
    assert_eq!(read, [(2, true), (1, false), (0, false)]);
    let types = log.read_stream("$et-happened", 0, Direction::Forwards, 10, true).await.unwrap();
    assert_eq!(types.events.len(), 5);
    let error = log.append("$ce-order", ANY, events(1)).await.unwrap_err();
    assert!(matches!(error, AppendError::Computed(_)), "{error}");
}

#[tokio::test]
async fn a_subscription_catches_up_and_goes_on_live() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    append(&log, "s", 3).await;
    let mut stream = log.subscribe_to_stream("s", Start::After(0), false);
    let mut whole = log.subscribe_to_all(Start::Beginning, None, false);
    let mut new = log.subscribe_to_all(Start::End, None, false);
    let mut missing = log.subscribe_to_stream("later", Start::Beginning, false);
    assert_eq!(next_event(&mut stream).await.original().unwrap().revision(), 1);
    assert_eq!(next_event(&mut stream).await.original().unwrap().revision(), 2);
    assert!(matches!(next(&mut stream).await, Notice::CaughtUp(Some(2))));
    for revision in 0..3 {
        assert_eq!(next_event(&mut whole).await.original().unwrap().revision(), revision);
    }
    assert!(matches!(next(&mut whole).await, Notice::CaughtUp(Some(_))));
    assert!(matches!(next(&mut new).await, Notice::CaughtUp(Some(_))));
    assert!(matches!(next(&mut missing).await, Notice::CaughtUp(None)));
    append(&log, "other", 1).await;
    append(&log, "s", 1).await;
    append(&log, "later", 1).await;
    assert_eq!(next_event(&mut stream).await.original().unwrap().revision(), 3);
    assert_eq!(next_event(&mut whole).await.original().unwrap().stream(), "other");
    assert_eq!(next_event(&mut new).await.original().unwrap().stream(), "other");
    assert_eq!(next_event(&mut missing).await.original().unwrap().stream(), "later");
}

#[tokio::test]
async fn a_filter_tells_how_far_it_looked() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    append(&log, "noise", 25).await;
    append(&log, "wanted-1", 1).await;
    append(&log, "noise", 3).await;
    let last = all(&log, 1_000).await.last().unwrap().0;
    let filter = Filter::prefixes(FilterOn::Stream, vec!["wanted".to_owned()]);
    let mut subscription = log.subscribe_to_all(Start::Beginning, Some((filter, 10)), false);
    let mut told = Vec::new();
    loop {
        match next(&mut subscription).await {
            Notice::Event(event) => {
                told.push(format!("event {}", event.original().unwrap().stream()));
            }
            Notice::Checkpoint(position) => told.push(format!("checkpoint {}", position == last)),
            Notice::CaughtUp(position) => {
                told.push(format!("live {}", position == Some(last)));
                break;
            }
            Notice::FellBehind(_) => panic!("it is not behind"),
        }
    }
    let checkpoint = "checkpoint false";
    assert_eq!(told, [checkpoint, checkpoint, "event wanted-1", "checkpoint true", "live true"]);
    let pattern = Filter::pattern(FilterOn::EventType, "^(?!happened$)").unwrap();
    let page = log.read_all(0, Direction::Forwards, 100, Some(&pattern), false).await.unwrap();
    assert_eq!((page.events.len(), page.considered), (0, 29));
}

#[tokio::test]
async fn scavenging_frees_what_nobody_can_read_and_moves_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { segment_size: 20_000, ..Settings::default() };
    let mut log = EventLog::open(folder.path(), settings.clone()).unwrap();
    for _ in 0..20 {
        append(&log, "kept-1", 10).await;
        append(&log, "cut-1", 10).await;
        append(&log, "gone-1", 10).await;
    }
    set_metadata(&log, "cut-1", r#"{"$maxCount": 5}"#).await;
    log.tombstone("gone-1", ANY).await.unwrap();
    let before = all(&log, 64).await;
    let bytes = folder_size(&folder);
    let done = log.scavenge().await.unwrap();
    // The last event of its type stays: numbers of types go on from it.
    assert_eq!(done.events, 195 + 199);
    assert!(folder_size(&folder) < bytes / 2 + 20_000, "{done:?}");
    let again = log.scavenge().await.unwrap();
    assert_eq!(again.events, 0);
    for _ in 0..2 {
        let after = all(&log, 7).await;
        assert!(after.iter().all(|event| before.contains(event)), "positions stay");
        assert_eq!(after.len(), before.len() - 394);
        assert_eq!(revisions(&log, "kept-1", Direction::Forwards).await.len(), 200);
        let cut = revisions(&log, "cut-1", Direction::Backwards).await;
        assert_eq!(cut, [199, 198, 197, 196, 195]);
        let mut back = Vec::new();
        let mut from = u64::MAX;
        loop {
            let page = log.read_all(from, Direction::Backwards, 9, None, false).await.unwrap();
            back.extend(page.events.iter().map(|event| event.original().unwrap().position()));
            from = page.next;
            if page.is_end {
                break;
            }
        }
        back.reverse();
        assert_eq!(back, after.iter().map(|event| event.0).collect::<Vec<_>>());
        // Numbers of computed streams go on, even where the index is made again.
        let links = log.read_stream("$ce-kept", 199, Direction::Forwards, 9, false).await.unwrap();
        assert_eq!(links.events.len(), 1);
        log.close().await;
        std::fs::remove_file(folder.path().join("index.redb")).unwrap();
        log = EventLog::open(folder.path(), settings.clone()).unwrap();
    }
    append(&log, "kept-1", 1).await;
    assert_eq!(revisions(&log, "kept-1", Direction::Backwards).await[0], 200);
}

fn folder_size(folder: &tempfile::TempDir) -> u64 {
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
    files
        .filter(|file| file.file_name().to_string_lossy().ends_with(".log"))
        .map(|file| file.metadata().unwrap().len())
        .sum()
}

#[tokio::test]
async fn what_a_log_cannot_take_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let log = EventLog::open(folder.path(), Settings { append_max: 1_000, ..Settings::default() })
        .unwrap();
    let large = NewEvent::json("t", vec![b' '; 1_001]);
    let error = log.append("s", ANY, vec![large]).await.unwrap_err();
    assert!(matches!(error, AppendError::TooLarge { max: 1_000 }), "{error}");
    for name in ["", "$all", "$$", &"x".repeat(5_000)] {
        let error = log.append(name, ANY, events(1)).await.unwrap_err();
        assert!(matches!(error, AppendError::Invalid(_)), "{error}");
    }
    log.close().await;
    let error = log.append("s", ANY, events(1)).await.unwrap_err();
    assert!(matches!(error, AppendError::Unavailable(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_read_misses_nothing_of_what_is_just_being_appended() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    let mut readers = Vec::new();
    for stream in ["$ce-order", "order-1", "$et-happened"] {
        let log = log.clone();
        readers.push(tokio::spawn(async move {
            let (mut next, mut expected) = (0, 0);
            while expected < 1_000 {
                let page = log.read_stream(stream, next, Direction::Forwards, 100, true).await;
                let page = page.unwrap();
                for event in page.events {
                    assert_eq!(event.original().unwrap().revision(), expected, "{stream}");
                    expected += 1;
                }
                // As the page says that readers go on.
                next = match (page.next, page.state) {
                    (Some(next), _) => next,
                    (None, StreamState::There { last, .. }) => last + 1,
                    (None, _) => next,
                };
            }
        }));
    }
    for _ in 0..1_000 {
        append(&log, "order-1", 1).await;
    }
    for reader in readers {
        reader.await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_log_can_be_opened_again_while_clones_of_it_are_still_there() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    append(&log, "s", 3).await;
    let clone = log.clone();
    let _subscription = log.subscribe_to_all(Start::Beginning, None, false);
    log.close().await;
    let again = open(&folder);
    assert_eq!(revisions(&again, "s", Direction::Forwards).await, [0, 1, 2]);
    append(&again, "s", 1).await;
    drop((log, clone));
    append(&again, "s", 1).await;
    again.close().await;
    assert_eq!(revisions(&open(&folder), "s", Direction::Forwards).await.len(), 5);
}

#[tokio::test]
async fn an_append_in_part_the_same_as_an_earlier_one_is_refused_where_any_revision_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    let events = events(3);
    let [a, b, c] = [0, 1, 2].map(|at: usize| events[at].clone());
    log.append("s", ANY, vec![a.clone(), b.clone()]).await.unwrap();
    for other in [vec![a.clone(), c.clone()], vec![b.clone(), a.clone()], vec![b.clone(), c]] {
        let error = log.append("s", ANY, other).await.unwrap_err();
        assert!(matches!(error, AppendError::WrongExpectedRevision { .. }), "{error}");
    }
    // One id several times in an append is taken as it is, and recognised when it comes again.
    let twice = vec![NewEvent::json("t", "1"); 2];
    let first = log.append("t", ANY, twice.clone()).await.unwrap();
    assert_eq!(log.append("t", ANY, twice).await.unwrap(), first);
    // The same id in another stream is another event.
    log.append("other", ANY, vec![a, b]).await.unwrap();
    assert_eq!(revisions(&log, "s", Direction::Forwards).await.len(), 2);
}

#[tokio::test]
async fn a_subscription_ends_with_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(&folder);
    let mut whole = log.subscribe_to_all(Start::End, None, false);
    let mut stream = log.subscribe_to_stream("s", Start::Beginning, false);
    next(&mut whole).await;
    next(&mut stream).await;
    let waiting = tokio::spawn(async move { (whole.next().await, stream.next().await) });
    log.close().await;
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    assert!(matches!(ended, (Err(SubscriptionError::Closed), Err(SubscriptionError::Closed))));
}
