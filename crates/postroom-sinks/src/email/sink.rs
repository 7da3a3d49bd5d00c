//! One mail for each message.

use super::classify::{Step, classify};
use super::config::EmailConfig;
use super::connection::{Receipt, Server};
use super::letter::Letter;
use super::progress::{Mails, Progress};
use crate::registry::BuildError;
use async_trait::async_trait;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use tokio::time::Instant;

/// Sends mails over connections that stay open.
///
/// A mail goes to all of its recipients in one transaction. When the server takes it for some of
/// them only, those have it, and later attempts are for the others.
pub struct EmailSink {
    config: EmailConfig,
    place: String,
    server: Server,
    mails: Mails,
}

impl EmailSink {
    /// A sink for `config`. Connects to nothing yet.
    ///
    /// # Errors
    /// When TLS cannot be set up, such as without the file of authorities.
    pub fn new(config: EmailConfig) -> Result<Self, BuildError> {
        let server = Server::new(config.clone())?;
        Ok(Self { place: config.place(), config, server, mails: Mails::default() })
    }

    async fn send(&self, message: &Message) -> Outcome {
        let letter = match Letter::compose(&self.config, message) {
            Ok(letter) => letter,
            Err(rejection) => return rejection,
        };
        let mut progress = self.mails.of(&message.id);
        let left: Vec<_> =
            letter.recipients.iter().filter(|recipient| !progress.is_through(recipient)).collect();
        let all = letter.recipients.len();
        let deadline = Instant::now() + self.config.timeout;
        let waiting = match self.server.send(&letter, &left, deadline).await {
            Ok(receipt) => self.record(&mut progress, receipt),
            Err(outcome) => return outcome,
        };
        if let Some(error) = waiting {
            let has = progress.accepted.len();
            self.mails.remember(&message.id, progress);
            return Outcome::retry(format!("{error}; {has} of {all} have the mail"));
        }
        self.mails.forget(&message.id);
        match progress.refused.first() {
            None => Outcome::Delivered,
            Some((_, reply)) => Outcome::reject(format!(
                "{} refused {} of {all} recipients for good, one with {reply}: correct the \
                 address, or ask whose server it is; {} have the mail, and would get it again",
                self.place,
                progress.refused.len(),
                progress.accepted.len(),
            )),
        }
    }

    /// Adds what became of the recipients. Why one of them is to be tried again, if any.
    fn record(&self, progress: &mut Progress, receipt: Receipt) -> Option<String> {
        progress.accepted.extend(receipt.accepted);
        let mut waiting = None;
        for (recipient, reply) in receipt.refused {
            match classify(&self.place, Step::Recipient, &reply) {
                Outcome::Retry { error, .. } => waiting = Some(error),
                _ => progress.refused.push((recipient, reply.to_string())),
            }
        }
        waiting
    }
}

#[async_trait]
impl Sink for EmailSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for (index, message) in batch.iter().enumerate() {
            report.outcome(index, self.send(message).await);
        }
    }

    /// A mail has the time of an attempt for itself.
    fn batch_max(&self) -> usize {
        1
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.config.timeout;
        self.server.probe(deadline).await.map_err(ProbeError::from)
    }
}
