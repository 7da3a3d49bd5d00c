//! Records fates in batches: while one settlement is under way, the next gathers.

use crate::health::describe;
use crate::held::Claim;
use crate::lane::{LaneRoom, Work};
use crate::metrics::Phase;
use crate::pace::Backoff;
use crate::relay::Shared;
use postroom_core::{Fate, Settled, Settlement, StoreError, StoreErrorKind, Token, Verdict};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, mpsc, watch};
use uuid::Uuid;

/// The most fates recorded in one transaction.
const SETTLE_MAX: usize = 5_000;

/// A message whose fate is decided and not yet recorded.
pub(crate) struct Completion {
    pub(crate) room: Arc<LaneRoom>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) seq: i64,
    pub(crate) id: Uuid,
    pub(crate) weight: usize,
    pub(crate) rescues: u32,
    /// `None` when the claim was lost before anything began: there is nothing to record.
    pub(crate) fate: Option<Fate>,
}

impl Completion {
    pub(crate) fn of(room: &Arc<LaneRoom>, work: Work, fate: Option<Fate>) -> Self {
        Self {
            room: Arc::clone(room),
            claim: work.claim,
            seq: work.message.seq,
            id: work.message.id,
            weight: work.message.weight(),
            rescues: work.rescues,
            fate,
        }
    }
}

/// Where decided messages arrive; shared by the completers, of which one waits at a time.
pub(crate) type Inbox = Arc<Mutex<mpsc::UnboundedReceiver<Vec<Completion>>>>;

/// Runs until every lane has ended and everything decided is recorded.
pub(crate) async fn run(shared: Arc<Shared>, inbox: Inbox, stopping: watch::Receiver<bool>) {
    while let Some(completions) = next(&inbox).await {
        let (claims, settlements, tallies) = gather(completions);
        if let Some(recorded) = record(&shared, &settlements, &stopping).await {
            count(&shared, &tallies, &recorded);
        }
        for (claim, messages) in claims {
            // Extended until then, since another part of the batch may still be being recorded.
            if claim.settled(messages) {
                shared.held.remove(claim.token);
            }
        }
        for tally in tallies {
            tally.room.remove(tally.weight, tally.rescues);
        }
        shared.room_freed.notify_one();
    }
}

/// Waits for decided messages, and takes what else has arrived, up to one settlement's worth.
async fn next(inbox: &Inbox) -> Option<Vec<Completion>> {
    let mut inbox = inbox.lock().await;
    let mut completions = inbox.recv().await?;
    while completions.len() < SETTLE_MAX
        && let Ok(more) = inbox.try_recv()
    {
        completions.extend(more);
    }
    Some(completions)
}

/// What remains to be counted once a fate is recorded.
struct Tally {
    room: Arc<LaneRoom>,
    seq: i64,
    weight: usize,
    rescues: u32,
    phase: Option<Phase>,
    due: Option<Instant>,
}

type Shares = Vec<(Arc<Claim>, usize)>;

fn gather(completions: Vec<Completion>) -> (Shares, Vec<Settlement>, Vec<Tally>) {
    let mut by_token: HashMap<Token, (Arc<Claim>, usize, Vec<Verdict>)> = HashMap::new();
    let mut tallies = Vec::with_capacity(completions.len());
    let now = Instant::now();
    for completion in completions {
        let (phase, due) = match &completion.fate {
            None => (None, None),
            Some(Fate::Sent) => (Some(Phase::SENT), None),
            Some(Fate::Failed { delay, .. }) => (Some(Phase::FAILED), now.checked_add(*delay)),
            Some(Fate::Dead { .. }) => (Some(Phase::DEAD), None),
            Some(Fate::Released) => (Some(Phase::RELEASED), None),
        };
        tallies.push(Tally {
            room: completion.room,
            seq: completion.seq,
            weight: completion.weight,
            rescues: completion.rescues,
            phase,
            due,
        });
        let (_, messages, verdicts) = by_token
            .entry(completion.claim.token)
            .or_insert_with(|| (Arc::clone(&completion.claim), 0, Vec::new()));
        *messages += 1;
        if let Some(fate) = completion.fate {
            verdicts.push(Verdict { seq: completion.seq, id: completion.id, fate });
        }
    }
    let mut shares = Vec::with_capacity(by_token.len());
    let mut settlements = Vec::with_capacity(by_token.len());
    for (token, (claim, messages, verdicts)) in by_token {
        settlements.push(Settlement { token, verdicts, finished: claim.ends_with(messages) });
        shares.push((claim, messages));
    }
    (shares, settlements, tallies)
}

