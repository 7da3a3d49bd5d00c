//! The rules of claims: who holds what, and whose word counts.

use super::{Books, Claim, Known, Said, State};
use chrono::{DateTime, TimeDelta, Utc};
use postroom_core::{
    Batch, Fate, Heartbeat, Record, RelayId, Rescued, Settled, Settlement, Status, Take, Token,
    Verdict, rows_after,
};
use std::collections::BTreeSet;

impl Books {
    /// The store gave out a batch, whether or not its relay learns of it.
    pub(in super::super) fn taken(
        &self,
        relay: usize,
        batch: &Batch,
        take: &Take<'_>,
        of: Option<Rescued>,
        now: DateTime<Utc>,
    ) {
        let state = &mut *self.state();
        let claim = Claim {
            relay,
            row: take.relay,
            since: now,
            given_up: false,
            of,
            refused: false,
            rescued: false,
            present: true,
            told_lost: false,
            applied: BTreeSet::new(),
        };
        if state.claims.insert(batch.token, claim).is_some() {
            state.violation("a token was given out twice".to_owned());
        }
        if !state.lives(take.relay, now) {
            state.violation(format!("relay {relay} took without a living row"));
        }
        for taken in &batch.messages {
            let seq = taken.message.seq;
            state.meet(&taken.message);
            state.note("taken", Some(relay), Some(batch.token), Some(seq));
            let Some(known) = state.messages.get_mut(&seq) else { continue };
            let quota = take.quotas.iter().find(|one| one.integration == known.integration);
            let together = rows_after(taken.rescues, quota.map_or(0, |quota| quota.rows));
            let is_of_its_kind = match of {
                None => known.rescues == 0,
                Some(Rescued::Together) => known.rescues > 0 && together > 1,
                Some(Rescued::Alone) => known.rescues > 0 && together == 1,
            };
            let open = matches!(known.status, Status::Pending | Status::Failed);
            let is_right = open
                && known.holder.is_none()
                && taken.message.due_at <= now
                && (taken.rescues, taken.message.attempts) == (known.rescues, known.attempts)
                && is_of_its_kind
                && (of.is_none() || batch.messages.len() <= together);
            known.holder = Some(batch.token);
            if !is_right {
                let status = known.status;
                state.violation(format!("relay {relay} took message {seq}, which is {status}"));
            }
        }
    }

    /// The store acknowledged a heartbeat, whether or not its relay learns of it.
    pub(in super::super) fn beaten(
        &self,
        relay: usize,
        beat: &Heartbeat<'_>,
        lost: &[Token],
        now: DateTime<Utc>,
    ) {
        let state = &mut *self.state();
        let claim_time = TimeDelta::from_std(beat.claim_time).unwrap();
        state.rows.insert(beat.relay, now + claim_time);
        let (mut notes, mut wrong) = (Vec::new(), Vec::new());
        for (token, claim) in &mut state.claims {
            let is_there = claim.present && !claim.given_up && claim.row == beat.relay;
            let is_held = beat.held.contains(token);
            if is_held && is_there == lost.contains(token) {
                wrong.push(format!("{token:?} is lost or not, and the store says otherwise"));
            }
            if is_there && !is_held && claim.since + claim_time < now {
                claim.given_up = true;
                notes.push(*token);
            }
        }
        for token in notes {
            state.note("given up", Some(relay), Some(token), None);
        }
        for wrong in wrong {
            state.violation(wrong);
        }
    }

    /// The store deleted a relay's row.
    pub(in super::super) fn left(&self, relay: usize, row: RelayId) {
        let state = &mut *self.state();
        state.rows.remove(&row);
        state.note("left", Some(relay), None, None);
    }

    /// A relay learnt that it has lost claims.
    pub(in super::super) fn told_lost(&self, relay: usize, lost: &[Token]) {
        let state = &mut *self.state();
        for token in lost {
            if let Some(claim) =
                state.claims.get_mut(token).filter(|claim| claim.rescued || claim.given_up)
            {
                claim.told_lost = true;
                state.note("told lost", Some(relay), Some(*token), None);
            }
        }
    }

    /// The store freed what expired claims held.
    pub(in super::super) fn rescued(
        &self,
        relay: usize,
        row: RelayId,
        freed: u64,
        now: DateTime<Utc>,
    ) {
        let state = &mut *self.state();
        let mut expected = 0;
        let (mut notes, mut wrong) = (Vec::new(), Vec::new());
        let rows = &state.rows;
        for (token, claim) in &mut state.claims {
            let is_kept =
                !claim.given_up && rows.get(&claim.row).is_some_and(|until| *until >= now);
            // Its own are left to the relay that asks, unless it has given them up.
            let is_own = claim.row == row && !claim.given_up;
            if !claim.present || is_kept || is_own {
                continue;
            }
            (claim.present, claim.rescued) = (false, true);
            // Nobody has tried what was given up: it counts for nothing.
            let alone = claim.of == Some(Rescued::Alone) && !claim.given_up;
            for (seq, known) in &mut state.messages {
                if known.holder != Some(*token) {
                    continue;
                }
                let knows = known.tries.iter().any(|one| {
                    one.token == *token && one.said.is_some_and(|said| said != Said::Nothing)
                });
                if claim.relay == relay && knows && !claim.refused {
                    wrong.push(format!(
                        "relay {relay} rescued message {seq}, and had its outcome in hand"
                    ));
                }
                expected += 1;
                known.holder = None;
                known.rescues += u32::from(!claim.given_up);
                if alone {
                    known.attempts += 1;
                    known.status = Status::Failed;
                }
                notes.push((if alone { "lost alone" } else { "rescued" }, *token, *seq));
            }
        }
        for (what, token, seq) in notes {
            state.note(what, Some(relay), Some(token), Some(seq));
        }
        for wrong in wrong {
            state.violation(wrong);
        }
        if freed != expected {
            state.violation(format!("a rescue freed {freed} messages instead of {expected}"));
        }
    }

