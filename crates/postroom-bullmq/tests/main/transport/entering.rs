//! A Redis that does not let the relay in.

use super::faulty::{Call, faulty};
use super::outbox::external;
use crate::servers::{LONG, config};
use postroom_bullmq::{Part, Queue, QueuePattern, Redis, RedisConfig, TenantRates, Transport};
use postroom_core::Fate;
use postroom_relay::{ExternalLanes as _, LaneState, Metrics};
use postroom_testkit::{Redis as Server, eventually};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// It is no fault of a queue: nothing is put off, and nothing is taken until it lets us in.
#[tokio::test]
async fn a_login_that_fails_is_an_outage() {
    let server = Server::private(&[]).await.unwrap();
    let mut outbox = external(server.address());
    outbox.settings.claim_time = LONG;
    outbox.lane.queue = QueuePattern::parse("out-{integration}-{tenant}").unwrap();
    for n in 0..30 {
        let tenant = ["acme", "globex", "initech"][n % 3];
        outbox.enqueue(&outbox.message("order.created", 1).tenant(tenant)).await;
    }
    let (takes, put_off) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (taken, postponed) = (Arc::clone(&takes), Arc::clone(&put_off));
    outbox.store = faulty(Arc::clone(&outbox.store), move |call| {
        if let Call::Settle(settlements) = call {
            let fates = settlements.iter().flat_map(|one| &one.verdicts).map(|one| &one.fate);
            let count = fates.filter(|fate| matches!(fate, Fate::Postponed { .. })).count();
            postponed.fetch_add(count, Ordering::SeqCst);
        }
        taken.fetch_add(usize::from(matches!(call, Call::Take)), Ordering::SeqCst);
        Ok(())
    });
    server.cli(&["CONFIG", "SET", "requirepass", "theirs"]).await.unwrap();
    let address = server.address();
    let url = format!("redis://:ours@{address}");
    let redis = || Redis::new(&RedisConfig { url: url.clone(), ..config(address) }).unwrap();
    let transport = Arc::new(Transport::new(
        Arc::clone(&outbox.store),
        redis(),
        outbox.settings.clone(),
        vec![outbox.lane.clone()],
        TenantRates::default(),
        Arc::new(Metrics::new()),
    ));
    let running = Arc::clone(&transport);
    let task = tokio::spawn(async move { running.run(Part::Relay, std::future::pending()).await });
    eventually("the pause to be shown", LONG, async || {
        (transport.health()[0].state == LaneState::Paused).then_some(())
    })
    .await;
    // Time enough to put all of them off.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(put_off.load(Ordering::SeqCst), 0);
    assert!(takes.load(Ordering::SeqCst) <= 1);
    server.cli(&["-a", "theirs", "CONFIG", "SET", "requirepass", "ours"]).await.unwrap();
    for tenant in ["acme", "globex", "initech"] {
        let name = outbox.lane.queue.name(&outbox.lane.integration, Some(tenant));
        let queue = Queue::open(&redis(), &name).unwrap();
        eventually(&name, LONG, async || (queue.counts().await.ok()?.waiting == 10).then_some(()))
            .await;
    }
    assert_eq!(put_off.load(Ordering::SeqCst), 0);
    task.abort();
}
