//! Records what became of dispatches, many at a time.

use super::batcher::{Asked, Batcher, batcher, reply, together};
use super::names::JobName;
use super::shared::{CONFLICTS_AT_ONCE, Shared};
use postroom_core::{
    Fate, Fence, Message, Settled, Settlement, StoreErrorKind, StoreResult, Token, Verdict,
    with_causes,
};
use postroom_relay::{Backoff, Phase, log_fate};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

/// What became of one dispatch.
#[derive(Clone, Debug)]
pub(crate) struct JobReport {
    pub(crate) message: Message,
    pub(crate) dispatch: u32,
    pub(crate) fate: Fate,
    /// How many attempts had failed before it, where its worker may have counted one by itself.
    pub(crate) failed_before: Option<u32>,
}

/// What became of a report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ack {
    /// It is recorded.
    Recorded,
    /// The dispatch was over: nothing was changed.
    Late,
    /// The database refuses it; the message is delivered again.
    Refused,
}

/// Where reports are handed in.
pub(crate) type Settler = Batcher<JobReport, Ack>;

pub(crate) fn settler() -> (Settler, Asked<JobReport, Ack>) {
    batcher()
}

/// Records reports until nobody can hand in any more.
pub(crate) async fn run(shared: Arc<Shared>, mut asked: Asked<JobReport, Ack>) {
    // In a set, which ends what it holds when this future is dropped.
    let mut singly = JoinSet::new();
    // What could not be recorded at once uses one connection, however much it is.
    let alone = Arc::new(Semaphore::new(1));
    loop {
        let next = tokio::select! {
            biased;
            Some(ended) = singly.join_next() => {
                // At once: whoever waits for its answer would wait for ever.
                if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                    std::panic::resume_unwind(panic);
                }
                continue;
            }
            next = together(&mut asked) => next,
        };
        let Some((reports, to)) = next else { return };
        // One bad row does not take others along, and one that somebody else has locked does not
        // hold up what comes after.
        let left = match settle(&shared, &reports).await {
            Ok(answers) => answer(&shared, reports, to, answers),
            Err(_) => reports.into_iter().zip(to).collect(),
        };
        if !left.is_empty() {
            let (shared, alone) = (Arc::clone(&shared), Arc::clone(&alone));
            singly.spawn(async move { one_by_one(&shared, left, &alone).await });
        }
    }
}

/// A report, and who waits for its acknowledgement.
type Waiting = (JobReport, oneshot::Sender<Ack>);

/// Answers what was recorded; what is locked.
fn answer(
    shared: &Shared,
    reports: Vec<JobReport>,
    to: Vec<oneshot::Sender<Ack>>,
    answers: Vec<Answer>,
) -> Vec<Waiting> {
    let mut locked = Vec::new();
    let (mut known, mut acks, mut replies) = (Vec::new(), Vec::new(), Vec::new());
    for ((report, to), answer) in reports.into_iter().zip(to).zip(answers) {
        match answer {
            Answer::Ack(one) => {
                known.push(report);
                acks.push(one);
                replies.push(to);
            }
            Answer::Locked => locked.push((report, to)),
        }
    }
    count(shared, &known, &acks);
    reply(replies, acks);
    locked
}

/// What the database answers to a report.
#[derive(Clone, Copy)]
enum Answer {
    Ack(Ack),
    /// Another transaction has locked the message.
    Locked,
}

impl Answer {
    fn of(seq: i64, settled: &Settled) -> Self {
        if settled.locked.contains(&seq) {
            Self::Locked
        } else if settled.late.contains(&seq) {
            Self::Ack(Ack::Late)
        } else {
            Self::Ack(Ack::Recorded)
        }
    }
}

