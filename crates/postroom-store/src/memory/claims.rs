//! Taking.
//!
//! A take serves its lanes one after the other. Of each it takes due deliveries for half of the room,
//! then parcels of fresh messages, then deliveries for what is left: neither keeps the other waiting.
//! Parcels are taken in order above the lane's mark, which moves; what committed late lies at or below
//! it, and is swept up where a take found less than it was asked for, and once a second in any case.
//! There is one lock here, so nobody waits for a lane, and a sweep looks from the lane's beginning: a
//! database has cursor rows to lock and a low-water mark for that.

use super::MemoryStore;
use super::content::read;
use super::flaw::Flaw;
use super::parcels::{AFTER_ALL, BEFORE_ALL, ParcelKey};
use super::settle;
use super::tables::{Claim, Cursor, Tables, is_open};
use crate::lost_group::{self, Lost};
use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{
    Batch, Claims, MessageId, Quota, Rescued, Settled, Settlement, StoreResult, Take, Taken, Token,
    Wake, clip_response,
};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// How often a lane is swept while every take is full.
const SWEEP_EVERY: TimeDelta = TimeDelta::seconds(1);

#[async_trait]
impl Claims for MemoryStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        tables.follow_edits(Some(take.quotas), now);
        if take.for_queue {
            // What is in a queue is settled one by one, by whoever delivered it.
            tables.unpack_lanes(take.quotas);
        }
        let odd = tables.takes % 2;
        tables.takes += 1;
        let mut taking = Taking::new(&mut tables, take, now);
        for quota in lanes_once(take.quotas) {
            taking.quota = quota.rows;
            if !take.for_queue {
                // Of an odd number the larger half every other time.
                taking.take_deliveries(&quota.integration, quota.rows.saturating_add(odd) / 2)?;
                taking.take_parcels(&quota.integration)?;
            }
            taking.take_deliveries(&quota.integration, usize::MAX)?;
        }
        Ok(taking.batches())
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        let now = self.clock.now();
        let mut tables = self.lock();
        let mut batches = Vec::new();
        let mut left = take.rows;
        for quota in take.quotas {
            let mut due = Vec::new();
            for id in tables.due(&quota.integration, now, true, quota.rows) {
                let Some(delivery) = tables.deliveries.get(&id) else { continue };
                let Some(row) = tables.row(&id) else { continue };
                due.push(read(row, Some(delivery), take));
            }
            lost_group::keep(&mut due, take, quota, which, &mut left, |taken| Lost {
                rescues: taken.rescues,
                bytes: taken.message.weight(),
            });
            if !due.is_empty() {
                let token = tables.claim(take, now, which == Rescued::Alone)?;
                for taken in &due {
                    tables.hold(&taken.message.id, token);
                }
                batches.push(Batch { token, messages: due });
            }
        }
        Ok(batches)
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        settle::settle(self, settlements)
    }

    async fn keep_responses(&self, responses: &[(MessageId, String)]) -> StoreResult<()> {
        let mut tables = self.lock();
        for (id, response) in responses {
            let Some(seq) = tables.seq_of(id) else { continue };
            let latest = tables.attempts.get_mut(&seq).and_then(|attempts| attempts.last_mut());
            if let Some(latest) = latest.filter(|latest| latest.response.is_none()) {
                latest.response = Some(clip_response(response));
            }
        }
        Ok(())
    }

    async fn wake(&self) -> Option<Box<dyn Wake>> {
        Some(self.written.wake())
    }
}

/// Each lane once, where it was first asked for: one may be asked for twice.
fn lanes_once(quotas: &[Quota]) -> Vec<Quota> {
    let mut lanes: Vec<Quota> = Vec::new();
    for quota in quotas {
        match lanes.iter_mut().find(|lane| lane.integration == quota.integration) {
            Some(lane) => lane.rows = lane.rows.max(quota.rows),
            None => lanes.push(quota.clone()),
        }
    }
    lanes
}

