//! Settling: fenced by a claim's token or a dispatch's number, whole or not at all.

use super::claims::after;
use super::feed;
use super::flaw::Flaw;
use super::parcels::ParcelKey;
use super::tables::{ATTEMPTS_MAX, Delivery, Row, Tables, is_open};
use super::{History, MemoryStore};
use chrono::{DateTime, Utc};
use postroom_core::{
    AttemptOutcome, Fate, Fence, MessageId, Settled, Settlement, StoreResult, Token, Tried,
    Verdict, clip_error,
};

pub(super) fn settle(store: &MemoryStore, settlements: &[Settlement]) -> StoreResult<Settled> {
    let now = store.clock.now();
    let mut tables = store.lock();
    let mut settled = Settled::default();
    for settlement in settlements {
        // What could be refused is looked at first, so that nothing has to be undone.
        for verdict in &settlement.verdicts {
            if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate {
                tables.refuse_open_fence(&feed::message(announcement, now)?)?;
            }
        }
        for verdict in &settlement.verdicts {
            if !tables.apply(verdict, settlement.fence, now, &store.history)? {
                settled.late.push(verdict.seq);
            }
        }
        if let Fence::Claim(token) = settlement.fence
            && settlement.finished
        {
            tables.end(token);
        }
    }
    store.written.signal();
    Ok(settled)
}

impl Delivery {
    fn is_let_through(&self, fence: Fence) -> bool {
        match fence {
            Fence::Claim(token) => self.claim == Some(token),
            Fence::Dispatch { number, .. } => {
                self.dispatch.checked_add(1) == Some(number) && !self.dead
            }
        }
    }
}

impl Tables {
    /// Follows a verdict; false when it came too late.
    fn apply(
        &mut self,
        verdict: &Verdict,
        fence: Fence,
        now: DateTime<Utc>,
        history: &History,
    ) -> StoreResult<bool> {
        let (id, token) = (&verdict.id, fence.token());
        if !self.lets_through(id, fence, now) {
            // A settlement whose outcome was unknown is repeated: its word stands already.
            return Ok(self.row(id).is_some_and(|row| row.settled == Some(token)));
        }
        match &verdict.fate {
            Fate::Sent => self.sent(id, token, now, history),
            Fate::Failed { delay, error, took } => {
                let tried = Tried { outcome: AttemptOutcome::Retry, took: *took };
                self.failed(id, fence, Some(after(now, *delay)), error, Some(tried), now);
            }
            Fate::Dead { error, tried, announcement } => {
                self.failed(id, fence, None, error, *tried, now);
                if let Some(announcement) = announcement {
                    self.enqueue(std::slice::from_ref(announcement), now)?;
                }
            }
            Fate::Released => self.give_back(id, fence, None, now),
            Fate::Postponed { delay } => {
                self.give_back(id, fence, Some(after(now, *delay)), now);
            }
        }
        Ok(true)
    }

    /// Whether a verdict counts. What is settled out of a parcel has its delivery from here on, which is
    /// held under the claim and says what the parcel said.
    fn lets_through(&mut self, id: &MessageId, fence: Fence, now: DateTime<Utc>) -> bool {
        let is_unfenced = self.flaw == Some(Flaw::SettlesWithoutFence);
        if let Some(delivery) = self.deliveries.get(id) {
            return is_unfenced || delivery.is_let_through(fence);
        }
        let Fence::Claim(token) = fence else { return false };
        let Some(row) = self.row(id) else { return false };
        let names = |key: &&ParcelKey| {
            self.claims.get(&token).is_some_and(|claim| claim.parcels.contains(key))
        };
        let parcel = self.parcels.naming(id).iter().find(names);
        let lane = match parcel.filter(|_| self.is_in_hand(row)) {
            Some((lane, _)) => lane.clone(),
            None if is_unfenced && is_open(&row.status) => row.message.integration.clone(),
            None => return false,
        };
        let said = Delivery {
            claim: Some(token),
            integration: lane,
            // It was due when it was taken.
            due_at: row.message.due_at.min(now),
            failed: false,
            dead: false,
            ..Delivery::of(row)
        };
        self.deliveries.insert(id.clone(), said);
        true
    }

    fn sent(&mut self, id: &MessageId, token: Token, now: DateTime<Utc>, history: &History) {
        self.deliveries.remove(id);
        if !history.keep_sent {
            if let Some(row) = self.row_mut(id) {
                row.sent_at = Some(now);
                let seq = row.message.seq;
                self.prune(seq, history.remember_events);
            }
        } else if let Some(row) = self.row_mut(id) {
            row.status = "SENT".to_owned();
            row.sent_at = Some(now);
            row.updated_at = now;
            row.settled = Some(token);
        }
    }

