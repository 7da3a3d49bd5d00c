//! Where groups go on after the server has stopped.

use super::client::{from_start, settings};
use super::server::Server;
use postroom_eventlog::proto::persistent_subscriptions::Settings;
use postroom_eventlog::proto::persistent_subscriptions::read_req::nack::Action;
use postroom_eventlog::proto::persistent_subscriptions::settings::CheckpointAfter;
use postroom_eventlog::proto::shared::{Empty, stream_options::RevisionOption};

/// Settings with which no checkpoint is written but when the server stops.
fn seldom() -> Settings {
    Settings {
        min_checkpoint_count: 1_000,
        max_checkpoint_count: 1_000,
        checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(1_000_000)),
        ..settings()
    }
}

#[tokio::test]
async fn group_goes_on_from_its_checkpoint_after_a_kill() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..10).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(4).await, [0, 1, 2, 3]);
    client.info_when("s", |info| info.last_checkpointed_event_position == "3").await;
    let server = server.kill().await;
    let mut client = server.client().await;
    let info = client.info("s").await.unwrap();
    assert_eq!(info.last_checkpointed_event_position, "3");
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(6).await, [4, 5, 6, 7, 8, 9]);
}

#[tokio::test]
async fn checkpoint_is_written_when_the_server_stops() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..6).await;
    client.create("s", from_start(), seldom()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(5).await, [0, 1, 2, 3, 4]);
    let info = client.info_when("s", |info| info.total_in_flight_messages == 1).await;
    assert_eq!(info.last_checkpointed_event_position, "");
    let server = server.restart().await;
    let client = server.client().await;
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(1).await, [5]);
}

#[tokio::test]
async fn checkpoint_never_passes_a_message_that_is_not_finished() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..6).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    let mut messages = Vec::new();
    for _ in 0..6 {
        messages.push(consumer.next().await);
    }
    consumer.ack(&[&messages[0], &messages[1]]).await;
    consumer.nack(&messages[3], Action::Skip).await;
    consumer.nack(&messages[4], Action::Park).await;
    consumer.ack(&[&messages[5]]).await;
    client.info_when("s", |info| info.total_in_flight_messages == 1).await;
    client.info_when("s", |info| info.last_checkpointed_event_position == "1").await;
    let server = server.restart().await;
    let mut client = server.client().await;
    let info = client.info("s").await.unwrap();
    assert_eq!(info.last_checkpointed_event_position, "1");
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    // What was finished behind it comes again: at least once.
    assert_eq!(consumer.work(4).await, [2, 3, 4, 5]);
}

#[tokio::test]
async fn fewer_messages_than_the_least_write_no_checkpoint() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..10).await;
    let three = Settings { min_checkpoint_count: 3, max_checkpoint_count: 1_000, ..settings() };
    client.create("s", from_start(), three).await.unwrap();
    let mut consumer = client.subscribe("s", 2).await.unwrap();
    assert_eq!(consumer.work(3).await, [0, 1, 2]);
    let info =
        client.info_when("s", |info| !info.last_checkpointed_event_position.is_empty()).await;
    assert_eq!(info.last_checkpointed_event_position, "2");
}

#[tokio::test]
async fn group_from_the_end_keeps_its_beginning_though_nobody_has_worked_yet() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..2).await;
    client.create("s", RevisionOption::End(Empty {}), settings()).await.unwrap();
    server.append("s", 2..4).await;
    let server = server.restart().await;
    let mut client = server.client().await;
    let mut consumer = client.subscribe("s", 10).await.unwrap();
    assert_eq!(consumer.work(2).await, [2, 3]);
    assert_eq!(client.info("s").await.unwrap().start_from, "-1");
}

#[tokio::test]
async fn settings_and_groups_survive_a_restart() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let mine = Settings { consumer_strategy: "PinnedByCorrelation".to_owned(), ..seldom() };
    client.create("s", from_start(), mine).await.unwrap();
    client.create("t", from_start(), settings()).await.unwrap();
    client.delete("t").await.unwrap();
    let before = client.info("s").await.unwrap();
    let server = server.restart().await;
    let mut client = server.client().await;
    assert_eq!(client.info("s").await.unwrap(), before);
    assert_eq!(before.named_consumer_strategy, "PinnedByCorrelation");
    assert!(client.info("t").await.is_err());
}

#[tokio::test]
async fn state_streams_stay_small() {
    let server = Server::start().await;
    let mut client = server.client().await;
    server.append("s", 0..50).await;
    client.create("s", from_start(), settings()).await.unwrap();
    let mut consumer = client.subscribe("s", 1).await.unwrap();
    consumer.work(50).await;
    client.info_when("s", |info| info.last_checkpointed_event_position == "49").await;
    for stream in ["$persistentsubscription-s::g-checkpoint", "$persistentSubscriptionConfig"] {
        let forwards = postroom_eventlog::Direction::Forwards;
        let page = server.log.read_stream(stream, 0, forwards, 100, false).await.unwrap();
        assert!((1..=2).contains(&page.events.len()), "{stream}: {}", page.events.len());
    }
}
