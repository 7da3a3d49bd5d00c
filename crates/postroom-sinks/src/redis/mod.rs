//! The sink that appends to a Redis stream; by choice it pushes to a list or publishes to a
//! channel.
//!
//! A message is appended once: a script adds the entry together with a mark that expires, so that
//! a repetition within that time finds the mark and adds nothing. The mark lies in the slot of
//! the key, so that clusters can do both in one step.

mod classify;
mod command;
mod link;
mod sentinel;
mod servers;

use crate::batch::Batch;
use crate::connections::Connections;
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination, SinkConfig, SinkKind};
use crate::template::Template;
use crate::tls;
use crate::wrapping::{Format, Wrapping};
use ::redis::{Pipeline, RedisError};
use async_trait::async_trait;
use classify::{Failure, classify, too_large};
use command::{Appending, Entry};
use futures_util::future::join_all;
use link::Link;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use servers::Servers;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long repetitions are recognised unless the integration says otherwise.
const DEDUPE: Duration = Duration::from_secs(24 * 60 * 60);

/// Redis refuses an expiry that it cannot add to the time of day, and only after the entry was added:
/// each retry would add another.
const DEDUPE_MAX: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

/// How many connections in a row a batch may lose once its entries are sent one by one.
const LOST_MAX: usize = 3;

/// No server's limit for a value can be set below this.
const VALUE_LIMIT_LEAST: u64 = 1 << 20;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "redis",
    keys: &[
        "url",
        "key",
        "mode",
        "cluster",
        "max_length",
        "dedupe",
        "ca_file",
        "format",
        "idempotency_key",
    ],
    concurrency: 4,
    timeout: Duration::from_secs(10),
    read: |options, to| RedisConfig::read(options, to).map(SinkConfig::new),
};

/// Which servers, which key, and what is done with it.
#[derive(Clone, Debug)]
pub(crate) struct RedisConfig {
    servers: Servers,
    ca_file: Option<PathBuf>,
    key: Template,
    appending: Appending,
    wrapping: Wrapping,
    /// How long a batch may take.
    limit: Duration,
}

/// What is done with the key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Mode {
    #[default]
    Stream,
    List,
    Publish,
}

impl RedisConfig {
    fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let servers = Servers::read(options);
        let key = Template::read(options, "key", to.channel());
        let modes = [("stream", Mode::Stream), ("list", Mode::List), ("publish", Mode::Publish)];
        let mode = options.choice("mode", &modes).unwrap_or_default();
        let max_length: Option<u64> = options.optional("max_length", "a number of entries");
        if max_length.is_some() && mode != Mode::Stream {
            options.fault(&["max_length"], "is for streams only", None);
        }
        let dedupe = options.duration("dedupe");
        if dedupe.is_some() && mode == Mode::Publish {
            options.fault(&["dedupe"], "is not for mode \"publish\"", None);
        }
        if dedupe.is_some_and(|dedupe| dedupe > DEDUPE_MAX) {
            options.fault(&["dedupe"], "must not be longer than \"3650d\"", None);
        }
        let appending = Appending { mode, max_length, dedupe: dedupe.unwrap_or(DEDUPE) };
        let is_marked = mode != Mode::Publish && !appending.dedupe.is_zero();
        if is_marked && key.as_ref().is_some_and(|key| command::mark(&key.sample(), "").is_none()) {
            options.fault(
                &["key"],
                "has braces that are no hash tag, so that no mark can be kept in its slot",
                Some("change it, or set `dedupe` to \"0s\"".to_owned()),
            );
        }
        let ca_file = options.optional("ca_file", "the path of a file of certificates");
        let wrapping = match mode {
            Mode::Stream => Wrapping::read(options),
            // What is one string has no place for an id but inside.
            Mode::List | Mode::Publish => Wrapping::read_or(options, Format::CloudEvents),
        };
        if mode != Mode::Stream && wrapping.format() == Format::CloudEventsBinary {
            options.fault(
                &["format"],
                "needs a place beside the body, which only streams have",
                None,
            );
        }
        let limit = to.own_timeout();
        let (servers, key) = (servers?, key?);
        Some(Self { servers, ca_file, key, appending, wrapping, limit })
    }
}

