//! What becomes of messages: acknowledgements, refusals, timeouts, consumers that go.

use super::client::{Consumer, from_start, settings, strange_id};
use super::server::Server;
use postroom_eventlog::proto::persistent_subscriptions::Settings;
use postroom_eventlog::proto::persistent_subscriptions::read_req::nack::Action;
use postroom_eventlog::proto::persistent_subscriptions::read_req::{Ack, Content};
use postroom_eventlog::proto::persistent_subscriptions::settings::MessageTimeout;
use postroom_eventlog::proto::shared::uuid::Value;
use postroom_eventlog::proto::shared::{Empty, Uuid as WireUuid, stream_options::RevisionOption};
use postroom_eventlog::{ExpectedRevision, NewEvent};
use tonic::Code;
use uuid::Uuid;

fn quick(timeout_ms: i32) -> Settings {
    Settings { message_timeout: Some(MessageTimeout::MessageTimeoutMs(timeout_ms)), ..settings() }
}

#[tokio::test]
async fn events_come_in_order_as_they_are_appended() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..100).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(100).await, (0..100).collect::<Vec<_>>());
    for number in 100..110 {
        server.append("s", number..number + 1).await;
        assert_eq!(consumer.work(1).await, [number]);
    }
}

#[tokio::test]
async fn consumer_has_no_more_messages_than_it_has_room_for() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..20).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 3).await.unwrap();
    let info = client.info_when("s", |info| info.total_in_flight_messages == 3).await;
    assert_eq!(info.total_items, 3);
    let first = consumer.next().await;
    consumer.ack(&[&first]).await;
    client.info_when("s", |info| info.total_items == 4).await;
}

#[tokio::test]
async fn retried_message_comes_again_with_a_higher_count() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..1).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    for (retries, action) in [(0, Action::Retry), (1, Action::Unknown), (2, Action::Retry)] {
        let message = consumer.next().await;
        assert_eq!((message.number(), message.retries), (0, retries));
        consumer.nack(&message, action).await;
    }
    assert_eq!(consumer.next().await.retries, 3);
}

#[tokio::test]
async fn skipped_message_is_done_with() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..2).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    let message = consumer.next().await;
    consumer.nack(&message, Action::Skip).await;
    assert_eq!(consumer.work(1).await, [1]);
    let info = client.info_when("s", |info| info.last_checkpointed_event_position == "1").await;
    assert_eq!(info.parked_message_count, 0);
}

#[tokio::test]
async fn consumer_that_says_stop_is_sent_away_and_its_messages_go_to_others() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..1).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut first = client.subscribe("s", 10).await.unwrap();
    let message = first.next().await;
    first.nack(&message, Action::Stop).await;
    assert_eq!(first.end().await.code(), Code::Cancelled);
    let mut second = client.subscribe("s", 10).await.unwrap();
    assert_eq!(second.work(1).await, [0]);
}

#[tokio::test]
async fn message_that_is_not_acknowledged_in_time_comes_again() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..1).await;
    client.create("s", from_start(), quick(50)).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.next().await.retries, 0);
    let again = consumer.next().await;
    assert_eq!((again.number(), again.retries), (0, 1));
    consumer.ack(&[&again]).await;
    client.info_when("s", |info| info.last_checkpointed_event_position == "0").await;
}

#[tokio::test]
async fn message_that_was_retried_too_often_is_parked() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..2).await;
    let two = Settings { max_retry_count: 2, ..quick(30) };
    client.create("s", from_start(), two).await.unwrap();
    let mut consumer = client.subscribe("s", 1).await.unwrap();
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(consumer.next().await);
    }
    let seen: Vec<_> = seen.iter().map(|message| (message.number(), message.retries)).collect();
    assert_eq!(seen, [(0, 0), (0, 1), (0, 2)]);
    assert_eq!(consumer.work(1).await, [1]);
    let info = client.info_when("s", |info| info.parked_message_count == 1).await;
    assert_eq!(info.max_retry_count, 2);
}

#[tokio::test]
async fn consumer_that_goes_leaves_its_messages_to_others_at_once() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..4).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut first = client.subscribe("s", 10).await.unwrap();
    assert_eq!(first.work(1).await, [0]);
    let mut second = client.subscribe("s", 10).await.unwrap();
    client.info_when("s", |info| info.last_checkpointed_event_position == "0").await;
    drop(first);
    let mut numbers = second.work(3).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
}

#[tokio::test]
async fn consumer_that_only_listens_gets_nothing_more() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..1).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut first = client.subscribe("s", 10).await.unwrap();
    first.next().await;
    let mut listening = first.half_close();
    let mut second = client.subscribe("s", 10).await.unwrap();
    assert_eq!(second.work(1).await, [0]);
    client.delete("s").await.unwrap();
    let status = listening.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Cancelled);
}

#[tokio::test]
async fn acknowledgement_of_what_nobody_sent_changes_nothing() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..1).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    let other = client.subscribe("s", 10).await.unwrap();
    let message = consumer.next().await;
    consumer.ack_ids(vec![strange_id()]).await;
    other.ack(&[&message]).await;
    server.append("s", 1..3).await;
    client.info_when("s", |info| info.total_items == 3).await;
    let info = client.info("s").await.unwrap();
    assert_eq!(info.total_in_flight_messages, 3);
    consumer.ack(&[&message]).await;
    client.info_when("s", |info| info.total_in_flight_messages == 2).await;
}

