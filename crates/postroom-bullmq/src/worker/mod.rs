//! Running a queue's jobs.

mod finish;
mod flights;
mod options;
mod processor;

pub use options::{Rate, WorkerOptions};
pub use processor::{Job, JobFailure, Processor};

use crate::error::QueueError;
use crate::queue::Queue;
use bullmq::worker::WorkerEvent;
use flights::Flights;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};

/// How long to wait before another try to connect.
const PAUSE: Duration = Duration::from_millis(500);
/// How long BullMQ's client may take to connect; by itself it would try for a minute.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// After so long without success, while Redis answers others, the client is stuck: start anew.
const STUCK: Duration = Duration::from_secs(5);
/// How long a fetch that was under way may take to come back once no more are asked for.
const FETCH_MAX: Duration = Duration::from_millis(100);
/// How long jobs may take to go back to the queue when their time is up.
const GIVE_BACK_MAX: Duration = Duration::from_secs(2);
/// Longer than any job takes, whose sink call has a time limit.
const FINISH_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// BullMQ's client looks up from its waiting at least this often, and then ends.
const CLOSE_MAX_MS: u64 = 10_000;

/// Whether a worker can do its work.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Health {
    /// Not connected yet.
    Starting,
    /// It gets jobs.
    Up,
    /// It gets none, and why; it goes on trying.
    Away(String),
}

/// Runs the jobs of one queue, several at a time, until it is told to stop.
///
/// * Whatever happens to Redis, it goes on by itself once that is back.
/// * A job whose processor panics has failed.
/// * A job whose lock is lost (Redis was reset, or this process stood still for too long) runs to
///   its end, is told so ([`Job::is_lost`]), and nothing is said of it to BullMQ: it may be
///   another worker's by now.
/// * A job that another worker has left behind is run again, once; the second time it fails.
#[derive(Debug)]
pub struct Worker {
    queue: Queue,
    options: WorkerOptions,
    processor: Arc<dyn Processor>,
    health: watch::Sender<Health>,
}

/// Why watching over BullMQ's client ended.
enum Ended {
    Stopped,
    Left,
    Stuck,
}

impl Worker {
    /// A worker for `queue`. Nothing is connected yet.
    #[must_use]
    pub fn new(queue: &Queue, options: WorkerOptions, processor: Arc<dyn Processor>) -> Self {
        let health = watch::Sender::new(Health::Starting);
        Self { queue: queue.clone(), options, processor, health }
    }

