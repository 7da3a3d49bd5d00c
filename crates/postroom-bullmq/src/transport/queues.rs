//! The queues of all lanes, those of tenants included, which are known only once they are used.
//!
//! A relay watches every open queue, and so many are open at a time. That of a tenant is closed when
//! nothing has happened in it for long; its name stays known, and it is opened again as soon as there
//! is a job.

use super::faults::Who;
use super::shared::Shared;
use crate::error::QueueError;
use crate::queue::{Presence, Queue, presence};
use redis::cmd;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// After so many claim times in which a tenant's queue was given no job it is closed.
const IDLE: u32 = 10;
/// How many queues are open at a time. Beyond that, tenants' queues are closed as soon as they are
/// empty, and those that are not open have no room.
const OPEN_MAX: usize = 1_000;
/// How long a queue was given no job that is closed then, and how many are closed in one go.
const IDLE_WHEN_FULL: Duration = Duration::from_secs(1);
const CLOSE_MAX: usize = 100;
/// How many closed queues are looked at in one go.
const LOOK_MAX: usize = 1_000;
/// The names in Redis are read so often even if their number stays the same: by hand, one may have
/// taken the place of another.
const READ_EVERY: Duration = Duration::from_secs(60);

/// Every queue that is open here. Whoever runs what a queue needs is told of each new one, of each
/// new lane of one, and of each that is closed.
pub(crate) struct Queues {
    shared: Arc<Shared>,
    state: Mutex<State>,
    told: mpsc::UnboundedSender<Told>,
}

/// What happens to queues.
pub(crate) enum Told {
    /// A lane uses a queue from now on.
    Opened { lane: usize, queue: Queue, closed: Closed },
    /// An open queue is about to be given jobs.
    Given(String),
    /// Nobody uses it any more.
    Closed(String),
}

/// Knows whether a queue was closed.
#[derive(Clone)]
pub(crate) struct Closed(watch::Receiver<()>);

impl Closed {
    /// Of a queue that is closed when this sender goes.
    pub(super) fn with(sender: &watch::Sender<()>) -> Self {
        Self(sender.subscribe())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.has_changed().is_err()
    }

    /// Resolves once it is.
    pub(crate) async fn wait(&mut self) {
        // Nothing is ever sent: it changes when the sender goes.
        while self.0.changed().await.is_ok() {}
    }
}

#[derive(Default)]
struct State {
    /// By name.
    open: HashMap<String, Open>,
    /// What each lane has seen.
    seen: HashMap<usize, Seen>,
}

/// The names of a lane's queues.
#[derive(Default)]
struct Seen {
    /// Those that have been looked at, or opened.
    known: BTreeSet<String>,
    /// Those that have not.
    new: BTreeSet<String>,
    /// Where among those that are closed the next look begins.
    from: String,
    /// How many were noted in Redis when they were read, and when that was.
    read: Option<(usize, Instant)>,
}

struct Open {
    queue: Queue,
    lanes: Vec<usize>,
    /// When it was last given a job, as far as is known here.
    used_at: Instant,
    /// How many jobs it had been given when that was looked at last.
    given: Option<u64>,
    /// Goes with this.
    closed: watch::Sender<()>,
}

impl Seen {
    fn know(&mut self, name: &str) {
        self.new.remove(name);
        if !self.known.contains(name) {
            self.known.insert(name.to_owned());
        }
    }
}

impl Queues {
    pub(crate) fn new(shared: Arc<Shared>) -> (Self, mpsc::UnboundedReceiver<Told>) {
        let (told, hears) = mpsc::unbounded_channel();
        (Self { shared, state: Mutex::default(), told }, hears)
    }

