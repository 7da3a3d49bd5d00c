//! The sink that publishes to a topic of Google Cloud Pub/Sub, or of its emulator.
//!
//! A message is delivered once the service has answered with its id.

mod classify;
mod letter;
mod link;

use crate::batch::Batch;
use crate::connections::{Connections, Held};
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination, SinkConfig, SinkKind};
use crate::tls;
use crate::wrapping::Wrapping;
use async_trait::async_trait;
use classify::{Failure, classify};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use letter::Letter;
use link::Link;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

/// Where an emulator is, by the name that Google's own tools have for it.
const EMULATOR: &str = "PUBSUB_EMULATOR_HOST";

pub(crate) const KIND: SinkKind = SinkKind {
    name: "pubsub",
    keys: &["project", "topic", "endpoint", "credentials_file", "format", "idempotency_key"],
    concurrency: 4,
    timeout: Duration::from_secs(10),
    read: |options, to| {
        let emulator = std::env::var(EMULATOR).ok().filter(|host| !host.is_empty());
        PubSubConfig::read(options, to, emulator.as_deref()).map(SinkConfig::new)
    },
};

/// Which topic, and who publishes.
#[derive(Clone, Debug)]
pub(crate) struct PubSubConfig {
    project: String,
    topic: String,
    /// Google's own when there is none. One without TLS is an emulator: it gets no credentials.
    endpoint: Option<Url>,
    credentials_file: Option<PathBuf>,
    wrapping: Wrapping,
    /// How long a batch may take.
    limit: Duration,
}

impl PubSubConfig {
    fn read(options: &mut Options, to: &Destination<'_>, emulator: Option<&str>) -> Option<Self> {
        let project: Option<String> = options.required("project", "the id of a project");
        if project.as_deref().is_some_and(|project| !is_project(project)) {
            options.fault(&["project"], "must be the id of a project, such as \"shop-1\"", None);
        }
        let topic: Option<String> = options.optional("topic", "the name of a topic");
        let topic = topic.unwrap_or_else(|| to.channel().to_owned());
        if !is_topic(&topic) {
            options.fault(
                &["topic"],
                "must be the name of a topic: 3 to 255 letters, digits and -_.~+%, beginning with \
                 a letter, and not with \"goog\"",
                None,
            );
        }
        let endpoint = read_endpoint(options, emulator);
        let credentials_file = options.optional("credentials_file", "the path of a file");
        let wrapping = Wrapping::read(options);
        let limit = to.own_timeout();
        Some(Self { project: project?, topic, endpoint, credentials_file, wrapping, limit })
    }

    /// What the service calls the topic.
    fn full_name(&self) -> String {
        format!("projects/{}/topics/{}", self.project, self.topic)
    }
}

/// Reads `endpoint`; without it, the emulator that the environment names.
fn read_endpoint(options: &mut Options, emulator: Option<&str>) -> Option<Url> {
    let given: Option<String> = options.optional("endpoint", "an http or https URL");
    let from_environment = given.is_none();
    let text = given.or_else(|| emulator.map(|host| format!("http://{host}")))?;
    let problem = match Url::parse(&text) {
        Err(error) => format!("is no URL: {error}"),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            "must begin with https://, or for an emulator with http://".to_owned()
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            "must not hold a user or password".to_owned()
        }
        Ok(url) => return Some(url),
    };
    let hint = from_environment.then(|| format!("it comes from the environment: {EMULATOR}"));
    options.fault(&["endpoint"], problem, hint);
    None
}

impl Build for PubSubConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        tls::choose_provider();
        let config = self.clone();
        let links = Connections::new(self.limit, move || link::connect(config.clone()));
        Ok(Arc::new(PubSubSink { config: self.clone(), links }))
    }
}

/// Publishes over one client that all batches share.
struct PubSubSink {
    config: PubSubConfig,
    links: Connections<Link>,
}

