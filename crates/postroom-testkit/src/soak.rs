//! Messages from PostgreSQL through BullMQ to a worker in Rust and one in Node, while Redis is
//! restarted empty in the middle and each worker is killed once; then the books are compared.

use crate::process::hide_database;
use crate::{Bullmq, Postgres, Process, Redis, TestDatabase};
use anyhow::{Context as _, bail, ensure};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const INTEGRATION: &str = "file:soak";
const QUEUE: &str = "outbox-file-soak";
/// How long nothing may be recorded before the run counts as stuck.
const STUCK: Duration = Duration::from_secs(120);
const READY: Duration = Duration::from_secs(60);

/// A worker that somebody else might have written: it appends what it gets to a file.
const NODE_WORKER: &str = include_str!("soak_worker.mjs");

/// What to run.
#[derive(Clone, Debug)]
pub struct Soak {
    /// How many messages are enqueued.
    pub messages: usize,
    /// The program `postroom`.
    pub postroom: PathBuf,
    /// Which BullMQ the worker in Node has.
    pub bullmq: Bullmq,
}

/// What came of it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Soaked {
    /// How many messages were enqueued.
    pub messages: usize,
    /// How many are SENT in the end.
    pub sent: usize,
    /// How many arrived nowhere.
    pub lost: usize,
    /// How many arrivals carry an event id that nobody enqueued.
    pub unexpected: usize,
    /// How many arrivals there were beyond the first of each message; all of them have its event
    /// id.
    pub duplicates: usize,
    /// How many arrived at the worker in Rust, and at the one in Node.
    pub by_rust: usize,
    /// See [`by_rust`](Self::by_rust).
    pub by_node: usize,
    /// How long it took.
    pub seconds: f64,
}

impl Soaked {
    /// Whether every message is SENT and arrived, and nothing else did.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.sent == self.messages && self.lost == 0 && self.unexpected == 0
    }
}

impl fmt::Display for Soaked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, sent, lost, unexpected, duplicates, by_rust, by_node, seconds } = self;
        write!(
            f,
            "{sent} of {messages} SENT, {lost} lost, {unexpected} unexpected, {duplicates} \
             duplicates; {by_rust} arrived through Rust, {by_node} through Node; {seconds:.1} s"
        )
    }
}

impl Soak {
    /// Runs it and compares the books.
    ///
    /// # Errors
    /// When something cannot be started, or nothing moves any more.
    pub async fn run(&self) -> anyhow::Result<Soaked> {
        let began = Instant::now();
        let scene = Scene::set(self).await?;
        scene.enqueue(self.messages).await?;
        let _relay = scene.start("relay", "run", "serving /healthz").await?;
        let mut rust = scene.start("worker", "work", "the worker runs").await?;
        let mut node = scene.start_node().await?;

        scene.wait_for_sent(self.messages / 4).await?;
        node.kill9();
        node = scene.start_node().await?;
        scene.wait_for_sent(self.messages / 2).await?;
        scene.redis.crash().await?;
        scene.redis.start_again().await?;
        scene.wait_for_sent(self.messages * 3 / 4).await?;
        rust.kill9();
        rust = scene.start("worker", "work", "the worker runs").await?;
        scene.wait_for_sent(self.messages).await?;
        drop((rust, node));
        scene.compare(self.messages, began).await
    }
}

struct Scene {
    folder: tempfile::TempDir,
    database: TestDatabase,
    redis: Redis,
    postroom: PathBuf,
    bullmq: Bullmq,
}

