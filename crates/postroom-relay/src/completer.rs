//! Records fates in batches: while one settlement is under way, the next gathers.

use crate::claim_registry::Claim;
use crate::lane::Work;
use crate::metrics::Phase;
use crate::polling::Backoff;
use crate::relay::Shared;
use crate::responses::keep_responses;
use crate::room::Place;
use crate::set_aside::SetAside;
use crate::stop::Stop;
use postroom_core::{
    Fate, Fence, MessageId, Settled, Settlement, StoreError, StoreErrorKind, Token, Verdict,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

/// After this many conflicts in a row it is no bad luck any more, nor after one that took so long:
/// another transaction holds a lock. [`set_aside`](crate::set_aside) deals with it.
const CONFLICTS_AT_ONCE: u32 = 5;
pub(crate) const CONFLICT_LONG: Duration = Duration::from_millis(500);
/// The most fates recorded in one transaction.
pub(crate) const SETTLE_MAX: usize = 5_000;

/// A message whose fate is decided and not yet recorded.
pub(crate) struct Completion {
    pub(crate) place: Place,
    pub(crate) claim: Arc<Claim>,
    pub(crate) seq: i64,
    pub(crate) id: MessageId,
    /// `None` when the claim was lost before anything began: there is nothing to record.
    pub(crate) fate: Option<Fate>,
    /// How often the database has refused to record it.
    pub(crate) refusals: u32,
}

impl Completion {
    pub(crate) fn of(work: Work, fate: Option<Fate>) -> Self {
        let Work { message, claim, place, .. } = work;
        Self { place, claim, seq: message.seq, id: message.id, fate, refusals: 0 }
    }
}

/// Where decided messages arrive; shared by the completers, of which one waits at a time.
pub(crate) type Inbox = Arc<Mutex<mpsc::UnboundedReceiver<Vec<Completion>>>>;

/// Runs until every lane has ended and everything decided is recorded, or set aside.
pub(crate) async fn run(shared: Arc<Shared>, inbox: Inbox, set_aside: SetAside, stop: Arc<Stop>) {
    while let Some(completions) = next(&inbox).await {
        let group = Group::gather(completions);
        match settle_with_retry(&shared, &group.settlements, &stop, Some(CONFLICTS_AT_ONCE)).await {
            None => group.give_up(&shared),
            Some(Ok(settled)) => set_aside.put(group.record(&shared, settled).await),
            // One bad row does not take others along, and one that somebody else has locked does
            // not hold up what comes after.
            Some(Err(_)) => set_aside.put(group.completions),
        }
    }
}

/// Waits for decided messages, and takes what else has arrived, up to one settlement's worth.
async fn next(inbox: &Inbox) -> Option<Vec<Completion>> {
    let mut inbox = inbox.lock().await;
    let mut completions = inbox.recv().await?;
    // Where outcomes come one by one, those whose turn is now are recorded together.
    tokio::task::yield_now().await;
    while completions.len() < SETTLE_MAX
        && let Ok(more) = inbox.try_recv()
    {
        completions.extend(more);
    }
    Some(completions)
}

/// Completions that are recorded together.
pub(crate) struct Group {
    pub(crate) completions: Vec<Completion>,
    pub(crate) settlements: Vec<Settlement>,
}

impl Group {
    pub(crate) fn gather(completions: Vec<Completion>) -> Self {
        let mut by_token: BTreeMap<Token, (&Claim, usize, Vec<Verdict>)> = BTreeMap::new();
        for completion in &completions {
            let (_, messages, verdicts) = by_token
                .entry(completion.claim.token)
                .or_insert_with(|| (&completion.claim, 0, Vec::new()));
            *messages += 1;
            if let Some(fate) = completion.fate.clone() {
                verdicts.push(Verdict { seq: completion.seq, id: completion.id.clone(), fate });
            }
        }
        let settlements = by_token
            .into_iter()
            .map(|(token, (claim, messages, verdicts))| Settlement {
                fence: Fence::Claim(token),
                verdicts,
                finished: claim.ends_with(messages),
            })
            .collect();
        Self { completions, settlements }
    }

    /// Counts what was settled, and returns what is left: outcomes of messages that somebody else
    /// has locked.
    #[must_use]
    pub(crate) async fn record(mut self, shared: &Shared, settled: Settled) -> Vec<Completion> {
        let responses = shared.responses.take(&self.settlements, &settled);
        let mut left = Vec::new();
        if !settled.locked.is_empty() {
            let locked: HashSet<i64> = settled.locked.into_iter().collect();
            (left, self.completions) =
                self.completions.into_iter().partition(|one| locked.contains(&one.seq));
        }
        let late: HashSet<i64> = settled.late.into_iter().collect();
        count(shared, &self.completions, &late);
        for completion in self.completions.iter().filter(|one| late.contains(&one.seq)) {
            completion.claim.was_late();
        }
        let unfinished = self.end(shared);
        end_claims(shared, &unfinished).await;
        keep_responses(&*shared.store, &responses).await;
        left
    }

    /// Makes room without any outcome on record: the claims expire, and the messages are delivered again.
    pub(crate) fn give_up(self, shared: &Shared) {
        self.completions.iter().for_each(|completion| completion.claim.leave());
        self.end(shared);
    }

    /// Makes room, and returns the claims of which nothing is left, and that no settlement has ended.
    fn end(self, shared: &Shared) -> Vec<Token> {
        let mut unfinished = Vec::new();
        for completion in &self.completions {
            if completion.refusals > 0 {
                let integration = &completion.place.room.lane.integration;
                shared.metrics.unrecorded(integration, -1);
            }
            // Extended until then, since another part of the batch may still be being recorded.
            if completion.claim.settled(1) {
                let token = completion.claim.token;
                shared.claims.remove(token);
                let ends = |one: &Settlement| one.finished && one.fence == Fence::Claim(token);
                if !completion.claim.is_left() && !self.settlements.iter().any(ends) {
                    unfinished.push(token);
                }
            }
        }
        shared.responses.forget(self.completions.iter().map(|completion| &completion.id));
        drop(self.completions);
        shared.room_freed.notify_one();
        unfinished
    }
}

/// Ends claims whose last parts were recorded at the same time, so that none of them knew that it was the last.
/// Otherwise they would name their messages until they are a claim time old.
async fn end_claims(shared: &Shared, tokens: &[Token]) {
    if tokens.is_empty() {
        return;
    }
    let end = |token: &Token| Settlement {
        fence: Fence::Claim(*token),
        verdicts: Vec::new(),
        finished: true,
    };
    let settlements: Vec<_> = tokens.iter().map(end).collect();
    if let Err(error) = shared.store.settle(&settlements).await {
        tracing::debug!(%error, claims = tokens.len(), "claims that are over stay until they expire");
    }
}

/// Settles until the database has an answer, however long it is away; after `patience` conflicts,
/// or a long one, that is one too. `None` when the relay stops first.
pub(crate) async fn settle_with_retry(
    shared: &Shared,
    settlements: &[Settlement],
    stop: &Stop,
    patience: Option<u32>,
) -> Option<Result<Settled, StoreError>> {
    let mut backoff = Backoff::new();
    let mut conflicts = 0;
    let answer = async {
        loop {
            let began = Instant::now();
            let error = match shared.store.settle(settlements).await {
                Ok(settled) => {
                    shared.board.database_answers();
                    return Ok(settled);
                }
                Err(error) => error,
            };
            let pause = match error.kind {
                StoreErrorKind::Conflict
                    if patience.is_some_and(|most| {
                        conflicts >= most || began.elapsed() >= CONFLICT_LONG
                    }) =>
                {
                    return Err(error);
                }
                StoreErrorKind::Conflict if conflicts < CONFLICTS_AT_ONCE => {
                    conflicts += 1;
                    Duration::from_millis(1)
                }
                StoreErrorKind::Conflict => backoff.pause(&shared.jitter),
                StoreErrorKind::Unavailable | StoreErrorKind::Schema => {
                    shared.board.database_fails(&error);
                    backoff.pause(&shared.jitter)
                }
                StoreErrorKind::Refused => return Err(error),
            };
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        biased;
        answer = answer => Some(answer),
        () = stop.over() => {
            tracing::error!(
                verdicts = settlements.iter().map(|one| one.verdicts.len()).sum::<usize>(),
                "outcomes could not be recorded before the stop; the messages will be delivered again when their claims expire"
            );
            None
        }
    }
}

fn count(shared: &Shared, completions: &[Completion], late: &HashSet<i64>) {
    if !late.is_empty() {
        shared.metrics.late(late.len() as u64);
        tracing::warn!(
            operation = "OUTBOX_DELIVER",
            late = late.len(),
            "outcomes came after their claim was lost and changed nothing"
        );
    }
    let now = Instant::now();
    // Few keys for many messages: to compare names costs less than to hash them.
    let mut counts: BTreeMap<(&str, Phase), u64> = BTreeMap::new();
    for completion in completions.iter().filter(|one| !late.contains(&one.seq)) {
        let Some(fate) = &completion.fate else { continue };
        let integration = completion.place.room.lane.integration.as_str();
        *counts.entry((integration, Phase::of(fate))).or_default() += 1;
        if let Fate::Failed { delay, .. } | Fate::Postponed { delay } = fate
            && let Some(due) = now.checked_add(*delay)
        {
            shared.due.push(due);
        }
    }
    for ((integration, phase), count) in counts {
        shared.metrics.settled(integration, phase, count);
        let total = match phase {
            Phase::SENT => &shared.tally.sent,
            Phase::FAILED => &shared.tally.failed,
            Phase::DEAD => &shared.tally.dead,
            Phase::RELEASED => &shared.tally.released,
        };
        total.fetch_add(count, Ordering::Relaxed);
    }
}
