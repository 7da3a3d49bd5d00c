//! One relay for several databases, of which some go away.

use crate::command::Folder;
use crate::faults_outbox::{SHORT_CLAIMS, SOON, page};
use postroom_testkit::{Postgres, Process, Receiver, TestDatabase, eventually};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// In each database.
const MESSAGES: usize = 20_000;
/// How long one database is away: longer than claims last, and than anybody waits for a connection.
const AWAY: Duration = Duration::from_secs(7);
/// Nobody who waits for another database comes back sooner.
const WAIT_MAX: Duration = Duration::from_secs(4);

/// A database on a server of its own.
struct Node {
    name: &'static str,
    server: Postgres,
    database: TestDatabase,
}

impl Node {
    async fn start(name: &'static str) -> Self {
        let server = Postgres::private(&[]).await.unwrap();
        let database = server.database().await;
        Self { name, server, database }
    }

    /// Inserts all messages, whose event ids begin with the database's name.
    async fn fill(&self) {
        let sql = format!(
            "INSERT INTO core_outbox.integration_outbox \
                 (source_stream_id, source_event_id, integration_type, event_type, payload) \
             SELECT 's-' || n % 100, '{}-' || n, 'webhook:a', 't', jsonb_build_object('n', n) \
             FROM generate_series(1, {MESSAGES}) AS n",
            self.name
        );
        self.database.client().await.batch_execute(&sql).await.unwrap();
    }

    async fn wait_until_sent(&self, count: usize) {
        let client = self.database.client().await;
        eventually(
            &format!("{count} messages of {} to be SENT", self.name),
            4 * SOON,
            async || (sent(&client).await >= count).then_some(()),
        )
        .await;
    }
}

async fn sent(client: &Client) -> usize {
    let sql = "SELECT count(*) FROM core_outbox.integration_outbox WHERE status = 'SENT'";
    let count: i64 = client.query_one(sql, &[]).await.unwrap().get(0);
    usize::try_from(count).unwrap()
}

/// The longest time in which nothing of a database became SENT, until `end` or until nothing was left.
async fn longest_wait(node: &Node, end: Instant) -> Duration {
    let client = node.database.client().await;
    let (mut count, mut since, mut longest) = (sent(&client).await, Instant::now(), Duration::ZERO);
    while Instant::now() < end && count < MESSAGES {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = sent(&client).await;
        longest = longest.max(since.elapsed());
        if now > count {
            (count, since) = (now, Instant::now());
        }
    }
    longest
}

fn run(folder: &Folder) -> Process {
    let relay = folder.start(&["run"]);
    assert!(relay.id() > 0);
    relay
}

/// What `/readyz` says, as JSON.
async fn health(relay: &Process) -> Option<serde_json::Value> {
    let page = page(relay, "/readyz").await?;
    serde_json::from_str(page.split_once("\r\n\r\n")?.1).ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_databases_one_of_which_crashes_and_relays_that_are_killed_lose_nothing() {
    let nodes = [Node::start("a").await, Node::start("b").await, Node::start("c").await];
    let [a, b, c] = &nodes;
    let receiver = Receiver::start();
    let folder = Folder::new();
    let mut config = format!(
        "[relay]\n{SHORT_CLAIMS}\n[server]\nlisten = \"127.0.0.1:0\"\n\
         [integrations.\"webhook:a\"]\nurl = \"{}\"\nconcurrency = 16\n\
         allow_addresses = [\"127.0.0.0/8\"]\n",
        receiver.url()
    );
    for node in &nodes {
        config.push_str(&format!("[databases.{}]\nurl = \"{}\"\n", node.name, node.database.url()));
    }
    folder.write("postroom.toml", &config);
    folder.run(&["migrate"]).ok();
    for node in &nodes {
        node.fill().await;
    }

    let mut relays = [run(&folder), run(&folder)];
    for node in &nodes {
        node.wait_until_sent(500).await;
    }
    // One server crashes. The others go on as if nothing had happened.
    b.server.stop().await.unwrap();
    for node in [a, c] {
        let left = MESSAGES - sent(&node.database.client().await).await;
        assert!(left > 5_000, "{} has nothing left to do: this says nothing", node.name);
    }
    let end = Instant::now() + AWAY;
    let named = async {
        for relay in &relays {
            eventually("the relay to name the database", SOON, async || {
                let health = health(relay).await?;
                let of = |name: &str| {
                    let databases = health["databases"].as_array()?;
                    databases.iter().find(|one| one["name"] == name)?["ready"].as_bool()
                };
                let is_told = health["database"].as_str()?.starts_with("b: ");
                let is_so = [of("a"), of("b"), of("c")] == [Some(true), Some(false), Some(true)];
                (is_told && is_so).then_some(())
            })
            .await;
        }
    };
    let (of_a, of_c, ()) = tokio::join!(longest_wait(a, end), longest_wait(c, end), named);
    assert!(of_a < WAIT_MAX && of_c < WAIT_MAX, "they waited: {of_a:?}, {of_c:?}");
    // A relay that starts meanwhile serves the others.
    relays[0].kill9();
    relays[0] = run(&folder);
    let end = Instant::now() + AWAY / 2;
    let (of_a, of_c) = tokio::join!(longest_wait(a, end), longest_wait(c, end));
    assert!(of_a < WAIT_MAX && of_c < WAIT_MAX, "they waited: {of_a:?}, {of_c:?}");

    b.server.start().await.unwrap();
    for relay in 0..4 {
        let client = b.database.client().await;
        let before = sent(&client).await;
        b.wait_until_sent((before + 1_000).min(MESSAGES)).await;
        relays[relay % 2].kill9();
        relays[relay % 2] = run(&folder);
    }
    for node in &nodes {
        node.wait_until_sent(MESSAGES).await;
    }

    // The books: each message of each database has arrived, is SENT, and has used no attempt.
    let mut arrivals: HashMap<String, usize> = HashMap::new();
    for request in receiver.requests() {
        let event = request.header("idempotency-key").expect("the event id").to_owned();
        *arrivals.entry(event).or_default() += 1;
    }
    assert_eq!(arrivals.len(), 3 * MESSAGES);
    for node in &nodes {
        let books = "SELECT count(*), count(*) FILTER (WHERE status = 'SENT'), sum(attempts)::bigint, \
                            (SELECT count(*) FROM core_outbox.delivery), \
                            (SELECT count(*) FROM core_outbox.parcel) \
                     FROM core_outbox.integration_outbox";
        let client = node.database.client().await;
        eventually("the ledger to be empty", SOON, async || {
            let row = client.query_one(books, &[]).await.unwrap();
            let counts: [i64; 5] = std::array::from_fn(|column| row.get(column));
            let all = i64::try_from(MESSAGES).unwrap();
            (counts == [all, all, 0, 0, 0]).then_some(())
        })
        .await;
        let event = |n: usize| format!("{}-{n}", node.name);
        assert!((1..=MESSAGES).all(|n| arrivals.contains_key(&event(n))), "{}", node.name);
    }
    // At worst all that relays had in hand when they, or the database, were killed: 200 for each database.
    let twice = arrivals.values().filter(|count| **count > 1).count();
    assert!(twice < 6 * 3 * 200, "{twice} messages came more than once");
}
