//! Parked messages and their replay.

use super::client::{Client, Consumer, assert_status, from_start, settings};
use super::server::Server;
use postroom_eventlog::proto::persistent_subscriptions::Settings;
use postroom_eventlog::proto::persistent_subscriptions::read_req::nack::Action;
use postroom_eventlog::{Direction, ExpectedRevision, LINK_TYPE};
use tonic::Code;

/// Parks as many messages as are there.
async fn park(client: &mut Client, consumer: &mut Consumer, stream: &str, count: i64) {
    for _ in 0..count {
        let message = consumer.next().await;
        consumer.nack(&message, Action::Park).await;
    }
    client.info_when(stream, |info| info.parked_message_count == count).await;
}

#[tokio::test]
async fn parked_message_is_a_link_with_the_reason() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..2).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    let message = consumer.next().await;
    consumer.nack(&message, Action::Park).await;
    assert_eq!(consumer.work(1).await, [1]);
    client.info_when("s", |info| info.last_checkpointed_event_position == "1").await;
    let parked = "$persistentsubscription-s::g-parked";
    let page = server.log.read_stream(parked, 0, Direction::Forwards, 10, true).await.unwrap();
    let link = page.events[0].link.as_ref().unwrap();
    assert_eq!((link.event_type(), &link.data()[..]), (LINK_TYPE, &b"0@s"[..]));
    let metadata = String::from_utf8(link.metadata().to_vec()).unwrap();
    assert!(metadata.contains("\"reason\":\"because\""), "{metadata}");
    assert_eq!(page.events[0].event.as_ref().unwrap().stream(), "s");
}

#[tokio::test]
async fn parked_messages_are_replayed_once_though_it_is_asked_for_twice() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..5).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    park(&mut client, &mut consumer, "s", 5).await;

    client.replay("s", None).await.unwrap();
    client.replay("s", None).await.unwrap();
    let replayed = consumer.work(5).await;
    assert_eq!(replayed, [0, 1, 2, 3, 4]);
    client.replay("s", None).await.unwrap();
    server.append("s", 5..6).await;
    assert_eq!(consumer.work(1).await, [5]);
    let info = client.info("s").await.unwrap();
    assert_eq!((info.parked_message_count, info.total_items), (0, 11));

    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(client.info("s").await.unwrap().parked_message_count, 0);
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    client.replay("s", None).await.unwrap();
    server.append("s", 6..7).await;
    assert_eq!(consumer.work(1).await, [6]);
}

#[tokio::test]
async fn replay_can_be_of_the_oldest_few() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..5).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    park(&mut client, &mut consumer, "s", 5).await;
    for expected in [[0, 1], [2, 3]] {
        client.replay("s", Some(2)).await.unwrap();
        assert_eq!(consumer.work(2).await, expected);
    }
    client.info_when("s", |info| info.parked_message_count == 1).await;
    client.replay("s", Some(0)).await.unwrap();
    let status = client.replay("s", Some(-1)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    server.append("s", 5..6).await;
    assert_eq!(consumer.work(1).await, [5]);
}

#[tokio::test]
async fn replayed_message_that_fails_again_is_parked_again() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..2).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    park(&mut client, &mut consumer, "s", 2).await;
    for _ in 0..3 {
        client.replay("s", None).await.unwrap();
        assert_eq!(client.info("s").await.unwrap().parked_message_count, 0);
        park(&mut client, &mut consumer, "s", 2).await;
    }
    client.replay("s", None).await.unwrap();
    assert_eq!(consumer.work(2).await, [0, 1]);
}

#[tokio::test]
async fn parked_messages_survive_a_restart() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..3).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    park(&mut client, &mut consumer, "s", 3).await;
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(client.info("s").await.unwrap().parked_message_count, 3);
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    client.replay("s", None).await.unwrap();
    assert_eq!(consumer.work(3).await, [0, 1, 2]);
}

#[tokio::test]
async fn replay_that_a_stop_interrupts_leaves_the_rest_parked_and_nothing_twice() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..4).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    park(&mut client, &mut consumer, "s", 4).await;
    client.replay("s", None).await.unwrap();
    // The first and the third stay unfinished.
    let mut messages = Vec::new();
    for _ in 0..4 {
        messages.push(consumer.next().await);
    }
    consumer.ack(&[&messages[1], &messages[3]]).await;
    client.info_when("s", |info| info.total_in_flight_messages == 2).await;
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(client.info("s").await.unwrap().parked_message_count, 2);
    client.replay("s", None).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(2).await, [0, 2]);
    client.info_when("s", |info| info.parked_message_count == 0).await;
}

