//! The queues of all lanes, those of tenants included, which are known only once they are used.

use super::faults::Who;
use super::shared::Shared;
use crate::error::QueueError;
use crate::queue::Queue;
use redis::cmd;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Every queue that was opened here. Whoever runs what a queue needs is told of each new one, and of
/// each new lane of one.
pub(crate) struct Queues {
    shared: Arc<Shared>,
    /// By name, with the lanes that use it.
    open: Mutex<HashMap<String, (Queue, Vec<usize>)>>,
    opened: mpsc::UnboundedSender<(usize, Queue)>,
}

impl Queues {
    pub(crate) fn new(shared: Arc<Shared>) -> (Self, mpsc::UnboundedReceiver<(usize, Queue)>) {
        let (opened, told) = mpsc::unbounded_channel();
        (Self { shared, open: Mutex::default(), opened }, told)
    }

    /// A lane's queue by name.
    pub(crate) fn open(&self, lane: usize, name: &str) -> Result<Queue, QueueError> {
        self.shared.faults.uses(lane, name);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let (queue, lanes) = match open.entry(name.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                entry.insert((Queue::open(&self.shared.redis, name)?, Vec::new()))
            }
        };
        if !lanes.contains(&lane) {
            lanes.push(lane);
            // Nobody listens once everything stops.
            let _ = self.opened.send((lane, queue.clone()));
        }
        Ok(queue.clone())
    }

    /// Every queue.
    pub(crate) fn all(&self) -> Vec<Queue> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().map(|(queue, _)| queue.clone()).collect()
    }

    /// The names of a lane's queues.
    fn of_lane(&self, lane: usize) -> Vec<String> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let of_lane = open.iter().filter(|(_, (_, lanes))| lanes.contains(&lane));
        of_lane.map(|(name, _)| name.clone()).collect()
    }

    /// Opens the queues that are known: one of each lane, or those of its tenants that any relay
    /// has noted in Redis. Notes there those that are open here. Fails when Redis is away.
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
            match self.exchange(&key, &self.of_lane(index)).await {
                Ok(names) => {
                    self.shared.faults.end(&key, Who::Opener);
                    for name in names {
                        self.try_open(index, &name)?;
                    }
                }
                Err(error) if error.is_away() => return Err(error),
                Err(error) => self.shared.faults.begin(&key, Who::Opener, &error),
            }
        }
        Ok(())
    }

    /// Notes the names of queues in a set, and reads what others have noted.
    async fn exchange(&self, key: &str, ours: &[String]) -> Result<Vec<String>, QueueError> {
        let link = &self.shared.redis.link;
        if !ours.is_empty() {
            link.ask::<()>(cmd("SADD").arg(key).arg(ours)).await?;
        }
        link.ask(cmd("SMEMBERS").arg(key)).await
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
}
