//! Where messages go: a sink that does with each attempt what the plan says.

use super::books::Said;
use super::plan::Act;
use super::world::World;
use async_trait::async_trait;
use postroom_core::{Message, Outcome, Report, Sink, Token};
use std::sync::Arc;
use uuid::Uuid;

/// One relay's way to the destinations.
pub(super) struct Destination {
    pub(super) world: Arc<World>,
    /// Which process this is, and which relay of the plan.
    pub(super) process: usize,
    pub(super) relay: usize,
}

/// The messages of one call: what is not reported when it ends will never be.
struct Tries<'a> {
    destination: &'a Destination,
    tries: Vec<(Token, i64)>,
}

impl Drop for Tries<'_> {
    fn drop(&mut self) {
        for (token, seq) in &self.tries {
            self.destination.said(*token, *seq, Said::Nothing);
        }
    }
}

impl Destination {
    fn said(&self, token: Token, seq: i64, said: Said) {
        self.world.books.said(self.process, token, seq, said);
    }

    async fn act(&self, act: Act, token: Token, seq: i64) -> Option<Outcome> {
        let Self { world, process, relay } = self;
        let (wait, said, outcome) = match act {
            Act::Accept(wait) => (wait, Said::Delivered, Outcome::Delivered),
            Act::Retry(wait) => (wait, Said::Retry, Outcome::retry("503")),
            Act::Reject => (super::ms(1), Said::Reject, Outcome::reject("400")),
            Act::Refuse => (super::ms(1), Said::Refuse, Outcome::refuse("401")),
            Act::Panic => {
                world.books.worked(seq);
                world.books.note("panics", Some(*process));
                // Not `panic!`: thousands of them would fill the output.
                std::panic::resume_unwind(Box::new("the destination's client panics"));
            }
            Act::Kill => {
                world.books.kills(*process, token, seq);
                world.kill(*process);
                std::future::pending::<()>().await;
                return None;
            }
            Act::Silence => {
                world.books.worked(seq);
                return None;
            }
            Act::Stall => {
                world.books.worked(seq);
                world.books.note("stalls", Some(*process));
                std::future::pending::<()>().await;
                return None;
            }
        };
        tokio::time::sleep(wait).await;
        if said == Said::Delivered {
            world.books.worked(seq);
        }
        tokio::time::sleep_until(world.weather.paused_until(*relay)).await;
        self.said(token, seq, said);
        Some(outcome)
    }
}

#[async_trait]
impl Sink for Destination {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let mut acts = Vec::new();
        let mut tries = Tries { destination: self, tries: Vec::new() };
        for message in batch {
            let token = token_of(message);
            let ordinal = self.world.books.begins(self.process, token, message);
            acts.push(self.world.act(&message.event_id, ordinal));
            tries.tries.push((token, message.seq));
        }
        for (index, act) in acts.into_iter().enumerate() {
            let (token, seq) = tries.tries[index];
            if let Some(outcome) = self.act(act, token, seq).await {
                report.outcome(index, outcome);
            }
        }
    }
}

/// Under which claim a message was taken: the relay's link to the store writes it there.
fn token_of(message: &Message) -> Token {
    Token(message.causation_id.as_deref().and_then(|text| Uuid::parse_str(text).ok()).unwrap())
}