    /// Due again, or dead. One that was sent elsewhere by hand during the attempt goes on there.
    fn failed(
        &mut self,
        id: &MessageId,
        fence: Fence,
        due_again: Option<DateTime<Utc>>,
        error: &str,
        tried: Option<Tried>,
        now: DateTime<Utc>,
    ) {
        let Some(mut row) = self.row(id).cloned() else {
            // Deleted during the attempt.
            return self.deliveries.remove(id);
        };
        row.status = if due_again.is_some() { "FAILED" } else { "DEAD" }.to_owned();
        row.message.attempts = counted(row.message.attempts, fence, tried.is_some());
        row.message.due_at = due_again.unwrap_or(row.message.due_at);
        row.last_error = Some(clip_error(error));
        row.updated_at = now;
        row.settled = Some(fence.token());
        self.free(id, fence, &row);
        if let Some(mut delivery) = self.deliveries.get_mut(id) {
            delivery.rescues = 0;
        }
        let seq = row.message.seq;
        self.messages.insert(seq, row);
        if let Some(tried) = tried {
            self.note(seq, tried, error, now);
        }
    }

    /// Back to its lane as it says by now; due later where nobody has changed it meanwhile.
    fn give_back(
        &mut self,
        id: &MessageId,
        fence: Fence,
        put_off: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) {
        let Some(mut row) = self.row(id).cloned() else { return self.deliveries.remove(id) };
        if !is_open(&row.status) {
            return self.close(id, fence);
        }
        let is_as_taken = self.deliveries.get(id).is_some_and(|delivery| delivery.agrees(&row));
        if let Some(mut delivery) = self.deliveries.get_mut(id)
            && delivery.due_at != row.message.due_at
        {
            delivery.since = row.message.due_at;
        }
        if let Some(due_at) = put_off.filter(|_| row.is_deliverable() && is_as_taken) {
            row.message.due_at = due_at;
            row.updated_at = now;
            row.settled = Some(self.fresh_token());
            if let Some(mut delivery) = self.deliveries.get_mut(id) {
                delivery.since = due_at;
            }
        }
        self.free(id, fence, &row);
        self.messages.insert(row.message.seq, row);
    }

    /// Of a message that was closed by hand meanwhile, the delivery goes.
    fn close(&mut self, id: &MessageId, fence: Fence) {
        match fence {
            Fence::Claim(_) => self.deliveries.remove(id),
            // The end of the dispatch is still to be known: what takes it next finds it closed.
            Fence::Dispatch { .. } => {
                if let Some(mut delivery) = self.deliveries.get_mut(id) {
                    delivery.claim = None;
                    delivery.dispatch = delivery.dispatch.saturating_add(1);
                }
            }
        }
    }

    /// Nobody holds the delivery any more, and it says what the message says.
    fn free(&mut self, id: &MessageId, fence: Fence, row: &Row) {
        if let Some(mut delivery) = self.deliveries.get_mut(id) {
            delivery.claim = None;
            let is_over = matches!(fence, Fence::Dispatch { .. });
            delivery.dispatch = delivery.dispatch.saturating_add(u32::from(is_over));
            delivery.follow(row);
        }
    }

    /// Ends a claim of which nothing is left, with its parcels. One that holds something stays,
    /// whatever its relay thinks: part of its batch may be recorded beside this, or could not be.
    fn end(&mut self, token: Token) {
        let Some(claim) = self.claims.get(&token) else { return };
        let mut named = claim.parcels.iter().filter_map(|key| self.parcels.get(key)).flatten();
        let is_left = |id: &MessageId| {
            !self.deliveries.contains(id) && self.row(id).is_some_and(|row| row.is_deliverable())
        };
        if named.any(is_left) || self.deliveries.held_under(token).next().is_some() {
            return;
        }
        for key in self.claims.remove(&token).into_iter().flat_map(|claim| claim.parcels) {
            self.parcels.remove(&key);
        }
    }
}

/// How many attempts have failed once this outcome is recorded.
fn counted(attempts: u32, fence: Fence, is_tried: bool) -> u32 {
    let counted = match fence {
        Fence::Dispatch { failed_before: Some(before), .. } => {
            attempts.max(before.saturating_add(u32::from(is_tried)))
        }
        Fence::Claim(_) | Fence::Dispatch { .. } => attempts.saturating_add(u32::from(is_tried)),
    };
    counted.min(ATTEMPTS_MAX)
}
