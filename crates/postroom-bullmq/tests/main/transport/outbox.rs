//! An outbox with one lane through BullMQ, and what runs it.

use super::faulty::{Call, faulty};
use crate::servers::{LONG, name, redis};
use postroom_bullmq::{
    Delivery, JobData, JobName, Part, Queue, QueueLane, QueuePattern, TenantRates, Transport,
    Workers,
};
use postroom_core::{
    AttemptLimit, MessageId, NewMessage, Quota, Record, RetryPolicy, Sink, Store, SystemClock, Take,
};
use postroom_relay::{Metrics, Relay, Settings};
use postroom_store::memory::MemoryStore;
use postroom_testkit::{Redis as Server, eventually, living_relay};
use std::net::SocketAddr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a claim lasts, and with it the lock of a job.
pub(crate) const CLAIM_TIME: Duration = Duration::from_millis(1_500);

/// For a Redis that refuses what is over 1 MiB.
pub(crate) const SMALL_VALUES: &[&str] = &["--proto-max-bulk-len", "1048576"];

/// An outbox of its own, with a queue of its own.
pub(crate) struct Outbox {
    pub(crate) memory: MemoryStore,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) address: SocketAddr,
    pub(crate) lane: QueueLane,
    /// More lanes of the same process.
    pub(crate) others: Vec<QueueLane>,
    pub(crate) tenants: TenantRates,
    pub(crate) settings: Settings,
}

/// A lane whose jobs nobody runs, or somebody else.
pub(crate) fn external(address: SocketAddr) -> Outbox {
    let memory = MemoryStore::new(Arc::new(SystemClock));
    let retry = RetryPolicy {
        base: Duration::from_millis(1),
        multiplier: 1.0,
        cap: Duration::from_millis(1),
        jitter: Duration::ZERO,
        max_attempts: AttemptLimit::Message,
    };
    let lane = QueueLane {
        integration: format!("noop:{}", name()),
        queue: QueuePattern::default(),
        data: JobData::Full,
        outstanding_max: 1_000,
        retry,
        workers: Workers::External,
    };
    let settings = Settings {
        claim_time: CLAIM_TIME,
        poll_interval: Duration::from_millis(20),
        stop_limit: Duration::from_secs(2),
        ..Settings::default()
    };
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let (others, tenants) = (Vec::new(), TenantRates::default());
    Outbox { memory, store, address, lane, others, tenants, settings }
}

/// A lane whose jobs we run.
pub(crate) fn own(address: SocketAddr, sink: Arc<dyn Sink>) -> Outbox {
    let mut outbox = external(address);
    // No test has to wait for the end of a claim or a lock unless it says so, and where the machine
    // stands still for a while none is lost.
    outbox.settings.claim_time = LONG;
    let timeout = LONG;
    outbox.lane.workers = Workers::Own(Delivery { sink, concurrency: 4, timeout, rate: None });
    outbox
}

impl Outbox {
    /// A message of this lane, which may fail so often.
    pub(crate) fn message(&self, event_type: &str, attempts: i32) -> NewMessage {
        NewMessage::new(&self.lane.integration, event_type)
            .json(&serde_json::json!({"reason": "not today"}))
            .max_attempts(attempts)
    }

    pub(crate) async fn enqueue(&self, message: &NewMessage) -> MessageId {
        self.store.enqueue(message).await.expect("enqueued").into_id()
    }

    /// Takes what is due, as a relay does that is about to add jobs and dies.
    pub(crate) async fn take_for_queue(&self) {
        let store: &dyn Store = &*self.store;
        let quotas = [Quota { integration: self.lane.integration.clone(), rows: 100 }];
        let take = Take {
            worker: "gone",
            relay: living_relay(store, Duration::from_secs(60)).await,
            quotas: &quotas,
            rows: 100,
            bytes: 1 << 20,
            payload_limit: 1 << 20,
            for_queue: true,
        };
        assert!(!store.take(&take).await.expect("taken").is_empty());
    }

    pub(crate) async fn enqueue_many(&self, n: usize) -> Vec<MessageId> {
        let mut ids = Vec::with_capacity(n);
        for _ in 0..n {
            ids.push(self.enqueue(&self.message("order.created", 10)).await);
        }
        ids
    }

    /// A message that a Redis with [`SMALL_VALUES`] refuses, and the relay does not.
    pub(crate) fn enqueue_too_large(&mut self, attempts: u32) -> MessageId {
        self.settings.payload_limit = 4 << 20;
        let payload = format!("\"{}\"", "x".repeat(1_100_000));
        let columns = [
            ("source_event_id", "e"),
            ("source_stream_id", "s"),
            ("integration_type", self.lane.integration.as_str()),
            ("event_type", "order.created"),
            ("payload", payload.as_str()),
            ("max_attempts", &attempts.to_string()),
        ];
        self.memory.by_hand().insert(&columns).expect("inserted")
    }

    /// The lane's queue.
    pub(crate) fn queue(&self) -> Queue {
        let name = self.lane.queue.name(&self.lane.integration, None);
        Queue::open(&redis(self.address), &name).expect("a queue")
    }