/// A take that is under way, and what is left of its limits.
struct Taking<'a> {
    tables: &'a mut Tables,
    take: &'a Take<'a>,
    now: DateTime<Utc>,
    /// Of the lane that is served.
    quota: usize,
    rows: usize,
    bytes: usize,
    /// The limit in bytes is reached: what comes behind it waits for the next take.
    is_full: bool,
    /// One claim for all deliveries, and one for all parcels.
    due: Option<Batch>,
    fresh: Option<Batch>,
}

impl<'a> Taking<'a> {
    fn new(tables: &'a mut Tables, take: &'a Take<'a>, now: DateTime<Utc>) -> Self {
        let (rows, bytes) = (take.rows, take.bytes);
        let (due, fresh) = (None, None);
        Self { tables, take, now, quota: 0, rows, bytes, is_full: false, due, fresh }
    }

    /// Takes due deliveries of a lane, message by message.
    fn take_deliveries(&mut self, lane: &str, most: usize) -> StoreResult<()> {
        let most = self.room().min(most);
        for id in self.tables.due(lane, self.now, false, most) {
            let Some(row) = self.tables.row(&id) else { continue };
            let taken = read(row, self.tables.deliveries.get(&id), self.take);
            let bytes = taken.message.weight();
            if !self.fits(1, bytes) {
                self.is_full = true;
                return Ok(());
            }
            if self.due.is_none() {
                let token = self.tables.claim(self.take, self.now, false)?;
                self.due = Some(Batch { token, messages: Vec::new() });
            }
            if let Some(batch) = &mut self.due {
                self.tables.hold(&id, batch.token);
                batch.messages.push(taken);
            }
            self.use_up(1, bytes);
        }
        Ok(())
    }

    /// Takes parcels of a lane that fit whole, in order.
    fn take_parcels(&mut self, lane: &str) -> StoreResult<()> {
        let beginning = Cursor { mark: 0, swept_at: self.now };
        let cursor = *self.tables.cursors.entry(lane.to_owned()).or_insert(beginning);
        let is_time = self.now - cursor.swept_at >= SWEEP_EVERY;
        if is_time {
            self.sweep(lane, cursor.mark)?;
        }
        // No claim names what is above the mark.
        self.take_in_order(lane, (cursor.mark, AFTER_ALL), &HashSet::new())?;
        if !is_time && self.room() > 0 {
            self.sweep(lane, cursor.mark)?;
        }
        Ok(())
    }

    /// Takes parcels at or below the mark that no claim names: what committed after younger ones were
    /// taken.
    fn sweep(&mut self, lane: &str, mark: i64) -> StoreResult<()> {
        if let Some(cursor) = self.tables.cursors.get_mut(lane) {
            cursor.swept_at = self.now;
        }
        let claimed = match self.tables.flaw {
            Some(Flaw::SweepIgnoresClaims) => HashSet::new(),
            Some(Flaw::SettlesWithoutFence) | None => self.tables.claimed_in(lane),
        };
        self.take_in_order(lane, (BEFORE_ALL, mark), &claimed)
    }

    /// Takes the parcels of a lane after one number and up to another, except those that are claimed,
    /// until one does not fit.
    fn take_in_order(
        &mut self,
        lane: &str,
        (mut last, up_to): (i64, i64),
        claimed: &HashSet<i64>,
    ) -> StoreResult<()> {
        let mut is_first = true;
        while self.room() > 0
            && let Some(number) = self.tables.parcels.next(lane, last, up_to)
        {
            last = number;
            if claimed.contains(&number) {
                continue;
            }
            let key = (lane.to_owned(), number);
            let fresh = self.tables.deliverable(&key, self.now);
            if fresh.is_empty() {
                // Nobody is to have it: what it names is closed, gone, due later or elsewhere.
                self.tables.unpack(&key);
                continue;
            }
            let rows = fresh.iter().filter_map(|id| self.tables.row(id));
            let messages: Vec<Taken> = rows.map(|row| read(row, None, self.take)).collect();
            let bytes = messages.iter().map(|taken| taken.message.weight()).sum();
            if !self.fits(fresh.len(), bytes) {
                if fresh.len() == 1 {
                    self.is_full = true;
                } else if is_first {
                    // It has more messages than there is room for: it might never be taken whole.
                    self.tables.unpack(&key);
                }
                return Ok(());
            }
            self.take_parcel(key, &fresh, messages)?;
            self.use_up(fresh.len(), bytes);
            is_first = false;
        }
        Ok(())
    }

