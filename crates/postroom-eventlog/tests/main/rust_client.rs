//! What the official client for Rust sees of a served log.

use crate::served::{PATIENCE, Served};
use kurrentdb::{
    AppendToStreamOptions, Client, CurrentRevision, DeleteStreamOptions, Error, EventData,
    ReadAllOptions, ReadEvent, ReadStreamOptions, ResolvedEvent, StreamMetadataBuilder,
    StreamPosition, StreamState, SubscribeToAllOptions, SubscribeToStreamOptions, Subscription,
    SubscriptionEvent, SubscriptionFilter, TombstoneStreamOptions,
};
use std::future::Future;
use tokio::time::timeout;

pub(crate) fn client(connection_string: &str) -> Client {
    Client::new(connection_string.parse().unwrap()).unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap()
}

fn events(count: u64) -> Vec<EventData> {
    let event = |n| EventData::json("happened", &serde_json::json!({ "n": n })).unwrap();
    (0..count).map(event).collect()
}

async fn append(client: &Client, stream: &str, count: u64) {
    client.append_to_stream(stream, &Default::default(), events(count)).await.unwrap();
}

async fn read_revisions(client: &Client, stream: &str, options: &ReadStreamOptions) -> Vec<u64> {
    let mut read = client.read_stream(stream, options).await.unwrap();
    let mut revisions = Vec::new();
    while let Some(event) = soon(read.next()).await.unwrap() {
        revisions.push(event.get_original_event().revision);
    }
    revisions
}

async fn first_of(client: &Client, stream: &str) -> kurrentdb::Result<Option<ResolvedEvent>> {
    let mut read = client.read_stream(stream, &Default::default()).await?;
    soon(read.next()).await
}

async fn next(subscription: &mut Subscription) -> SubscriptionEvent {
    soon(subscription.next_subscription_event()).await.unwrap()
}

#[tokio::test]
async fn what_is_appended_is_read_in_both_directions() {
    let served = Served::start();
    let client = client(&served.connection_string);
    let event = EventData::json("created", &serde_json::json!({ "n": 1 }))
        .unwrap()
        .id(uuid::Uuid::from_u128(7))
        .metadata_as_json(&serde_json::json!({ "by": "me" }))
        .unwrap();
    let written = client.append_to_stream("order-1", &Default::default(), event).await.unwrap();
    assert_eq!(written.next_expected_version, 0);
    append(&client, "order-1", 2_500).await;

    let mut read = client.read_stream("order-1", &Default::default()).await.unwrap();
    let first = soon(read.next()).await.unwrap().unwrap().event.unwrap();
    assert_eq!(first.stream_id(), "order-1");
    assert_eq!(first.id, uuid::Uuid::from_u128(7));
    assert_eq!(first.event_type, "created");
    assert!(first.is_json);
    assert_eq!(&first.data[..], b"{\"n\":1}");
    assert_eq!(&first.custom_metadata[..], b"{\"by\":\"me\"}");
    assert_eq!(first.position, written.position);
    assert!((seconds_now() - first.created.timestamp()).abs() < 60);

    let forwards: Vec<u64> = (0..=2_500).collect();
    let all = ReadStreamOptions::default().position(StreamPosition::Start);
    assert_eq!(read_revisions(&client, "order-1", &all).await, forwards);
    let backwards = all.clone().backwards().position(StreamPosition::End).max_count(2);
    assert_eq!(read_revisions(&client, "order-1", &backwards).await, [2_500, 2_499]);
    let from = all.position(StreamPosition::Position(2_499));
    assert_eq!(read_revisions(&client, "order-1", &from).await, [2_499, 2_500]);
    served.stop().await;
}

fn seconds_now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