    /// A lane's queue by name, for somebody who is about to give it jobs, and has noted them as
    /// outstanding: until they are settled it stays open.
    pub(crate) fn open(&self, lane: usize, name: &str) -> Result<Queue, QueueError> {
        self.shared.faults.uses(lane, name);
        let mut state = self.state();
        state.seen.entry(lane).or_default().know(name);
        let open = match state.open.entry(name.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Open {
                queue: Queue::open(&self.shared.redis, name)?,
                lanes: Vec::new(),
                used_at: Instant::now(),
                given: None,
                closed: watch::Sender::new(()),
            }),
        };
        open.used_at = Instant::now();
        let queue = open.queue.clone();
        if !open.lanes.contains(&lane) {
            open.lanes.push(lane);
            let closed = Closed::with(&open.closed);
            // Nobody listens once everything stops.
            let _ = self.told.send(Told::Opened { lane, queue: queue.clone(), closed });
        } else if self.shared.lanes[lane].lane.has_own_workers_by_tenant() {
            let _ = self.told.send(Told::Given(name.to_owned()));
        }
        Ok(queue)
    }

    /// Opens a tenant's queue for somebody who is about to give it jobs, unless too many are open.
    /// Whether there may be jobs for it.
    pub(crate) fn reserve(&self, lane: usize, name: &str) -> bool {
        if !self.may_open(name) && self.shared.lanes[lane].lane.queue.is_by_tenant() {
            return false;
        }
        // Where it cannot be opened, whoever adds jobs to it learns why.
        let _ = self.open(lane, name);
        true
    }

    fn may_open(&self, name: &str) -> bool {
        let state = self.state();
        state.open.len() < OPEN_MAX || state.open.contains_key(name)
    }

    /// Every queue that is open.
    pub(crate) fn all(&self) -> Vec<Queue> {
        self.state().open.values().map(|open| open.queue.clone()).collect()
    }

    /// The names of a lane's open queues.
    fn of_lane(&self, lane: usize) -> Vec<String> {
        let state = self.state();
        let of_lane = state.open.iter().filter(|(_, open)| open.lanes.contains(&lane));
        of_lane.map(|(name, _)| name.clone()).collect()
    }

    /// Opens the queues that are needed: one of each lane, or those of its tenants that have jobs,
    /// among all that any relay has noted in Redis. Notes there those that are open here, and closes
    /// those that have not been needed for long. Fails when Redis is away.
    pub(crate) async fn discover(&self) -> Result<(), QueueError> {
        for (index, state) in self.shared.lanes.iter().enumerate() {
            let lane = &state.lane;
            if !lane.queue.is_by_tenant() {
                self.try_open(index, &lane.queue.name(&lane.integration, None))?;
                continue;
            }
            let key =
                format!("{}:postroom:queues:{}", self.shared.redis.server.prefix, lane.integration);
            self.shared.faults.uses(index, &key);
            match self.discover_tenants(index, &key).await {
                Ok(()) => self.shared.faults.end(&key, Who::Opener),
                Err(error) if error.is_away() => return Err(error),
                Err(error) => self.shared.faults.begin(&key, Who::Opener, &error),
            }
        }
        self.close_idle().await
    }

    async fn discover_tenants(&self, lane: usize, key: &str) -> Result<(), QueueError> {
        self.exchange(lane, key).await?;
        let (new, closed) = self.not_open(lane);
        // What ended while nobody looked is kept there, or has been settled.
        self.open_if(lane, new, |found| found.has_live || found.has_finished).await?;
        self.open_if(lane, closed, |found| found.has_live).await
    }

    /// Notes the names of a lane's open queues in a set, and reads what others have noted where
    /// there is more or less than before: there may be very many.
    async fn exchange(&self, lane: usize, key: &str) -> Result<(), QueueError> {
        let link = &self.shared.redis.link;
        let ours = self.of_lane(lane);
        if !ours.is_empty() {
            link.ask::<()>(cmd("SADD").arg(key).arg(&ours)).await?;
        }
        let noted: usize = link.ask(cmd("SCARD").arg(key)).await?;
        let read = self.state().seen.entry(lane).or_default().read;
        if read.is_some_and(|(count, at)| count == noted && at.elapsed() < READ_EVERY) {
            return Ok(());
        }
        let names: HashSet<String> = link.ask(cmd("SMEMBERS").arg(key)).await?;
        let mut state = self.state();
        let State { open, seen } = &mut *state;
        let Seen { known, new, read, .. } = seen.entry(lane).or_default();
        *read = Some((names.len(), Instant::now()));
        let stays = |name: &String| {
            let stays = names.contains(name) || open.contains_key(name);
            if !stays {
                self.shared.faults.forget(name);
            }
            stays
        };
        known.retain(stays);
        new.retain(stays);
        new.extend(names.into_iter().filter(|name| !known.contains(name)));
        Ok(())
    }

    /// Those of a lane's queues that are not open: all that have never been looked at, and some of
    /// the others in turn.
    fn not_open(&self, lane: usize) -> (Vec<String>, Vec<String>) {
        let mut state = self.state();
        let State { open, seen } = &mut *state;
        let seen = seen.entry(lane).or_default();
        let is_open = |name: &&String| open.get(*name).is_some_and(|one| one.lanes.contains(&lane));
        let after = (Bound::Excluded(seen.from.clone()), Bound::Unbounded);
        let (behind, before) = (seen.known.range(after), seen.known.range(..=seen.from.clone()));
        let in_turn = behind.chain(before).filter(|name| !is_open(name));
        let closed: Vec<String> = in_turn.take(LOOK_MAX).cloned().collect();
        if let Some(last) = closed.last() {
            seen.from.clone_from(last);
        }
        (seen.new.iter().cloned().collect(), closed)
    }

    /// Opens those of these queues in which something is found. One that cannot be looked at, or of
    /// a name that no queue can have, does not keep others from it.
    async fn open_if(
        &self,
        lane: usize,
        names: Vec<String>,
        is_wanted: impl Fn(Presence) -> bool,
    ) -> Result<(), QueueError> {
        let mut queues = Vec::with_capacity(names.len());
        for name in names {
            match Queue::open(&self.shared.redis, &name) {
                Ok(queue) => queues.push(queue),
                Err(_) => self.try_open(lane, &name)?,
            }
        }
        let looks = presence(&self.shared.redis, &queues).await?;
        for (queue, look) in queues.iter().zip(looks) {
            let name = queue.name();
            match look {
                Ok(found) if is_wanted(found) && self.may_open(name) => {
                    self.try_open(lane, name)?;
                }
                Ok(_) => {
                    self.state().seen.entry(lane).or_default().know(name);
                    self.shared.faults.end(name, Who::Opener);
                }
                Err(error) => {
                    self.shared.faults.uses(lane, name);
                    self.shared.faults.begin(name, Who::Opener, &error);
                }
            }
        }
        Ok(())
    }

    /// Opens a queue. One that cannot be does not keep others from it.
    fn try_open(&self, lane: usize, name: &str) -> Result<(), QueueError> {
        match self.open(lane, name) {
            Ok(_) => self.shared.faults.end(name, Who::Opener),
            Err(error) if error.is_away() => return Err(error),
            Err(error) => self.shared.faults.begin(name, Who::Opener, &error),
        }
        Ok(())
    }

    /// Closes the queues of tenants that have nothing to do, and had not for long.
    async fn close_idle(&self) -> Result<(), QueueError> {
        let (idle, since): (Vec<Queue>, Duration) = {
            let state = self.state();
            let is_full = state.open.len() >= OPEN_MAX;
            let since =
                if is_full { IDLE_WHEN_FULL } else { IDLE * self.shared.settings.claim_time };
            let faults = &self.shared.faults;
            let is_at_fault = |open: &Open| faults.has(open.queue.name(), Who::Opener);
            let is_idle = |open: &&Open| self.is_idle(open, since) || is_at_fault(open);
            let mut idle: Vec<&Open> = state.open.values().filter(is_idle).collect();
            if is_full {
                idle.sort_unstable_by_key(|open| open.used_at);
                idle.truncate(CLOSE_MAX);
            }
            (idle.into_iter().map(|open| open.queue.clone()).collect(), since)
        };
        if idle.is_empty() {
            return Ok(());
        }
        let looks = match presence(&self.shared.redis, &idle).await {
            Ok(looks) => looks,
            Err(error) if error.is_away() => return Err(error),
            Err(error) => {
                for queue in &idle {
                    self.shared.faults.begin(queue.name(), Who::Opener, &error);
                }
                return Ok(());
            }
        };
        let mut state = self.state();
        for (queue, look) in idle.iter().zip(looks) {
            let found = match look {
                Ok(found) => found,
                Err(error) => {
                    self.shared.faults.begin(queue.name(), Who::Opener, &error);
                    continue;
                }
            };
            self.shared.faults.end(queue.name(), Who::Opener);
            let Entry::Occupied(mut entry) = state.open.entry(queue.name().to_owned()) else {
                continue;
            };
            let open = entry.get_mut();
            let was_given_none = open.given.replace(found.given) == Some(found.given);
            if found.has_live || !was_given_none {
                open.used_at = Instant::now();
            } else if self.is_idle(open, since) {
                tracing::debug!(
                    queue = queue.name(),
                    "nothing to do for long: the queue is closed"
                );
                entry.remove();
                self.shared.faults.forget(queue.name());
                let _ = self.told.send(Told::Closed(queue.name().to_owned()));
            }
        }
        Ok(())
    }

    /// Whether a queue may be closed as far as is known here: it was given no job for so long.
    fn is_idle(&self, open: &Open, since: Duration) -> bool {
        let by_tenant = |lane: &usize| self.shared.lanes[*lane].lane.queue.is_by_tenant();
        open.used_at.elapsed() >= since
            && open.lanes.iter().all(by_tenant)
            && self.shared.outstanding.in_queue(open.queue.name()) == 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
