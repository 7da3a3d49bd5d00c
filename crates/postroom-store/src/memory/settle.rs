//! Settling: fenced by a claim's token or a dispatch's number, whole or not at all.

use super::MemoryStore;
use super::claims::after;
use super::tables::{ATTEMPTS_MAX, Delivery, Tables};
use chrono::{DateTime, Utc};
use postroom_core::{
    AttemptOutcome, Fate, Fence, Limits, Settled, Settlement, StoreResult, Tried, Verdict,
    clip_error,
};

pub(super) fn settle(store: &MemoryStore, settlements: &[Settlement]) -> StoreResult<Settled> {
    let now = store.clock.now();
    let mut tables = store.lock();
    let mut settled = Settled::default();
    for settlement in settlements {
        // What could be refused is looked at first, so that nothing has to be undone.
        for verdict in &settlement.verdicts {
            if let Fate::Dead { announcement: Some(announcement), .. } = &verdict.fate {
                announcement.validate(&Limits::default()).map_err(super::refused)?;
            }
        }
        for verdict in &settlement.verdicts {
            tables.apply(verdict, settlement.fence, now, store.keep_sent, &mut settled)?;
        }
        if let Fence::Claim(token) = settlement.fence
            && settlement.finished
            && tables.deliveries.held_under(token).next().is_none()
        {
            tables.claims.remove(&token);
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
    fn apply(
        &mut self,
        verdict: &Verdict,
        fence: Fence,
        now: DateTime<Utc>,
        keep_sent: bool,
        settled: &mut Settled,
    ) -> StoreResult<()> {
        let seq = verdict.seq;
        let token = fence.token();
        let row = self.messages.get_mut(&seq);
        let Some(mut delivery) =
            self.deliveries.get_mut(seq).filter(|delivery| delivery.is_let_through(fence))
        else {
            // A settlement whose outcome was unknown is repeated: its word stands already.
            if row.is_none_or(|row| row.settled != Some(token)) {
                settled.late.push(seq);
            }
            return Ok(());
        };
        delivery.claim = None;
        delivery.dispatch += u32::from(matches!(fence, Fence::Dispatch { .. }));
        match &verdict.fate {
            Fate::Sent => {
                drop(delivery);
                self.deliveries.remove(seq);
                if !keep_sent {
                    self.remove(seq);
                } else if let Some(row) = row {
                    row.status = "SENT".to_owned();
                    row.sent_at = Some(now);
                    row.updated_at = now;
                    row.settled = Some(token);
                }
            }
            Fate::Failed { delay, error, took } => {
                delivery.due_at = after(now, *delay);
                delivery.rescues = 0;
                delivery.failed = true;
                if let Some(row) = row {
                    row.status = "FAILED".to_owned();
                    row.message.attempts = counted(row.message.attempts, fence, true);
                    row.message.due_at = delivery.due_at;
                    row.last_error = Some(clip_error(error));
                    row.updated_at = now;
                    row.settled = Some(token);
                }
                drop(delivery);
                let tried = Tried { outcome: AttemptOutcome::Retry, took: *took };
                self.note(seq, tried, error, now);
            }
            Fate::Dead { error, tried, announcement } => {
                delivery.rescues = 0;
                delivery.failed = false;
                delivery.dead = true;
                if let Some(row) = row {
                    row.status = "DEAD".to_owned();
                    row.message.attempts = counted(row.message.attempts, fence, tried.is_some());
                    row.last_error = Some(clip_error(error));
                    row.updated_at = now;
                    row.settled = Some(token);
                }
                drop(delivery);
                if let Some(tried) = tried {
                    self.note(seq, *tried, error, now);
                }
                if let Some(announcement) = announcement {
                    self.enqueue(announcement, now)?;
                }
            }
            Fate::Released => {
                if let Some(row) = row {
                    delivery.follow(row);
                }
            }
            Fate::Postponed { delay } => {
                if let Some(row) = row {
                    if matches!(row.status.as_str(), "PENDING" | "FAILED") && delivery.agrees(row) {
                        row.message.due_at = after(now, *delay);
                        row.updated_at = now;
                    }
                    delivery.follow(row);
                }
            }
        }
        Ok(())
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
