//! Takes due messages for every lane with room, and hands them over.

use crate::lane::Work;
use crate::pace::{Backoff, Heat};
use crate::relay::Shared;
use futures_util::future::join;
use postroom_core::{Batch, Quota, StoreError, Take, Wake};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

/// The most bytes of content taken at once.
const TAKE_BYTES: usize = 4 << 20;
/// How often to look for rescued messages when nothing says that there are some.
const RESCUED_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for room before looking again: a paused lane opens by itself.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Where each lane takes its messages.
pub(crate) type Doors = HashMap<String, UnboundedSender<Vec<Work>>>;

pub(crate) struct Claimer {
    shared: Arc<Shared>,
    doors: Doors,
    /// Which lane is asked first; it moves on each time, so that none is always last.
    first: usize,
    looked_for_rescued: Option<Instant>,
}

impl Claimer {
    pub(crate) fn new(shared: Arc<Shared>, doors: Doors) -> Self {
        Self { shared, doors, first: 0, looked_for_rescued: None }
    }

    /// Takes until `stop` turns true, and ends between two takes.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut wake = self.shared.store.wake().await;
        let mut heat = Heat::new();
        let mut backoff = Backoff::new();
        let mut full = false;
        while !*stop.borrow() {
            let found = match self.look(full).await {
                Ok(found) => found,
                Err(error) => {
                    self.shared.board.database_fails(&error);
                    let pause = backoff.pause();
                    let _ = tokio::time::timeout(pause, stop.wait_for(|stop| *stop)).await;
                    continue;
                }
            };
            backoff.reset();
            full = found.full;
            if found.messages > 0 {
                if heat.found(full, Instant::now()) {
                    busy(&mut wake, true).await;
                }
            } else if !found.no_room && heat.found_nothing(Instant::now()) {
                // Producers signal again from here on. Who committed just before is found by
                // looking once more, who commits just after by the poll.
                busy(&mut wake, false).await;
                continue;
            }
            let wait = async {
                if found.no_room {
                    self.wait_for_room().await;
                } else if !full {
                    self.wait(&mut wake, heat.is_hot()).await;
                }
            };
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => {}
                () = wait => {}
            }
        }
    }

    /// One pass for cron: takes up to `limit` due messages, and waits until all are settled.
    pub(crate) async fn once(mut self, limit: usize) -> Result<(), StoreError> {
        let mut left = limit;
        self.look_for_rescued().await?;
        while left > 0 {
            let quotas = self.reserve(left);
            if quotas.is_empty() && self.shared.in_hand() == 0 {
                break;
            }
            let found = self.take(quotas, left).await?;
            left = left.saturating_sub(found.messages);
            if found.no_room {
                self.wait_for_room().await;
            } else if found.messages == 0 {
                break;
            }
        }
        while self.shared.in_hand() > 0 {
            self.wait_for_room().await;
        }
        Ok(())
    }

    /// Takes for every lane with room; twice at once when the last look was `full`, so that
    /// reading one batch overlaps with claiming the next.
    async fn look(&mut self, full: bool) -> Result<Found, StoreError> {
        let rescued = self.look_for_rescued().await?;
        let first = self.reserve(usize::MAX);
        let found = if full {
            let second = self.reserve(usize::MAX);
            let (first, second) =
                join(self.take(first, usize::MAX), self.take(second, usize::MAX)).await;
            let (first, second) = (first?, second?);
            Found {
                messages: first.messages + second.messages,
                full: first.full || second.full,
                no_room: first.no_room,
            }
        } else {
            self.take(first, usize::MAX).await?
        };
        Ok(Found { messages: found.messages + rescued, ..found })
    }

    /// Reserves room in every lane that has some, the lanes taking turns at being first.
    fn reserve(&mut self, most: usize) -> Vec<Quota> {
        let lanes = &self.shared.lanes;
        let take_max = self.shared.settings.batch_size.min(most);
        self.first = (self.first + 1) % lanes.len().max(1);
        lanes[self.first..]
            .iter()
            .chain(&lanes[..self.first])
            .map(|room| Quota {
                integration: room.lane.integration.clone(),
                rows: room.reserve(take_max),
            })
            .filter(|quota| quota.rows > 0)
            .collect()
    }

    /// Takes what was reserved for, hands it over, and gives back the reservation.
    async fn take(&self, quotas: Vec<Quota>, rows: usize) -> Result<Found, StoreError> {
        if quotas.is_empty() {
            return Ok(Found { messages: 0, full: false, no_room: true });
        }
        let started = Instant::now();
        let batch = self.shared.store.take(&self.wish(&quotas, rows)).await;
        let found = batch.map(|batch| {
            self.shared.board.database_answers();
            let Some(batch) = batch else { return Found::default() };
            self.shared.metrics.claim_took(started.elapsed());
            let bytes: usize = batch.messages.iter().map(|taken| taken.message.weight()).sum();
            let full = bytes >= TAKE_BYTES || is_full(&quotas, &batch);
            let messages = batch.messages.len();
            tracing::debug!(operation = "OUTBOX_CLAIM", phase = "SUCCESS", messages, full);
            self.hand_over(batch);
            Found { messages, full, no_room: false }
        });
        for quota in &quotas {
            if let Some(room) = self.shared.lane(&quota.integration) {
                room.unreserve(quota.rows);
            }
        }
        found
    }

    fn wish<'a>(&'a self, quotas: &'a [Quota], rows: usize) -> Take<'a> {
        let settings = &self.shared.settings;
        Take {
            worker: &settings.worker,
            quotas,
            rows,
            bytes: TAKE_BYTES,
            payload_limit: settings.payload_limit,
            claim_time: settings.claim_time,
        }
    }

    async fn look_for_rescued(&mut self) -> Result<usize, StoreError> {
        let told = self.shared.rescued.swap(false, Ordering::AcqRel);
        if !told && self.looked_for_rescued.is_some_and(|last| last.elapsed() < RESCUED_EVERY) {
            return Ok(0);
        }
        let quotas: Vec<Quota> = self
            .shared
            .lanes
            .iter()
            .filter(|room| room.wants_rescued())
            .map(|room| Quota { integration: room.lane.integration.clone(), rows: 1 })
            .collect();
        if quotas.is_empty() {
            return Ok(0);
        }
        let batches = self.shared.store.take_rescued(&self.wish(&quotas, quotas.len())).await?;
        self.looked_for_rescued = Some(Instant::now());
        let found = batches.len();
        for batch in batches {
            self.hand_over(batch);
        }
        if found > 0 {
            // There may be more behind it.
            self.shared.rescued.store(true, Ordering::Release);
        }
        Ok(found)
    }

    fn hand_over(&self, batch: Batch) {
        let claim = self.shared.held.add(batch.token, batch.messages.len());
        self.shared.tally.taken.fetch_add(batch.messages.len() as u64, Ordering::Relaxed);
        let mut by_lane: HashMap<&str, Vec<Work>> = HashMap::new();
        for taken in batch.messages {
            // Only lanes of this relay were asked for.
            let Some(room) = self.shared.lane(&taken.message.integration) else { continue };
            room.add(&taken.message, taken.rescues);
            by_lane.entry(&room.lane.integration).or_default().push(Work {
                message: taken.message,
                rescues: taken.rescues,
                fault: taken.fault,
                claim: Arc::clone(&claim),
            });
        }
        for (integration, works) in by_lane {
            if let Some(door) = self.doors.get(integration) {
                // A lane ends only after the claimer.
                let _ = door.send(works);
            }
        }
    }

    async fn wait_for_room(&self) {
        let _ = tokio::time::timeout(ROOM_WAIT, self.shared.room_freed.notified()).await;
    }

    /// Waits for a signal, the poll, a retry that falls due, or room in a lane that was full.
    async fn wait(&self, wake: &mut Option<Box<dyn Wake>>, hot: bool) {
        let poll = self.shared.settings.poll_interval;
        if hot {
            tokio::time::sleep(poll.min(Heat::LOOK)).await;
            return;
        }
        let until = self.shared.due.next_before(Instant::now() + poll);
        tokio::select! {
            () = woken(wake) => {}
            () = self.shared.room_freed.notified(), if self.shared.any_lane_full() => {}
            () = tokio::time::sleep_until(until.into()) => {}
        }
    }
}

/// What a look found.
#[derive(Default)]
struct Found {
    messages: usize,
    /// More may be waiting.
    full: bool,
    /// No lane had room, so nothing was looked for.
    no_room: bool,
}

/// Whether some lane got all it asked for, so that more may be waiting.
fn is_full(quotas: &[Quota], batch: &Batch) -> bool {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for taken in &batch.messages {
        *counts.entry(&taken.message.integration).or_default() += 1;
    }
    quotas.iter().any(|quota| counts.get(quota.integration.as_str()) == Some(&quota.rows))
}

async fn woken(wake: &mut Option<Box<dyn Wake>>) {
    match wake {
        Some(wake) => wake.woken().await,
        None => std::future::pending().await,
    }
}

async fn busy(wake: &mut Option<Box<dyn Wake>>, busy: bool) {
    if let Some(wake) = wake {
        wake.busy(busy).await;
    }
}
