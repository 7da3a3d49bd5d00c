//! Consumers that come, go and refuse at random: no event is lost.

use super::client::{Client, from_start, settings};
use super::server::{PATIENCE, Server};
use postroom_eventlog::proto::persistent_subscriptions::read_req::nack::Action;
use postroom_eventlog::proto::persistent_subscriptions::settings::MessageTimeout;
use postroom_eventlog::proto::persistent_subscriptions::{NamedStrategy, Settings};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, timeout};

const EVENTS: u64 = 3_000;
const CONSUMERS: u64 = 4;

/// Random numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What became of each event as the consumers know it.
#[derive(Default)]
struct Outcome {
    acknowledged: HashSet<u64>,
    is_over: bool,
}

async fn consume(client: Client, seed: u64, outcome: Arc<Mutex<Outcome>>) {
    let mut random = Random(seed);
    while !outcome.lock().unwrap().is_over {
        let slots = 1 + random.below(20) as i32;
        let Ok(mut consumer) = client.subscribe("s", slots).await else { return };
        for _ in 0..random.below(200) {
            let next = timeout(Duration::from_millis(20), consumer.try_next()).await;
            let Ok(Ok(message)) = next else { break };
            match random.below(100) {
                // Forgotten: it comes again when its time is over.
                0 => {}
                1..=4 => consumer.nack(&message, Action::Retry).await,
                5..=6 => consumer.nack(&message, Action::Park).await,
                _ => {
                    consumer.ack(&[&message]).await;
                    outcome.lock().unwrap().acknowledged.insert(message.number());
                }
            }
        }
        // It goes, with whatever it had.
    }
}

async fn run(seed: u64, strategy: NamedStrategy) {
    let mut server = Server::start().await;
    let mut client = server.client().await;
    let settings = Settings {
        max_retry_count: 1_000,
        message_timeout: Some(MessageTimeout::MessageTimeoutMs(100)),
        max_checkpoint_count: 50,
        live_buffer_size: 40,
        history_buffer_size: 60,
        named_consumer_strategy: strategy as i32,
        ..settings()
    };
    client.create("s", from_start(), settings).await.unwrap();
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let mut random = Random(seed);
    let mut appended = 0;
    for round in 0..3 {
        let until = EVENTS * (round + 1) / 3;
        outcome.lock().unwrap().is_over = false;
        let tasks: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                let seed = seed * 1_000 + round * 10 + number + 1;
                tokio::spawn(consume(client.clone(), seed, Arc::clone(&outcome)))
            })
            .collect();
        while appended < until {
            let more = (1 + random.below(100)).min(until - appended);
            server.append("s", appended..appended + more).await;
            appended += more;
        }
        if round == 2 {
            work_off(&mut client, &outcome).await;
        }
        outcome.lock().unwrap().is_over = true;
        for task in tasks {
            task.await.unwrap();
        }
        if round < 2 {
            server = if round == 0 { server.kill().await } else { server.restart().await };
            client = server.client().await;
        }
    }
    let info = client.info("s").await.unwrap();
    let acknowledged = outcome.lock().unwrap().acknowledged.clone();
    let missing: Vec<u64> = (0..EVENTS).filter(|n| !acknowledged.contains(n)).collect();
    assert!(missing.is_empty(), "seed {seed}: {missing:?} of {info:?}");
}

/// Waits until everything is finished, replaying what was parked.
async fn work_off(client: &mut Client, outcome: &Mutex<Outcome>) {
    let deadline = Instant::now() + 3 * PATIENCE;
    let last = (EVENTS - 1).to_string();
    loop {
        let info = client.info("s").await.unwrap();
        let is_idle = info.last_checkpointed_event_position == last
            && info.parked_message_count == 0
            && info.total_in_flight_messages == 0
            && info.retry_buffer_count == 0;
        // An acknowledgement that was lost with its consumer is made up for by another delivery.
        if is_idle && outcome.lock().unwrap().acknowledged.len() as u64 == EVENTS {
            return;
        }
        assert!(Instant::now() < deadline, "still {info:?}");
        if info.parked_message_count > 0 {
            client.replay("s", None).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_lost_when_consumers_come_and_go_in_turn() {
    run(1, NamedStrategy::RoundRobin).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_lost_when_consumers_come_and_go_and_streams_are_pinned() {
    run(2, NamedStrategy::Pinned).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_event_is_lost_when_consumers_come_and_go_and_one_gets_all() {
    run(3, NamedStrategy::DispatchToSingle).await;
}
