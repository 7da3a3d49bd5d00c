//! Databases that accept everything and never answer: a connection whose other end forgot it, and a
//! server that is frozen.

use crate::faults_database::{proxied, wait_until_sent};
use crate::faults_outbox::{Outbox, SOON, arrivals, page, wait_until_ready, webhook};
use postroom_testkit::{Passage, Postgres, Process, Receiver, Redis, eventually};
use std::time::Duration;

const MESSAGES: usize = 200;
/// The default, written down: what is said here of time follows from it.
const CLAIMS: &str = "claim_time = \"30s\"";

async fn half_open_connections_are_replaced(outbox: Outbox) {
    let receiver = Receiver::start();
    let (proxy, url) = proxied(&outbox);
    let relay = outbox.relay_at(&url, CLAIMS, &webhook(&receiver, ""));
    let first = outbox.enqueue("webhook:a", 1).await;
    outbox.wait_for_all(&first, "SENT").await;
    wait_until_ready(&relay, true).await;

    proxy.half_open();
    let mut ids = outbox.enqueue("webhook:a", MESSAGES).await;
    ids.extend(first);
    wait_until_ready(&relay, false).await;
    wait_until_sent(&outbox, &ids).await;
    wait_until_ready(&relay, true).await;
    assert_eq!(arrivals(&receiver).len(), MESSAGES + 1, "all of them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_50_half_open_connections_to_postgres_are_replaced_and_everything_is_delivered() {
    half_open_connections_are_replaced(Outbox::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_50_half_open_connections_to_mariadb_are_replaced_and_everything_is_delivered() {
    half_open_connections_are_replaced(Outbox::mariadb().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_50_a_relay_is_not_ready_while_postgres_is_frozen_and_goes_on_afterwards() {
    let server = Postgres::private(&[]).await.unwrap();
    let outbox = Outbox::on(&server).await;
    let receiver = Receiver::start();
    let relay = outbox.relay(CLAIMS, &webhook(&receiver, ""));
    let mut ids = outbox.enqueue("webhook:a", 1).await;
    outbox.wait_for_all(&ids, "SENT").await;
    wait_until_ready(&relay, true).await;

    let frozen = server.freeze().await.unwrap();
    wait_until_ready(&relay, false).await;
    says_how_long_it_waits(&relay).await;
    drop(frozen);
    ids.extend(outbox.enqueue("webhook:a", MESSAGES).await);
    wait_until_ready(&relay, true).await;
    wait_until_sent(&outbox, &ids).await;
    assert_eq!(arrivals(&receiver).len(), MESSAGES + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_50_a_relay_is_not_ready_while_mariadb_is_silent_and_goes_on_afterwards() {
    let outbox = Outbox::mariadb().await;
    let receiver = Receiver::start();
    let (proxy, url) = proxied(&outbox);
    let relay = outbox.relay_at(&url, CLAIMS, &webhook(&receiver, ""));
    wait_until_ready(&relay, true).await;

    proxy.set(Passage::Silent);
    let ids = outbox.enqueue("webhook:a", MESSAGES).await;
    wait_until_ready(&relay, false).await;
    says_how_long_it_waits(&relay).await;
    proxy.set(Passage::Open);
    wait_until_ready(&relay, true).await;
    wait_until_sent(&outbox, &ids).await;
    assert_eq!(arrivals(&receiver).len(), MESSAGES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_50_lanes_through_bullmq_go_on_and_a_worker_without_jobs_notices_silence() {
    let (outbox, redis) = (Outbox::postgres().await, Redis::private(&[]).await.unwrap());
    let receiver = Receiver::start();
    let (proxy, url) = proxied(&outbox);
    let lane = format!(
        "[redis]\nurl = \"redis://{}\"\n[integrations.\"webhook:a\"]\ntransport = \"bullmq\"\n\
         url = \"{}\"\nallow_addresses = [\"127.0.0.0/8\"]\ntimeout = \"30s\"\n",
        redis.address(),
        receiver.url()
    );
    let relay = outbox.relay_at(&url, CLAIMS, &lane);
    let config = outbox.configure_at(&url, CLAIMS, &lane);
    let worker = Process::spawn(&mut outbox.folder().command(&["work", "--config", &config]));
    let mut ids = outbox.enqueue("webhook:a", 1).await;
    outbox.wait_for_all(&ids, "SENT").await;
    for process in [&relay, &worker] {
        wait_until_ready(process, true).await;
    }

    proxy.half_open();
    ids.extend(outbox.enqueue("webhook:a", MESSAGES).await);
    wait_until_sent(&outbox, &ids).await;
    assert_eq!(arrivals(&receiver).len(), MESSAGES + 1);

    proxy.set(Passage::Silent);
    for process in [&relay, &worker] {
        wait_until_ready(process, false).await;
    }
    proxy.set(Passage::Open);
    for process in [&relay, &worker] {
        wait_until_ready(process, true).await;
    }
}

/// Waits until a relay's health and metrics show the age of the last answer, and no old figures.
async fn says_how_long_it_waits(relay: &Process) {
    let lag = eventually("a lag that grows", SOON, async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let page = page(relay, "/readyz").await?;
        let (_, body) = page.split_once("\r\n\r\n")?;
        let health: serde_json::Value = serde_json::from_str(body).ok()?;
        assert_eq!(health["ready"], false);
        // What failed last is told too, and comes first by a moment.
        let is_told = health["database"].as_str()?.contains("no answer from the database");
        health["lag_ms"].as_u64().filter(|lag| is_told && *lag > 5_000)
    })
    .await;
    assert!(lag < 120_000, "{lag} ms");
}