#[tokio::test]
async fn events_with_the_same_id_are_acknowledged_one_by_one() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let event = NewEvent::json("counted", "0");
    // The same id in two streams, both of one category.
    for stream in ["twin-1", "twin-2"] {
        server.log.append(stream, ExpectedRevision::Any, vec![event.clone()]).await.unwrap();
    }
    let all = postroom_eventlog::proto::persistent_subscriptions::AllOptions {
        all_option: None,
        filter_option: None,
    };
    client.client.create(super::client::create_of_all(all, settings())).await.unwrap();
    let mut consumer = client.subscribe("$all", 10).await.unwrap();
    let (first, second) = (consumer.next().await, consumer.next().await);
    assert_eq!(first.id(), second.id());
    consumer.ack(&[&first]).await;
    client.info_when("$all", |info| info.total_in_flight_messages == 1).await;
    consumer.ack(&[&second]).await;
    client.info_when("$all", |info| info.total_in_flight_messages == 0).await;
}

#[tokio::test]
async fn computed_stream_delivers_its_targets_and_takes_the_links_as_acknowledgement() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for stream in ["order-1", "order-2", "order-3"] {
        server.append(stream, 0..2).await;
    }
    let resolved = Settings { resolve_links: true, ..settings() };
    client.create("$ce-order", from_start(), resolved).await.unwrap();
    let mut consumer: Consumer = client.subscribe("$ce-order", 10).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..6 {
        let message = consumer.next().await;
        let link = message.link.clone().unwrap();
        assert_ne!(link.id, message.event.as_ref().unwrap().id);
        streams.push(message.stream());
        consumer.ack(&[&message]).await;
    }
    assert_eq!(streams, ["order-1", "order-1", "order-2", "order-2", "order-3", "order-3"]);
    client.info_when("$ce-order", |info| info.last_checkpointed_event_position == "5").await;
}

#[tokio::test]
async fn links_whose_event_is_gone_are_passed_over() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("order-1", 0..1).await;
    server.append("order-2", 1..2).await;
    server.log.delete("order-1", ExpectedRevision::Any).await.unwrap();
    let resolved = Settings { resolve_links: true, ..settings() };
    client.create("$ce-order", from_start(), resolved).await.unwrap();
    let mut consumer = client.subscribe("$ce-order", 10).await.unwrap();
    assert_eq!(consumer.work(1).await, [1]);
    client.info_when("$ce-order", |info| info.last_checkpointed_event_position == "1").await;
}

#[tokio::test]
async fn ids_may_be_two_numbers() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..1).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    let message = consumer.next().await;
    let Some(Value::String(text)) = message.id().value else { panic!("no text") };
    let (high, low) = text.parse::<Uuid>().unwrap().as_u64_pair();
    let structured = postroom_eventlog::proto::shared::uuid::Structured {
        most_significant_bits: high as i64,
        least_significant_bits: low as i64,
    };
    consumer.ack_ids(vec![WireUuid { value: Some(Value::Structured(structured)) }]).await;
    client.info_when("s", |info| info.last_checkpointed_event_position == "0").await;
}

#[tokio::test]
async fn consumer_that_makes_no_sense_is_sent_away() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("s", from_start(), settings()).await.unwrap();
    let nonsense = WireUuid { value: Some(Value::String("nonsense".to_owned())) };
    for ids in [vec![nonsense], vec![WireUuid { value: None }]] {
        let mut consumer = client.subscribe("s", 10).await.unwrap();
        consumer.send(Content::Ack(Ack { id: Vec::new().into(), ids })).await;
        assert_eq!(consumer.end().await.code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn late_consumer_finds_what_was_appended_while_there_was_none() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("s", RevisionOption::End(Empty {}), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    server.append("s", 0..1).await;
    assert_eq!(consumer.work(1).await, [0]);
    client.info_when("s", |info| info.last_checkpointed_event_position == "0").await;
    drop(consumer);
    client.info_when("s", |info| info.connections.is_empty()).await;
    server.append("s", 1..3).await;
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(2).await, [1, 2]);
}

#[tokio::test]
async fn acknowledgement_of_too_many_ids_ends_the_subscription() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..1).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    consumer.ack_ids(vec![strange_id(); 10_000]).await;
    assert_eq!(consumer.work(1).await, [0]);
    consumer.ack_ids(vec![strange_id(); 10_001]).await;
    assert_eq!(consumer.end().await.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn group_reads_no_further_than_its_memory_allows() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let data = vec![b'x'; 100 << 10];
    for _ in 0..30 {
        let events = (0..10).map(|_| NewEvent::json("t", data.clone())).collect();
        server.log.append("s", ExpectedRevision::Any, events).await.unwrap();
    }
    let settings = Settings { read_batch_size: 500, history_buffer_size: 500, ..settings() };
    client.create("s", from_start(), settings).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    let full = client.info_when("s", |info| info.read_buffer_count >= 60).await;
    assert!(full.read_buffer_count < 120, "{full:?}");
    for _ in 0..300 {
        let message = consumer.next().await;
        consumer.ack(&[&message]).await;
    }
    client.info_when("s", |info| info.last_checkpointed_event_position == "299").await;
}