#[tokio::test]
async fn an_append_at_another_revision_is_refused_with_the_one_that_is() {
    let served = Served::start();
    let client = client(&served.connection_string);
    append(&client, "order-1", 3).await;
    let options = AppendToStreamOptions::default().stream_state(StreamState::StreamRevision(7));
    let error = client.append_to_stream("order-1", &options, events(1)).await.unwrap_err();
    let Error::WrongExpectedVersion { expected, current } = error else { panic!("{error}") };
    assert_eq!(expected, StreamState::StreamRevision(7));
    assert_eq!(current, CurrentRevision::Current(2));

    let options = AppendToStreamOptions::default().stream_state(StreamState::StreamExists);
    let error = client.append_to_stream("order-2", &options, events(1)).await.unwrap_err();
    let Error::WrongExpectedVersion { current, .. } = error else { panic!("{error}") };
    assert_eq!(current, CurrentRevision::NoStream);
    served.stop().await;
}

#[tokio::test]
async fn batches_in_parallel_keep_the_order_in_which_they_were_sent() {
    let served = Served::start();
    let client = client(&served.connection_string);
    let batch = client.batch_append(&Default::default()).await.unwrap();
    let append = |n: u64| {
        let event = EventData::json("happened", &serde_json::json!({ "n": n })).unwrap();
        batch.append_to_stream("order-1", StreamState::Any, vec![event])
    };
    let written = soon(futures_util::future::join_all((0..600).map(append))).await;
    for (n, written) in written.into_iter().enumerate() {
        assert_eq!(written.unwrap().current_revision(), Some(n as u64));
    }
    let mut read = client.read_stream("order-1", &Default::default()).await.unwrap();
    for n in 0..600 {
        let event = soon(read.next()).await.unwrap().unwrap().event.unwrap();
        assert_eq!(event.data, format!("{{\"n\":{n}}}"));
    }
    let error = batch.append_to_stream("order-1", StreamState::NoStream, events(1)).await;
    assert!(error.unwrap_err().to_string().contains("WrongExpectedVersion"));
    served.stop().await;
}

#[tokio::test]
async fn missing_deleted_and_tombstoned_streams_are_told_apart() {
    let served = Served::start();
    let client = client(&served.connection_string);
    assert!(matches!(first_of(&client, "none").await, Err(Error::ResourceNotFound)));

    append(&client, "order-1", 2).await;
    client.delete_stream("order-1", &DeleteStreamOptions::default()).await.unwrap();
    assert!(matches!(first_of(&client, "order-1").await, Err(Error::ResourceNotFound)));
    append(&client, "order-1", 1).await;
    assert_eq!(read_revisions(&client, "order-1", &Default::default()).await, [2]);

    client.tombstone_stream("order-1", &TombstoneStreamOptions::default()).await.unwrap();
    let tombstoned = client.read_stream("order-1", &Default::default()).await;
    assert!(matches!(tombstoned.err(), Some(Error::ResourceDeleted)));
    let refused = client.append_to_stream("order-1", &Default::default(), events(1)).await;
    assert!(matches!(refused, Err(Error::ResourceDeleted)), "{refused:?}");
    served.stop().await;
}

#[tokio::test]
async fn a_read_tells_where_the_stream_begins_and_ends() {
    let served = Served::start();
    let client = client(&served.connection_string);
    append(&client, "order-1", 10).await;
    let metadata = StreamMetadataBuilder::new().truncate_before(4).build();
    client.set_stream_metadata("order-1", &Default::default(), &metadata).await.unwrap();
    let options = ReadStreamOptions::default().position(StreamPosition::Start);
    let mut read = client.read_stream("order-1", &options).await.unwrap();
    let (mut first, mut last, mut revisions) = (None, None, Vec::new());
    while let Some(event) = soon(read.next_read_event()).await.unwrap() {
        match event {
            ReadEvent::Event(event) => revisions.push(event.get_original_event().revision),
            ReadEvent::FirstStreamPosition(position) => first = Some(position),
            ReadEvent::LastStreamPosition(position) => last = Some(position),
            ReadEvent::LastAllStreamPosition(_) => panic!("this is no read of $all"),
        }
    }
    assert_eq!((first, last), (Some(4), Some(9)));
    assert_eq!(revisions, [4, 5, 6, 7, 8, 9]);
    let stored = client.get_stream_metadata("order-1", &Default::default()).await.unwrap();
    assert!(stored.is_success());
    served.stop().await;
}

