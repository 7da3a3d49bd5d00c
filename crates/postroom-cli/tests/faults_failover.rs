//! Databases whose primary is replaced, or that lose one of their nodes.

use crate::faults_database::{at, proxied, wait_until_sent};
use crate::faults_outbox::{Outbox, SHORT_CLAIMS, SOON, arrivals, wait_until_ready, webhook};
use postroom_testkit::{Galera, OrSkip as _, Postgres, Proxy, Receiver, Standby, eventually};
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

/// What is committed survives a crash, as with a database in use.
const DURABLE: &[(&str, &str)] = &[("fsync", "on")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_53_a_synchronous_standby_takes_over_and_nothing_is_lost_or_phantom() {
    const LOAD: usize = 600;
    let primary = Postgres::private(DURABLE).await.unwrap();
    let outbox = Outbox::on(&primary).await;
    let (way, url) = proxied(&outbox);
    let standby = Standby::of(&primary).await.unwrap();
    standby.make_synchronous(&primary).await.unwrap();
    let receiver = Receiver::start();
    let relay = outbox.relay_at(&url, SHORT_CLAIMS, &webhook(&receiver, ""));
    let failing_over = async {
        receiver.wait_for(LOAD / 4, SOON).await;
        fail_over(primary, standby, &way).await
    };
    let (committed, promoted) = tokio::join!(produce(&url, LOAD), failing_over);

    assert!(committed.len() > LOAD / 2, "the producer went on: {}", committed.len());
    wait_until_nothing_is_open(&url).await;
    wait_until_ready(&relay, true).await;
    let (present, arrived) = (events(&url).await, events_that_arrived(&receiver));
    assert_eq!(committed.difference(&present).count(), 0, "what was committed is there");
    assert_eq!(present.difference(&arrived).count(), 0, "all that is there has arrived");
    assert_eq!(arrived.difference(&present).count(), 0, "nothing has arrived that is not there");
    drop(promoted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_53_an_asynchronous_standby_repeats_and_forgets_only_what_it_did_not_have() {
    // What the standby has as PENDING, and what it does not have at all.
    const KEPT: usize = 50;
    const FORGOTTEN: usize = 30;
    let primary = Postgres::private(DURABLE).await.unwrap();
    let outbox = Outbox::on(&primary).await;
    let (way, url) = proxied(&outbox);
    let mut ids = outbox.enqueue("webhook:a", KEPT).await;
    let standby = Standby::of(&primary).await.unwrap();
    standby.catch_up(&primary).await.unwrap();
    standby.disconnect();
    ids.extend(outbox.enqueue("webhook:a", FORGOTTEN).await);
    let receiver = Receiver::start();
    let relay = outbox.relay_at(&url, SHORT_CLAIMS, &webhook(&receiver, ""));
    wait_until_sent(&outbox, &ids).await;
    assert_eq!(receiver.count(), KEPT + FORGOTTEN);

    let promoted = fail_over(primary, standby, &way).await;
    // These may have the numbers of those that are forgotten.
    let after = produce(&url, FORGOTTEN).await;
    assert_eq!(after.len(), FORGOTTEN);
    wait_until_nothing_is_open(&url).await;
    wait_until_ready(&relay, true).await;

    let (present, arrived) = (events(&url).await, events_that_arrived(&receiver));
    assert_eq!(present.len(), KEPT + FORGOTTEN, "what it had, and what came after");
    assert_eq!(present.difference(&arrived).count(), 0, "nothing that is there is lost");
    let phantom = arrived.difference(&present).count();
    assert_eq!(phantom, FORGOTTEN, "delivered, and their transaction is lost");
    let times = arrivals(&receiver);
    let again = present.iter().filter(|event| times[*event] == 2).count();
    assert_eq!(again, KEPT, "their outcome was lost, and they were delivered again");
    assert_eq!(receiver.count(), 2 * KEPT + 2 * FORGOTTEN, "and nothing beyond that");
    drop(promoted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_54_a_galera_node_is_killed_and_delivery_goes_on() {
    const LOAD: usize = 1_000;
    let cluster = Galera::start(&[]).await.or_skip();
    let outbox = Outbox::on_mariadb(cluster.try_database().await.unwrap()).await;
    let receiver = Receiver::start();
    let mut ids = outbox.enqueue("webhook:a", LOAD).await;
    // One relay on the first node, one on the second, which a load balancer replaces by the third.
    let way = Proxy::start(cluster.address(1));
    let keys = webhook(&receiver, "concurrency = 2");
    let _first = outbox.relay(SHORT_CLAIMS, &keys);
    let second = outbox.relay_at(&at(&outbox.url(), way.address()), SHORT_CLAIMS, &keys);
    wait_until_ready(&second, true).await;
    receiver.wait_for(LOAD / 4, SOON).await;

    cluster.kill(1).await.unwrap();
    let (killed, before) = (Instant::now(), receiver.count());
    way.lead_to(cluster.address(2));
    receiver.wait_for(before + LOAD / 10, SOON).await;
    assert!(killed.elapsed() < Duration::from_secs(30), "{:?}", killed.elapsed());
    ids.extend(outbox.enqueue("webhook:a", LOAD / 10).await);
    wait_until_sent(&outbox, &ids).await;
    wait_until_ready(&second, true).await;
    assert_eq!(arrivals(&receiver).len(), ids.len(), "all of them, and nothing else");
}

/// Ends the primary for good, and leads everybody to its standby.
async fn fail_over(primary: Postgres, standby: Standby, way: &Proxy) -> Postgres {
    primary.stop().await.unwrap();
    let promoted = standby.promote().await.unwrap();
    way.lead_to(promoted.address().unwrap());
    promoted
}

/// Commits messages one by one, whatever happens to the database, and returns the event ids of
/// those whose commit was acknowledged.
async fn produce(url: &str, messages: usize) -> HashSet<String> {
    const INSERT: &str = "INSERT INTO core_outbox.integration_outbox \
         (source_stream_id, source_event_id, integration_type, event_type, payload) \
         VALUES ('s', $1, 'webhook:a', 't', '1')";
    let mut committed = HashSet::new();
    let mut client = connect(url).await;
    for n in 0..messages {
        let event = format!("e-{n}");
        match client.execute(INSERT, &[&event]).await {
            Ok(_) => {
                committed.insert(event);
            }
            // It may be there or not.
            Err(_) => client = connect(url).await,
        }
    }
    committed
}

/// A connection, as soon as there is one.
async fn connect(url: &str) -> Client {
    eventually("a connection", SOON, async || {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    })
    .await
}

async fn wait_until_nothing_is_open(url: &str) {
    let client = connect(url).await;
    eventually("nothing to be open", SOON * 2, async || {
        let open = "SELECT (SELECT count(*) FROM core_outbox.delivery) \
                    + (SELECT count(*) FROM core_outbox.parcel)";
        let open: i64 = client.query_one(open, &[]).await.ok()?.get(0);
        (open == 0).then_some(())
    })
    .await;
}

/// The events of the messages that the outbox holds.
async fn events(url: &str) -> HashSet<String> {
    let all = "SELECT source_event_id FROM core_outbox.integration_outbox";
    let rows = connect(url).await.query(all, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

fn events_that_arrived(receiver: &Receiver) -> HashSet<String> {
    arrivals(receiver).into_keys().collect()
}
