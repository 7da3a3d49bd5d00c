//! A worker in this process whose processor records what it gets and does what a job's name says.

use crate::servers::LONG;
use async_trait::async_trait;
use postroom_bullmq::{Health, Job, JobFailure, Processor, Queue, Worker, WorkerOptions};
use postroom_testkit::eventually;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// `hold` waits until it is let go, `hold_fail` does and fails, `fail` and `never` fail, `panic` panics, `later` comes again
/// after a moment; everything else succeeds.
#[derive(Debug)]
pub(crate) struct Recording {
    started: Mutex<Vec<Job>>,
    ended: Mutex<Vec<String>>,
    held: Semaphore,
}

impl Recording {
    /// The ids of the jobs that were started, in their order.
    pub(crate) fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().iter().map(|job| job.id().to_owned()).collect()
    }

    pub(crate) fn job(&self, index: usize) -> Job {
        self.started.lock().unwrap()[index].clone()
    }

    /// The ids of those whose run came to its end.
    pub(crate) fn ended(&self) -> Vec<String> {
        self.ended.lock().unwrap().clone()
    }

    /// Lets one job go that is held.
    pub(crate) fn let_go(&self) {
        self.held.add_permits(1);
    }

    pub(crate) async fn wait_started(&self, count: usize) {
        let what = format!("{count} started jobs");
        eventually(&what, LONG, async || (self.started().len() >= count).then_some(())).await;
    }
}

#[async_trait]
impl Processor for Recording {
    async fn process(&self, job: Job) -> Result<(), JobFailure> {
        let (name, id) = (job.name().to_owned(), job.id().to_owned());
        let reason = job.data()["reason"].as_str().unwrap_or_default().to_owned();
        let runs = {
            let mut started = self.started.lock().unwrap();
            started.push(job);
            started.iter().filter(|job| job.id() == id).count()
        };
        let ended = match name.as_str() {
            "hold" => {
                self.held.acquire().await.unwrap().forget();
                Ok(())
            }
            "hold_fail" => {
                self.held.acquire().await.unwrap().forget();
                Err(JobFailure::Failed { reason: "held for long enough".to_owned() })
            }
            "fail" => Err(JobFailure::Failed { reason }),
            "never" => Err(JobFailure::Unrecoverable { reason }),
            "panic" => panic!("as the test asks"),
            "later" if runs == 1 => Err(JobFailure::Later(Duration::from_millis(50))),
            _ => Ok(()),
        };
        self.ended.lock().unwrap().push(id);
        ended
    }
}

/// A worker that runs until it is stopped.
pub(crate) struct Running {
    pub(crate) processor: Arc<Recording>,
    pub(crate) health: watch::Receiver<Health>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Short times, so that what is late shows soon.
pub(crate) fn quick() -> WorkerOptions {
    WorkerOptions {
        concurrency: 10,
        lock_time: Duration::from_millis(1500),
        stalled_interval: Duration::from_millis(500),
        grace: Duration::from_secs(5),
        ..WorkerOptions::new("here")
    }
}

pub(crate) fn start(queue: &Queue, options: WorkerOptions) -> Running {
    let (started, ended) = (Mutex::default(), Mutex::default());
    let processor = Arc::new(Recording { started, ended, held: Semaphore::new(0) });
    let worker = Worker::new(queue, options, Arc::clone(&processor) as Arc<dyn Processor>);
    let health = worker.health();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        worker.run(async move { stopped.await.unwrap_or_default() }).await;
    });
    Running { processor, health, stop, task }
}

impl Running {
    pub(crate) async fn wait_up(&mut self) {
        self.wait_health(|health| *health == Health::Up).await;
    }

    pub(crate) async fn wait_away(&mut self) {
        self.wait_health(|health| matches!(health, Health::Away(_))).await;
    }

    async fn wait_health(&mut self, is_so: impl FnMut(&Health) -> bool) {
        let waited = timeout(LONG, self.health.wait_for(is_so)).await;
        waited.expect("the worker's health in time").expect("the worker runs");
    }

    /// Tells it to stop, and returns once it has.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        timeout(LONG, self.task).await.expect("it stops in time").unwrap();
    }
}
