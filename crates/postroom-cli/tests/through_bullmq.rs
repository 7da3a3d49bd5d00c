//! Integrations through BullMQ: relays and workers in processes of their own.

use crate::docs::pages::Page;
use crate::faults_outbox::{CLAIM_TIME, Outbox, SHORT_CLAIMS, SOON};
use postroom_testkit::soak::Soak;
use postroom_testkit::{Behaviour, Bullmq, Process, Receiver, Redis, Signal, eventually};

/// An outbox with a lane through BullMQ.
struct Scene {
    outbox: Outbox,
    redis: Redis,
    receiver: Receiver,
}

impl Scene {
    async fn set() -> Self {
        let (outbox, redis) = (Outbox::postgres().await, Redis::private(&[]).await.unwrap());
        Self { outbox, redis, receiver: Receiver::start() }
    }

    fn lane(&self, keys: &str) -> String {
        format!(
            "[redis]\nurl = \"redis://{}\"\n[integrations.\"webhook:a\"]\ntransport = \"bullmq\"\n\
             retry = {{ base = \"100ms\", cap = \"100ms\", jitter = \"0s\" }}\n{keys}\n",
            self.redis.address()
        )
    }

    /// A relay that leaves the jobs to others.
    fn relay(&self) -> Process {
        self.outbox.relay(SHORT_CLAIMS, &self.lane("workers = \"external\""))
    }

    /// A worker that delivers by webhook. No lock of its jobs ends, though the machine stand still
    /// for a while: none is run twice.
    async fn worker(&self) -> Process {
        self.worker_with("claim_time = \"60s\"").await
    }

    /// The same; its jobs' locks last for the claim time in `keys`.
    async fn worker_with(&self, keys: &str) -> Process {
        let url = self.receiver.url();
        let sink =
            format!("url = \"{url}\"\nallow_addresses = [\"127.0.0.0/8\"]\ntimeout = \"30s\"");
        let config = self.outbox.configure(keys, &self.lane(&sink));
        let worker =
            Process::spawn(&mut self.outbox.folder().command(&["work", "--config", &config]));
        worker.wait_for_line("the worker runs", SOON).await;
        worker
    }
}

/// A worker that is killed in the middle leaves its job to the next; one that kills every worker
/// has failed, and the outbox tries it again.
#[tokio::test]
async fn a_worker_killed_in_the_middle_ends_in_the_outboxs_own_retry() {
    let scene = Scene::set().await;
    scene.receiver.next([Behaviour::HoldResponse, Behaviour::HoldResponse]);
    let id = &scene.outbox.enqueue("webhook:a", 1).await[0];
    let _relay = scene.relay();
    for killed in 1..=2 {
        let mut worker = scene.worker_with(SHORT_CLAIMS).await;
        scene.receiver.wait_for(killed, SOON).await;
        let record = scene.outbox.store.find(id).await.unwrap().unwrap();
        assert_eq!(record.message.attempts, 0);
        worker.kill9();
    }
    let _worker = scene.worker_with(SHORT_CLAIMS).await;
    scene.outbox.wait_for(id, "SENT").await;
    let record = scene.outbox.store.find(id).await.unwrap().unwrap();
    assert_eq!(record.message.attempts, 1);
    let attempts = scene.outbox.store.attempts(id).await.unwrap();
    assert!(attempts[0].error.contains("stalled"), "{attempts:?}");
    let requests = scene.receiver.wait_for(3, SOON).await;
    let keys: Vec<_> = requests.iter().map(|one| one.header("idempotency-key")).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

/// Workers need no relay to finish what is in the queue, and a relay that comes back finds it so.
#[tokio::test]
async fn a_killed_relay_holds_up_no_worker() {
    let scene = Scene::set().await;
    let ids = scene.outbox.enqueue("webhook:a", 200).await;
    let mut relay = scene.relay();
    let key = "bull:outbox-webhook-a:wait";
    eventually("all jobs", SOON, async || {
        let waiting = scene.redis.cli(&["LLEN", key]).await.ok()?;
        (waiting == 200).then_some(())
    })
    .await;
    relay.kill9();
    let _worker = scene.worker().await;
    scene.outbox.wait_for_all(&ids, "SENT").await;
    let later = scene.outbox.enqueue("webhook:a", 10).await;
    let _relay = scene.relay();
    scene.outbox.wait_for_all(&later, "SENT").await;
    assert_eq!(scene.receiver.count(), 210, "nothing is delivered twice");
    eventually("an empty queue", SOON, async || {
        let kept = scene.redis.cli(&["ZCARD", "bull:outbox-webhook-a:completed"]).await.ok()?;
        (kept == 0).then_some(())
    })
    .await;
}

/// A relay that was frozen for longer than its claims last leaves its jobs to another, and wakes up to
/// take new messages beside it: every message has one job.
#[tokio::test]
async fn a_frozen_relay_loses_its_claims_and_doubles_nothing() {
    let scene = Scene::set().await;
    let client = scene.outbox.client().await;
    let held_by = async |frozen: &str, is: bool| {
        let sql = "SELECT count(*) FROM core_outbox.delivery d
                   JOIN core_outbox.claim c ON c.token = d.claim WHERE (c.worker = $1) = $2";
        client.query_one(sql, &[&frozen, &is]).await.unwrap().get::<_, i64>(0)
    };
    let mut frozen = scene.relay();
    let mut ids = scene.outbox.enqueue("webhook:a", 60).await;
    let worker = eventually("a heartbeat", SOON, async || {
        let sql = "SELECT name FROM core_outbox.relay";
        Some(client.query_opt(sql, &[]).await.ok()??.get::<_, String>(0))
    })
    .await;
    eventually("all jobs", SOON, async || (held_by(&worker, true).await == 60).then_some(())).await;
    frozen.signal(Signal::SIGSTOP);
    let _other = scene.relay();
    eventually("the other relay to adopt them", SOON, async || {
        (held_by(&worker, false).await == 60).then_some(())
    })
    .await;
    ids.extend(scene.outbox.enqueue("webhook:a", 20).await);
    frozen.signal(Signal::SIGCONT);
    frozen.wait_for_line("claims on jobs expired", SOON).await;
    ids.extend(scene.outbox.enqueue("webhook:a", 20).await);
    eventually("a job for each", SOON, async || {
        let waiting = scene.redis.cli(&["LLEN", "bull:outbox-webhook-a:wait"]).await.ok()?;
        (waiting == 100).then_some(())
    })
    .await;
    let _worker = scene.worker().await;
    scene.outbox.wait_for_all(&ids, "SENT").await;
    assert_eq!(scene.receiver.count(), 100, "nothing is delivered twice");
    for record in scene.outbox.records(&ids).await {
        assert_eq!(record.message.attempts, 0);
    }
}

/// One process does it all, and says so when Redis is away.
#[tokio::test]
async fn a_relay_runs_its_own_jobs_and_stops_cleanly() {
    let scene = Scene::set().await;
    let url = scene.receiver.url();
    let keys = format!("url = \"{url}\"\nallow_addresses = [\"127.0.0.0/8\"]");
    let config = scene.outbox.configure(SHORT_CLAIMS, &scene.lane(&keys));
    let mut command = scene.outbox.relay_command(&config);
    command.env("RUST_LOG", "info,postroom_relay=debug,postroom_bullmq=debug");
    let mut relay = Process::spawn(&mut command);
    let first = scene.outbox.enqueue("webhook:a", 50).await;
    scene.outbox.wait_for_all(&first, "SENT").await;
    for (operation, phase) in [
        ("OUTBOX_CLAIM", "SUCCESS"),
        ("OUTBOX_ENQUEUE_JOB", "START"),
        ("OUTBOX_ENQUEUE_JOB", "SUCCESS"),
        ("OUTBOX_DELIVER", "START"),
        ("OUTBOX_DELIVER", "SENT"),
    ] {
        let said = format!("operation=\"{operation}\" phase=\"{phase}\"");
        relay.wait_for_line(&said, SOON).await;
    }
    scene.redis.crash().await.unwrap();
    let more = scene.outbox.enqueue("webhook:a", 50).await;
    relay.wait_for_line("Redis cannot be used", SOON).await;
    scene.redis.start_again().await.unwrap();
    scene.outbox.wait_for_all(&more, "SENT").await;
    relay.wait_for_line("Redis answers again", SOON).await;
    for record in scene.outbox.records(&more).await {
        assert_eq!(record.message.attempts, 0);
    }
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait(CLAIM_TIME + SOON).await.code(), Some(0));
}

