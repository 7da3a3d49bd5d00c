//! The rules of delivery: who may try a message, and when.

use super::{Books, Said, Try};
use postroom_core::{Message, Rescued, Token};
use tokio::time::Instant;

impl Books {
    /// A relay begins to deliver a message that it took under `token`.
    pub(in super::super) fn begins(&self, relay: usize, token: Token, message: &Message) -> usize {
        let state = &mut *self.state();
        let seq = message.seq;
        state.note("begins", Some(relay), Some(token), Some(seq));
        let (Some(known), Some(claim)) = (state.messages.get(&seq), state.claims.get(&token))
        else {
            state.violation(format!("relay {relay} delivers message {seq}, which nobody took"));
            return 0;
        };
        let mut wrong = None;
        if claim.told_lost {
            wrong = Some("knows that its claim on it is lost");
        }
        for one in &known.tries {
            // A relay may not know yet that its claim was rescued: that explains both a second
            // try and one at the same time, whichever of the two it is.
            let theirs = state.claims.get(&one.token).is_some_and(|claim| claim.rescued);
            let explained = theirs || claim.rescued;
            wrong = match one.said {
                _ if one.token == token => Some("has tried it under this claim already"),
                None if !explained => Some("is not the only one that delivers it"),
                Some(Said::Delivered | Said::Reject) if !explained => Some("delivers it once more"),
                _ => wrong,
            };
        }
        // A message that is handled alone has nothing rescued beside it.
        let beside = state.messages.values().flat_map(|known| &known.tries).filter(|one| {
            one.said.is_none()
                && one.token != token
                && state.claims.get(&one.token).is_some_and(|other| {
                    let alone = [claim.of, other.of].contains(&Some(Rescued::Alone));
                    alone && other.relay == relay && claim.of.is_some() && other.of.is_some()
                })
        });
        if beside.count() > 0 {
            wrong = Some("one of those that were rescued is to be handled alone");
        }
        let ordinal = known.tries.len();
        if let Some(known) = state.messages.get_mut(&seq) {
            known.tries.push(Try { token, said: None });
        }
        if let Some(wrong) = wrong {
            state.violation(format!("relay {relay} delivers message {seq}, and {wrong}"));
        }
        ordinal
    }

    /// A try at a message ended. Only the first word counts.
    pub(in super::super) fn said(&self, relay: usize, token: Token, seq: i64, said: Said) {
        let state = &mut *self.state();
        let open = state
            .messages
            .get_mut(&seq)
            .and_then(|known| known.tries.iter_mut().rev().find(|one| one.token == token))
            .filter(|one| one.said.is_none());
        if let Some(one) = open {
            one.said = Some(said);
            let now = Instant::now();
            match (said, state.messages.get_mut(&seq)) {
                (Said::Delivered, Some(known)) => {
                    state.accepted.insert((relay, known.integration.clone()), now);
                }
                (Said::Refuse, Some(known)) => {
                    known.refused.entry(relay).or_insert(now);
                }
                _ => {}
            }
            let what = match said {
                Said::Delivered => "accepts",
                Said::Retry => "fails",
                Said::Reject => "rejects",
                Said::Refuse => "refuses",
                Said::Nothing => "says nothing",
            };
            state.note(what, Some(relay), Some(token), Some(seq));
        }
    }

    /// A message kills the relay that delivers it. Its claims are halved until it is alone, and then
    /// each death is an attempt; nobody else loses one. That something fresh kills the relay beside
    /// a message that is handled alone is two faults at once: lanes do not wait for each other.
    pub(in super::super) fn kills(&self, relay: usize, token: Token, seq: i64) {
        let state = &mut *self.state();
        state.note("kills", Some(relay), Some(token), Some(seq));
        let halvings = state.batch_max.ilog2().max(1);
        let Some(known) = state.messages.get_mut(&seq) else { return };
        known.kills += 1;
        let (kills, most) = (known.kills, halvings + known.max_attempts);
        if kills > most {
            state.violation(format!("message {seq} has killed {kills} relays of {most} at most"));
        }
        let is_alone = |token| {
            let claim = state.claims.get(token);
            claim.is_some_and(|one| one.relay == relay && one.of == Some(Rescued::Alone))
        };
        let charged: Vec<i64> = state
            .messages
            .iter()
            .filter(|(other, _)| **other != seq)
            .filter(|(_, known)| {
                known.tries.iter().any(|one| one.said.is_none() && is_alone(&one.token))
            })
            .map(|(other, _)| *other)
            .collect();
        let is_fresh = state.claims.get(&token).is_some_and(|claim| claim.of.is_none());
        if !charged.is_empty() && !is_fresh {
            state.violation(format!(
                "message {seq} kills a relay, and {charged:?} would be charged"
            ));
        }
    }

    /// The destination did the work.
    pub(in super::super) fn worked(&self, seq: i64) {
        let state = &mut *self.state();
        let Some(known) = state.messages.get_mut(&seq) else { return };
        known.deliveries += 1;
        if known.deliveries > 1 {
            state.note("duplicate", None, None, Some(seq));
        }
    }
}
