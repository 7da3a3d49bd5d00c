//! Sending entries to a queue or a topic.

use super::classify::{Failure, Target, classify};
use super::entry::{ENTRIES_MAX, Entry, Make, requests};
use crate::batch::Batch;
use crate::connections::{Connections, Held};
use async_trait::async_trait;
use futures_util::future::join_all;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// A client of one service, and what it sends to.
pub(crate) trait Post: Clone + Send + Sync + 'static {
    /// Sends up to ten entries in one request. The answer has what became of each, by its id.
    fn send(
        &self,
        entries: &[Entry],
    ) -> impl Future<Output = Result<Vec<(String, Option<Failure>)>, Failure>> + Send;

    /// Asks about the destination.
    fn look(&self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Sends over one client, whose connections all batches share.
pub(crate) struct AwsSink<P> {
    target: Target,
    make: Make,
    limit: Duration,
    posts: Connections<P>,
}

impl<P: Post> AwsSink<P> {
    /// A sink whose client is made by `connect`.
    pub(crate) fn new<F>(
        target: Target,
        make: Make,
        limit: Duration,
        connect: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<P, Outcome>> + Send + 'static,
    {
        Self { target, make, limit, posts: Connections::new(limit, connect) }
    }

    /// Sends one request. Says whether what comes behind it may be sent: not when one of its
    /// messages comes again later.
    async fn request(&self, held: &Held<P>, entries: &[Entry], batch: &Batch<'_>) -> bool {
        match held.connection.send(entries).await {
            Ok(answers) => {
                let mut goes_on = true;
                for entry in entries {
                    let id = entry.id();
                    let answer = answers.iter().find(|(answered, _)| *answered == id);
                    let outcome = match answer {
                        Some((_, None)) => Outcome::Delivered,
                        Some((_, Some(failure))) => self.classify(failure),
                        None => self.classify(&Failure::Unmentioned),
                    };
                    goes_on &= matches!(outcome, Outcome::Delivered | Outcome::Reject { .. });
                    batch.settle(entry.index, outcome);
                }
                goes_on
            }
            Err(failure) => {
                let outcome = self.classify(&failure);
                if matches!(outcome, Outcome::Refuse { .. }) {
                    // A queue that was made anew can have another address.
                    self.posts.lost(held);
                }
                let goes_on = matches!(outcome, Outcome::Reject { .. });
                if goes_on && entries.len() > 1 {
                    // One of them is to blame, and alone it will be told.
                    return self.one_by_one(held, entries, batch).await;
                }
                entries.iter().for_each(|entry| batch.settle(entry.index, outcome.clone()));
                goes_on
            }
        }
    }

    async fn one_by_one(&self, held: &Held<P>, entries: &[Entry], batch: &Batch<'_>) -> bool {
        for entry in entries {
            let goes_on = Box::pin(self.request(held, std::slice::from_ref(entry), batch)).await;
            // Where there is no order, nobody waits for another.
            if !goes_on && self.make.is_fifo {
                return false;
            }
        }
        true
    }

    fn classify(&self, failure: &Failure) -> Outcome {
        classify(&self.target, failure)
    }
}

#[async_trait]
impl<P: Post> Sink for AwsSink<P> {
    async fn deliver(&self, messages: &[Message], report: &Report<'_>) {
        let batch = Batch::new(report, messages.len());
        let deadline = Instant::now() + self.limit;
        let entries = batch.prepare(messages, |index, message| self.make.entry(index, message));
        if entries.is_empty() {
            return;
        }
        let held = match self.posts.get(deadline).await {
            Ok(held) => held,
            Err(outcome) => return batch.settle_rest(&outcome),
        };
        let requests = requests(entries);
        let sending = async {
            if self.make.is_fifo {
                // In order, so what comes behind a request that failed waits for its next turn.
                for entries in &requests {
                    if !self.request(&held, entries, &batch).await {
                        break;
                    }
                }
            } else {
                join_all(requests.iter().map(|one| self.request(&held, one, &batch))).await;
            }
        };
        let rest = match tokio::time::timeout_at(deadline, sending).await {
            Ok(()) => Outcome::retry(format!(
                "not sent to {}, because a message before it was not taken",
                self.target.name
            )),
            Err(_) => self.classify(&Failure::TimedOut),
        };
        batch.settle_rest(&rest);
    }

    /// One request, unless the messages are large.
    fn batch_max(&self) -> usize {
        ENTRIES_MAX
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.limit;
        let held = self.posts.get(deadline).await.map_err(ProbeError::from)?;
        match tokio::time::timeout_at(deadline, held.connection.look()).await {
            Ok(Ok(())) => Ok(()),
            // Sending needs no right to ask; the first message will tell.
            Ok(Err(failure)) if failure.is_forbidden() => Ok(()),
            Ok(Err(failure)) => Err(self.classify(&failure).into()),
            Err(_) => Err(self.classify(&Failure::TimedOut).into()),
        }
    }
}
