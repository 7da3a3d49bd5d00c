//! Several databases in one process: they share destinations, and nothing else.

use crate::outbox::{Outbox, SOON, lane, message};
use crate::script::{Act, Script, Slow};
use async_trait::async_trait;
use postroom_core::{Message, NewMessage, Outcome, Report, Sink, Store, StoreErrorKind};
use postroom_relay::{Fleet, Health, Lane, LaneState, RelayError, Settings, Source};
use postroom_sinks::MemorySink;
use postroom_store::OpenOptions;
use postroom_testkit::{Passage, Postgres, Proxy, eventually};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// More than is delivered between two looks.
const DEEP: usize = 5_000;

/// A fleet at work, stopped at once when the value is dropped.
struct Running {
    fleet: Arc<Fleet>,
    stop: oneshot::Sender<()>,
    work: JoinHandle<Result<(), RelayError>>,
}

impl Running {
    fn start(sources: Vec<Source>, lanes: Vec<Lane>) -> Self {
        let fleet = Arc::new(Fleet::new(sources, lanes));
        let (stop, stopped) = oneshot::channel();
        let worker = Arc::clone(&fleet);
        let work = tokio::spawn(async move {
            worker
                .run(async {
                    let _ = stopped.await;
                })
                .await
        });
        Self { fleet, stop, work }
    }

    fn health(&self) -> Health {
        self.fleet.health()
    }

    async fn wait_until_ready(&self) {
        eventually("readiness", SOON, async || self.health().ready.then_some(())).await;
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        tokio::time::timeout(SOON, self.work).await.expect("the fleet stops").unwrap().unwrap();
    }
}

/// An outbox that is open already.
fn source(name: &str, outbox: &Outbox, settings: Settings) -> Source {
    let store = Arc::clone(&outbox.store);
    let open = move || {
        let store = Arc::clone(&store);
        Box::pin(async move { Ok(store) }) as _
    };
    Source { name: name.to_owned(), open: Box::new(open), settings }
}

/// An outbox at a URL.
fn source_at(name: &str, url: &str, settings: Settings) -> Source {
    let url = url.to_owned();
    let open = move || {
        let url = url.clone();
        Box::pin(async move { postroom_store::open(&url, &OpenOptions::default()).await }) as _
    };
    Source { name: name.to_owned(), open: Box::new(open), settings }
}

async fn enqueue(store: &Arc<dyn Store>, stream: &str, count: usize) {
    let batch: Vec<NewMessage> = (0..count).map(|_| message("memory:a").stream(stream)).collect();
    for batch in batch.chunks(500) {
        store.accept(batch, None).await.unwrap();
    }
}

/// Takes a while for each call, and keeps the streams of what it accepts, in order.
#[derive(Clone, Default)]
struct Ledger {
    streams: Arc<Mutex<Vec<String>>>,
    under_way: Arc<AtomicUsize>,
    most_under_way: Arc<AtomicUsize>,
}

