//! Which tenants' queues our workers serve. A worker needs connections of its own, so they serve so
//! many queues at a time: where more have jobs, each is served for a while and in turn.

use super::queues::Closed;
use crate::error::QueueError;
use crate::queue::{Presence, Queue, presence};
use crate::server::Redis;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// How many queues are served at a time.
const AT_ONCE: usize = 32;
/// So many places are kept free where that costs nothing: a worker needs about a second to leave one.
const SPARE: usize = 8;
/// How long a queue is served before another one that waits, unless it has no jobs, and how long it is
/// served at least.
const TURN: Duration = Duration::from_secs(2);
const TURN_LEAST: Duration = Duration::from_millis(500);
/// How often to see whose turn it is, and how often and at how many queues to look for jobs that wait
/// for one without our knowing.
pub(crate) const SEE_EVERY: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_MAX: usize = 250;

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
    /// Tells it from other turns.
    pub(crate) number: u64,
    /// Changes when the turn is over.
    pub(crate) recalled: watch::Receiver<bool>,
    /// Held until the worker's connections are closed.
    pub(crate) slot: Option<OwnedSemaphorePermit>,
}

struct Waiting {
    place: Place,
    /// Whether it is known to have jobs.
    has_jobs: bool,
}

struct Serving {
    place: Place,
    number: u64,
    since: Instant,
    recall: watch::Sender<bool>,
    /// Whether it had jobs when that was looked at last.
    has_jobs: bool,
}

/// Who is served, and who waits.
pub(crate) struct Rota {
    slots: Arc<Semaphore>,
    /// The first has waited for the longest time.
    waiting: VecDeque<Waiting>,
    /// By the queue's name.
    serving: HashMap<String, Serving>,
    number: u64,
    looked_at: Instant,
    /// How many of those that wait were looked at, since the first one was.
    looked_through: usize,
}