/// What became of a settlement.
#[derive(Default)]
struct Recorded {
    late: HashSet<i64>,
    /// The database refused these: their claim expires, and they are delivered again.
    refused: HashSet<i64>,
}

/// Records settlements, however long the database is away. What it refuses is tried verdict by
/// verdict, so that one bad row does not take others along. `None` when the relay stops first:
/// the claims expire, and the messages are delivered again.
async fn record(
    shared: &Shared,
    settlements: &[Settlement],
    stopping: &watch::Receiver<bool>,
) -> Option<Recorded> {
    let mut recorded = Recorded::default();
    match insist(shared, settlements, stopping).await? {
        Ok(settled) => recorded.late.extend(settled.late),
        Err(_) => {
            for settlement in settlements {
                for verdict in &settlement.verdicts {
                    let alone = alone(settlement.token, Some(verdict));
                    match insist(shared, &[alone], stopping).await? {
                        Ok(settled) => recorded.late.extend(settled.late),
                        Err(error) => {
                            recorded.refused.insert(verdict.seq);
                            tracing::error!(
                                id = %verdict.id,
                                error = describe(&error),
                                "the database refuses this outcome; the message will be delivered again when its claim expires"
                            );
                        }
                    }
                }
                if settlement.finished {
                    insist(shared, &[alone(settlement.token, None)], stopping).await?.ok()?;
                }
            }
        }
    }
    Some(recorded)
}

/// One verdict, or the end of the claim.
fn alone(token: Token, verdict: Option<&Verdict>) -> Settlement {
    Settlement {
        token,
        verdicts: verdict.cloned().into_iter().collect(),
        finished: verdict.is_none(),
    }
}

/// Settles until the database has an answer. `None` when the relay stops first.
async fn insist(
    shared: &Shared,
    settlements: &[Settlement],
    stopping: &watch::Receiver<bool>,
) -> Option<Result<Settled, StoreError>> {
    let mut backoff = Backoff::new();
    let mut deadline = None;
    loop {
        let error = match shared.store.settle(settlements).await {
            Ok(settled) => {
                shared.board.database_answers();
                return Some(Ok(settled));
            }
            Err(error) => error,
        };
        let pause = match error.kind {
            StoreErrorKind::Conflict => Duration::from_millis(1),
            StoreErrorKind::Unavailable | StoreErrorKind::Schema => {
                shared.board.database_fails(&error);
                backoff.pause()
            }
            StoreErrorKind::Refused => return Some(Err(error)),
        };
        if *stopping.borrow() && deadline.is_none() {
            deadline = Some(Instant::now() + shared.settings.stop_limit);
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            tracing::error!(
                error = describe(&error),
                "outcomes could not be recorded before the stop; the messages will be delivered again when their claims expire"
            );
            return None;
        }
        tokio::time::sleep(pause).await;
    }
}

fn count(shared: &Shared, tallies: &[Tally], recorded: &Recorded) {
    let Recorded { late, refused } = recorded;
    if !late.is_empty() {
        shared.metrics.late(late.len() as u64);
        tracing::warn!(
            operation = "OUTBOX_DELIVER",
            late = late.len(),
            "outcomes came after their claim was lost and changed nothing"
        );
    }
    let mut counts: HashMap<(&str, Phase), u64> = HashMap::new();
    let changed = |tally: &&Tally| !late.contains(&tally.seq) && !refused.contains(&tally.seq);
    for tally in tallies.iter().filter(changed) {
        if let Some(phase) = tally.phase {
            *counts.entry((tally.room.lane.integration.as_str(), phase)).or_default() += 1;
        }
        if let Some(due) = tally.due {
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
