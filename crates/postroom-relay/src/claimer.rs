//! Takes due messages for every lane with room, and hands them over.

use crate::lane::Work;
use crate::pace::{Backoff, Heat};
use crate::relay::Shared;
use crate::room::{Reservation, is_suspect};
use crate::stop::Stop;
use postroom_core::{
    Batch, Fate, Fence, Quota, Settlement, StoreError, StoreErrorKind, Take, Taken, Verdict, Wake,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// The most bytes of content taken at once.
const TAKE_BYTES: usize = 4 << 20;
/// How often to look for rescued messages when nothing says that there are some.
const RESCUED_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for room before looking again: a paused lane opens by itself.
const ROOM_WAIT: Duration = Duration::from_millis(100);
/// How soon a take that lost to a concurrent transaction is tried again.
const CONFLICT_PAUSE: Duration = Duration::from_millis(20);

/// Where each lane takes its messages.
pub(crate) type Doors = HashMap<String, UnboundedSender<Vec<Work>>>;

pub(crate) struct Claimer {
    shared: Arc<Shared>,
    doors: Doors,
    /// Which lane is asked first; it moves on each time, so that none is always last.
    first: usize,
    looked_for_rescued: Option<Instant>,
    /// A suspect waits for its turn: nothing rescued is taken until nothing rescued is in hand.
    suspect_waits: bool,
}

impl Claimer {
    pub(crate) fn new(shared: Arc<Shared>, doors: Doors) -> Self {
        Self { shared, doors, first: 0, looked_for_rescued: None, suspect_waits: false }
    }

    /// Takes until `stop` begins, and ends between two takes.
    pub(crate) async fn run(mut self, stop: Arc<Stop>) {
        let mut wake = self.shared.store.wake().await;
        let mut heat = Heat::new();
        let mut backoff = Backoff::new();
        while !stop.has_begun() {
            let found = match self.look().await {
                Ok(found) => found,
                Err(error) => {
                    self.shared.board.database_fails(&error);
                    let pause = match error.kind {
                        StoreErrorKind::Conflict => self.shared.chance.share(CONFLICT_PAUSE, 0.5),
                        StoreErrorKind::Unavailable
                        | StoreErrorKind::Schema
                        | StoreErrorKind::Refused => backoff.pause(&self.shared.chance),
                    };
                    let _ = tokio::time::timeout(pause, stop.begun()).await;
                    continue;
                }
            };
            backoff.reset();
            if found.full {
                self.shared.more_waits.notify_one();
            }
            if found.messages > 0 {
                if heat.found(found.full, Instant::now()) {
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
                } else if !found.full {
                    self.wait(&mut wake, heat.is_hot()).await;
                }
            };
            tokio::select! {
                biased;
                _ = stop.begun() => {}
                () = wait => {}
            }
        }
    }

    async fn look(&mut self) -> Result<Found, StoreError> {
        let rescued = self.look_for_rescued(usize::MAX).await?;
        let wanted = self.reserve(usize::MAX);
        let found = self.take(wanted, usize::MAX).await?;
        Ok(Found { messages: found.messages + rescued, ..found })
    }

    /// One pass for cron: takes up to `limit` due messages, and waits until all are settled.
    pub(crate) async fn once(mut self, limit: usize) -> Result<(), StoreError> {
        let mut left = limit;
        while left > 0 {
            let rescued = self.look_for_rescued(left).await?;
            left -= rescued;
            let wanted = self.reserve(left);
            if wanted.quotas.is_empty() && self.shared.in_hand() == 0 {
                break;
            }
            let found = self.take(wanted, left).await?;
            left = left.saturating_sub(found.messages);
            let more_rescued = self.shared.rescued.load(Ordering::Acquire)
                && self.shared.lanes.iter().any(|room| !room.pauses.is_paused());
            if found.no_room || (found.messages == 0 && more_rescued) {
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

    /// Takes beside the claimer while it finds more than it can take at once, so that reading one
    /// batch overlaps with claiming the next. Ends between two takes when `stop` begins.
    pub(crate) async fn assist(mut self, stop: Arc<Stop>) {
        while !stop.has_begun() {
            tokio::select! {
                biased;
                _ = stop.begun() => return,
                () = self.shared.more_waits.notified() => {}
            }
            loop {
                let wanted = self.reserve(usize::MAX);
                match self.take(wanted, usize::MAX).await {
                    Ok(found) if found.full && !stop.has_begun() => {}
                    Ok(_) => break,
                    Err(error) => {
                        // The claimer meets it too, and waits.
                        self.shared.board.database_fails(&error);
                        break;
                    }
                }
            }
        }
    }

    /// Reserves room in every lane that has some, the lanes taking turns at being first.
    fn reserve(&mut self, most: usize) -> Wanted {
        let lanes = &self.shared.lanes;
        let take_max = self.shared.settings.batch_size.min(most);
        self.first = (self.first + 1) % lanes.len().max(1);
        lanes[self.first..]
            .iter()
            .chain(&lanes[..self.first])
            .filter_map(|room| {
                let reservation = room.reserve(take_max)?;
                let integration = room.lane.integration.clone();
                Some((Quota { integration, rows: reservation.rows }, reservation))
            })
            .collect()
    }

    /// Takes what was reserved for, hands it over, and gives back the reservation.
    async fn take(&self, wanted: Wanted, rows: usize) -> Result<Found, StoreError> {
        let Wanted { quotas, reservations } = wanted;
        if quotas.is_empty() {
            return Ok(Found { messages: 0, full: false, no_room: true });
        }
        let started = Instant::now();
        let batch = self.shared.store.take(&self.wish(&quotas, rows)).await?;
        self.shared.board.database_answers();
        let Some(batch) = batch else { return Ok(Found::default()) };
        self.shared.metrics.claim_took(started.elapsed());
        let bytes: usize = batch.messages.iter().map(|taken| taken.message.weight()).sum();
        let full = bytes >= TAKE_BYTES || is_full(&quotas, &batch);
        let messages = batch.messages.len();
        tracing::debug!(operation = "OUTBOX_CLAIM", phase = "SUCCESS", messages, full);
        self.hand_over(batch);
        // Only now: what was handed over is counted already, so that nobody takes its room.
        drop(reservations);
        Ok(Found { messages, full, no_room: false })
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
            lease: None,
        }
    }

    /// Takes up to `most` rescued messages, at most one per lane, and says how many.
    ///
    /// A message that was lost once more while it was handled like that is a suspect. It is
    /// handled with no other rescued message beside it, in any lane: when its relay dies, there
    /// is no doubt whose attempt that was.
    async fn look_for_rescued(&mut self, most: usize) -> Result<usize, StoreError> {
        let told = self.shared.rescued.load(Ordering::Acquire);
        if !told && self.looked_for_rescued.is_some_and(|last| last.elapsed() < RESCUED_EVERY) {
            return Ok(0);
        }
        let lanes = &self.shared.lanes;
        let in_hand = lanes.iter().any(|room| room.holds_rescued());
        if lanes.iter().any(|room| room.holds_suspect()) || (self.suspect_waits && in_hand) {
            return Ok(0);
        }
        let quotas: Vec<Quota> = lanes
            .iter()
            .filter(|room| room.wants_rescued())
            .map(|room| Quota { integration: room.lane.integration.clone(), rows: 1 })
            .take(most)
            .collect();
        if quotas.is_empty() {
            return Ok(0);
        }
        self.shared.rescued.store(false, Ordering::Release);
        let batches = self.shared.store.take_rescued(&self.wish(&quotas, quotas.len())).await?;
        self.looked_for_rescued = Some(Instant::now());
        if !batches.is_empty() {
            // There may be more behind it.
            self.shared.rescued.store(true, Ordering::Release);
        }
        let (handled, given_back) = sort_out(batches, in_hand);
        self.suspect_waits = in_hand && !given_back.is_empty();
        // First, since what is handed over may end this process at once.
        let given_back = self.give_back(&given_back).await;
        let found = handled.len();
        for batch in handled {
            self.hand_over(batch);
        }
        given_back.map(|()| found)
    }

    async fn give_back(&self, batches: &[Batch]) -> Result<(), StoreError> {
        if batches.is_empty() {
            return Ok(());
        }
        let released = |taken: &Taken| Verdict {
            seq: taken.message.seq,
            id: taken.message.id,
            fate: Fate::Released,
        };
        let settlements: Vec<Settlement> = batches
            .iter()
            .map(|batch| Settlement {
                fence: Fence::Claim(batch.token),
                verdicts: batch.messages.iter().map(released).collect(),
                finished: true,
            })
            .collect();
        self.shared.store.settle(&settlements).await.map(drop)
    }

    fn hand_over(&self, batch: Batch) {
        // A message that was sent elsewhere by hand just now may have no lane here. It is not held,
        // so that its claim expires once the others are settled.
        let is_routed = |taken: &&Taken| self.shared.lane(&taken.message.integration).is_some();
        let routed = batch.messages.iter().filter(is_routed).count();
        if routed == 0 {
            return;
        }
        let claim = self.shared.held.add(batch.token, routed);
        self.shared.tally.taken.fetch_add(batch.messages.len() as u64, Ordering::Relaxed);
        let mut by_lane: BTreeMap<&str, Vec<Work>> = BTreeMap::new();
        for taken in batch.messages {
            let Some(room) = self.shared.lane(&taken.message.integration) else { continue };
            by_lane.entry(&room.lane.integration).or_default().push(Work {
                place: room.add(&taken.message, taken.rescues),
                message: taken.message,
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

    /// Waits for a signal, the poll, a retry that falls due, or room: in a lane that was full, or
    /// for the next rescued message.
    async fn wait(&self, wake: &mut Option<Box<dyn Wake>>, hot: bool) {
        let poll = self.shared.settings.poll_interval;
        if hot {
            tokio::time::sleep(poll.min(Heat::LOOK)).await;
            return;
        }
        let until = self.shared.due.next_before(Instant::now() + poll);
        let for_room = self.shared.any_lane_full() || self.shared.rescued.load(Ordering::Acquire);
        tokio::select! {
            biased;
            () = woken(wake) => {}
            () = self.shared.room_freed.notified(), if for_room => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

/// What is asked for, and the room that is kept for it.
struct Wanted {
    quotas: Vec<Quota>,
    reservations: Vec<Reservation>,
}

impl FromIterator<(Quota, Reservation)> for Wanted {
    fn from_iter<T: IntoIterator<Item = (Quota, Reservation)>>(each: T) -> Self {
        let (quotas, reservations) = each.into_iter().unzip();
        Self { quotas, reservations }
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

/// Which rescued messages to handle now, and which to give back: a suspect alone, and none while
/// others are `in_hand`.
fn sort_out(mut batches: Vec<Batch>, in_hand: bool) -> (Vec<Batch>, Vec<Batch>) {
    let holds_suspect =
        |batch: &Batch| batch.messages.iter().any(|taken| is_suspect(taken.rescues));
    let Some(first) = batches.iter().position(holds_suspect) else { return (batches, Vec::new()) };
    if in_hand {
        return batches.into_iter().partition(|batch| !holds_suspect(batch));
    }
    let suspect = batches.swap_remove(first);
    (vec![suspect], batches)
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