impl Rota {
    pub(crate) fn new() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: VecDeque::new(),
            serving: HashMap::new(),
            number: 0,
            looked_at: Instant::now(),
            looked_through: 0,
        }
    }

    /// A queue is to be served from now on, since it has jobs; its turn, if it can have one at once.
    pub(crate) fn join(&mut self, place: Place) -> Option<Turn> {
        match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(slot) => Some(self.begin(place, Some(slot))),
            Err(_) => {
                self.waiting.push_back(Waiting { place, has_jobs: true });
                None
            }
        }
    }

    /// A turn at a queue that takes turns with no other.
    pub(crate) fn always(&mut self, place: Place) -> Turn {
        self.number += 1;
        Turn { place, number: self.number, recalled: watch::channel(false).1, slot: None }
    }

    /// A queue was given a job; its turn, if it waits for one and can have it at once.
    pub(crate) fn given(&mut self, queue: &str) -> Option<Turn> {
        let index = self.waiting.iter().position(|one| one.place.queue.name() == queue)?;
        self.waiting.get_mut(index)?.has_jobs = true;
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let Waiting { place, .. } = self.waiting.remove(index)?;
        Some(self.begin(place, Some(slot)))
    }

    /// Nobody needs a queue any more.
    pub(crate) fn leave(&mut self, queue: &str) {
        self.waiting.retain(|one| one.place.queue.name() != queue);
        self.serving.remove(queue);
    }

    /// A worker's turn is over: its queue waits for the next one.
    pub(crate) fn ended(&mut self, queue: &str, number: u64) {
        if self.serving.get(queue).is_some_and(|served| served.number == number)
            && let Some(served) = self.serving.remove(queue)
        {
            self.waiting.push_back(Waiting { place: served.place, has_jobs: served.has_jobs });
        }
    }

    /// Whether to see whose turn it is.
    pub(crate) fn is_due(&self) -> bool {
        self.waiting.iter().any(|one| one.has_jobs)
            || (!self.waiting.is_empty() && self.is_look_due())
    }

    fn is_look_due(&self) -> bool {
        self.looked_at.elapsed() >= LOOK_EVERY
    }

    /// The turns that begin now. Where jobs wait in queues without a turn, others end: of queues
    /// without jobs, and of those that have been served for long enough, the longest first.
    pub(crate) async fn next(&mut self, redis: &Redis) -> Result<Vec<Turn>, QueueError> {
        if self.is_look_due() {
            self.look(redis).await?;
        }
        let (mut turns, mut left_out) = (Vec::new(), 0);
        for one in std::mem::take(&mut self.waiting) {
            let slot = one.has_jobs.then(|| Arc::clone(&self.slots).try_acquire_owned().ok());
            match slot.flatten() {
                Some(slot) => turns.push(self.begin(one.place, Some(slot))),
                None => {
                    left_out += usize::from(one.has_jobs);
                    self.waiting.push_back(one);
                }
            }
        }
        self.recall(left_out);
        Ok(turns)
    }

    /// Looks for jobs: in all queues that are served, and in some of those that wait, in turn.
    async fn look(&mut self, redis: &Redis) -> Result<(), QueueError> {
        let served: Vec<Queue> = self.serving.values().map(|one| one.place.queue.clone()).collect();
        let unknown = |one: &&Waiting| !one.has_jobs;
        let from = if self.looked_through < self.waiting.len() { self.looked_through } else { 0 };
        let part: Vec<Queue> = self
            .waiting
            .iter()
            .skip(from)
            .take(LOOK_MAX)
            .filter(unknown)
            .map(|one| one.place.queue.clone())
            .collect();
        let of_served = presence(redis, &served).await?;
        let of_waiting = presence(redis, &part).await?;
        (self.looked_at, self.looked_through) = (Instant::now(), from + LOOK_MAX);
        let has_jobs = |look: Result<Presence, QueueError>| look.is_ok_and(|found| found.has_live);
        for (queue, look) in served.iter().zip(of_served) {
            if let Some(serving) = self.serving.get_mut(queue.name()) {
                serving.has_jobs = has_jobs(look);
            }
        }
        let with_jobs: HashSet<&str> = part
            .iter()
            .zip(of_waiting)
            .filter_map(|(queue, look)| has_jobs(look).then_some(queue.name()))
            .collect();
        for one in &mut self.waiting {
            one.has_jobs |= with_jobs.contains(one.place.queue.name());
        }
        Ok(())
    }

    fn begin(&mut self, place: Place, slot: Option<OwnedSemaphorePermit>) -> Turn {
        self.number += 1;
        let (number, (recall, recalled)) = (self.number, watch::channel(false));
        let (since, has_jobs) = (Instant::now(), true);
        let served = Serving { place: place.clone(), number, since, recall, has_jobs };
        self.serving.insert(place.queue.name().to_owned(), served);
        Turn { place, number, recalled, slot }
    }

    /// Ends turns, so that there is a place for so many queues that have jobs, and some to spare if
    /// others have none.
    fn recall(&mut self, left_out: usize) {
        let free = self.slots.available_permits();
        let leaving = AT_ONCE.saturating_sub(free + self.serving.len());
        let recalled = self.serving.values().filter(|one| *one.recall.borrow()).count();
        let coming = free + leaving + recalled;
        let mut of_idle = (left_out + SPARE).saturating_sub(coming);
        let mut of_any = left_out.saturating_sub(coming);
        let mut turns: Vec<&Serving> =
            self.serving.values().filter(|one| !*one.recall.borrow()).collect();
        turns.sort_by_key(|one| (one.has_jobs, one.since));
        for one in turns {
            let least = if one.has_jobs { TURN } else { TURN_LEAST };
            let left = if one.has_jobs { of_any } else { of_idle };
            if left > 0 && one.since.elapsed() >= least {
                of_idle = of_idle.saturating_sub(1);
                of_any = of_any.saturating_sub(1);
                one.recall.send_replace(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::RedisConfig;

    struct Scene {
        rota: Rota,
        closed: watch::Sender<()>,
        redis: Redis,
    }

    impl Scene {
        /// So many queues, of which as many as can be have a turn.
        fn set(queues: usize) -> (Self, Vec<Turn>) {
            let config =
                RedisConfig { url: "redis://127.0.0.1:1".to_owned(), ..RedisConfig::default() };
            let (redis, closed) = (Redis::new(&config).unwrap(), watch::Sender::new(()));
            let mut scene = Self { rota: Rota::new(), closed, redis };
            let places: Vec<Place> = (0..queues).map(|number| scene.place(number)).collect();
            let turns = places.into_iter().filter_map(|place| scene.rota.join(place)).collect();
            (scene, turns)
        }

        fn place(&self, number: usize) -> Place {
            let queue = Queue::open(&self.redis, &format!("queue-{number}")).unwrap();
            Place { lane: 0, queue, closed: Closed::with(&self.closed) }
        }

        /// Ends turns where so many queues with jobs were left out, and those that are served have
        /// jobs or not.
        fn recall(&mut self, left_out: usize, has_jobs: bool) {
            self.rota.serving.values_mut().for_each(|one| one.has_jobs = has_jobs);
            self.rota.recall(left_out);
        }
    }

    fn recalled(turns: &[Turn]) -> Vec<usize> {
        let is_recalled = |(_, turn): &(usize, &Turn)| *turn.recalled.borrow();
        turns.iter().enumerate().filter(is_recalled).map(|(index, _)| index).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_without_jobs_makes_room_for_others_and_some_to_spare() {
        let (mut scene, turns) = Scene::set(AT_ONCE + 3);
        assert_eq!(turns.len(), AT_ONCE);
        scene.recall(3, false);
        assert_eq!(recalled(&turns), [0; 0], "they have only just begun");
        tokio::time::advance(TURN_LEAST).await;
        scene.recall(3, false);
        scene.recall(3, false);
        assert_eq!(recalled(&turns).len(), 3 + SPARE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_with_jobs_is_served_for_its_turn_and_the_longest_served_goes_first() {
        let (mut scene, mut turns) = Scene::set(AT_ONCE);
        tokio::time::advance(TURN / 2).await;
        // The first one's turn ends, and it begins another.
        let first = turns.remove(0);
        let (name, number) = (first.place.queue.name().to_owned(), first.number);
        scene.rota.ended(&name, number);
        drop(first.slot);
        let again = scene.rota.given(&name).expect("there is a place for it");
        scene.rota.ended(&name, number);
        turns.push(again);
        tokio::time::advance(TURN / 2).await;
        scene.recall(AT_ONCE, true);
        let all_but_the_last: Vec<usize> = (0..AT_ONCE - 1).collect();
        assert_eq!(recalled(&turns), all_but_the_last);
        assert_eq!(scene.rota.serving.len(), AT_ONCE, "a turn that is over ends no other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_free_once_the_connections_of_its_worker_are_closed() {
        let (mut scene, mut turns) = Scene::set(AT_ONCE + 1);
        let waiting = format!("queue-{AT_ONCE}");
        let Turn { place, number, slot, .. } = turns.remove(0);
        scene.rota.ended(place.queue.name(), number);
        assert!(scene.rota.given(&waiting).is_none());
        drop(slot);
        let _turn = scene.rota.given(&waiting).expect("there is a place for it");
        assert!(scene.rota.given(place.queue.name()).is_none(), "it waits for the next place");
        scene.rota.leave(place.queue.name());
        assert!(!scene.rota.is_due(), "nobody waits");
    }
}