#[tokio::test]
async fn a_subscription_to_a_stream_catches_up_and_goes_on() {
    let served = Served::start();
    let client = client(&served.connection_string);
    append(&client, "order-1", 3).await;
    let options = SubscribeToStreamOptions::default().start_from(StreamPosition::Position(0));
    let mut subscription = client.subscribe_to_stream("order-1", &options).await;
    assert!(matches!(next(&mut subscription).await, SubscriptionEvent::Confirmed(_)));
    for revision in [1, 2] {
        let SubscriptionEvent::EventAppeared(event) = next(&mut subscription).await else {
            panic!()
        };
        assert_eq!(event.get_original_event().revision, revision);
    }
    let SubscriptionEvent::CaughtUp(Some(standing)) = next(&mut subscription).await else {
        panic!()
    };
    assert_eq!(standing.stream_revision, Some(2));
    append(&client, "order-1", 1).await;
    let live = soon(subscription.next()).await.unwrap();
    assert_eq!(live.get_original_event().revision, 3);
    served.stop().await;
}

#[tokio::test]
async fn a_filtered_subscription_to_all_has_checkpoints_and_no_other_events() {
    let served = Served::start();
    let client = client(&served.connection_string);
    for n in 0..30 {
        append(&client, &format!("order-{n}"), 2).await;
        append(&client, &format!("cart-{n}"), 2).await;
    }
    let filter = SubscriptionFilter::on_stream_name().add_prefix("order-").max(10);
    let options =
        SubscribeToAllOptions::default().position(StreamPosition::Start).filter(filter.clone());
    let mut subscription = client.subscribe_to_all(&options).await;
    assert!(matches!(next(&mut subscription).await, SubscriptionEvent::Confirmed(_)));
    let (mut seen, mut checkpoints) = (0, Vec::new());
    let standing = loop {
        match next(&mut subscription).await {
            SubscriptionEvent::EventAppeared(event) => {
                assert!(event.get_original_event().stream_id().starts_with("order-"));
                seen += 1;
            }
            SubscriptionEvent::Checkpoint(position) => checkpoints.push(position.commit),
            SubscriptionEvent::CaughtUp(standing) => break standing.unwrap(),
            _ => panic!(),
        }
    };
    assert_eq!(seen, 60);
    assert!(checkpoints.len() >= 12, "{checkpoints:?}");
    assert!(checkpoints.is_sorted());
    assert!(standing.position.is_some());

    let read = ReadAllOptions::default().position(StreamPosition::Start).filter(filter);
    let mut read = client.read_all(&read.max_count(7)).await.unwrap();
    let mut count = 0;
    while let Some(event) = soon(read.next()).await.unwrap() {
        assert!(event.get_original_event().stream_id().starts_with("order-"));
        count += 1;
    }
    assert_eq!(count, 7);
    served.stop().await;
}

#[tokio::test]
async fn a_category_is_followed_through_links() {
    let served = Served::start();
    let client = client(&served.connection_string);
    append(&client, "order-1", 1).await;
    append(&client, "order-2", 1).await;
    let options =
        SubscribeToStreamOptions::default().start_from(StreamPosition::Start).resolve_link_tos();
    let mut subscription = client.subscribe_to_stream("$ce-order", &options).await;
    for (number, stream) in ["order-1", "order-2"].into_iter().enumerate() {
        let event = soon(subscription.next()).await.unwrap();
        let link = event.link.unwrap();
        assert_eq!(link.event_type, "$>");
        assert_eq!(link.data, format!("0@{stream}"));
        assert_eq!(link.revision, number as u64);
        assert_eq!(event.event.unwrap().stream_id(), stream);
    }
    append(&client, "order-3", 1).await;
    let live = soon(subscription.next()).await.unwrap();
    assert_eq!(live.event.unwrap().stream_id(), "order-3");
    served.stop().await;
}

#[tokio::test]
async fn a_client_discovers_the_server_by_gossip() {
    let served = Served::start();
    let discovery = format!("esdb+discover://{}?tls=false", served.address);
    let client = client(&discovery);
    append(&client, "order-1", 1).await;
    assert_eq!(read_revisions(&client, "order-1", &Default::default()).await, [0]);
    served.stop().await;
}
