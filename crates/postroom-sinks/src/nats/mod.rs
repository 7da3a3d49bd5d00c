//! The sink that publishes to NATS: into a JetStream stream, or by choice without one.
//!
//! With JetStream a message is delivered once its stream has acknowledged it; `Nats-Msg-Id`
//! carries what the stream drops repetitions by within its window. In core
//! mode it is delivered once the server has taken it, whether or not anyone listens.

mod classify;
mod link;
mod rounds;

use crate::batch::Batch;
use crate::connections::Connections;
use crate::endpoints::Endpoints;
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination, SinkConfig, SinkKind};
use crate::template::Template;
use crate::tls;
use crate::wrapping::{Name, Wrapping};
use async_nats::jetstream::context::{GetStreamByNameErrorKind, PublishError};
use async_nats::jetstream::message::PublishMessage;
use async_nats::{HeaderMap, HeaderName, HeaderValue, Subject};
use async_trait::async_trait;
use classify::{Failure, classify};
use futures_util::FutureExt as _;
use link::{Event, Link};
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use rounds::Round;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, interval_at};

/// How often to look for acknowledgements that have come before an earlier message's: another
/// stream's may.
const OVERTAKEN_AFTER: Duration = Duration::from_millis(10);

/// How subjects begin that command the server (one of them purges a stream) or answer the
/// questions of others. An operator may mean them; a row's fields may not.
const COMMANDS: [&str; 2] = ["$", "_INBOX."];

pub(crate) const KIND: SinkKind = SinkKind {
    name: "nats",
    keys: &["url", "subject", "mode", "credentials_file", "ca_file", "format", "idempotency_key"],
    concurrency: 4,
    timeout: Duration::from_secs(10),
    read: |options, to| NatsConfig::read(options, to).map(SinkConfig::new),
};

/// Which servers, which subject, and how to log in.
#[derive(Clone, Debug)]
pub(crate) struct NatsConfig {
    endpoints: Endpoints,
    subject: Template,
    mode: Mode,
    credentials_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    wrapping: Wrapping,
    /// How long a batch may take.
    limit: Duration,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Mode {
    #[default]
    JetStream,
    Core,
}

impl NatsConfig {
    fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let endpoints = Endpoints::read(options, &[("nats", 4222), ("tls", 4222)]);
        let subject = Template::read(options, "subject", to.channel());
        let modes = [("jetstream", Mode::JetStream), ("core", Mode::Core)];
        let mode = options.choice("mode", &modes).unwrap_or_default();
        let credentials_file = options.optional("credentials_file", "the path of a file");
        let ca_file = options.optional("ca_file", "the path of a file of certificates");
        let wrapping = Wrapping::read(options);
        Some(Self {
            endpoints: endpoints?,
            subject: subject?,
            mode,
            credentials_file,
            ca_file,
            wrapping,
            limit: to.own_timeout(),
        })
    }
}

impl Build for NatsConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        tls::choose_provider();
        let config = self.clone();
        let connections = Connections::new(self.limit, move || link::connect(config.clone()));
        let fixed = self.subject.fixed().filter(|subject| is_subject(subject)).map(Subject::from);
        Ok(Arc::new(NatsSink { config: self.clone(), fixed, connections }))
    }
}

/// Publishes over one connection that all batches share.
struct NatsSink {
    config: NatsConfig,
    /// The subject, when it is the same for every message.
    fixed: Option<Subject>,
    connections: Connections<Link>,
}

/// A message as it is published.
struct Letter {
    index: usize,
    subject: Subject,
    headers: HeaderMap,
    body: String,
}

impl NatsSink {
    fn subject(&self, message: &Message) -> Result<Subject, Outcome> {
        if let Some(subject) = &self.fixed {
            return Ok(subject.clone());
        }
        let subject = self.config.subject.render(message)?;
        if !is_subject(&subject) {
            return Err(Outcome::reject(
                "the subject made from this message is none that NATS can publish to (empty, a \
                 space, a wildcard, or a dot too many): correct the row's fields or the \
                 integration's `subject`",
            ));
        }
        let start = self.config.subject.start();
        if COMMANDS.iter().any(|own| subject.starts_with(own) && !start.starts_with(own)) {
            return Err(Outcome::reject(
                "the subject made from this message begins with `$` or `_INBOX.`, by which the \
                 server is commanded and questions are answered: correct the row's fields, or \
                 begin the integration's `subject` with a text of its own",
            ));
        }
        Ok(subject.into())
    }