#[async_trait]
impl Sink for Ledger {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let under_way = self.under_way.fetch_add(1, Ordering::AcqRel) + 1;
        self.most_under_way.fetch_max(under_way, Ordering::AcqRel);
        tokio::time::sleep(Duration::from_millis(3)).await;
        for (index, message) in batch.iter().enumerate() {
            self.streams.lock().unwrap().push(message.stream_id.clone());
            report.delivered(index);
        }
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Ledger {
    fn streams(&self) -> Vec<String> {
        self.streams.lock().unwrap().clone()
    }

    fn count(&self, stream: &str) -> usize {
        self.streams().iter().filter(|one| *one == stream).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deep_backlog_in_one_database_does_not_starve_another_on_the_same_lane() {
    let (deep, shallow) = (Outbox::postgres().await, Outbox::postgres().await);
    enqueue(&deep.store, "deep", DEEP).await;
    let ledger = Ledger::default();
    let lanes = vec![Lane { concurrency: 1, batch_size: 1, ..lane("memory:a", ledger.clone()) }];
    let sources = vec![
        source("deep", &deep, Settings::default()),
        source("shallow", &shallow, Settings::default()),
    ];
    let fleet = Running::start(sources, lanes);
    eventually("the deep one to be at work", SOON, async || {
        (ledger.count("deep") >= 50).then_some(())
    })
    .await;
    enqueue(&shallow.store, "shallow", 60).await;
    eventually("the shallow one to be through", SOON, async || {
        (ledger.count("shallow") == 60).then_some(())
    })
    .await;
    let streams = ledger.streams();
    let first = streams.iter().position(|stream| stream == "shallow").unwrap();
    let last = streams.iter().rposition(|stream| stream == "shallow").unwrap();
    let between = last - first + 1 - 60;
    // One for one, and a few more where a take on a loaded machine comes late.
    assert!(between <= 80, "{between} of the deep one came between 60 of the shallow one");
    assert!(ledger.count("deep") < DEEP, "its backlog is still deep");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_integration_has_one_concurrency_for_all_databases() {
    let outboxes = [Outbox::memory().await, Outbox::memory().await, Outbox::memory().await];
    let mut sources = Vec::new();
    for (n, outbox) in outboxes.iter().enumerate() {
        enqueue(&outbox.store, "s", 60).await;
        sources.push(source(&format!("db{n}"), outbox, Settings::default()));
    }
    let ledger = Ledger::default();
    let lanes = vec![Lane { concurrency: 4, batch_size: 1, ..lane("memory:a", ledger.clone()) }];
    let fleet = Running::start(sources, lanes);
    eventually("all of them", SOON, async || (ledger.count("s") == 180).then_some(())).await;
    assert_eq!(ledger.most_under_way.load(Ordering::Acquire), 4);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destination_that_refuses_one_database_is_not_asked_by_the_others() {
    let (one, other) = (Outbox::memory().await, Outbox::memory().await);
    enqueue(&one.store, "one", 1).await;
    let refusing = Script::new(|_| Act::Report(Outcome::refuse("401: check the credentials")));
    let sources = vec![
        source("one", &one, Settings::default()),
        source("other", &other, Settings::default()),
    ];
    let fleet = Running::start(sources, vec![lane("memory:a", refusing.clone())]);
    eventually("the pause", SOON, async || {
        let health = fleet.health();
        health.lanes.first().is_some_and(|lane| lane.state == LaneState::Paused).then_some(())
    })
    .await;
    assert_eq!(refusing.attempts(), 1);
    let id = other.put(message("memory:a")).await;
    let looked = Instant::now();
    eventually("the other's relay to have looked", SOON, async || {
        (looked.elapsed() > Duration::from_secs(1)).then_some(())
    })
    .await;
    assert_eq!(refusing.attempts(), 1, "the pause is the destination's");
    assert_eq!(other.record(&id).await.message.attempts, 0);
    fleet.stop().await;
}

/// Down at the start, and then silent: it accepts connections and never answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_never_holds_up_another() {
    let away = Outbox::postgres().await;
    let here = Outbox::postgres().await;
    let (proxy, url) = proxied(&away).await;
    proxy.set(Passage::Down);
    let claims = Duration::from_secs(2);
    let settings = Settings { claim_time: claims, ..Settings::default() };
    // One call at a time: whoever held it while its database is away would hold up everybody. It has
    // some in hand when its claims expire, and would like to beat before it delivers them.
    let slow = Slow(Duration::from_millis(20));
    let lanes = vec![Lane { concurrency: 1, batch_size: 1, ..lane("memory:a", slow) }];
    let sources =
        vec![source_at("away", &url, settings.clone()), source("here", &here, settings.clone())];
    enqueue(&away.store, "away", 400).await;
    let fleet = Running::start(sources, lanes);
    let is_unwell = |health: &Health| {
        !health.ready
            && health.database.starts_with("away: ")
            && health.databases.iter().any(|database| database.name == "here" && database.ready)
    };
    for round in 0..2 {
        eventually("the process to name it", SOON, async || {
            is_unwell(&fleet.health()).then_some(())
        })
        .await;
        let begun = Instant::now();
        while begun.elapsed() < 3 * claims {
            let sent = Instant::now();
            let id = here.put(message("memory:a")).await;
            here.wait_for(&id, "SENT").await;
            assert!(sent.elapsed() < claims, "{:?} in round {round}", sent.elapsed());
        }
        proxy.set(Passage::Open);
        fleet.wait_until_ready().await;
        eventually("what it had", SOON, async || {
            let sent = away.store.status_counts().await.unwrap();
            let wanted = if round == 0 { 20 } else { 400 };
            (sent.of(postroom_core::Status::Sent) >= wanted).then_some(())
        })
        .await;
        if round == 0 {
            proxy.set(Passage::Silent);
        }
    }
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_whose_schema_does_not_fit_is_served_once_it_does() {
    let here = Outbox::postgres().await;
    let empty = Postgres::shared().await.database().await;
    let sink = MemorySink::new();
    let sources = || {
        vec![
            source("here", &here, Settings::default()),
            source_at("empty", empty.url(), Settings::default()),
        ]
    };
    let lanes = || vec![lane("memory:a", sink.clone())];
    let fleet = Running::start(sources(), lanes());
    let id = here.put(message("memory:a")).await;
    here.wait_for(&id, "SENT").await;
    let health = eventually("the process to name it", SOON, async || {
        Some(fleet.health()).filter(|health| health.database.contains("migrate"))
    })
    .await;
    assert!(!health.ready && health.database.starts_with("empty: "), "{}", health.database);
    postroom_store::migrate(empty.url()).await.unwrap();
    fleet.wait_until_ready().await;
    let counted = fleet.fleet.metrics();
    assert!(counted.contains("outbox_sent_total{database=\"here\",integration=\"memory:a\"} 1"));

    // Somebody migrates one of them to what this program does not know, and back.
    let client = here.database().client().await;
    let next = "INSERT INTO core_outbox.schema_migration (number, name) VALUES (99, 'next')";
    client.batch_execute(next).await.unwrap();
    eventually("the process to name it", SOON, async || {
        fleet.health().database.starts_with("here: ").then_some(())
    })
    .await;
    let back = "DELETE FROM core_outbox.schema_migration WHERE number = 99";
    client.batch_execute(back).await.unwrap();
    fleet.wait_until_ready().await;
    let id = here.put(message("memory:a")).await;
    here.wait_for(&id, "SENT").await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_ends_when_it_may_use_no_database_at_all() {
    let (one, other) =
        (Postgres::shared().await.database().await, Postgres::shared().await.database().await);
    let sources = vec![
        source_at("one", one.url(), Settings::default()),
        source_at("other", other.url(), Settings::default()),
    ];
    let fleet = Fleet::new(sources, vec![lane("memory:a", MemorySink::new())]);
    let ended = tokio::time::timeout(SOON, fleet.run(std::future::pending())).await.unwrap();
    let Err(RelayError::Store(error)) = ended else { panic!("{ended:?}") };
    assert_eq!(error.kind, StoreErrorKind::Schema);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pass_goes_over_every_database_and_says_of_each_what_became_of_it() {
    let (one, other) = (Outbox::postgres().await, Outbox::postgres().await);
    let empty = Postgres::shared().await.database().await;
    one.enqueue("memory:a", 3).await;
    other.enqueue("memory:a", 5).await;
    let sources = vec![
        source("one", &one, Settings::default()),
        source("other", &other, Settings::default()),
        source_at("empty", empty.url(), Settings::default()),
    ];
    let fleet = Fleet::new(sources, vec![lane("memory:a", MemorySink::new())]);
    let passes: HashMap<_, _> = fleet.tick(4).await.into_iter().collect();
    assert_eq!(passes["one"].as_ref().unwrap().sent, 3);
    assert_eq!(passes["other"].as_ref().unwrap().sent, 4, "the limit is each database's");
    assert!(matches!(&passes["empty"], Err(RelayError::Store(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_of_several_databases_are_one_page_with_a_label() {
    let (one, other) = (Outbox::memory().await, Outbox::memory().await);
    let ids = [one.put(message("memory:a")).await, other.put(message("memory:a")).await];
    let sources = vec![
        source("one", &one, Settings::default()),
        source("other", &other, Settings::default()),
    ];
    let fleet = Running::start(sources, vec![lane("memory:a", MemorySink::new())]);
    one.wait_for(&ids[0], "SENT").await;
    other.wait_for(&ids[1], "SENT").await;
    let text = eventually("the counts", SOON, async || {
        let text = fleet.fleet.metrics();
        let sent = |name: &str| {
            text.contains(&format!(
                "outbox_sent_total{{database=\"{name}\",integration=\"memory:a\"}} 1"
            ))
        };
        (sent("one") && sent("other")).then(|| text.clone())
    })
    .await;
    for name in ["one", "other"] {
        assert!(text.contains(&format!("outbox_rescued_total{{database=\"{name}\"}} 0")), "{text}");
    }
    let types = text.lines().filter(|line| *line == "# TYPE outbox_sent counter").count();
    assert_eq!((types, text.matches("# EOF").count()), (1, 1), "{text}");
    fleet.stop().await;
}

/// A way to the database of an outbox that can be closed.
async fn proxied(outbox: &Outbox) -> (Proxy, String) {
    let url = outbox.database().url();
    let (start, rest) = url.split_once('@').unwrap();
    let (host, database) = rest.split_once('/').unwrap();
    let address = tokio::net::lookup_host(host).await.unwrap().next().unwrap();
    let proxy = Proxy::start(address);
    let url = format!("{start}@{}/{database}", proxy.address());
    (proxy, url)
}