impl Build for RedisConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        tls::choose_provider();
        let config = self.clone();
        let connections = Connections::new(self.limit, move || link::connect(config.clone()));
        Ok(Arc::new(RedisSink { config: self.clone(), connections }))
    }
}

/// Sends each batch as a pipeline over one connection.
struct RedisSink {
    config: RedisConfig,
    connections: Connections<Link>,
}

impl RedisSink {
    fn entry(&self, index: usize, message: &Message) -> Result<Entry, Outcome> {
        let key = self.config.key.render(message)?;
        if key.is_empty() {
            return Err(Outcome::reject(
                "the key made from this message is empty: correct the integration's `key`",
            ));
        }
        Entry::new(index, key, self.config.wrapping.wrap(message)?)
    }

    /// Sends what goes to one key, in order. When the connection is lost, the entries are left
    /// open: one of them may be to blame.
    async fn send(&self, mut link: Link, entries: &[Entry], batch: &Batch<'_>) -> Sent {
        let mut pipeline = Pipeline::with_capacity(entries.len());
        for (place, entry) in entries.iter().enumerate() {
            match self.config.appending.command(entry, place == 0) {
                Ok(command) => drop(pipeline.add_command(command)),
                // Of all entries or of none, since they have the same key.
                Err(outcome) => {
                    batch.settle(entry.index, outcome);
                }
            }
        }
        if pipeline.is_empty() {
            return Sent::Good;
        }
        match link.send(pipeline.ignore_errors()).await {
            Ok(answers) => {
                let mut sent = Sent::Good;
                for (entry, answer) in entries.iter().zip(answers) {
                    let outcome = match answer.map_err(|error| Failure::of(&error)) {
                        Ok(_) => Outcome::Delivered,
                        Err(failure) => {
                            if failure.ends_connection() {
                                sent = Sent::Ended;
                            }
                            self.classify(&failure)
                        }
                    };
                    batch.settle(entry.index, outcome);
                }
                sent
            }
            Err(error) if is_lost(&error) && !error.is_timeout() => Sent::Lost(Failure::of(&error)),
            Err(error) => {
                let outcome = self.classify(&Failure::of(&error));
                entries.iter().for_each(|entry| batch.settle(entry.index, outcome.clone()));
                if is_lost(&error) { Sent::Ended } else { Sent::Good }
            }
        }
    }

    /// What the loss of a connection means for the one entry that was sent over it. Redis hangs up
    /// at a value over its limit, often before its answer can be read: then it is asked for the
    /// limit over the next connection.
    async fn classify_lost(&self, entry: &Entry, failure: &Failure, deadline: Instant) -> Outcome {
        let length = entry.longest_value();
        if length > VALUE_LIMIT_LEAST
            && let Ok(mut held) = self.connections.get(deadline).await
            && let Ok(Ok(limit)) =
                tokio::time::timeout_at(deadline, held.connection.value_limit()).await
            && length > limit
        {
            return too_large(&self.config.servers.place(), length, limit);
        }
        self.classify(failure)
    }

    /// Sends each entry that is still open by itself, so that one at which the server ends the
    /// connection, such as for its size, is the only one to fail.
    async fn send_singly(
        &self,
        entries: impl Iterator<Item = &Entry>,
        batch: &Batch<'_>,
        deadline: Instant,
    ) {
        let mut lost_in_a_row = 0;
        for entry in entries.filter(|entry| !batch.is_settled(entry.index)) {
            if lost_in_a_row == LOST_MAX {
                let place = self.config.servers.place();
                let error = format!("{place} ends one connection after the other");
                return batch.settle_rest(&Outcome::retry(error));
            }
            let held = match self.connections.get(deadline).await {
                Ok(held) => held,
                Err(outcome) => return batch.settle_rest(&outcome),
            };
            let one = std::slice::from_ref(entry);
            let sending = self.send(held.connection.clone(), one, batch);
            match tokio::time::timeout_at(deadline, sending).await {
                Ok(Sent::Good) => lost_in_a_row = 0,
                Ok(Sent::Ended) => {
                    self.connections.lost(&held);
                    lost_in_a_row += 1;
                }
                Ok(Sent::Lost(failure)) => {
                    self.connections.lost(&held);
                    lost_in_a_row += 1;
                    let outcome = self.classify_lost(entry, &failure, deadline).await;
                    batch.settle(entry.index, outcome);
                }
                Err(_) => {
                    self.connections.lost(&held);
                    return batch.settle_rest(&self.classify(&Failure::TimedOut));
                }
            }
        }
    }

