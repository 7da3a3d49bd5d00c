//! Long outages with much waiting, scaled down: seconds instead of an hour, thousands of messages
//! instead of a million. What is looked at does not depend on how long it lasts: how often a relay
//! asks, how much it holds, and whether what comes back comes back at once.

use crate::faults_database::{proxied, wait_until_sent};
use crate::faults_outbox::{
    Outbox, SHORT_CLAIMS, SOON, arrivals, metric, wait_until_ready, webhook,
};
use postroom_testkit::{Behaviour, Passage, Process, Receiver, eventually};
use std::time::{Duration, Instant};

const BACKLOG: usize = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_26_a_receiver_that_is_down_gets_no_stampede_and_the_relay_stays_small() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.refuse();
    let client = outbox.client().await;
    insert(&client, BACKLOG).await;
    let integration = format!(
        "[integrations.\"webhook:a\"]\nurl = \"{}\"\nconcurrency = 8\n\
         allow_addresses = [\"127.0.0.0/8\"]\n\
         retry = {{ base = \"4s\", cap = \"10s\", jitter = \"4s\", max_attempts = \"forever\" }}\n",
        receiver.url()
    );
    let relay = outbox.relay(SHORT_CLAIMS, &integration);
    eventually("much of it to have failed", SOON, async || {
        let failed = "SELECT count(*) FROM core_outbox.messages WHERE status = 'FAILED'";
        let failed: i64 = client.query_one(failed, &[]).await.unwrap().get(0);
        (failed >= 2_000).then_some(())
    })
    .await;
    let small = resident(&relay);
    // What failed together is due at different times.
    let spread = "SELECT count(DISTINCT date_trunc('milliseconds', due_at)), \
                  extract(epoch FROM max(due_at) - min(due_at))::float8 \
                  FROM (SELECT due_at FROM core_outbox.messages WHERE status = 'FAILED' \
                        ORDER BY updated_at LIMIT 1000) AS failed";
    let row = client.query_one(spread, &[]).await.unwrap();
    let (times, seconds): (i64, f64) = (row.get(0), row.get(1));
    assert!(times > 500 && seconds > 3.0, "{times} different times within {seconds} s");

    receiver.listen();
    eventually("the backlog to be delivered", SOON * 2, async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let left = "SELECT EXISTS (SELECT FROM core_outbox.delivery) \
                    OR EXISTS (SELECT FROM core_outbox.parcel)";
        let left: bool = client.query_one(left, &[]).await.unwrap().get(0);
        (!left).then_some(())
    })
    .await;
    assert_eq!(arrivals(&receiver).len(), BACKLOG);
    let large = resident(&relay);
    assert!(large < small + (64 << 20), "it grew from {small} to {large} bytes");
    wait_until_ready(&relay, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_26_a_database_that_is_away_is_asked_ever_less_often() {
    const AWAY: Duration = Duration::from_secs(6);
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    let (proxy, url) = proxied(&outbox);
    let integration = webhook(&receiver, "");
    let relays = [(); 3].map(|()| outbox.relay_at(&url, SHORT_CLAIMS, &integration));
    for relay in &relays {
        wait_until_ready(relay, true).await;
    }
    let client = outbox.client().await;
    proxy.set(Passage::Reset);
    let theirs = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                  WHERE datname = current_database() AND application_name = 'postroom'";
    client.query_one(theirs, &[]).await.unwrap();
    let ids = outbox.enqueue("webhook:a", 2_000).await;

    let asked = |seconds| {
        let (before, begun) = (proxy.connections(), Instant::now());
        let proxy = &proxy;
        async move {
            tokio::time::sleep(seconds).await;
            let asked = proxy.connections() - before;
            // A busy machine wakes late, and relays ask on meanwhile.
            (asked, usize::try_from(begun.elapsed().as_secs()).unwrap() + 1)
        }
    };
    let (first, during_first) = asked(AWAY / 2).await;
    let (second, during_second) = asked(AWAY / 2).await;
    // Each relay has five stages that ask: with claims of two seconds, upkeep does so five times
    // in a second, and the others ever less often.
    for (asked, others, seconds) in [(first, 15, during_first), (second, 6, during_second)] {
        assert!(asked <= 3 * (others + 8 * seconds), "{asked} connections in {seconds} s");
    }
    for relay in &relays {
        wait_until_ready(relay, false).await;
    }

    proxy.set(Passage::Open);
    wait_until_sent(&outbox, &ids).await;
    assert!(arrivals(&receiver).values().all(|count| *count == 1), "nothing was under way");
}

async fn insert(client: &tokio_postgres::Client, count: usize) {
    let sql = format!(
        "INSERT INTO core_outbox.integration_outbox \
             (source_stream_id, source_event_id, integration_type, event_type, payload) \
         SELECT 's', 'e-' || n, 'webhook:a', 't', to_jsonb(repeat('x', 1000)) \
         FROM generate_series(1, {count}) AS n"
    );
    client.batch_execute(&sql).await.unwrap();
}

/// How much memory a process has, in bytes.
fn resident(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_52_outcomes_known_during_an_outage_are_recorded_before_anything_is_sent_again() {
    // The database is gone, or it hangs.
    for passage in [Passage::Down, Passage::Silent] {
        let outbox = Outbox::postgres().await;
        let receiver = Receiver::start();
        receiver.always(Behaviour::HoldResponse);
        let ids = outbox.enqueue("webhook:a", 100).await;
        let (proxy, url) = proxied(&outbox);
        let integration = webhook(&receiver, "concurrency = 50");
        let relay = outbox.relay_at(&url, SHORT_CLAIMS, &integration);
        receiver.wait_for(50, SOON).await;
        outbox.wait_for_claims(100).await;
        proxy.set(passage);
        // Half of it is acknowledged while the database is away, and the rest is being delivered
        // when it comes back.
        receiver.release();
        receiver.wait_for(100, SOON).await;
        let client = outbox.client().await;
        eventually("a second claim time to pass", SOON, async || {
            let over =
                "SELECT bool_and(until < now() - interval '2 seconds') FROM core_outbox.relay";
            client.query_one(over, &[]).await.unwrap().get::<_, bool>(0).then_some(())
        })
        .await;
        proxy.set(Passage::Open);
        // Those in flight go on for longer than a rescuer would wait.
        eventually("the first half to be SENT", SOON, async || {
            let sent = "SELECT count(*) FROM core_outbox.integration_outbox WHERE status = 'SENT'";
            (client.query_one(sent, &[]).await.unwrap().get::<_, i64>(0) >= 50).then_some(())
        })
        .await;
        receiver.always(Behaviour::Accept);
        receiver.release();
        outbox.wait_for_all(&ids, "SENT").await;
        let twice = arrivals(&receiver).values().filter(|count| **count > 1).count();
        assert_eq!(twice, 0, "messages that were sent again after {passage:?}");
        assert_eq!(metric(&relay, "outbox_rescued_total").await, Some(0));
    }
}
