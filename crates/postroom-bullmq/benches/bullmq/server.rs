//! The Redis that both sides use, and what is read from it.

use anyhow::Context as _;
use postroom_bullmq::{Queue, Redis, RedisConfig};
use std::time::{Duration, Instant};

/// One measurement.
pub(crate) struct Measured {
    pub(crate) per_second: f64,
    /// What Redis used per job, in microseconds.
    pub(crate) redis_cpu_us: f64,
}

pub(crate) struct Server {
    server: postroom_testkit::Redis,
    pub(crate) queue: Queue,
    /// How many jobs a round has.
    pub(crate) jobs: usize,
}

impl Server {
    pub(crate) async fn start(jobs: usize) -> anyhow::Result<Self> {
        let server = postroom_testkit::Redis::private(&[]).await?;
        let url = format!("redis://{}", server.address());
        let redis = Redis::new(&RedisConfig { url, ..RedisConfig::default() })?;
        Ok(Self { server, queue: Queue::open(&redis, "bench")?, jobs })
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// Measures a call that adds all jobs, on an empty Redis.
    pub(crate) async fn adds(
        &self,
        add: impl AsyncFnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured> {
        self.server.cli(&["FLUSHALL"]).await?;
        let (cpu, begun) = (self.cpu_seconds().await?, Instant::now());
        add().await?;
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), self.cpu_seconds().await? - cpu);
        let waiting = self.queue.counts().await?.waiting;
        anyhow::ensure!(waiting == self.jobs as u64, "{waiting} jobs were added");
        Ok(self.measured(seconds, cpu))
    }

    /// Measures how a worker that is about to start runs all the jobs that wait: from its first
    /// job to its last.
    pub(crate) async fn consumes(&self) -> anyhow::Result<Measured> {
        let look = Duration::from_millis(2);
        while self.queue.counts().await?.waiting == self.jobs as u64 {
            tokio::time::sleep(look).await;
        }
        let (cpu, begun) = (self.cpu_seconds().await?, Instant::now());
        loop {
            let counts = self.queue.counts().await?;
            if counts.waiting + counts.active == 0 {
                break;
            }
            tokio::time::sleep(look).await;
        }
        let (seconds, cpu) = (begun.elapsed().as_secs_f64(), self.cpu_seconds().await? - cpu);
        Ok(self.measured(seconds, cpu))
    }

    async fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let info = self.server.cli(&["INFO", "cpu"]).await?;
        let info = info.as_str().context("INFO is text")?;
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse::<f64>().ok()).context(name.to_owned())
        };
        Ok(field("used_cpu_sys:")? + field("used_cpu_user:")?)
    }

    fn measured(&self, seconds: f64, cpu: f64) -> Measured {
        let jobs = self.jobs as f64;
        Measured { per_second: jobs / seconds, redis_cpu_us: cpu * 1e6 / jobs }
    }
}