    /// Takes a parcel, of which these messages are to be delivered.
    fn take_parcel(
        &mut self,
        key: ParcelKey,
        fresh: &[MessageId],
        messages: Vec<Taken>,
    ) -> StoreResult<()> {
        if self.fresh.is_none() {
            let token = self.tables.claim(self.take, self.now, false)?;
            self.fresh = Some(Batch { token, messages: Vec::new() });
        }
        let Some(batch) = &mut self.fresh else { return Ok(()) };
        batch.messages.extend(messages);
        let token = batch.token;
        self.tables.set_aside(&key, fresh, token);
        if let Some(cursor) = self.tables.cursors.get_mut(&key.0) {
            cursor.mark = cursor.mark.max(key.1);
        }
        if let Some(claim) = self.tables.claims.get_mut(&token) {
            claim.parcels.insert(key);
        }
        Ok(())
    }

    /// How many messages the lane may still give.
    fn room(&self) -> usize {
        if self.is_full { 0 } else { self.quota.min(self.rows) }
    }

    fn fits(&self, messages: usize, bytes: usize) -> bool {
        let is_first = messages == 1 && self.due.is_none() && self.fresh.is_none();
        messages <= self.room() && (bytes <= self.bytes || is_first)
    }

    fn use_up(&mut self, messages: usize, bytes: usize) {
        self.quota -= messages;
        self.rows -= messages;
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn batches(self) -> Vec<Batch> {
        let by_due = |mut batch: Batch| {
            batch.messages.sort_unstable_by_key(|one| (one.message.due_at, one.message.seq));
            batch
        };
        self.due.into_iter().chain(self.fresh).map(by_due).collect()
    }
}

impl Tables {
    /// Up to `rows` messages that are due in one lane, by due time. Forgets deliveries that it
    /// meets whose message was deleted, or settled by hand while it was claimed.
    fn due(
        &mut self,
        lane: &str,
        now: DateTime<Utc>,
        rescued: bool,
        rows: usize,
    ) -> Vec<MessageId> {
        let mut due = Vec::new();
        let mut closed = Vec::new();
        for (_, id) in self.deliveries.due(lane, now, rescued) {
            if due.len() >= rows {
                break;
            }
            let is_deliverable = self.row(id).is_some_and(|row| row.is_deliverable());
            let found = if is_deliverable { &mut due } else { &mut closed };
            found.push(id.clone());
        }
        for id in closed {
            match self.row(&id).filter(|row| is_open(&row.status)).cloned() {
                // Dead by hand.
                Some(row) => {
                    if let Some(mut delivery) = self.deliveries.get_mut(&id) {
                        delivery.follow(&row);
                    }
                }
                None => self.deliveries.remove(&id),
            }
        }
        due
    }

    /// A new claim that holds nothing yet. A relay without a living row gets none: such a claim would
    /// be anybody's at once.
    fn claim(&mut self, take: &Take<'_>, now: DateTime<Utc>, alone: bool) -> StoreResult<Token> {
        self.check_alive(take.relay, now)?;
        let token = self.fresh_token();
        let claim = Claim {
            worker: take.worker.to_owned(),
            since: now,
            relay: take.relay,
            alone,
            dispatched: take.for_queue,
            parcels: BTreeSet::new(),
        };
        self.claims.insert(token, claim);
        Ok(token)
    }

    fn hold(&mut self, id: &MessageId, token: Token) {
        if let Some(mut delivery) = self.deliveries.get_mut(id) {
            delivery.claim = Some(token);
        }
    }
}

/// A moment later; the end of time when that is beyond it.
pub(super) fn after(now: DateTime<Utc>, wait: Duration) -> DateTime<Utc> {
    TimeDelta::from_std(wait)
        .ok()
        .and_then(|wait| now.checked_add_signed(wait))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}
