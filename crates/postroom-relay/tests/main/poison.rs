//! A message that kills the process that delivers it.

use crate::outbox::{Outbox, SOON, lane, message};
use crate::script::Slow;
use async_trait::async_trait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use postroom_core::{Message, Report, Sink};
use postroom_relay::{Relay, Settings};
use postroom_store::OpenOptions;
use postroom_testkit::{Process, eventually};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::time::Duration;

/// Names the database; set only in the processes that the test starts.
const DATABASE: &str = "POSTROOM_TEST_POISON_DATABASE";
const POISON: &str = "poison";
const CLAIM_TIME: Duration = Duration::from_secs(1);
const MAX_ATTEMPTS: i32 = 2;
const BATCH_SIZE: usize = 8;

/// The test runs itself again as the relay that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_25_a_message_that_kills_the_process_ends_dead_and_its_neighbours_are_sent() {
    if let Ok(url) = std::env::var(DATABASE) {
        return relay_that_dies(&url).await;
    }
    let outbox = Outbox::postgres().await;
    let brittle = |integration| message(integration).max_attempts(MAX_ATTEMPTS);
    let poison = outbox.put(brittle("memory:a").event_id(POISON)).await;
    let mut neighbours = Vec::new();
    for _ in 0..10 {
        neighbours.push(outbox.put(brittle("memory:a")).await);
        neighbours.push(outbox.put(brittle("memory:b")).await);
    }

    let mut deaths = 0;
    let dead = loop {
        let mut relay = start(outbox.database().url());
        tokio::select! {
            status = relay.wait(SOON) => {
                assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "{}", relay.stdout());
                deaths += 1;
            }
            dead = outbox.wait_for(&poison, "DEAD") => {
                eventually("the neighbours' fate", SOON, async || {
                    let statuses = outbox.statuses(&neighbours).await;
                    statuses.iter().all(|s| s == "SENT" || s == "DEAD").then_some(())
                })
                .await;
                break dead;
            }
        }
    };
    for neighbour in outbox.records(&neighbours).await {
        assert_eq!(neighbour.status, "SENT", "{neighbour:?}");
        assert_eq!(neighbour.message.attempts, 0, "{neighbour:?}");
    }
    assert_eq!(dead.message.attempts, MAX_ATTEMPTS.unsigned_abs());
    let error = dead.last_error.unwrap();
    assert!(error.contains("it seems to kill the process"), "{error}");
    let halvings = i32::try_from(BATCH_SIZE.ilog2()).unwrap();
    assert_eq!(deaths, halvings + MAX_ATTEMPTS, "among ever fewer, then alone for every attempt");
}

fn start(url: &str) -> Process {
    let test = std::thread::current().name().expect("the test's name").to_owned();
    let mut command = Command::new(std::env::current_exe().unwrap());
    Process::spawn(command.args(["--exact", &test, "--nocapture"]).env(DATABASE, url))
}

/// Delivers until it is killed by a message, or by the test.
async fn relay_that_dies(url: &str) {
    let store = postroom_store::open(url, &OpenOptions::default()).await.unwrap();
    let settings =
        Settings { claim_time: CLAIM_TIME, batch_size: BATCH_SIZE, ..Settings::default() };
    let lanes = vec![lane("memory:a", Deadly), lane("memory:b", Slow(Duration::from_millis(50)))];
    Relay::new(store, settings, lanes).run(std::future::pending()).await.unwrap();
}

struct Deadly;

#[async_trait]
impl Sink for Deadly {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for (index, message) in batch.iter().enumerate() {
            if message.event_id == POISON {
                kill(Pid::this(), Signal::SIGKILL).unwrap();
            }
            report.delivered(index);
        }
    }
}
