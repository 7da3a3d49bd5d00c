//! The queues of all lanes, those of tenants included, which are known only once they are used.

use super::shared::Shared;
use crate::error::QueueError;
use crate::queue::Queue;
use redis::cmd;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Every queue that was opened here. Whoever runs what a queue needs is told of each new one.
pub(crate) struct Queues {
    shared: Arc<Shared>,
    open: Mutex<HashMap<String, (usize, Queue)>>,
    opened: mpsc::UnboundedSender<(usize, Queue)>,
}

impl Queues {
    pub(crate) fn new(shared: Arc<Shared>) -> (Self, mpsc::UnboundedReceiver<(usize, Queue)>) {
        let (opened, told) = mpsc::unbounded_channel();
        (Self { shared, open: Mutex::default(), opened }, told)
    }

    /// A lane's queue by name.
    pub(crate) fn open(&self, lane: usize, name: &str) -> Result<Queue, QueueError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, queue)) = open.get(name) {
            return Ok(queue.clone());
        }
        let queue = Queue::open(&self.shared.redis, name)?;
        open.insert(name.to_owned(), (lane, queue.clone()));
        // Nobody listens once everything stops.
        let _ = self.opened.send((lane, queue.clone()));
        Ok(queue)
    }

    /// Every queue with its lane.
    pub(crate) fn all(&self) -> Vec<(usize, Queue)> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.values().cloned().collect()
    }

    /// Opens the queues that are known: one of each lane, or those of its tenants that any relay
    /// has noted in Redis. Notes there those that are open here.
    pub(crate) async fn discover(&self) -> Result<(), QueueError> {
        for (index, state) in self.shared.lanes.iter().enumerate() {
            let lane = &state.lane;
            if !lane.queue.is_by_tenant() {
                self.open(index, &lane.queue.name(&lane.integration, None))?;
                continue;
            }
            let key =
                format!("{}:postroom:queues:{}", self.shared.redis.server.prefix, lane.integration);
            let ours: Vec<String> = self
                .all()
                .into_iter()
                .filter(|(of, _)| *of == index)
                .map(|(_, queue)| queue.name().to_owned())
                .collect();
            let link = &self.shared.redis.link;
            if !ours.is_empty() {
                link.ask::<()>(cmd("SADD").arg(&key).arg(&ours)).await?;
            }
            for name in link.ask::<Vec<String>>(cmd("SMEMBERS").arg(&key)).await? {
                self.open(index, &name)?;
            }
        }
        Ok(())
    }
}
