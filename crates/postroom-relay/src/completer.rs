//! Records fates in batches: while one settlement is under way, the next gathers.

use crate::health::describe;
use crate::held::Claim;
use crate::lane::Work;
use crate::metrics::Phase;
use crate::pace::Backoff;
use crate::relay::Shared;
use crate::responses::keep_responses;
use crate::room::Place;
use crate::stop::Stop;
use postroom_core::{Fate, Fence, Settled, Settlement, StoreError, StoreErrorKind, Token, Verdict};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

/// After this many conflicts in a row it is no bad luck any more, nor after one that took so long:
/// somebody has locked a message and keeps it.
const CONFLICTS_AT_ONCE: u32 = 5;
const CONFLICT_LONG: Duration = Duration::from_secs(2);
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
    // In a set, which ends what it holds when this future is dropped.
    let mut aside = JoinSet::new();
    while let Some(completions) = next(&inbox).await {
        let group = Group::gather(completions);
        let mut responses = shared.responses.take(&group.settlements);
        match insist(&shared, &group.settlements, &stop, Some(CONFLICTS_AT_ONCE)).await {
            None => group.end(&shared, None),
            Some(Ok(settled)) => {
                responses.retain(|(seq, _)| !settled.late.contains(seq));
                group.end(&shared, Some(Recorded::late(settled)));
                keep(&shared, responses).await;
            }
            // One bad row does not take others along, and one that somebody else has locked does
            // not hold up what comes after.
            Some(Err(_)) => {
                let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
                aside.spawn(async move {
                    let recorded = one_by_one(&shared, &group.settlements, &stop).await;
                    responses.retain(|(seq, _)| {
                        recorded.as_ref().is_some_and(|recorded| recorded.contains(*seq))
                    });
                    group.end(&shared, recorded);
                    keep(&shared, responses).await;
                });
            }
        }
        while aside.try_join_next().is_some() {}
    }
    while aside.join_next().await.is_some() {}
}

/// Keeps the responses of attempts that are recorded.
async fn keep(shared: &Shared, responses: Vec<(i64, (Uuid, String))>) {
    let responses: Vec<_> = responses.into_iter().map(|(_, response)| response).collect();
    keep_responses(&*shared.store, &responses).await;
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

/// What remains to be counted once a fate is recorded.
struct Tally {
    place: Place,
    seq: i64,
    phase: Option<Phase>,
    due: Option<Instant>,
}

/// Completions that are recorded together.
struct Group {
    /// How many messages of each claim are in it.
    shares: Vec<(Arc<Claim>, usize)>,
    settlements: Vec<Settlement>,
    tallies: Vec<Tally>,
}

impl Group {
    fn gather(completions: Vec<Completion>) -> Self {
        let mut by_token: BTreeMap<Token, (Arc<Claim>, usize, Vec<Verdict>)> = BTreeMap::new();
        let mut tallies = Vec::with_capacity(completions.len());
        let now = Instant::now();
        for completion in completions {
            let phase = completion.fate.as_ref().map(Phase::of);
            let due = match &completion.fate {
                Some(Fate::Failed { delay, .. } | Fate::Postponed { delay }) => {
                    now.checked_add(*delay)
                }
                Some(Fate::Sent | Fate::Dead { .. } | Fate::Released) | None => None,
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
            settlements.push(Settlement {
                fence: Fence::Claim(token),
                verdicts,
                finished: claim.ends_with(messages),
            });
            shares.push((claim, messages));
        }
        Self { shares, settlements, tallies }
    }

    /// Counts what was recorded, or was given up at the stop, and makes room.
    fn end(self, shared: &Shared, recorded: Option<Recorded>) {
        if let Some(recorded) = recorded {
            count(shared, &self.tallies, &recorded);
        }
        for (claim, messages) in self.shares {
            // Extended until then, since another part of the batch may still be being recorded.
            if claim.settled(messages) {
                shared.held.remove(claim.token);
            }
        }
        drop(self.tallies);
        shared.room_freed.notify_one();
    }
}

/// What became of a settlement.
#[derive(Default)]
struct Recorded {
    late: HashSet<i64>,
    /// The database refused these: their claim expires, and they are delivered again.
    refused: HashSet<i64>,
}

impl Recorded {
    fn late(settled: Settled) -> Self {
        Self { late: settled.late.into_iter().collect(), refused: HashSet::new() }
    }

    fn contains(&self, seq: i64) -> bool {
        !self.late.contains(&seq) && !self.refused.contains(&seq)
    }
}

/// Records verdict by verdict, what is locked again and again until it is free. `None` when the
/// relay stops first: the claims expire, and the messages are delivered again.
async fn one_by_one(shared: &Shared, settlements: &[Settlement], stop: &Stop) -> Option<Recorded> {
    let mut recorded = Recorded::default();
    let mut backoff = Backoff::new();
    let mut left: Vec<(Fence, &Verdict)> = settlements
        .iter()
        .flat_map(|one| one.verdicts.iter().map(|verdict| (one.fence, verdict)))
        .collect();
    while !left.is_empty() {
        let mut locked = Vec::new();
        for (fence, verdict) in left {
            match insist(shared, &[alone(fence, Some(verdict))], stop, Some(0)).await? {
                Ok(settled) => recorded.late.extend(settled.late),
                Err(error) if error.kind == StoreErrorKind::Conflict => {
                    locked.push((fence, verdict));
                }
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
        left = locked;
        if !left.is_empty() {
            tracing::warn!(
                verdicts = left.len(),
                "outcomes wait for messages that somebody else has locked: look for a transaction that stays open"
            );
            tokio::select! {
                () = tokio::time::sleep(backoff.pause(&shared.chance)) => {}
                () = stop.over() => return None,
            }
        }
    }
    for settlement in settlements.iter().filter(|one| one.finished) {
        insist(shared, &[alone(settlement.fence, None)], stop, None).await?.ok()?;
    }
    Some(recorded)
}

/// One verdict, or the end of the claim.
fn alone(fence: Fence, verdict: Option<&Verdict>) -> Settlement {
    Settlement {
        fence,
        verdicts: verdict.cloned().into_iter().collect(),
        finished: verdict.is_none(),
    }
}

/// Settles until the database has an answer, however long it is away; after `patience` conflicts,
/// or a long one, that is one too. `None` when the relay stops first.
async fn insist(
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