    fn letter(&self, index: usize, message: &Message) -> Result<Letter, Outcome> {
        let subject = self.subject(message)?;
        let mut wrapped = self.config.wrapping.wrap(message)?;
        wrapped.expect_one_line_each()?;
        wrapped.encode_cloud();
        let mut headers = HeaderMap::new();
        for (name, value) in wrapped.take_headers("ce-") {
            // Headers of this name command the server: one of them purges the stream.
            let start = name.as_bytes().get(..5).unwrap_or_default();
            if !start.eq_ignore_ascii_case(b"nats-") {
                set(&mut headers, name, value)?;
            }
        }
        set(&mut headers, Name::Borrowed("content-type"), wrapped.content_type.to_owned())?;
        set(&mut headers, Name::Borrowed("Nats-Msg-Id"), wrapped.once)?;
        Ok(Letter { index, subject, headers, body: wrapped.body })
    }

    /// Publishes in order, then takes the stream's acknowledgements. They come in that order too,
    /// so that one wake for the first of them finds many.
    async fn publish(&self, link: &Link, letters: Vec<Letter>, batch: &Batch<'_>) {
        let mut awaited = VecDeque::with_capacity(letters.len());
        for Letter { index, subject, headers, body } in letters {
            let message = PublishMessage::build().payload(body.into()).headers(headers);
            match link.jetstream.send_publish(subject, message).await {
                Ok(acknowledgement) => awaited.push_back((index, acknowledgement.into_future())),
                Err(error) => batch.settle(index, self.classify(&Failure::of(&error))),
            }
        }
        let settle = |index, acknowledged: Result<_, PublishError>| {
            let failure = acknowledged.err().map(|error| Failure::of(&error));
            batch.settle(index, failure.map_or(Outcome::Delivered, |one| self.classify(&one)));
        };
        let mut overtaken = interval_at(Instant::now() + OVERTAKEN_AFTER, OVERTAKEN_AFTER);
        while let Some((index, first)) = awaited.front_mut() {
            tokio::select! {
                biased;
                acknowledged = first => {
                    settle(*index, acknowledged);
                    awaited.pop_front();
                }
                _ = overtaken.tick() => awaited.retain_mut(|(index, acknowledgement)| {
                    let acknowledged = acknowledgement.now_or_never();
                    let is_awaited = acknowledged.is_none();
                    acknowledged.into_iter().for_each(|one| settle(*index, one));
                    is_awaited
                }),
            }
        }
    }

    /// Publishes in order without a stream, in rounds: nothing counts as delivered before the
    /// server has told what it refuses.
    async fn send(&self, link: &Link, letters: Vec<Letter>, batch: &Batch<'_>) -> Failure {
        let mut letters = VecDeque::from(letters);
        while !letters.is_empty() {
            let round = match Round::begin(link, letters.iter().map(|one| &one.subject)).await {
                Ok(round) => round,
                Err(failure) => return failure,
            };
            let mut sent = Vec::with_capacity(round.len);
            for Letter { index, subject, headers, body } in letters.drain(..round.len) {
                let publishing =
                    link.client.publish_with_headers(subject.clone(), headers, body.into());
                match publishing.await {
                    Ok(()) => sent.push((index, subject)),
                    Err(error) => batch.settle(index, self.classify(&Failure::of_core(&error))),
                }
            }
            let refused = match round.refused(sent.iter().map(|(_, subject)| subject)).await {
                Ok(refused) => refused,
                Err(failure) => return failure,
            };
            for (index, subject) in sent {
                let failure = refused.contains(subject.as_str()).then_some(Failure::Forbidden);
                batch.settle(index, failure.map_or(Outcome::Delivered, |f| self.classify(&f)));
            }
        }
        Failure::Lost
    }