/// `cargo xtask soak bullmq`, and a short one with the older BullMQ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_though_redis_is_emptied_and_workers_are_killed() {
    for (bullmq, messages) in [(Bullmq::V5, 1_500), (Bullmq::V6, 20_000)] {
        let postroom = env!("CARGO_BIN_EXE_postroom").into();
        let soaked = Soak { messages, postroom, bullmq }.run().await.unwrap();
        assert!(soaked.is_well(), "{soaked}");
        assert!(soaked.by_rust > 0 && soaked.by_node > 0, "{soaked}");
    }
}

/// What `docs/bullmq.md` shows, as it stands: the worker in Node, the configuration, the insert.
#[tokio::test]
async fn the_page_about_moving_over_is_true() {
    let page = Page::read("docs/bullmq.md");
    let fence = |language: &str, tag: &str| {
        let fences = page.fences();
        let found = fences.iter().find(|one| one.language() == language && one.has_tag(tag));
        found.unwrap_or_else(|| panic!("no {language} {tag}")).text.clone()
    };
    let insert = page.fences().into_iter().find(|one| one.language() == "sql").unwrap().text;
    let scene = Scene::set().await;
    let folder = scene.outbox.folder();
    let modules = Bullmq::V6.modules().unwrap().join("node_modules");
    std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).unwrap();
    let address = scene.redis.address();
    let node = |name: &str, text: &str| {
        let script = folder.write(name, text);
        let mut command = std::process::Command::new("node");
        command.arg(script).env("REDIS_HOST", "127.0.0.1");
        command.env("REDIS_PORT", address.port().to_string());
        Process::spawn(&mut command)
    };
    let worker = node("worker.mjs", &fence("js", "worker"));
    worker.wait_for_line("the worker is ready", SOON).await;
    // Before: the producer's own job.
    let mut before = node("before.mjs", &fence("js", "before"));
    assert!(before.wait(SOON).await.success(), "{}", before.stderr());
    worker.wait_for_line("published pay_0-completed", SOON).await;
    // After: the outbox.
    folder.write("postroom.toml", &fence("toml", "config"));
    let mut run = folder.command(&["run"]);
    run.env("DATABASE_URL", scene.outbox.url()).env("REDIS_PORT", address.port().to_string());
    let relay = Process::spawn(&mut run);
    scene.outbox.client().await.batch_execute(&insert).await.unwrap();
    let line = worker.wait_for_line("published pay_1-completed", SOON).await;
    assert!(line.contains("\"paymentId\":\"pay_1\""), "{line}");
    eventually("SENT", SOON, async || {
        let counts = scene.outbox.store.status_counts().await.ok()?;
        (counts.of(postroom_core::Status::Sent) == 1).then_some(())
    })
    .await;
    drop(relay);
}
