//! Servers that accept everything and never answer: what becomes of the connections to them.

use crate::taking::{all, wish};
use postroom_core::{NewMessage, Quota, Rescued, Store, Take};
use postroom_store::OpenOptions;
use postroom_testkit::{MariaDb, Passage, Postgres, Proxy, eventually, living_relay};
use std::net::ToSocketAddrs as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);
/// Far more than a call takes, and far less than anybody would wait.
const GIVE_UP: Duration = Duration::from_millis(500);

/// A store behind a proxy, with so many connections.
async fn behind_a_proxy(url: &str, connections: usize) -> (Arc<dyn Store>, Proxy) {
    postroom_store::migrate(url).await.expect("migrated");
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (user, rest) = rest.split_once('@').expect("a user");
    let (address, path) = rest.split_once('/').expect("a database");
    let proxy = Proxy::start(
        address.to_socket_addrs().expect("a host and a port").next().expect("an address"),
    );
    let url = format!("{scheme}://{user}@{}/{path}", proxy.address());
    let options = OpenOptions { connections, ..OpenOptions::default() };
    let store = postroom_store::open(&url, &options).await.expect("opened");
    (store, proxy)
}

/// Every connection of the pool falls silent while idle; new ones work.
async fn a_call_that_is_given_up_takes_its_connection_with_it(url: &str) {
    let (store, proxy) = behind_a_proxy(url, 3).await;
    // As many as there may be, so that some lie idle.
    let asked = (store.now(), store.now(), store.now());
    let answers = tokio::join!(asked.0, asked.1, asked.2);
    assert!(answers.0.is_ok() && answers.1.is_ok() && answers.2.is_ok());
    proxy.half_open();
    let given_up = tokio::time::timeout(GIVE_UP, store.now()).await;
    assert!(given_up.is_err(), "nobody answers on what was open");
    let began = Instant::now();
    eventually("answers on new connections", SOON, async || {
        tokio::time::timeout(GIVE_UP, store.now()).await.is_ok_and(|now| now.is_ok()).then_some(())
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(20), "after {:?}", began.elapsed());
    for _ in 0..9 {
        let answer = tokio::time::timeout(SOON, store.now()).await.expect("an answer in time");
        answer.expect("no silent connection is left in the pool");
    }
}

/// The same in the middle of the work of a relay.
async fn a_take_that_is_given_up_leaves_nothing_locked(url: &str) {
    let (store, proxy) = behind_a_proxy(url, 1).await;
    for n in 0..50 {
        store.enqueue(&NewMessage::new("noop", "t").json(&n)).await.expect("enqueued");
    }
    let quotas = [Quota { integration: "noop".to_owned(), rows: 50 }];
    let take = Take {
        worker: "w",
        // What the take that is given up holds is free soon after.
        relay: living_relay(&*store, Duration::from_secs(2)).await,
        quotas: &quotas,
        rows: 50,
        bytes: 1 << 20,
        payload_limit: 1 << 20,
        for_queue: false,
    };
    // Some of the statements arrive, and none is answered in full.
    proxy.set(Passage::HangAfter { asked: 600, answered: 200 });
    assert!(tokio::time::timeout(GIVE_UP, store.take(&take)).await.is_err());
    proxy.half_open();
    proxy.set(Passage::Open);
    eventually("all of it to be taken", SOON, async || {
        store.rescue(100).await.ok()?;
        let relay = living_relay(&*store, SOON).await;
        let alone = Take { relay, ..take.clone() };
        let batch = tokio::time::timeout(SOON, store.take(&alone)).await.ok()?.ok()?;
        let together = store.take_rescued(&alone, Rescued::Together).await.ok()?;
        let rescued = store.take_rescued(&alone, Rescued::Alone).await.ok()?;
        let backlog = store.backlog().await.ok()?;
        drop((batch, together, rescued));
        (backlog.total(|lane| lane.pending) == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn fault_50_a_silent_connection_to_postgres_is_not_used_again() {
    let database = Postgres::shared().await.database().await;
    a_call_that_is_given_up_takes_its_connection_with_it(database.url()).await;
}

#[tokio::test]
async fn fault_50_a_silent_connection_to_mariadb_is_not_used_again() {
    let database = MariaDb::shared().await.database().await;
    a_call_that_is_given_up_takes_its_connection_with_it(database.url()).await;
}

#[tokio::test]
async fn fault_50_rows_locked_by_a_silent_connection_to_postgres_become_free() {
    let database = Postgres::shared().await.database().await;
    a_take_that_is_given_up_leaves_nothing_locked(database.url()).await;
}

/// A relay that stops reading in the middle of its messages holds them, and nothing else.
#[tokio::test]
async fn fault_50_a_relay_that_stops_reading_does_not_keep_its_lane_locked() {
    let database = Postgres::shared().await.database().await;
    let (store, proxy) = behind_a_proxy(database.url(), 3).await;
    let direct = postroom_store::open(database.url(), &OpenOptions::default()).await.expect("open");
    let quotas = all("noop");
    assert!(store.take(&wish(&*store, &quotas).await).await.expect("take").is_empty());
    // Far more than any buffer between the two holds, in parcels of many messages and of one.
    let client = database.client().await;
    let large = "INSERT INTO core_outbox.integration_outbox
            (source_stream_id, source_event_id, integration_type, event_type, payload)
        SELECT 's', gen_random_uuid()::text, 'noop', 't',
               to_jsonb((SELECT string_agg(gen_random_uuid()::text, '') FROM generate_series(1, 5000 + 0 * n)))
        FROM generate_series(1, 60) n";
    client.batch_execute(large).await.expect("enqueued");
    let wish_of_it = wish(&*store, &quotas).await;
    proxy.set(Passage::HangAfter { asked: usize::MAX, answered: 2_000 });
    let held = "SELECT count(*) FROM core_outbox.claim WHERE lanes IS NOT NULL";
    let others = async {
        eventually("the claim of whoever stopped reading", SOON, async || {
            let claims: i64 = client.query_one(held, &[]).await.expect("claims").get(0);
            (claims > 0).then_some(())
        })
        .await;
        for n in 0..3 {
            direct.enqueue(&NewMessage::new("noop", "t").json(&n)).await.expect("enqueued");
            let taken = direct.take(&wish(&*direct, &quotas).await).await.expect("a free lane");
            assert_eq!(taken.iter().map(|batch| batch.messages.len()).sum::<usize>(), 1);
        }
    };
    tokio::select! {
        _ = store.take(&wish_of_it) => panic!("nothing large passes"),
        () = others => {}
    }
}

#[tokio::test]
async fn fault_50_rows_locked_by_a_silent_connection_to_mariadb_become_free() {
    let database = MariaDb::shared().await.database().await;
    a_take_that_is_given_up_leaves_nothing_locked(database.url()).await;
}

#[tokio::test]
async fn fault_50_a_listener_whose_connection_falls_silent_makes_another() {
    let database = Postgres::shared().await.database().await;
    let (store, proxy) = behind_a_proxy(database.url(), 1).await;
    let mut wake = store.wake().await.expect("PostgreSQL signals");
    wake.woken().await;
    let before = proxy.connections();
    proxy.half_open();
    // Once for what was committed while nobody listened.
    tokio::time::timeout(SOON, wake.woken()).await.expect("it listens again");
    assert!(proxy.connections() > before, "on another connection");
    let busy = tokio::time::timeout(Duration::from_secs(5), wake.busy(true)).await;
    busy.expect("a claimer does not wait for a listener");
}

#[tokio::test]
async fn fault_50_a_server_that_accepts_and_never_greets_is_given_up() {
    let database = Postgres::shared().await.database().await;
    let maria = MariaDb::shared().await.database().await;
    for url in [database.url(), maria.url()] {
        let (store, proxy) = behind_a_proxy(url, 1).await;
        proxy.set(Passage::Silent);
        let began = Instant::now();
        let error = tokio::time::timeout(SOON, store.now()).await.expect("a limit").unwrap_err();
        assert_eq!(error.kind, postroom_core::StoreErrorKind::Unavailable, "{error}");
        assert!(began.elapsed() < Duration::from_secs(20), "after {:?}", began.elapsed());
    }
}