/// Records reports together. Fails when one of them is refused; some may have been recorded, and are
/// found so again.
async fn settle(shared: &Shared, reports: &[JobReport]) -> StoreResult<Vec<Answer>> {
    let mut answers: Vec<Option<Answer>> = vec![None; reports.len()];
    // Two reports on one message do not go into one transaction: the first one counts.
    while answers.iter().any(Option::is_none) {
        let mut seen = HashSet::new();
        let turn: Vec<usize> = (0..reports.len())
            .filter(|index| answers[*index].is_none() && seen.insert(reports[*index].message.seq))
            .collect();
        let together: Vec<&JobReport> = turn.iter().map(|index| &reports[*index]).collect();
        let settled = record(shared, &together, CONFLICTS_AT_ONCE).await?;
        for index in turn {
            answers[index] = Some(Answer::of(reports[index].message.seq, &settled));
        }
    }
    Ok(answers.into_iter().flatten().collect())
}

/// Records reports one by one, and acknowledges each at once; what is locked again and again until it
/// is free.
async fn one_by_one(shared: &Shared, mut left: Vec<Waiting>, alone: &Semaphore) {
    let mut backoff = Backoff::new();
    while !left.is_empty() {
        let mut locked = Vec::new();
        for (report, to) in left {
            // Never closed.
            let turn = alone.acquire().await;
            let answer = record(shared, &[&report], 0).await;
            drop(turn);
            let ack = match answer.map(|settled| Answer::of(report.message.seq, &settled)) {
                Ok(Answer::Ack(ack)) => ack,
                Ok(Answer::Locked) => {
                    locked.push((report, to));
                    continue;
                }
                Err(error) if error.kind == StoreErrorKind::Conflict => {
                    locked.push((report, to));
                    continue;
                }
                Err(error) => {
                    let (id, error) = (&report.message.id, with_causes(&error));
                    tracing::error!(%id, error, "the database refuses this outcome");
                    Ack::Refused
                }
            };
            count(shared, &[report], &[ack]);
            reply(vec![to], vec![ack]);
        }
        left = locked;
        if !left.is_empty() {
            tracing::warn!(
                outcomes = left.len(),
                "outcomes wait for messages that another transaction has locked: look for one that stays open"
            );
            tokio::time::sleep(backoff.pause(&shared.jitter)).await;
        }
    }
}

/// Records reports in one transaction.
async fn record(shared: &Shared, reports: &[&JobReport], patience: u32) -> StoreResult<Settled> {
    // By number, and by `seq` within: everybody locks in the same order.
    let mut by_number: BTreeMap<(u32, Option<u32>), Vec<Verdict>> = BTreeMap::new();
    for report in reports {
        let (seq, id) = (report.message.seq, report.message.id.clone());
        let fate = report.fate.clone();
        let number = (report.dispatch, report.failed_before);
        by_number.entry(number).or_default().push(Verdict { seq, id, fate });
    }
    let settlements: Vec<Settlement> = by_number
        .into_iter()
        .map(|((number, failed_before), mut verdicts)| {
            verdicts.sort_unstable_by_key(|verdict| verdict.seq);
            let fence = Fence::Dispatch { number, token: Token::random(), failed_before };
            Settlement { fence, verdicts, finished: false }
        })
        .collect();
    let settling = || shared.store.settle(&settlements);
    shared.retry_unless_locked(settling, Some(patience)).await
}

fn count(shared: &Shared, reports: &[JobReport], acks: &[Ack]) {
    let mut counts: HashMap<(&str, Phase), u64> = HashMap::new();
    let mut late = 0;
    for (report, ack) in reports.iter().zip(acks) {
        match ack {
            Ack::Recorded => {
                log_fate(&report.message, &report.fate);
                let label = (report.message.integration.as_str(), Phase::of(&report.fate));
                *counts.entry(label).or_default() += 1;
            }
            Ack::Late => late += 1,
            Ack::Refused => continue,
        }
        let (message, dispatch) = (report.message.id.clone(), report.dispatch);
        shared.outstanding.settled_here(&JobName { message, dispatch });
    }
    for ((integration, phase), count) in counts {
        shared.metrics.settled(integration, phase, count);
    }
    if late > 0 {
        shared.metrics.late(late);
        tracing::debug!(
            operation = "OUTBOX_DELIVER",
            late,
            "outcomes of dispatches that were over changed nothing"
        );
    }
}
