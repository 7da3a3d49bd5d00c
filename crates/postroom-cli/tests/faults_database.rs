//! Databases that crash, cut connections, lose answers or refuse for a moment.

use crate::faults_outbox::{
    Outbox, SHORT_CLAIMS, SOON, arrivals, metric, wait_until_ready, webhook,
};
use postroom_core::MessageId;
use postroom_testkit::{Behaviour, Passage, Postgres, Proxy, Receiver, eventually};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;
use uuid::Uuid;

/// Enough that a fault strikes in the middle of it.
const LOAD: usize = 2_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_05_a_database_that_crashes_under_load_causes_duplicates_and_no_loss() {
    let server = Postgres::private(&[("fsync", "on")]).await.unwrap();
    let outbox = Outbox::on(&server).await;
    let receiver = Receiver::start();
    let ids = outbox.enqueue("webhook:a", LOAD).await;
    let relay = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    for part in [LOAD / 4, LOAD / 2] {
        receiver.wait_for(part, SOON).await;
        server.stop().await.unwrap();
        wait_until_ready(&relay, false).await;
        server.start().await.unwrap();
    }
    wait_until_sent(&outbox, &ids).await;
    wait_until_ready(&relay, true).await;
    assert_eq!(arrivals(&receiver).len(), LOAD, "all of them, and nothing else");
    for record in outbox.records(&ids).await {
        // Rescued after the first crash, and in hand alone at the second: that counts as one.
        assert!(record.message.attempts <= 1, "{:?}", record.message);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_06_a_completion_whose_commit_has_an_unknown_outcome_is_checked_by_its_token() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.always(Behaviour::HoldResponse);
    let (proxy, url) = proxied(&outbox);
    // As many as a relay records at once: what comes after them waits until it has learnt of them.
    let ids = outbox.enqueue("webhook:a", 2).await;
    let relay = outbox.relay_at(&url, SHORT_CLAIMS, &webhook(&receiver, ""));
    receiver.wait_for(2, SOON).await;
    // Every commit happens, and nobody learns of it.
    proxy.set(Passage::SwallowAnswer(b"COMMIT"));
    receiver.release();
    outbox.wait_for_all(&ids, "SENT").await;
    let sent = outbox.records(&ids).await;
    assert_ne!(sent_by(&relay).await, Some(2), "the relay cannot know it yet");

    proxy.set(Passage::Open);
    eventually("the relay to learn of it", SOON, async || {
        (sent_by(&relay).await == Some(2)).then_some(())
    })
    .await;
    assert_eq!(metric(&relay, "outbox_late_completions_total").await, Some(0));
    assert_eq!(outbox.records(&ids).await, sent, "the repetition changed nothing");
    assert!(arrivals(&receiver).values().all(|count| *count == 1), "none was delivered again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_18_every_connection_killed_under_load_loses_nothing() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    let ids = outbox.enqueue("webhook:a", LOAD).await;
    let relays = [(); 2].map(|()| outbox.relay(SHORT_CLAIMS, &webhook(&receiver, "")));
    let client = outbox.client().await;
    let theirs = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                  WHERE datname = current_database() AND application_name = 'postroom'";
    for part in 1..=4 {
        receiver.wait_for(part * LOAD / 5, SOON).await;
        let killed: i64 = client.query_one(theirs, &[]).await.unwrap().get(0);
        assert!(killed > 0, "the relays were connected");
    }
    wait_until_sent(&outbox, &ids).await;
    assert_eq!(arrivals(&receiver).len(), LOAD);
    for record in outbox.records(&ids).await {
        assert_eq!(record.message.attempts, 0, "the database's trouble is no attempt");
    }
    for relay in &relays {
        wait_until_ready(relay, true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_21_locks_taken_in_the_other_order_end_in_no_deadlock_and_use_no_attempt() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    let id = &outbox.enqueue("webhook:a", 1).await[0];
    let relay = outbox.relay("claim_time = \"1m\"", &webhook(&receiver, ""));
    receiver.wait_for(1, SOON).await;
    // The completion has the claim and wants the message; this one the other way round. The
    // relay gives way before the server has to choose.
    let blocked = outbox.block_completion(id).await;
    receiver.release();
    outbox.wait_until_blocked().await;
    blocked.execute("UPDATE core_outbox.claim SET worker = worker").await;
    blocked.end().await;
    let sent = outbox.wait_for(id, "SENT").await;
    assert_eq!(sent.message.attempts, 0);
    assert_eq!(arrivals(&receiver)[&sent.message.event_id], 1, "only the recording was repeated");
    assert_eq!(metric(&relay, "outbox_late_completions_total").await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_21_serialization_failures_are_met_by_trying_again_and_use_no_attempt() {
    let outbox = Outbox::postgres().await;
    let client = outbox.client().await;
    // A sequence goes on even when the transaction that asked it is rolled back.
    client
        .batch_execute(
            "CREATE SEQUENCE conflicts; \
             CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF nextval('conflicts') <= 20 THEN \
                     RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001'; \
                 END IF; RETURN NEW; END $$; \
             CREATE TRIGGER conflict BEFORE UPDATE ON core_outbox.integration_outbox \
                 FOR EACH STATEMENT EXECUTE FUNCTION conflict();",
        )
        .await
        .unwrap();
    let receiver = Receiver::start();
    let ids = outbox.enqueue("webhook:a", 3).await;
    let _relay = outbox.relay("claim_time = \"1m\"", &webhook(&receiver, ""));
    outbox.wait_for_all(&ids, "SENT").await;
    let tried: i64 =
        client.query_one("SELECT last_value FROM conflicts", &[]).await.unwrap().get(0);
    assert!((21..=40).contains(&tried), "as often as it took, and not in a storm: {tried}");
    assert!(arrivals(&receiver).values().all(|count| *count == 1));
    for record in outbox.records(&ids).await {
        assert_eq!(record.message.attempts, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_21_a_busy_file_is_waited_for_and_uses_no_attempt() {
    let outbox = Outbox::sqlite().await;
    let receiver = Receiver::start();
    receiver.next([Behaviour::HoldResponse]);
    let id = &outbox.enqueue("webhook:a", 1).await[0];
    let relay = outbox.relay("claim_time = \"1m\"", &webhook(&receiver, ""));
    receiver.wait_for(1, SOON).await;
    let blocked = outbox.block_completion(id).await;
    receiver.release();
    // Longer than SQLite itself waits.
    relay.wait_for_line("another process holds the file's write lock", SOON).await;
    blocked.end().await;
    let sent = outbox.wait_for(id, "SENT").await;
    assert_eq!(sent.message.attempts, 0);
    assert_eq!(arrivals(&receiver)[&sent.message.event_id], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_22_a_read_only_database_makes_the_relay_wait_and_it_resumes() {
    let outbox = Outbox::postgres().await;
    let client = outbox.client().await;
    let receiver = Receiver::start();
    let relay = outbox.relay(SHORT_CLAIMS, &webhook(&receiver, ""));
    let first = &outbox.enqueue("webhook:a", 1).await[0];
    outbox.wait_for(first, "SENT").await;

    read_only(&client, "on").await;
    wait_until_ready(&relay, false).await;
    // A producer may write all the same: one that says so.
    client.batch_execute("SET default_transaction_read_only = off").await.unwrap();
    let insert = "INSERT INTO core_outbox.integration_outbox \
         (source_stream_id, source_event_id, integration_type, event_type, payload) \
         VALUES ('s', 'while-read-only', 'webhook:a', 't', '1') RETURNING id";
    let waiting: Uuid = client.query_one(insert, &[]).await.unwrap().get(0);
    let waiting = MessageId::from(waiting);
    assert_eq!(outbox.record(&waiting).await.status, "PENDING");

    read_only(&client, "off").await;
    wait_until_ready(&relay, true).await;
    let sent = outbox.wait_for(&waiting, "SENT").await;
    assert_eq!(sent.message.attempts, 0);
}

/// Sets it for all sessions to come, and ends those of the relays.
async fn read_only(client: &tokio_postgres::Client, value: &str) {
    let sql = format!(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = {value}', \
             current_database()); END $$; \
         SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name = 'postroom'"
    );
    client.batch_execute(&sql).await.unwrap();
}

/// How many messages a relay says that it has sent.
async fn sent_by(relay: &postroom_testkit::Process) -> Option<u64> {
    metric(relay, "outbox_sent_total{integration=\"webhook:a\"}").await
}

/// A proxy before the outbox's server, and the URL that goes through it.
pub(crate) fn proxied(outbox: &Outbox) -> (Proxy, String) {
    let url = outbox.url();
    let address = url.split('@').nth(1).unwrap().split('/').next().unwrap();
    let address =
        if address.contains(':') { address.to_owned() } else { format!("{address}:5432") };
    let proxy = Proxy::start(address.to_socket_addrs().unwrap().next().unwrap());
    let url = at(&url, proxy.address());
    (proxy, url)
}

/// A database's URL with another address in it.
pub(crate) fn at(url: &str, address: SocketAddr) -> String {
    let (user, rest) = url.split_once('@').unwrap();
    let (_, path) = rest.split_once('/').unwrap();
    format!("{user}@{address}/{path}")
}

/// Waits until everything is SENT, looking at one number instead of each message.
pub(crate) async fn wait_until_sent(outbox: &Outbox, ids: &[MessageId]) {
    eventually("everything to be SENT", SOON * 2, async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let counts = outbox.store.status_counts().await.ok()?;
        (counts.of(postroom_core::Status::Sent) == ids.len() as u64).then_some(())
    })
    .await;
}
