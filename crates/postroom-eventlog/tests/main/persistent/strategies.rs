//! Which consumer gets a message.

use super::client::{Consumer, Message, from_start, settings};
use super::server::Server;
use postroom_eventlog::proto::persistent_subscriptions::{NamedStrategy, Settings};
use postroom_eventlog::{ExpectedRevision, NewEvent};
use std::collections::{BTreeMap, HashSet};

fn strategy(named: NamedStrategy) -> Settings {
    Settings { named_consumer_strategy: named as i32, ..settings() }
}

#[tokio::test]
async fn round_robin_gives_each_consumer_its_share() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("s", from_start(), strategy(NamedStrategy::RoundRobin)).await.unwrap();
    let mut consumers = Vec::new();
    for _ in 0..3 {
        consumers.push(client.subscribe("s", 100).await.unwrap());
    }
    server.append("s", 0..60).await;
    client.info_when("s", |info| info.total_items == 60).await;
    for consumer in &mut consumers {
        assert_eq!(consumer.work(20).await.len(), 20);
    }
    let info = client.info_when("s", |info| info.total_in_flight_messages == 0).await;
    assert!(info.connections.iter().all(|connection| connection.total_items == 20));
}

#[tokio::test]
async fn one_consumer_gets_everything_until_it_has_no_room_or_goes() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.create("s", from_start(), strategy(NamedStrategy::DispatchToSingle)).await.unwrap();
    let mut first = client.subscribe("s", 3).await.unwrap();
    let mut second = client.subscribe("s", 10).await.unwrap();
    server.append("s", 0..3).await;
    client.info_when("s", |info| info.total_items == 3).await;
    server.append("s", 3..4).await;
    assert_eq!(second.work(1).await, [3]);
    assert_eq!(first.work(3).await, [0, 1, 2]);
    client.info_when("s", |info| info.total_in_flight_messages == 0).await;
    server.append("s", 4..5).await;
    assert_eq!(first.work(1).await, [4]);
    client.info_when("s", |info| info.total_in_flight_messages == 0).await;
    drop(first);
    client.info_when("s", |info| info.connections.len() == 1).await;
    server.append("s", 5..6).await;
    assert_eq!(second.work(1).await, [5]);
}

/// Takes this many messages and acknowledges them.
async fn take(consumer: &mut Consumer, count: i64) -> Vec<Message> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let message = consumer.next().await;
        consumer.ack(&[&message]).await;
        taken.push(message);
    }
    taken
}

fn streams(messages: &[Message]) -> HashSet<String> {
    messages.iter().map(Message::stream).collect()
}

#[tokio::test]
async fn pinned_stream_stays_with_one_consumer_in_order() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let pinned = Settings { resolve_links: true, ..strategy(NamedStrategy::Pinned) };
    client.create("$ce-order", from_start(), pinned).await.unwrap();
    let mut consumers = Vec::new();
    for _ in 0..3 {
        consumers.push(client.subscribe("$ce-order", 2).await.unwrap());
    }
    for round in 0..10 {
        for order in 0..30 {
            server.append(&format!("order-{order}"), round..round + 1).await;
        }
    }
    let tasks = consumers.into_iter().map(|mut consumer| {
        tokio::spawn(async move {
            let mut taken: Vec<(String, u64)> = Vec::new();
            loop {
                let message = consumer.try_next().await.unwrap();
                let number = message.number();
                if number == u64::MAX {
                    return taken;
                }
                taken.push((message.stream(), number));
                consumer.ack(&[&message]).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    client.info_when("$ce-order", |info| info.last_checkpointed_event_position == "299").await;
    // Each consumer learns the end by some stream of its own.
    let mut extra = 0;
    while tasks.iter().any(|task| !task.is_finished()) {
        assert!(extra < 1_000, "a consumer got no stream at all");
        let end = NewEvent::json("counted", u64::MAX.to_string());
        let stream = format!("order-end{extra}");
        server.log.append(&stream, ExpectedRevision::Any, vec![end]).await.unwrap();
        extra += 1;
        tokio::task::yield_now().await;
    }
    let mut owners: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (consumer, task) in tasks.into_iter().enumerate() {
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        for (stream, number) in task.await.unwrap() {
            let before = last.insert(stream.clone(), number);
            assert_eq!(before.map_or(0, |before| before + 1), number, "{stream}");
            owners.entry(stream).or_default().push(consumer);
        }
    }
    assert_eq!(owners.len(), 30);
    assert!(
        owners.values().all(|owners| owners.len() == 10 && owners.iter().all(|o| *o == owners[0]))
    );
    let used: HashSet<usize> = owners.values().map(|owners| owners[0]).collect();
    assert_eq!(used.len(), 3, "the streams are shared");
}

#[tokio::test]
async fn pinned_streams_of_others_stay_where_they_are_when_a_consumer_goes() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let pinned = Settings { resolve_links: true, ..strategy(NamedStrategy::Pinned) };
    client.create("$ce-order", from_start(), pinned).await.unwrap();
    let mut consumers = Vec::new();
    for _ in 0..3 {
        consumers.push(client.subscribe("$ce-order", 200).await.unwrap());
    }
    let fill = async |numbers: std::ops::Range<u64>| {
        for order in 0..60 {
            server.append(&format!("order-{order}"), numbers.clone()).await;
        }
    };
    fill(0..1).await;
    let info = client.info_when("$ce-order", |info| info.total_items == 60).await;
    let mut before = Vec::new();
    for (consumer, connection) in consumers.iter_mut().zip(&info.connections) {
        before.push(streams(&take(consumer, connection.total_items).await));
    }
    client.info_when("$ce-order", |info| info.total_in_flight_messages == 0).await;
    drop(consumers.remove(0));
    client.info_when("$ce-order", |info| info.connections.len() == 2).await;
    fill(1..2).await;
    let info = client.info_when("$ce-order", |info| info.total_items == 120).await;
    for (at, consumer) in consumers.iter_mut().enumerate() {
        let before = &before[at + 1];
        let more = info.connections[at].total_items - before.len() as i64;
        let after = streams(&take(consumer, more).await);
        assert!(after.is_superset(before), "streams moved between consumers that stayed");
    }
}

#[tokio::test]
async fn events_of_one_correlation_stay_together() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let by_correlation =
        Settings { consumer_strategy: "PinnedByCorrelation".to_owned(), ..settings() };
    client.create("s", from_start(), by_correlation).await.unwrap();
    let mut first = client.subscribe("s", 500).await.unwrap();
    let mut second = client.subscribe("s", 500).await.unwrap();
    let mut events = Vec::new();
    for number in 0..200_u64 {
        let mut event = NewEvent::json("counted", number.to_string());
        let metadata = format!("{{\"$correlationId\":\"c{}\"}}", number % 20);
        event.metadata = metadata.into();
        events.push(event);
    }
    server.log.append("s", ExpectedRevision::Any, events).await.unwrap();
    let info = client.info_when("s", |info| info.total_items == 200).await;
    let of_first = take(&mut first, info.connections[0].total_items).await;
    let of_second = take(&mut second, info.connections[1].total_items).await;
    let groups = |messages: &[Message]| -> HashSet<u64> {
        messages.iter().map(|message| message.number() % 20).collect()
    };
    let (of_first, of_second) = (groups(&of_first), groups(&of_second));
    assert!(of_first.is_disjoint(&of_second));
    assert_eq!(of_first.len() + of_second.len(), 20);
    assert!(!of_first.is_empty() && !of_second.is_empty());
}
