//! Records what became of dispatches, many at a time.

use super::gather::{Asked, Desk, desk, reply, together};
use super::names::JobName;
use super::shared::{CONFLICTS_AT_ONCE, Shared};
use postroom_core::{
    Fate, Fence, Message, Settlement, StoreErrorKind, StoreResult, Token, Verdict,
};
use postroom_relay::{Backoff, Phase, describe, log_fate};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::oneshot;
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
        match settle(&shared, &words).await {
            Ok(said) => {
                count(&shared, &words, &said);
                reply(to, said);
            }
            // One bad row does not take others along, and one that somebody else has locked does
            // not hold up what comes after.
            Err(_) => {
                let shared = Arc::clone(&shared);
                aside.spawn(async move { one_by_one(&shared, words, to).await });
            }
        }
    }
}

/// Records words together. Fails when one of them is refused, or locked by somebody else; some may
/// have been recorded, and are found so again.
async fn settle(shared: &Shared, words: &[Word]) -> StoreResult<Vec<Said>> {
    let mut said: Vec<Option<Said>> = vec![None; words.len()];
    // Two words on one message do not go into one transaction: the first one counts.
    while said.iter().any(Option::is_none) {
        let mut seen = HashSet::new();
        let turn: Vec<usize> = (0..words.len())
            .filter(|index| said[*index].is_none() && seen.insert(words[*index].message.seq))
            .collect();
        let together: Vec<&Word> = turn.iter().map(|index| &words[*index]).collect();
        let late = record(shared, &together, CONFLICTS_AT_ONCE).await?;
        for index in turn {
            let is_late = late.contains(&words[index].message.seq);
            said[index] = Some(if is_late { Said::Late } else { Said::Recorded });
        }
    }
    Ok(said.into_iter().flatten().collect())
}

/// Records word by word, and answers each as soon as it is; what is locked again and again until it
/// is free.
async fn one_by_one(shared: &Shared, words: Vec<Word>, to: Vec<oneshot::Sender<Said>>) {
    let mut backoff = Backoff::new();
    let mut left: Vec<(Word, oneshot::Sender<Said>)> = words.into_iter().zip(to).collect();
    while !left.is_empty() {
        let mut locked = Vec::new();
        for (word, to) in left {
            let said = match record(shared, &[&word], 0).await {
                Ok(late) if late.is_empty() => Said::Recorded,
                Ok(_) => Said::Late,
                Err(error) if error.kind == StoreErrorKind::Conflict => {
                    locked.push((word, to));
                    continue;
                }
                Err(error) => {
                    let (id, error) = (word.message.id, describe(&error));
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
                "outcomes wait for messages that somebody else has locked: look for a transaction that stays open"
            );
            tokio::time::sleep(backoff.pause(&shared.chance)).await;
        }
    }
}

/// Records words in one transaction; the `seq` of those that came too late.
async fn record(shared: &Shared, words: &[&Word], patience: u32) -> StoreResult<Vec<i64>> {
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
    Ok(shared.insist_unless_locked(settling, Some(patience)).await?.late)
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
