//! Which tenants' queues our workers serve. A worker needs connections of its own, so they serve so
//! many queues at a time: where more have jobs, each is served for a while and in turn.

use super::queues::Closed;
use crate::error::QueueError;
use crate::queue::{Queue, presence};
use crate::server::Redis;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// How many queues are served at a time.
const AT_ONCE: usize = 32;
/// How long a queue is served before another one that waits.
const TURN: Duration = Duration::from_secs(2);
/// How often to look whose turn it is.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A queue that is to be served.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) lane: usize,
    pub(crate) queue: Queue,
    pub(crate) closed: Closed,
}

/// A worker's turn at a queue.
pub(crate) struct Turn {
    pub(crate) place: Place,
    /// Changes when the turn is over.
    pub(crate) recalled: watch::Receiver<bool>,
    /// Held until the worker's connections are closed.
    pub(crate) slot: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// At a queue that takes turns with no other.
    pub(crate) fn without_end(place: Place) -> Self {
        Self { place, recalled: watch::channel(false).1, slot: None }
    }
}

struct Serving {
    place: Place,
    since: Instant,
    recall: watch::Sender<bool>,
}

/// Who is served, and who waits.
pub(crate) struct Rota {
    slots: Arc<Semaphore>,
    /// The first has waited for the longest time.
    waiting: VecDeque<Place>,
    /// By the queue's name.
    serving: HashMap<String, Serving>,
}

impl Rota {
    pub(crate) fn new() -> Self {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        Self { slots, waiting: VecDeque::new(), serving: HashMap::new() }
    }

    /// A queue is to be served from now on; its turn, if it can have one at once.
    pub(crate) fn join(&mut self, place: Place) -> Option<Turn> {
        match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => Some(self.begin(place, slot)),
            Err(_) => {
                self.waiting.push_back(place);
                None
            }
        }
    }

    /// Nobody needs a queue any more.
    pub(crate) fn leave(&mut self, queue: &str) {
        self.waiting.retain(|place| place.queue.name() != queue);
        self.serving.remove(queue);
    }

    /// A worker's turn is over: its queue waits for the next one.
    pub(crate) fn ended(&mut self, queue: &str) {
        if let Some(served) = self.serving.remove(queue)
            && !served.place.closed.is_closed()
        {
            self.waiting.push_back(served.place);
        }
    }

    pub(crate) fn is_anybody_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The turns that begin now. Where jobs wait in queues without a turn, others end: of queues
    /// without jobs, and of those that have been served for long enough, the longest first.
    pub(crate) async fn next(&mut self, redis: &Redis) -> Result<Vec<Turn>, QueueError> {
        let serving: Vec<&Serving> = self.serving.values().collect();
        let queues: Vec<Queue> = self.waiting.iter().map(|place| place.queue.clone()).collect();
        let served: Vec<Queue> = serving.iter().map(|one| one.place.queue.clone()).collect();
        let has_jobs = |looks: Vec<Result<_, _>>| -> Vec<bool> {
            let has_live = |found: crate::queue::Presence| found.has_live;
            looks.into_iter().map(|look| look.is_ok_and(has_live)).collect()
        };
        let wants = has_jobs(presence(redis, &queues).await?);
        let works = has_jobs(presence(redis, &served).await?);
        let mut waiting = Vec::with_capacity(wants.len());
        let mut turns = Vec::new();
        let mut left_out = 0;
        for (place, wants) in std::mem::take(&mut self.waiting).into_iter().zip(wants) {
            let slot = if wants { Arc::clone(&self.slots).try_acquire_owned().ok() } else { None };
            match slot {
                Some(slot) => turns.push((place, slot)),
                None => {
                    left_out += usize::from(wants);
                    waiting.push(place);
                }
            }
        }
        self.recall(left_out, &served, &works);
        self.waiting.extend(waiting);
        Ok(turns.into_iter().map(|(place, slot)| self.begin(place, slot)).collect())
    }

    fn begin(&mut self, place: Place, slot: OwnedSemaphorePermit) -> Turn {
        let (recall, recalled) = watch::channel(false);
        let served = Serving { place: place.clone(), since: Instant::now(), recall };
        self.serving.insert(place.queue.name().to_owned(), served);
        Turn { place, recalled, slot: Some(slot) }
    }

    /// Ends so many turns at most, those that end already included.
    fn recall(&mut self, mut left_out: usize, served: &[Queue], works: &[bool]) {
        let mut turns: Vec<(bool, Instant, &str)> = served
            .iter()
            .zip(works)
            .filter_map(|(queue, works)| {
                let since = self.serving.get(queue.name())?.since;
                Some((*works, since, queue.name()))
            })
            .collect();
        turns.sort_unstable();
        for (works, since, name) in turns {
            if left_out == 0 {
                return;
            }
            let is_over = !works || since.elapsed() >= TURN;
            if let Some(serving) = self.serving.get(name)
                && (is_over || *serving.recall.borrow())
            {
                serving.recall.send_replace(true);
                left_out -= 1;
            }
        }
    }
}
