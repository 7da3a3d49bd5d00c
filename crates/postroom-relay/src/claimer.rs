//! Takes due messages for every lane with room, and hands them over.

use crate::lane::Work;
use crate::pauses::Gate;
use crate::polling::{Backoff, Heat};
use crate::relay::Shared;
use crate::room::{LaneRoom, RescuedClaim, Reservation};
use crate::stop::Stop;
use crate::vanished;
use postroom_core::{
    Batch, PARCEL_MESSAGES, Quota, Rescued, StoreError, StoreErrorKind, StoreResult, Take, Taken,
    Wake,
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
/// How many conflicts with other transactions one pass gets over.
const CONFLICTS_OF_A_PASS: u32 = 20;

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
                        StoreErrorKind::Conflict => self.shared.jitter.share(CONFLICT_PAUSE, 0.5),
                        StoreErrorKind::Unavailable
                        | StoreErrorKind::Schema
                        | StoreErrorKind::Refused => backoff.pause(&self.shared.jitter),
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

    /// One pass for cron: takes up to `limit` due messages, and waits until all are settled. It ends
    /// when nothing is due in any lane, and a lane that is full has not been looked at yet.
    pub(crate) async fn once(mut self, limit: usize) -> Result<(), StoreError> {
        let mut left = limit;
        let mut conflicts_left = CONFLICTS_OF_A_PASS;
        while left > 0 {
            left = left.saturating_sub(self.look_for_rescued(left).await?);
            let wanted = self.reserve(left);
            if wanted.quotas.is_empty() && self.shared.in_hand() == 0 {
                break;
            }
            let is_one_full = wanted.is_one_full;
            let found = match self.take(wanted, left).await {
                Ok(found) => found,
                // A deadlock, say: the next try goes through, or the limit of a pass ends it.
                Err(error) if error.kind == StoreErrorKind::Conflict && conflicts_left > 0 => {
                    conflicts_left -= 1;
                    tokio::time::sleep(self.shared.jitter.share(CONFLICT_PAUSE, 0.5)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            left = left.saturating_sub(found.messages);
            let more_waits = is_one_full || self.shared.expects_rescued();
            if found.no_room || (found.messages == 0 && more_waits) {
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
        let mut wanted = Wanted::default();
        for room in lanes[self.first..].iter().chain(&lanes[..self.first]) {
            match room.reserve(take_max) {
                Some(reservation) => wanted.add(room, reservation.rows, reservation),
                None => wanted.is_one_full |= !room.is_paused(),
            }
        }
        wanted
    }

    /// Takes what was reserved for, hands it over, and gives back the reservation.
    async fn take(&self, wanted: Wanted, rows: usize) -> Result<Found, StoreError> {
        let Wanted { quotas, reservations, .. } = wanted;
        if quotas.is_empty() {
            return Ok(Found { messages: 0, full: false, no_room: true });
        }
        let started = Instant::now();
        let batches = self.taking(self.shared.store.take(&self.wish(&quotas, rows))).await?;
        self.shared.board.database_answers();
        vanished::tell(&self.shared);
        if batches.is_empty() {
            return Ok(Found::default());
        }
        self.shared.metrics.claim_took(started.elapsed());
        let taken = || batches.iter().flat_map(|batch| &batch.messages);
        let bytes: usize = taken().map(|taken| taken.message.weight()).sum();
        let full = bytes >= TAKE_BYTES || is_full(&quotas, taken());
        let messages = taken().count();
        tracing::debug!(operation = "OUTBOX_CLAIM", phase = "SUCCESS", messages, full);
        for batch in batches {
            if self.is_still_held(&batch, started).await? {
                self.hand_over(batch, None);
            }
        }
        // Only now: what was handed over is counted already, so that nobody takes its room.
        drop(reservations);
        Ok(Found { messages, full, no_room: false })
    }

    fn wish<'a>(&'a self, quotas: &'a [Quota], rows: usize) -> Take<'a> {
        let settings = &self.shared.settings;
        Take {
            worker: &settings.worker,
            relay: self.shared.presence.id(),
            quotas,
            rows,
            bytes: TAKE_BYTES,
            payload_limit: settings.payload_limit,
            for_queue: false,
        }
    }

    /// Takes under a heartbeat that is not overdue.
    async fn taking(
        &self,
        take: impl Future<Output = StoreResult<Vec<Batch>>>,
    ) -> Result<Vec<Batch>, StoreError> {
        self.shared.presence.beat_if_overdue(&*self.shared.store).await?;
        let taken = take.await;
        if taken.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Conflict) {
            // It may be that the relay's row is gone, and this process does not know.
            self.shared.presence.doubt();
        }
        taken
    }

    /// Whether a claim is still this relay's: one whose answer came late may have expired, and been
    /// rescued, before anybody here knew of it.
    async fn is_still_held(&self, batch: &Batch, asked: Instant) -> Result<bool, StoreError> {
        let claim_time = self.shared.settings.claim_time;
        if asked.elapsed() < claim_time / 2 {
            return Ok(true);
        }
        let lost = self.shared.presence.beat(&*self.shared.store, &[batch.token]).await?;
        Ok(!lost.contains(&batch.token))
    }

    /// Takes up to `most` rescued messages, and says how many.
    ///
    /// Any of them may be the one that killed its relay. So they come in claims that are halved each
    /// time they are lost, a few at once. A message whose claim cannot be halved any more is handled
    /// with no other rescued message beside it, in any lane: when its relay dies, there is no doubt
    /// whose attempt that was. It waits until the others are through.
    async fn look_for_rescued(&mut self, most: usize) -> Result<usize, StoreError> {
        if self.looked_for_rescued.is_none_or(|last| last.elapsed() >= RESCUED_EVERY) {
            self.looked_for_rescued = Some(Instant::now());
            self.shared.expect_rescued();
        }
        let lanes = &self.shared.lanes;
        if lanes.iter().any(|room| room.holds_alone()) {
            return Ok(0);
        }
        let mut found = 0;
        while found < most {
            match self.take_together(most - found).await? {
                0 => break,
                taken => found += taken,
            }
        }
        if most > 0 && !lanes.iter().any(|room| room.holds_rescued()) {
            found += self.take_alone().await?;
        }
        Ok(found)
    }

    /// Takes one claim of rescued messages for each lane that may have more.
    async fn take_together(&self, most: usize) -> Result<usize, StoreError> {
        let batch_size = self.shared.settings.batch_size;
        let mut wanted = Wanted::default();
        for room in self.shared.lanes.iter().filter(|room| room.expects_rescued()) {
            if let Some(reservation) = room.reserve_rescued((batch_size / 2).max(1)) {
                // Before the call: what is rescued meanwhile is not missed.
                room.expect_rescued(false);
                wanted.add(room, batch_size, reservation);
            }
        }
        if wanted.quotas.is_empty() {
            return Ok(0);
        }
        let taken = self.take_rescued(&wanted, most, Rescued::Together).await;
        for quota in &wanted.quotas {
            let has_more = match &taken {
                Ok(taken) => taken.contains_key(&quota.integration),
                Err(_) => true,
            };
            if let Some(room) = self.shared.lane(&quota.integration).filter(|_| has_more) {
                room.expect_rescued(true);
            }
        }
        Ok(taken?.values().sum())
    }

    /// Takes one message that is to be handled alone, of any lane.
    async fn take_alone(&self) -> Result<usize, StoreError> {
        if !self.shared.alone_waits.swap(false, Ordering::AcqRel) {
            return Ok(0);
        }
        let batch_size = self.shared.settings.batch_size;
        let mut wanted = Wanted::default();
        for room in &self.shared.lanes {
            if let Some(reservation) = room.reserve(1) {
                // A lane that may try one message after a pause is asked for any.
                let is_open = room.pauses.gate() == Gate::Open;
                wanted.add(room, if is_open { batch_size } else { 1 }, reservation);
            }
        }
        if wanted.quotas.is_empty() {
            return Ok(0);
        }
        let taken = self.take_rescued(&wanted, 1, Rescued::Alone).await;
        if !matches!(&taken, Ok(taken) if taken.is_empty()) {
            self.shared.alone_waits.store(true, Ordering::Release);
        }
        Ok(taken?.values().sum())
    }

    /// Takes rescued messages and hands them over. How many, by lane.
    async fn take_rescued(
        &self,
        wanted: &Wanted,
        rows: usize,
        which: Rescued,
    ) -> Result<BTreeMap<String, usize>, StoreError> {
        let started = Instant::now();
        let wish = self.wish(&wanted.quotas, rows);
        let mut taken = BTreeMap::new();
        for batch in self.taking(self.shared.store.take_rescued(&wish, which)).await? {
            if !self.is_still_held(&batch, started).await? {
                continue;
            }
            for one in &batch.messages {
                *taken.entry(one.message.integration.clone()).or_default() += 1;
            }
            self.hand_over(batch, Some(which));
        }
        Ok(taken)
    }

    fn hand_over(&self, batch: Batch, rescued: Option<Rescued>) {
        // A message that was sent elsewhere by hand just now may have no lane here. It is not held,
        // so that its claim is given up once the others are settled.
        let is_routed = |alike: &&[Taken]| {
            alike.first().is_some_and(|one| self.shared.lane(&one.message.integration).is_some())
        };
        // Neighbours are mostly of one integration, which is looked up once.
        let alike = batch.messages.chunk_by(|a, b| a.message.integration == b.message.integration);
        let routed: usize = alike.filter(is_routed).map(<[Taken]>::len).sum();
        if routed == 0 {
            return;
        }
        let claim = self.shared.claims.add(batch.token, routed);
        self.shared.tally.taken.fetch_add(batch.messages.len() as u64, Ordering::Relaxed);
        let mut by_lane: BTreeMap<&str, (Option<Arc<RescuedClaim>>, Vec<Work>)> = BTreeMap::new();
        let mut room: Option<&Arc<LaneRoom>> = None;
        for taken in batch.messages {
            let integration = &taken.message.integration;
            if room.is_none_or(|room| room.lane.integration != *integration) {
                room = self.shared.lane(integration);
            }
            let Some(room) = room else { continue };
            let (rescued, works) = by_lane
                .entry(&room.lane.integration)
                .or_insert_with(|| (rescued.map(|which| room.hold_rescued(which)), Vec::new()));
            works.push(Work {
                place: room.add(&taken.message, taken.rescues, rescued.clone()),
                message: taken.message,
                fault: taken.fault,
                claim: Arc::clone(&claim),
            });
        }
        for (integration, (_, works)) in by_lane {
            if let Some(door) = self.doors.get(integration) {
                // A lane ends only after the claimer.
                let _ = door.send(works);
            }
        }
    }

    async fn wait_for_room(&self) {
        let _ = tokio::time::timeout(ROOM_WAIT, self.shared.room_freed.notified()).await;
    }

    /// Waits for a signal, the poll, messages that were rescued, a retry that falls due, or room: in a
    /// lane that was full, or for the next rescued messages.
    async fn wait(&self, wake: &mut Option<Box<dyn Wake>>, hot: bool) {
        let poll = self.shared.settings.poll_interval;
        if hot {
            tokio::time::sleep(poll.min(Heat::LOOK)).await;
            return;
        }
        let until = self.shared.due.next_before(Instant::now() + poll);
        let for_room = self.shared.any_lane_full() || self.shared.expects_rescued();
        tokio::select! {
            biased;
            () = woken(wake) => {}
            () = self.shared.rescued.notified() => {}
            () = self.shared.room_freed.notified(), if for_room => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

/// What is asked for, and the room that is kept for it.
#[derive(Default)]
struct Wanted {
    quotas: Vec<Quota>,
    reservations: Vec<Reservation>,
    /// Some lane has no room now, and may have more to do.
    is_one_full: bool,
}

impl Wanted {
    fn add(&mut self, room: &LaneRoom, rows: usize, reservation: Reservation) {
        self.quotas.push(Quota { integration: room.lane.integration.clone(), rows });
        self.reservations.push(reservation);
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

/// Whether some lane got as much of what it asked for as it may, so that more may be waiting.
fn is_full<'a>(quotas: &[Quota], messages: impl Iterator<Item = &'a Taken>) -> bool {
    // Few keys for many messages: to compare names costs less than to hash them.
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for taken in messages {
        *counts.entry(&taken.message.integration).or_default() += 1;
    }
    quotas.iter().any(|quota| {
        let left =
            counts.get(quota.integration.as_str()).map(|count| quota.rows.saturating_sub(*count));
        left.is_some_and(|left| left < PARCEL_MESSAGES.min(quota.rows))
    })
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
