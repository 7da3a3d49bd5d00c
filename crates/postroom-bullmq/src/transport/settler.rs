//! Records what became of dispatches, many at a time.

use super::gather::{Asked, Desk, answer, desk};
use super::names::JobName;
use super::shared::Shared;
use postroom_core::{Fate, Fence, Message, Settlement, StoreResult, Token, Verdict};
use postroom_relay::{Phase, describe, log_fate};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The word on one dispatch.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    pub(crate) message: Message,
    pub(crate) dispatch: u32,
    pub(crate) fate: Fate,
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
pub(crate) async fn run(shared: Arc<Shared>, asked: Asked<Word, Said>) {
    let shared = &*shared;
    answer(asked, |words| settle(shared, words)).await;
}

async fn settle(shared: &Shared, words: Vec<Word>) -> Vec<Said> {
    let mut said: Vec<Option<Said>> = vec![None; words.len()];
    // Two words on one message do not go into one transaction: the first one counts.
    while said.iter().any(Option::is_none) {
        let mut seen = HashSet::new();
        let turn: Vec<usize> = (0..words.len())
            .filter(|index| said[*index].is_none() && seen.insert(words[*index].message.seq))
            .collect();
        match record(shared, &words, &turn).await {
            Ok(late) => {
                for index in turn {
                    let is_late = late.contains(&words[index].message.seq);
                    said[index] = Some(if is_late { Said::Late } else { Said::Recorded });
                }
            }
            // One bad row does not take others along.
            Err(_) => {
                for index in turn {
                    said[index] = Some(match record(shared, &words, &[index]).await {
                        Ok(late) if late.is_empty() => Said::Recorded,
                        Ok(_) => Said::Late,
                        Err(error) => {
                            let id = words[index].message.id;
                            let error = describe(&error);
                            tracing::error!(%id, error, "the database refuses this outcome");
                            Said::Refused
                        }
                    });
                }
            }
        }
    }
    let said: Vec<Said> = said.into_iter().flatten().collect();
    count(shared, &words, &said);
    said
}

/// Records some of the words in one transaction; the numbers of those that came too late.
async fn record(shared: &Shared, words: &[Word], turn: &[usize]) -> StoreResult<Vec<i64>> {
    // By number, and by `seq` within: everybody locks in the same order.
    let mut by_number: BTreeMap<u32, Vec<Verdict>> = BTreeMap::new();
    for word in turn.iter().map(|index| &words[*index]) {
        let (seq, id, fate) = (word.message.seq, word.message.id, word.fate.clone());
        by_number.entry(word.dispatch).or_default().push(Verdict { seq, id, fate });
    }
    let settlements: Vec<Settlement> = by_number
        .into_iter()
        .map(|(number, mut verdicts)| {
            verdicts.sort_unstable_by_key(|verdict| verdict.seq);
            let fence = Fence::Dispatch { number, token: Token::random() };
            Settlement { fence, verdicts, finished: false }
        })
        .collect();
    let settled = shared.insist(|| shared.store.settle(&settlements)).await?;
    Ok(settled.late)
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
        shared.books.settled(JobName { message: word.message.id, dispatch: word.dispatch });
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