impl PubSubSink {
    /// Publishes all, as few requests as they fit into. Returns those of requests in which some
    /// message was not taken: alone, each will be told.
    async fn together<'a>(
        &self,
        link: &Link,
        letters: &'a [Letter],
        batch: &Batch<'_>,
    ) -> Vec<&'a Letter> {
        // One for each batch: a publisher remembers every ordering key it has seen for as long
        // as it lives, and those that it has stopped at.
        let publisher = link.publisher();
        let mut published: FuturesUnordered<_> = letters
            .iter()
            .map(|letter| {
                let published = publisher.publish(letter.message.clone());
                async move { (letter, published.await) }
            })
            .collect();
        let (mut again, mut stopped) = (Vec::new(), HashSet::new());
        let settling = async {
            while let Some((letter, result)) = published.next().await {
                let failure = match result {
                    Ok(_) => {
                        batch.settle(letter.index, Outcome::Delivered);
                        continue;
                    }
                    Err(error) => Failure::of(&error),
                };
                let outcome = self.classify(&failure);
                match outcome {
                    Outcome::Reject { .. } if letters.len() > 1 => again.push(letter),
                    _ if failure == Failure::Behind => again.push(letter),
                    outcome => {
                        stopped.insert(letter.key());
                        batch.settle(letter.index, outcome);
                    }
                }
            }
        };
        tokio::join!(publisher.flush(), settling);
        // What comes behind a message that is tried again later waits for it.
        again.retain(|letter| letter.key().is_empty() || !stopped.contains(letter.key()));
        again
    }

    /// Publishes each in a request of its own; those with the same ordering key in order.
    async fn one_by_one(&self, link: &Link, letters: Vec<&Letter>, batch: &Batch<'_>) {
        let publisher = link.publisher_of_single_messages();
        let mut groups: BTreeMap<(&str, usize), Vec<&Letter>> = BTreeMap::new();
        for letter in letters {
            // Without a key, each is a group of its own.
            let number = if letter.key().is_empty() { letter.index } else { 0 };
            groups.entry((letter.key(), number)).or_default().push(letter);
        }
        let publishing = groups.into_values().map(|mut group| {
            group.sort_by_key(|letter| letter.index);
            let mut publisher = publisher.clone();
            async move {
                for letter in group {
                    let Err(error) = publisher.publish(letter.message.clone()).await else {
                        batch.settle(letter.index, Outcome::Delivered);
                        continue;
                    };
                    let outcome = self.classify(&Failure::of(&error));
                    let goes_on = matches!(outcome, Outcome::Reject { .. });
                    batch.settle(letter.index, outcome);
                    if !goes_on {
                        return;
                    }
                    // This one has stopped at the key, or is about to: told to go on too early, it
                    // would not hear. A new one has nothing to stop for.
                    publisher = link.publisher_of_single_messages();
                }
            }
        });
        join_all(publishing).await;
    }

    async fn publish(&self, held: &Held<Link>, letters: &[Letter], batch: &Batch<'_>) {
        let again = self.together(&held.connection, letters, batch).await;
        if !again.is_empty() {
            self.one_by_one(&held.connection, again, batch).await;
        }
    }

    fn classify(&self, failure: &Failure) -> Outcome {
        classify(&self.config.topic, failure)
    }
}

#[async_trait]
impl Sink for PubSubSink {
    async fn deliver(&self, messages: &[Message], report: &Report<'_>) {
        let batch = Batch::new(report, messages.len());
        let deadline = Instant::now() + self.config.limit;
        let mut letters = Vec::with_capacity(messages.len());
        for (index, message) in messages.iter().enumerate() {
            match Letter::new(index, message, self.config.wrapping) {
                Ok(letter) => letters.push(letter),
                Err(outcome) => batch.settle(index, outcome),
            }
        }
        if letters.is_empty() {
            return;
        }
        let held = match self.links.get(deadline).await {
            Ok(held) => held,
            Err(outcome) => return batch.settle_rest(&outcome),
        };
        let publishing = self.publish(&held, &letters, &batch);
        let rest = match tokio::time::timeout_at(deadline, publishing).await {
            Ok(()) => Failure::Behind,
            Err(_) => {
                // A connection on which nothing comes back is not worth keeping.
                self.links.lost(&held);
                Failure::TimedOut
            }
        };
        batch.settle_rest(&self.classify(&rest));
    }