    /// The database refused settlements: their claims expire.
    pub(in super::super) fn refused(&self, settlements: &[Settlement]) {
        let state = &mut *self.state();
        for settlement in settlements {
            if let Some(claim) = state.claims.get_mut(&settlement.fence.token()) {
                claim.refused = true;
            }
        }
    }

    /// The store recorded settlements; `records` show what it made of each message.
    pub(in super::super) fn settled(
        &self,
        relay: usize,
        settlements: &[Settlement],
        settled: &Settled,
        records: &[Record],
    ) {
        let state = &mut *self.state();
        let verdicts = || settlements.iter().flat_map(|settlement| &settlement.verdicts);
        for settlement in settlements {
            let token = settlement.fence.token();
            for verdict in &settlement.verdicts {
                // The answer names messages, not claims: where a relay lost a message and took it
                // again, and settles both at once, it does not say which word was late.
                let is_clear = verdicts().filter(|other| other.seq == verdict.seq).count() == 1;
                let is_late = is_clear.then(|| settled.late.contains(&verdict.seq));
                state.apply(relay, token, verdict, is_late);
            }
            let is_held = state.messages.values().any(|known| known.holder == Some(token));
            if let Some(claim) = state.claims.get_mut(&token)
                && settlement.finished
                && !is_held
            {
                claim.present = false;
            }
        }
        for record in records {
            state.compare(record);
        }
    }
}

impl State {
    fn lives(&self, row: RelayId, now: DateTime<Utc>) -> bool {
        self.rows.get(&row).is_some_and(|until| *until >= now)
    }

    /// Only the holder's word counts, and only once.
    fn apply(&mut self, relay: usize, token: Token, verdict: &Verdict, is_late: Option<bool>) {
        let seq = verdict.seq;
        let (Some(known), Some(claim)) = (self.messages.get_mut(&seq), self.claims.get_mut(&token))
        else {
            return self.violation(format!("a verdict on message {seq} under an unknown claim"));
        };
        if known.holder != Some(token) {
            let repeats = claim.applied.contains(&seq);
            self.note(
                if repeats { "repeats" } else { "late" },
                Some(relay),
                Some(token),
                Some(seq),
            );
            if is_late == Some(false) && !repeats {
                self.violation(format!(
                    "relay {relay} had lost message {seq}, and its word was taken all the same"
                ));
            }
            return;
        }
        claim.applied.insert(seq);
        let accepted = self.accepted.get(&(relay, known.integration.clone())).copied();
        let refused = known.refused.get(&relay).copied();
        let others_accepted = refused.is_some_and(|at| accepted.is_some_and(|last| last >= at));
        let why = known.judge(token, &verdict.fate, others_accepted);
        let what = match &verdict.fate {
            Fate::Sent => "sent",
            Fate::Failed { .. } => "failed",
            Fate::Dead { .. } => "dead",
            Fate::Released => "released",
            Fate::Postponed { .. } => "postponed",
        };
        self.note(what, Some(relay), Some(token), Some(seq));
        if let Err(why) = why {
            self.violation(format!("relay {relay} settled message {seq} as {what}: {why}"));
        }
        if is_late == Some(true) {
            self.violation(format!("relay {relay} held message {seq}, and its word was refused"));
        }
    }
}

impl Known {
    /// Follows a verdict, and says what is wrong with it.
    /// A refusal is a failed attempt only where others were accepted after it.
    fn judge(&mut self, token: Token, fate: &Fate, others_accepted: bool) -> Result<(), String> {
        self.holder = None;
        let said = self.tries.iter().rev().find(|one| one.token == token).map(|one| one.said);
        let has_failed = match said.flatten() {
            Some(Said::Retry | Said::Nothing) => true,
            Some(Said::Refuse) => others_accepted,
            Some(Said::Delivered | Said::Reject) | None => false,
        };
        let exhausted = |attempts: u32| attempts >= self.max_attempts;
        let attempts = self.attempts;
        let (status, tried, is_right) = match fate {
            Fate::Sent => (Status::Sent, 0, said == Some(Some(Said::Delivered))),
            Fate::Failed { .. } => (Status::Failed, 1, has_failed && !exhausted(attempts + 1)),
            Fate::Dead { tried: None, .. } => {
                (Status::Dead, 0, said.is_none() && self.rescues > 1 && exhausted(attempts))
            }
            Fate::Dead { tried: Some(_), .. } => {
                let is_final = said == Some(Some(Said::Reject));
                (Status::Dead, 1, is_final || (has_failed && exhausted(attempts + 1)))
            }
            Fate::Released | Fate::Postponed { .. } => {
                (self.status, 0, !matches!(said, Some(Some(Said::Delivered | Said::Reject))))
            }
        };
        if !matches!(fate, Fate::Released | Fate::Postponed { .. }) {
            (self.rescues, self.kills) = (0, 0);
        }
        self.status = status;
        self.attempts += tried;
        let max = self.max_attempts;
        is_right.then_some(()).ok_or_else(|| {
            format!("after {attempts} of {max} attempts, and the last said {said:?}")
        })
    }
}