impl Scene {
    async fn set(soak: &Soak) -> anyhow::Result<Self> {
        let scene = Self {
            folder: tempfile::tempdir().context("a folder")?,
            database: Postgres::shared().await.database().await,
            redis: Redis::private(&[]).await?,
            postroom: soak.postroom.clone(),
            bullmq: soak.bullmq,
        };
        // To the relay the workers are somebody else's, so that it runs no jobs itself; to the
        // worker in Rust they are its own.
        scene.write("relay.toml", "workers = \"external\"")?;
        scene.write("worker.toml", "path = \"rust.jsonl\"\nconcurrency = 8")?;
        std::fs::write(scene.path("worker.mjs"), NODE_WORKER).context("the worker")?;
        let mut migrate = Command::new(&scene.postroom);
        migrate.args(["migrate", "--database", scene.database.url()]);
        let status = hide_database(&mut migrate).status();
        ensure!(status.context("migrating")?.success(), "the outbox was not migrated");
        Ok(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, keys: &str) -> anyhow::Result<()> {
        let (database, redis) = (self.database.url(), self.redis.address());
        let text = format!(
            "[database]\nurl = \"{database}\"\n\
             [redis]\nurl = \"redis://{redis}\"\n\
             [relay]\nclaim_time = \"5s\"\nretry = {{ base = \"1s\", jitter = \"0s\" }}\n\
             [server]\nlisten = \"127.0.0.1:0\"\n\
             [integrations.\"{INTEGRATION}\"]\ntransport = \"bullmq\"\noutstanding = 2000\n{keys}\n"
        );
        std::fs::write(self.path(name), text).context("a configuration")
    }

    async fn start(&self, config: &str, command: &str, ready: &str) -> anyhow::Result<Process> {
        let mut program = Command::new(&self.postroom);
        program.args([command, "--config", &format!("{config}.toml")]);
        let process = Process::spawn(program.current_dir(self.folder.path()));
        process.wait_for_line(ready, READY).await;
        Ok(process)
    }

    async fn start_node(&self) -> anyhow::Result<Process> {
        let options = serde_json::json!({
            "port": self.redis.address().port(), "queue": QUEUE, "file": self.path("node.jsonl"),
        });
        let mut command = self.bullmq.script(&self.path("worker.mjs"), &options)?;
        let process = Process::spawn(&mut command);
        process.wait_for_line("ready", READY).await;
        Ok(process)
    }

    async fn enqueue(&self, messages: usize) -> anyhow::Result<()> {
        let statement = format!(
            "INSERT INTO core_outbox.integration_outbox
                 (source_stream_id, source_event_id, integration_type, event_type, payload)
             SELECT 's', 'event-' || n, '{INTEGRATION}', 'soaked', jsonb_build_object('n', n)
             FROM generate_series(1, {messages}) n"
        );
        self.database.client().await.batch_execute(&statement).await.context("enqueueing")
    }

    async fn sent(&self) -> anyhow::Result<usize> {
        const SENT: &str =
            "SELECT count(*) FROM core_outbox.integration_outbox WHERE status = 'SENT'";
        let row = self.database.client().await.query_one(SENT, &[]).await?;
        Ok(usize::try_from(row.get::<_, i64>(0)).unwrap_or(0))
    }

    async fn wait_for_sent(&self, wanted: usize) -> anyhow::Result<()> {
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            let sent = self.sent().await?;
            if sent >= wanted {
                return Ok(());
            }
            if sent != last {
                (last, moved) = (sent, Instant::now());
            }
            if moved.elapsed() > STUCK {
                bail!("{sent} of {wanted} are SENT, and none was for {STUCK:?}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn compare(&self, messages: usize, began: Instant) -> anyhow::Result<Soaked> {
        let mut arrived: HashMap<String, usize> = HashMap::new();
        let by_rust = read(&self.path("rust.jsonl"), "event_id", &mut arrived)?;
        let by_node = read(&self.path("node.jsonl"), "sourceEventId", &mut arrived)?;
        let expected = |id: &str| {
            let number = id.strip_prefix("event-").and_then(|n| n.parse().ok());
            number.is_some_and(|n: usize| (1..=messages).contains(&n))
        };
        let known = arrived.keys().filter(|id| expected(id)).count();
        Ok(Soaked {
            messages,
            sent: self.sent().await?,
            lost: messages - known,
            unexpected: arrived.len() - known,
            duplicates: by_rust + by_node - arrived.len(),
            by_rust,
            by_node,
            seconds: began.elapsed().as_secs_f64(),
        })
    }
}

/// Counts the arrivals in a file of JSON lines. What a killed process had written in part has not
/// arrived.
fn read(path: &Path, field: &str, arrived: &mut HashMap<String, usize>) -> anyhow::Result<usize> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut count = 0;
    for line in text.lines() {
        let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let Some(id) = value[field].as_str() else { continue };
        *arrived.entry(id.to_owned()).or_default() += 1;
        count += 1;
    }
    Ok(count)
}