    /// The most that one request takes.
    fn batch_max(&self) -> usize {
        1000
    }

    /// Asks for the topic.
    async fn probe(&self) -> Result<(), ProbeError> {
        let deadline = Instant::now() + self.config.limit;
        let held = self.links.get(deadline).await.map_err(ProbeError::from)?;
        match tokio::time::timeout_at(deadline, held.connection.look()).await {
            Ok(Ok(())) => Ok(()),
            // Publishers need no right to ask; the first message will tell.
            Ok(Err(failure)) if failure.is_forbidden() => Ok(()),
            Ok(Err(failure)) => Err(self.classify(&failure).into()),
            Err(_) => Err(self.classify(&Failure::TimedOut).into()),
        }
    }
}

fn is_project(id: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:_".contains(c);
    !id.is_empty() && id.len() <= 100 && id.chars().all(is_part)
}

fn is_topic(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.~+%".contains(c);
    (3..=255).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(is_part)
        && !name.to_ascii_lowercase().starts_with("goog")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(values: Value, emulator: Option<&str>) -> Result<PubSubConfig, Vec<String>> {
        let Value::Object(values) = values else { panic!("a table") };
        let mut options = Options::new(values);
        let to = Destination { integration: "pubsub:orders", timeout: Duration::from_secs(1) };
        let config = PubSubConfig::read(&mut options, &to, emulator);
        let faults = options.finish(KIND.keys);
        if faults.is_empty() {
            return Ok(config.unwrap());
        }
        let words = faults.iter().map(|one| format!("{} {}", one.path.join("."), one.problem));
        Err(words.collect())
    }

    #[test]
    fn the_topic_is_the_channel_or_an_option() {
        let config = read(json!({"project": "shop"}), None).unwrap();
        assert_eq!(config.full_name(), "projects/shop/topics/orders");
        assert_eq!(config.endpoint, None);
        let config = read(json!({"project": "example.com:shop", "topic": "a.b"}), None).unwrap();
        assert_eq!(config.full_name(), "projects/example.com:shop/topics/a.b");
    }

    #[test]
    fn the_environment_names_an_emulator_unless_the_options_name_an_endpoint() {
        let endpoint = |values, emulator| read(values, emulator).unwrap().endpoint.unwrap();
        let none = json!({"project": "shop"});
        assert_eq!(endpoint(none, Some("localhost:8085")).as_str(), "http://localhost:8085/");
        let other = json!({"project": "shop", "endpoint": "https://pubsub.example"});
        assert_eq!(endpoint(other, Some("localhost:8085")).as_str(), "https://pubsub.example/");
    }

    #[test]
    fn what_cannot_work_is_a_fault() {
        for (values, fault) in [
            (json!({}), "project is missing"),
            (json!({"project": "Shop/1"}), "project must be"),
            (json!({"project": "shop", "topic": "ab"}), "topic must be"),
            (json!({"project": "shop", "topic": "google-x"}), "topic must be"),
            (json!({"project": "shop", "topic": "a/b/c"}), "topic must be"),
            (json!({"project": "shop", "endpoint": "ftp://x"}), "endpoint must begin"),
        ] {
            let faults = read(values, None).unwrap_err();
            assert!(faults[0].starts_with(fault), "{faults:?}");
        }
        let faults = read(json!({"project": "s", "endpoint": "http://a:hunter2@x"}), None);
        assert!(!faults.unwrap_err()[0].contains("hunter2"));
    }
}
