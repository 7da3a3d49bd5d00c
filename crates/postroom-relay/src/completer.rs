//! Records fates in batches: while one settlement is under way, the next gathers.

use crate::health::describe;
use crate::held::Claim;
use crate::lane::Work;
use crate::metrics::Phase;
use crate::pace::Backoff;
use crate::relay::Shared;
use crate::room::Place;
use crate::stop::Stop;
use postroom_core::{Fate, Settled, Settlement, StoreError, StoreErrorKind, Token, Verdict};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;
use uuid::Uuid;

/// After this many conflicts in a row it is no bad luck any more: then the pauses grow.
const CONFLICTS_AT_ONCE: u32 = 5;
/// The most fates recorded in one transaction.
const SETTLE_MAX: usize = 5_000;

/// A message whose fate is decided and not yet recorded.
pub(crate) struct Completion {
    pub(crate) place: Place,
    pub(crate) claim: Arc<Claim>,
    pub(crate) seq: i64,
    pub(crate) id: Uuid,
    /// `None` when the claim was lost before anything began: there is nothing to record.
    pub(crate) fate: Option<Fate>,
}

impl Completion {
    pub(crate) fn of(work: Work, fate: Option<Fate>) -> Self {
        let Work { message, claim, place, .. } = work;
        Self { place, claim, seq: message.seq, id: message.id, fate }
    }
}

/// Where decided messages arrive; shared by the completers, of which one waits at a time.
pub(crate) type Inbox = Arc<Mutex<mpsc::UnboundedReceiver<Vec<Completion>>>>;

/// Runs until every lane has ended and everything decided is recorded.
pub(crate) async fn run(shared: Arc<Shared>, inbox: Inbox, stop: Arc<Stop>) {
    while let Some(completions) = next(&inbox).await {
        let (claims, settlements, tallies) = gather(completions);
        if let Some(recorded) = record(&shared, &settlements, &stop).await {
            count(&shared, &tallies, &recorded);
        }
        for (claim, messages) in claims {
            // Extended until then, since another part of the batch may still be being recorded.
            if claim.settled(messages) {
                shared.held.remove(claim.token);
            }
        }
        drop(tallies);
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
    place: Place,
    seq: i64,
    phase: Option<Phase>,
    due: Option<Instant>,
}

type Shares = Vec<(Arc<Claim>, usize)>;

fn gather(completions: Vec<Completion>) -> (Shares, Vec<Settlement>, Vec<Tally>) {
    let mut by_token: BTreeMap<Token, (Arc<Claim>, usize, Vec<Verdict>)> = BTreeMap::new();
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
        tallies.push(Tally { place: completion.place, seq: completion.seq, phase, due });
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
async fn record(shared: &Shared, settlements: &[Settlement], stop: &Stop) -> Option<Recorded> {
    let mut recorded = Recorded::default();
    match insist(shared, settlements, stop).await? {
        Ok(settled) => recorded.late.extend(settled.late),
        Err(_) => {
            for settlement in settlements {
                for verdict in &settlement.verdicts {
                    let alone = alone(settlement.token, Some(verdict));
                    match insist(shared, &[alone], stop).await? {
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
                    insist(shared, &[alone(settlement.token, None)], stop).await?.ok()?;
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
    stop: &Stop,
) -> Option<Result<Settled, StoreError>> {
    let mut backoff = Backoff::new();
    let mut conflicts = 0;
    let answer = async {
        loop {
            let error = match shared.store.settle(settlements).await {
                Ok(settled) => {
                    shared.board.database_answers();
                    return Ok(settled);
                }
                Err(error) => error,
            };
            let pause = match error.kind {
                StoreErrorKind::Conflict if conflicts < CONFLICTS_AT_ONCE => {
                    conflicts += 1;
                    Duration::from_millis(1)
                }
                StoreErrorKind::Conflict => backoff.pause(&shared.chance),
                StoreErrorKind::Unavailable | StoreErrorKind::Schema => {
                    shared.board.database_fails(&error);
                    backoff.pause(&shared.chance)
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
            *counts.entry((tally.place.room.lane.integration.as_str(), phase)).or_default() += 1;
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