    /// Whether it can do its work, now and as that changes.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// Runs jobs until `stop` is ready; then it takes no more, waits for those that run, and gives
    /// back to the queue what has not ended within the grace time.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        self.run_in_turn(stop, std::future::pending(), None).await;
    }

    /// The same; once `leave` is ready it takes no more either, and waits for those that run however
    /// long they take, unless it has to stop. `slot` is held until its connections are closed.
    pub(crate) async fn run_in_turn(
        self,
        stop: impl Future<Output = ()> + Send,
        leave: impl Future<Output = ()> + Send,
        slot: Option<OwnedSemaphorePermit>,
    ) {
        let flights = Arc::new(Flights::new(&self.queue, self.options.lock_time));
        tokio::select! {
            // Not a task of its own: when this panics, so does the worker, and it is noticed.
            () = flights.keep() => {}
            () = self.run_with(&flights, stop, leave, slot) => {}
        }
    }

    async fn run_with(
        &self,
        flights: &Arc<Flights>,
        stop: impl Future<Output = ()> + Send,
        leave: impl Future<Output = ()> + Send,
        slot: Option<OwnedSemaphorePermit>,
    ) {
        let (mut stop, mut leave) = (pin!(stop), pin!(leave));
        loop {
            let started = tokio::select! {
                biased;
                () = &mut stop => return,
                () = &mut leave => return,
                started = self.start(flights) => started,
            };
            let client = match started {
                Ok(client) => client,
                Err(error) => {
                    self.set_health(Health::Away(error.to_string()));
                    tokio::select! {
                        biased;
                        () = &mut stop => return,
                        () = &mut leave => return,
                        () = sleep(PAUSE) => continue,
                    }
                }
            };
            let ended = self.watch(&client, flights, stop.as_mut(), leave.as_mut()).await;
            match ended {
                Ended::Stopped | Ended::Left => {
                    if matches!(ended, Ended::Stopped) {
                        self.end(&client, flights).await;
                    } else {
                        tokio::select! {
                            biased;
                            () = &mut stop => self.end(&client, flights).await,
                            () = self.finish(&client, flights) => {}
                        }
                    }
                    // Waiting for a job, it would keep us for as long as it waits.
                    tokio::spawn(async move {
                        let closed = client.close(CLOSE_MAX_MS).await;
                        drop(client);
                        drop(slot);
                        closed
                    });
                    return;
                }
                Ended::Stuck => {
                    tracing::warn!(queue = self.queue.name(), "the BullMQ client is stuck: anew");
                    client.pause();
                    let last = self.options.lock_time.as_millis() as u64;
                    tokio::spawn(async move { client.close(last).await });
                }
            }
        }
    }

    async fn start(&self, flights: &Arc<Flights>) -> Result<bullmq::Worker, QueueError> {
        // BullMQ's client tries for long before it says what is wrong.
        self.queue.redis().probe().await?;
        let connection = self.queue.redis().server.options().await?;
        let options = self.options.for_client(connection, self.queue.prefix());
        let (flights, processor) = (Arc::clone(flights), Arc::clone(&self.processor));
        let process = move |job: bullmq::Job, _| {
            let (flights, processor) = (Arc::clone(&flights), Arc::clone(&processor));
            async move { finish::run(&flights, &*processor, job).await }
        };
        let place = self.queue.redis().place();
        let made = bullmq::Worker::with_options(self.queue.name(), process, options);
        match timeout(CONNECT_MAX, made).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(bullmq::Error::Redis(error))) => Err(QueueError::of(place, error)),
            Ok(Err(error)) => Err(QueueError::misconfigured(place, error.to_string())),
            Err(_) => Err(QueueError::away(place, "no connection in time")),
        }
    }

    /// Reads what BullMQ's client says, without which it would keep it for ever.
    async fn watch(
        &self,
        client: &bullmq::Worker,
        flights: &Flights,
        mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
        mut leave: Pin<&mut (impl Future<Output = ()> + Send)>,
    ) -> Ended {
        let mut failing_since: Option<Instant> = None;
        let mut ticks = interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return Ended::Stopped,
                () = &mut leave => return Ended::Left,
                said = client.next_event() => match said {
                    Some(said) => self.hear(said, flights, &mut failing_since),
                    None => return Ended::Stuck,
                },
                _ = ticks.tick() => {
                    let is_stuck = failing_since.is_some_and(|since| since.elapsed() > STUCK);
                    if is_stuck && self.queue.redis().probe().await.is_ok() {
                        return Ended::Stuck;
                    }
                }
            }
        }
    }

    fn hear(&self, said: WorkerEvent, flights: &Flights, failing_since: &mut Option<Instant>) {
        match said {
            WorkerEvent::Completed { job_id, .. } | WorkerEvent::Failed { job_id, .. } => {
                flights.concluded(&job_id);
            }
            WorkerEvent::Error(problem) => {
                flights.note_failure();
                failing_since.get_or_insert_with(Instant::now);
                self.set_health(Health::Away(problem));
                return;
            }
            WorkerEvent::Stalled { job_id } => {
                tracing::warn!(queue = self.queue.name(), job = job_id, "job was left behind");
                return;
            }
            WorkerEvent::Active { .. } | WorkerEvent::Drained => {}
            WorkerEvent::Ready
            | WorkerEvent::Closed
            | WorkerEvent::Progress { .. }
            | WorkerEvent::Paused
            | WorkerEvent::Resumed => return,
        }
        *failing_since = None;
        self.set_health(Health::Up);
    }

    /// Waits for the jobs that run, however long they take.
    async fn finish(&self, client: &bullmq::Worker, flights: &Flights) {
        flights.close();
        client.pause();
        let now = Instant::now();
        self.land(client, flights, now + FETCH_MAX, now + FINISH_MAX).await;
    }

    /// Waits for the jobs that run, and gives back those that take too long.
    async fn end(&self, client: &bullmq::Worker, flights: &Flights) {
        flights.close();
        client.pause();
        let now = Instant::now();
        // A fetch that is under way comes back, and its job goes back.
        let fetched = now + FETCH_MAX;
        self.land(client, flights, fetched, now + self.options.grace).await;
        if flights.recall() > 0 {
            self.land(client, flights, fetched, Instant::now() + GIVE_BACK_MAX).await;
        }
    }

    /// Waits until no job is under way any more, at least until `earliest`, at most until `latest`.
    async fn land(
        &self,
        client: &bullmq::Worker,
        flights: &Flights,
        earliest: Instant,
        latest: Instant,
    ) {
        let mut late = pin!(sleep_until(latest.max(earliest)));
        let mut fetched = pin!(sleep_until(earliest));
        loop {
            let is_early = Instant::now() < earliest;
            if !is_early && flights.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = &mut late => return,
                said = client.next_event() => if let Some(said) = said {
                    self.hear(said, flights, &mut None);
                },
                () = flights.landed() => {}
                () = &mut fetched, if is_early => {}
            }
        }
    }

    fn set_health(&self, health: Health) {
        let queue = self.queue.name();
        self.health.send_if_modified(|now| {
            if *now == health {
                return false;
            }
            match (&*now, &health) {
                (Health::Away(_), Health::Away(_)) => {}
                (_, Health::Away(problem)) => tracing::warn!(queue, problem, "worker gets no jobs"),
                (_, Health::Up) => tracing::info!(queue, "worker gets jobs"),
                (_, Health::Starting) => {}
            }
            *now = health.clone();
            true
        });
    }
}