    pub(crate) async fn find(&self, id: &MessageId) -> Record {
        self.store.find(id).await.expect("found").expect("there")
    }

    /// Waits until a message has this status; its record then.
    pub(crate) async fn wait(&self, id: &MessageId, status: &str) -> Record {
        eventually(&format!("{id} to be {status}"), LONG, async || {
            Some(self.find(id).await).filter(|record| record.status == status)
        })
        .await
    }

    /// Waits until the dispatch that counts has this number.
    pub(crate) async fn wait_number(&self, id: &MessageId, number: u32) {
        eventually(&format!("dispatch {number}"), LONG, async || {
            let found = self.store.dispatched(slice::from_ref(id)).await.expect("read").pop()?;
            (found.number == number).then_some(())
        })
        .await;
    }

    /// Waits until this dispatch's job waits in the queue.
    pub(crate) async fn wait_waiting(&self, id: &MessageId, dispatch: u32) {
        let job = JobName { message: id.clone(), dispatch }.id();
        let queue = self.queue();
        eventually(&format!("the job {job}"), LONG, async || {
            let states = queue.states(std::slice::from_ref(&job)).await.ok()?;
            (states[0] == postroom_bullmq::JobState::Live).then_some(())
        })
        .await;
    }

    /// Counts how often claims are kept from now on.
    pub(crate) fn count_keeps(&mut self) -> Arc<AtomicUsize> {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        self.store = faulty(Arc::clone(&self.store), move |call| {
            counted.fetch_add(usize::from(matches!(call, Call::Beat(_))), Ordering::SeqCst);
            Ok(())
        });
        count
    }

    /// Leaves a job that waits as BullMQ does when a worker has completed it; `returned` is what
    /// it returned, as JSON.
    pub(crate) async fn complete(&self, server: &Server, job: &str, returned: &str) {
        let base = format!("bull:{}", self.queue().name());
        for command in [
            vec!["LREM", &format!("{base}:wait"), "0", job],
            vec!["HSET", &format!("{base}:{job}"), "returnvalue", returned, "finishedOn", "1"],
            vec!["ZADD", &format!("{base}:completed"), "1", job],
        ] {
            server.cli(&command).await.expect("Redis answers");
        }
    }

    /// Tells the queue's listeners that a job has completed.
    pub(crate) async fn tell_completed(&self, server: &Server, job: &str) {
        let events = format!("bull:{}:events", self.queue().name());
        let told = ["event", "completed", "jobId", job, "returnvalue", "null"];
        server.cli(&[&["XADD", &events, "*"], &told[..]].concat()).await.expect("Redis answers");
    }

    /// The transport as a process has it, and where it counts.
    pub(crate) fn transport(&self, settings: Settings, metrics: &Arc<Metrics>) -> Transport {
        Transport::new(
            Arc::clone(&self.store),
            redis(self.address),
            settings,
            [&self.lane].into_iter().chain(&self.others).cloned().collect(),
            self.tenants.clone(),
            Arc::clone(metrics),
        )
    }

    /// Starts a relay, or a worker.
    pub(crate) fn start(&self, part: Part) -> Running {
        let settings = Settings { worker: Settings::default().worker, ..self.settings.clone() };
        let relay = Relay::new(Arc::clone(&self.store), settings.clone(), Vec::new());
        let metrics = match part {
            Part::Relay => relay.counters(),
            Part::Worker => Arc::new(Metrics::new()),
        };
        let transport = self.transport(settings, &metrics).sharing(relay.presence());
        let transport = Arc::new(transport);
        let stop = watch::Sender::new(false);
        let (running, mut stopped) = (Arc::clone(&transport), stop.subscribe());
        let mut stopped_too = stop.subscribe();
        let task = tokio::spawn(async move {
            let through = running.run(part, async move {
                let _ = stopped.wait_for(|stopped| *stopped).await;
            });
            // It rescues for the transport.
            let beside = async {
                if part == Part::Relay {
                    let stop = async move {
                        let _ = stopped_too.wait_for(|stopped| *stopped).await;
                    };
                    relay.run(stop).await.expect("the relay runs");
                }
            };
            tokio::join!(through, beside).0.expect("the transport runs");
        });
        Running { transport, metrics, stop, task }
    }
}

/// Waits until something has been counted so often.
pub(crate) async fn wait_counted(count: &AtomicUsize, times: usize) {
    eventually(&format!("{times} times"), LONG, async || {
        (count.load(Ordering::SeqCst) >= times).then_some(())
    })
    .await;
}

/// Waits with an end.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what).await.expect("in time")
}

/// A relay or worker that runs until it is stopped, or dies when it is dropped.
pub(crate) struct Running {
    pub(crate) transport: Arc<Transport>,
    pub(crate) metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        soon(&mut self.task).await.expect("it stops");
    }

    /// The value of a metric of this lane, by the beginning of its line.
    pub(crate) fn counted(&self, line: &str) -> u64 {
        let text = self.metrics.text();
        let found = text.lines().find(|one| one.starts_with(line) && !one.starts_with('#'));
        let value = found.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no {line} in:\n{text}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