    /// Settles what the server refuses to take, where a stream acknowledges the rest. Ends when
    /// the connection does.
    async fn follow(
        &self,
        link: &Link,
        mut events: link::Events,
        subjects: &[(usize, Subject)],
        batch: &Batch<'_>,
    ) {
        while link.is_up() {
            match events.next().await {
                Event::Forbidden(subject) => {
                    for (index, _) in subjects.iter().filter(|(_, own)| **own == *subject) {
                        batch.settle(*index, self.classify(&Failure::Forbidden));
                    }
                    if subjects.iter().all(|(index, _)| batch.is_settled(*index)) {
                        return;
                    }
                }
                // What was refused is never acknowledged.
                Event::Answered(_) | Event::Unclear => {}
                Event::Lost => return,
            }
        }
    }

    fn classify(&self, failure: &Failure) -> Outcome {
        let is_fixed = self.config.subject.fixed().is_some();
        classify(&self.config.endpoints.place(), is_fixed, failure)
    }
}

#[async_trait]
impl Sink for NatsSink {
    async fn deliver(&self, messages: &[Message], report: &Report<'_>) {
        let batch = Batch::new(report, messages.len());
        let deadline = Instant::now() + self.config.limit;
        let letters = batch.prepare(messages, |index, message| self.letter(index, message));
        if letters.is_empty() {
            return;
        }
        let held = match self.connections.get_up(deadline, Link::is_up).await {
            Ok(held) => held,
            Err(outcome) => return batch.settle_rest(&outcome),
        };
        let link = &held.connection;
        let publishing = async {
            if self.config.mode == Mode::Core {
                return self.send(link, letters, &batch).await;
            }
            let subjects: Vec<_> =
                letters.iter().map(|one| (one.index, one.subject.clone())).collect();
            tokio::select! {
                () = self.follow(link, link.events(), &subjects, &batch) => {}
                () = self.publish(link, letters, &batch) => {}
            }
            Failure::Lost
        };
        let rest = tokio::select! {
            failure = publishing => failure,
            () = tokio::time::sleep_until(deadline) => {
                // A connection on which nothing comes back is not worth keeping.
                self.connections.lost(&held);
                Failure::TimedOut
            }
        };
        batch.settle_rest(&self.classify(&rest));
    }

    /// Large enough to hide the way to the server, small enough to be settled in time.
    fn batch_max(&self) -> usize {
        1000
    }

    /// Connects, and looks for the stream when the subject is the same for every message.
    async fn probe(&self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.config.limit;
        let held =
            self.connections.get_up(deadline, Link::is_up).await.map_err(ProbeError::from)?;
        let Some(subject) =
            self.config.subject.fixed().filter(|_| self.config.mode == Mode::JetStream)
        else {
            return Ok(());
        };
        let mut events = held.connection.events();
        let looking = held.connection.jetstream.stream_by_subject(subject);
        let found = tokio::select! {
            found = looking => found,
            // Publishers need no right to ask for streams; the first message will tell.
            _ = events.next() => return Ok(()),
        };
        match found.map_err(|error| error.kind()) {
            Ok(_) => Ok(()),
            Err(GetStreamByNameErrorKind::NotFound) => {
                Err(self.classify(&Failure::NoStream).into())
            }
            Err(error) => {
                let place = self.config.endpoints.place();
                Err(ProbeError(format!("{place} does not say which stream takes this: {error}")))
            }
        }
    }
}

/// Whether messages can be published to this subject.
fn is_subject(subject: &str) -> bool {
    let is_token = |token: &str| {
        !token.is_empty()
            && !token.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '*' | '>'))
    };
    subject.split('.').all(is_token)
}

fn set(headers: &mut HeaderMap, name: Name, value: String) -> Result<(), Outcome> {
    let parsed = match name {
        // A name of ours is known to be one.
        Name::Borrowed(name) => Ok(HeaderName::from_static(name)),
        Name::Owned(ref name) => name.parse::<HeaderName>(),
    };
    // What the conversion below would panic at.
    let is_line = !value.bytes().any(|byte| matches!(byte, b'\r' | b'\n'));
    let (Ok(name), true) = (parsed, is_line) else {
        return Err(Outcome::reject(format!(
            "NATS does not allow the header `{}`: correct the row's headers and set it back to \
             PENDING",
            name.escape_default()
        )));
    };
    headers.insert(name, HeaderValue::from(value));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_with_wildcards_spaces_or_empty_parts_are_none() {
        for good in ["orders", "orders.placed.v1", "a-b_c.ü"] {
            assert!(is_subject(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "a\r\nPUB b 0", "a\0"] {
            assert!(!is_subject(bad), "{bad:?}");
        }
    }
}