    fn classify(&self, failure: &Failure) -> Outcome {
        let is_fixed = self.config.key.fixed().is_some();
        classify(&self.config.servers.place(), is_fixed, failure)
    }
}

#[async_trait]
impl Sink for RedisSink {
    async fn deliver(&self, messages: &[Message], report: &Report<'_>) {
        let batch = Batch::new(report, messages.len());
        let deadline = Instant::now() + self.config.limit;
        // One pipeline for each key: a cluster has them on different nodes.
        let mut keys: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in batch.prepare(messages, |index, message| self.entry(index, message)) {
            keys.entry(entry.key.clone()).or_default().push(entry);
        }
        if keys.is_empty() {
            return;
        }
        let held = match self.connections.get(deadline).await {
            Ok(held) => held,
            Err(outcome) => return batch.settle_rest(&outcome),
        };
        let sending =
            keys.values().map(|entries| self.send(held.connection.clone(), entries, &batch));
        match tokio::time::timeout_at(deadline, join_all(sending)).await {
            Ok(all) if all.iter().all(|sent| matches!(sent, Sent::Good)) => {}
            Ok(all) => {
                self.connections.lost(&held);
                let entries: Vec<&Entry> = keys.values().flatten().collect();
                match (&all[..], &entries[..]) {
                    // It was alone already.
                    ([Sent::Lost(failure)], [entry]) => {
                        let outcome = self.classify_lost(entry, failure, deadline).await;
                        batch.settle(entry.index, outcome);
                    }
                    _ => self.send_singly(entries.into_iter(), &batch, deadline).await,
                }
            }
            Err(_) => {
                // A connection on which nothing comes back is not worth keeping.
                self.connections.lost(&held);
                batch.settle_rest(&self.classify(&Failure::TimedOut));
            }
        }
    }

    /// Large enough to hide the way to the server, small enough to be settled in time.
    fn batch_max(&self) -> usize {
        1000
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.config.limit;
        let mut held = self.connections.get(deadline).await.map_err(ProbeError::from)?;
        match tokio::time::timeout_at(deadline, held.connection.ping()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.classify(&Failure::of(&error)).into()),
            Err(_) => Err(self.classify(&Failure::TimedOut).into()),
        }
    }
}

/// What became of entries that were sent together.
enum Sent {
    /// Each is settled, and the connection is still good.
    Good,
    /// Each is settled, and the connection is not to be used again.
    Ended,
    /// None is settled, and the connection is lost.
    Lost(Failure),
}

/// Whether the connection is of no use after this.
fn is_lost(error: &RedisError) -> bool {
    error.is_io_error() || error.is_unrecoverable_error() || error.is_timeout()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(more: &[(&str, &str)]) -> usize {
        let mut options = json!({"url": "redis://127.0.0.1"});
        for (key, value) in more {
            options[key] = json!(value);
        }
        let serde_json::Value::Object(options) = options else { unreachable!("it is a table") };
        let destination =
            Destination { integration: "redis:orders", timeout: Duration::from_secs(3) };
        KIND.validate(options, &destination).err().map_or(0, |faults| faults.len())
    }

    #[test]
    fn repetitions_are_recognised_for_ten_years_at_most() {
        for (dedupe, expected) in
            [("0s", 0), ("3650d", 0), ("3651d", 1), ("200000000000d", 1), ("1000000000000000d", 1)]
        {
            assert_eq!(faults(&[("dedupe", dedupe)]), expected, "{dedupe}");
        }
    }

    #[test]
    fn a_key_whose_braces_are_no_hash_tag_needs_to_do_without_marks() {
        for good in ["orders", "{tenant}", "{{{tenant}}}:orders", "a{{b}}{tenant}"] {
            assert_eq!(faults(&[("key", good)]), 0, "{good}");
        }
        for bad in ["a}}", "a{{b", "{{}}{tenant}", "{tenant}}}{{"] {
            assert_eq!(faults(&[("key", bad)]), 1, "{bad}");
            assert_eq!(faults(&[("key", bad), ("dedupe", "0s")]), 0, "{bad}");
            assert_eq!(faults(&[("key", bad), ("mode", "publish")]), 0, "{bad}");
        }
    }
}
