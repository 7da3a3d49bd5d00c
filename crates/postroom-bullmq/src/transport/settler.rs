//! Records what became of dispatches, many at a time.

use super::gather::{Asked, Desk, desk, reply, together};
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

/// The word on one dispatch.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) message: Message,
    pub(crate) dispatch: u32,
    pub(crate) fate: Fate,
    /// How many attempts had failed before it, where its worker may have counted one by itself.
    pub(crate) failed_before: Option<u32>,
}

/// What became of a word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Said {
    /// It is recorded.
    Recorded,
    /// The dispatch was over: nothing was changed.
    Late,
    /// The database refuses it; the message is delivered again.
    Refused,
}

/// Where words are said.
pub(crate) type Settler = Desk<Word, Said>;

pub(crate) fn settler() -> (Settler, Asked<Word, Said>) {
    desk()
}

/// Records words until nobody can say any more.
pub(crate) async fn run(shared: Arc<Shared>, mut asked: Asked<Word, Said>) {
    // In a set, which ends what it holds when this future is dropped.
    let mut aside = JoinSet::new();
    // What could not be recorded at once uses one connection, however much it is.
    let alone = Arc::new(Semaphore::new(1));
    loop {
        let next = tokio::select! {
            biased;
            Some(ended) = aside.join_next() => {
                // At once: whoever waits for its answer would wait for ever.
                if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                    std::panic::resume_unwind(panic);
                }
                continue;
            }
            next = together(&mut asked) => next,
        };
        let Some((words, to)) = next else { return };
        // One bad row does not take others along, and one that somebody else has locked does not
        // hold up what comes after.
        let left = match settle(&shared, &words).await {
            Ok(answers) => answer(&shared, words, to, answers),
            Err(_) => words.into_iter().zip(to).collect(),
        };
        if !left.is_empty() {
            let (shared, alone) = (Arc::clone(&shared), Arc::clone(&alone));
            aside.spawn(async move { one_by_one(&shared, left, &alone).await });
        }
    }
}

/// A word, and who waits for the answer to it.
type Waiting = (Word, oneshot::Sender<Said>);

/// Answers what was recorded; what is locked.
fn answer(
    shared: &Shared,
    words: Vec<Word>,
    to: Vec<oneshot::Sender<Said>>,
    answers: Vec<Answer>,
) -> Vec<Waiting> {
    let mut locked = Vec::new();
    let (mut known, mut said, mut replies) = (Vec::new(), Vec::new(), Vec::new());
    for ((word, to), answer) in words.into_iter().zip(to).zip(answers) {
        match answer {
            Answer::Said(one) => {
                known.push(word);
                said.push(one);
                replies.push(to);
            }
            Answer::Locked => locked.push((word, to)),
        }
    }
    count(shared, &known, &said);
    reply(replies, said);
    locked
}

/// What the database answers to a word.
#[derive(Clone, Copy)]
enum Answer {
    Said(Said),
    /// Another transaction has locked the message.
    Locked,
}

impl Answer {
    fn of(seq: i64, settled: &Settled) -> Self {
        if settled.locked.contains(&seq) {
            Self::Locked
        } else if settled.late.contains(&seq) {
            Self::Said(Said::Late)
        } else {
            Self::Said(Said::Recorded)
        }
    }
}

/// Records words together. Fails when one of them is refused; some may have been recorded, and are
/// found so again.
async fn settle(shared: &Shared, words: &[Word]) -> StoreResult<Vec<Answer>> {
    let mut answers: Vec<Option<Answer>> = vec![None; words.len()];
    // Two words on one message do not go into one transaction: the first one counts.
    while answers.iter().any(Option::is_none) {
        let mut seen = HashSet::new();
        let turn: Vec<usize> = (0..words.len())
            .filter(|index| answers[*index].is_none() && seen.insert(words[*index].message.seq))
            .collect();
        let together: Vec<&Word> = turn.iter().map(|index| &words[*index]).collect();
        let settled = record(shared, &together, CONFLICTS_AT_ONCE).await?;
        for index in turn {
            answers[index] = Some(Answer::of(words[index].message.seq, &settled));
        }
    }
    Ok(answers.into_iter().flatten().collect())
}

/// Records word by word, and answers each as soon as it is; what is locked again and again until it
/// is free.
async fn one_by_one(shared: &Shared, mut left: Vec<Waiting>, alone: &Semaphore) {
    let mut backoff = Backoff::new();
    while !left.is_empty() {
        let mut locked = Vec::new();
        for (word, to) in left {
            // Never closed.
            let turn = alone.acquire().await;
            let answer = record(shared, &[&word], 0).await;
            drop(turn);
            let said = match answer.map(|settled| Answer::of(word.message.seq, &settled)) {
                Ok(Answer::Said(said)) => said,
                Ok(Answer::Locked) => {
                    locked.push((word, to));
                    continue;
                }
                Err(error) if error.kind == StoreErrorKind::Conflict => {
                    locked.push((word, to));
                    continue;
                }
                Err(error) => {
                    let (id, error) = (word.message.id, with_causes(&error));
                    tracing::error!(%id, error, "the database refuses this outcome");
                    Said::Refused
                }
            };
            count(shared, &[word], &[said]);
            reply(vec![to], vec![said]);
        }
        left = locked;
        if !left.is_empty() {
            tracing::warn!(
                outcomes = left.len(),
                "outcomes wait for messages that another transaction has locked: look for one that stays open"
            );
            tokio::time::sleep(backoff.pause(&shared.chance)).await;
        }
    }
}

/// Records words in one transaction.
async fn record(shared: &Shared, words: &[&Word], patience: u32) -> StoreResult<Settled> {
    // By number, and by `seq` within: everybody locks in the same order.
    let mut by_number: BTreeMap<(u32, Option<u32>), Vec<Verdict>> = BTreeMap::new();
    for word in words {
        let (seq, id, fate) = (word.message.seq, word.message.id, word.fate.clone());
        let number = (word.dispatch, word.failed_before);
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
    shared.insist_unless_locked(settling, Some(patience)).await
}

fn count(shared: &Shared, words: &[Word], said: &[Said]) {
    let mut counts: HashMap<(&str, Phase), u64> = HashMap::new();
    let mut late = 0;
    for (word, said) in words.iter().zip(said) {
        match said {
            Said::Recorded => {
                log_fate(&word.message, &word.fate);
                let label = (word.message.integration.as_str(), Phase::of(&word.fate));
                *counts.entry(label).or_default() += 1;
            }
            Said::Late => late += 1,
            Said::Refused => continue,
        }
        shared.books.settled_here(JobName { message: word.message.id, dispatch: word.dispatch });
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