#[tokio::test]
async fn replay_that_a_kill_interrupts_loses_nothing() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..3).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    park(&mut client, &mut consumer, "s", 3).await;
    client.replay("s", None).await.unwrap();
    let first = consumer.next().await;
    consumer.ack(&[&first]).await;
    client.info_when("s", |info| info.total_in_flight_messages == 2).await;
    let server = server.kill().await;
    let mut client = server.client().await;
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    client.replay("s", None).await.unwrap();
    server.append("s", 3..4).await;
    let mut numbers = Vec::new();
    while !numbers.contains(&3) || !numbers.contains(&1) || !numbers.contains(&2) {
        numbers.extend(consumer.work(1).await);
    }
}

#[tokio::test]
async fn messages_of_a_computed_stream_are_parked_by_their_target() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("order-1", 7..8).await;
    let resolved = Settings { resolve_links: true, ..settings() };
    client.create("$ce-order", from_start(), resolved).await.unwrap();
    let mut consumer = client.subscribe("$ce-order", 10).await.unwrap();
    park(&mut client, &mut consumer, "$ce-order", 1).await;
    let parked = "$persistentsubscription-$ce-order::g-parked";
    let page = server.log.read_stream(parked, 0, Direction::Forwards, 10, false).await.unwrap();
    assert_eq!(&page.events[0].event.as_ref().unwrap().data()[..], b"0@order-1");
    client.replay("$ce-order", None).await.unwrap();
    let message = consumer.next().await;
    assert_eq!((message.number(), message.stream().as_str()), (7, "order-1"));
    consumer.ack(&[&message]).await;
    client.info_when("$ce-order", |info| info.total_in_flight_messages == 0).await;
}

#[tokio::test]
async fn replay_passes_over_messages_whose_event_is_gone() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("order-1", 0..2).await;
    server.append("order-2", 2..4).await;
    let resolved = Settings { resolve_links: true, ..settings() };
    client.create("$ce-order", from_start(), resolved).await.unwrap();
    let mut consumer = client.subscribe("$ce-order", 10).await.unwrap();
    park(&mut client, &mut consumer, "$ce-order", 4).await;
    server.log.tombstone("order-1", ExpectedRevision::Any).await.unwrap();
    client.replay("$ce-order", None).await.unwrap();
    let mut numbers = Vec::new();
    while numbers.len() < 2 {
        let message = consumer.next().await;
        consumer.ack(&[&message]).await;
        // The tombstone is an event of the category, too.
        if message.stream() == "order-2" {
            numbers.push(message.number());
        }
    }
    assert_eq!(numbers, [2, 3]);
    client.info_when("$ce-order", |info| info.parked_message_count == 0).await;
}

#[tokio::test]
async fn group_fails_for_its_consumers_when_the_stream_of_its_parked_messages_is_tombstoned() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..3).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    park(&mut client, &mut consumer, "s", 1).await;
    let parked = "$persistentsubscription-s::g-parked";
    server.log.tombstone(parked, ExpectedRevision::Any).await.unwrap();
    // As long as nothing has to be parked, the group goes on.
    client.replay("s", None).await.unwrap();
    assert_eq!(consumer.work(1).await, [1]);
    let message = consumer.next().await;
    consumer.nack(&message, Action::Park).await;
    let failed = "persistent-subscription-failed";
    assert_status(&consumer.end().await, Code::Internal, failed, "s");
    let Err(refused) = client.subscribe("s", 10).await else { panic!("the group goes on") };
    assert_status(&refused, Code::Internal, failed, "s");
    assert!(refused.message().contains(parked), "{refused:?}");
    let info = client.info("s").await.unwrap();
    assert_eq!(info.last_checkpointed_event_position, "1");
    assert_eq!(info.total_in_flight_messages, 0);
    // A restart has it try again, with nothing lost.
    let server = server.restart().await;
    let mut client = server.client().await;
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(1).await, [2]);
    client.delete("s").await.unwrap();
    let refused = client.create("s", from_start(), settings()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
}
