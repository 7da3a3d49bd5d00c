//! The sink that sends to a queue of Amazon SQS, or of what speaks like it.
//!
//! A message is delivered once the service has answered with its id. In FIFO queues the
//! idempotency key is the deduplication id, and the ordering key the message group.

use crate::aws::{
    Access, AwsSink, Entry, Failure, LOGIN, Make, Post, Target, classify, read_wrapping,
};
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination, SinkConfig, SinkKind};
use crate::wrapping::Wrapping;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Builder;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName, SendMessageBatchRequestEntry};
use postroom_core::{Outcome, Sink};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// All that a queue takes today. One that is set to less says so itself.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "sqs",
    keys: &[
        "queue",
        "queue_url",
        "endpoint",
        "region",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "format",
        "idempotency_key",
    ],
    concurrency: 16,
    timeout: Duration::from_secs(10),
    read: |options, to| SqsConfig::read(options, to).map(SinkConfig::new),
};

/// Which queue, and who sends.
#[derive(Clone, Debug)]
pub(crate) struct SqsConfig {
    queue: String,
    /// Looked up by the queue's name when it is not given.
    queue_url: Option<Url>,
    access: Access,
    wrapping: Wrapping,
}

impl SqsConfig {
    fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let queue: Option<String> = options.optional("queue", "the name of a queue");
        let queue_url = options.http_url("queue_url", Some(LOGIN));
        if queue.is_some() && queue_url.is_some() {
            options.fault(&["queue"], "is not needed beside `queue_url`: leave one out", None);
        }
        let mut access = Access::read(options, to.own_timeout());
        let wrapping = read_wrapping(options);
        if let Some(url) = &queue_url {
            match amazons_region(url) {
                Some(region) => access.region = access.region.or(Some(region.to_owned())),
                // A queue elsewhere is where its URL says, unless the options say otherwise.
                None => access.endpoint = access.endpoint.or_else(|| origin(url)),
            }
        }
        let named = queue_url.as_ref().and_then(|url| url.path_segments()?.next_back());
        let queue = named.map(str::to_owned).or(queue).unwrap_or_else(|| to.channel().to_owned());
        if !is_queue_name(&queue) {
            let key = if queue_url.is_some() { "queue_url" } else { "queue" };
            options.fault(
                &[key],
                "names no queue: its name is made of up to 80 letters, digits, - and _, and ends \
                 in .fifo if it is one",
                None,
            );
        }
        Some(Self { queue, queue_url, access, wrapping })
    }

    fn target(&self) -> Target {
        Target {
            name: format!("the queue `{}`", self.queue),
            action: "sqs:SendMessage (and sqs:GetQueueUrl, or set `queue_url`)",
            options: "`queue` or `queue_url`, and its `region`",
        }
    }

    async fn connect(self) -> Result<Queue, Outcome> {
        let target = self.target();
        let sdk = self.access.sdk_config(&target).await?;
        let mut config = Builder::from(&sdk);
        config.set_endpoint_url(self.access.endpoint.map(|url| url.to_string()));
        let client = Client::from_conf(config.build());
        let url = match self.queue_url {
            Some(url) => url.to_string(),
            None => {
                let found = client.get_queue_url().queue_name(&self.queue).send().await;
                let found = found.map_err(|error| classify(&target, &Failure::of(&error)))?;
                let url = found.queue_url.ok_or(Failure::Unmentioned);
                url.map_err(|failure| classify(&target, &failure))?
            }
        };
        Ok(Queue { client, url })
    }
}

impl Build for SqsConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        let make = Make {
            wrapping: self.wrapping,
            is_fifo: self.queue.ends_with(".fifo"),
            bytes_max: MESSAGE_BYTES_MAX,
        };
        let config = self.clone();
        let connect = move || config.clone().connect();
        Ok(Arc::new(AwsSink::new(self.target(), make, self.access.limit, connect)))
    }
}

/// A queue, and a client that sends to it.
#[derive(Clone)]
struct Queue {
    client: Client,
    url: String,
}

impl Post for Queue {
    async fn send(&self, entries: &[Entry]) -> Result<Vec<(String, Option<Failure>)>, Failure> {
        let unmade = |error: aws_sdk_sqs::error::BuildError| Failure::Client(error.to_string());
        let mut request = self.client.send_message_batch().queue_url(&self.url);
        for entry in entries {
            let mut one =
                SendMessageBatchRequestEntry::builder().id(entry.id()).message_body(&entry.body);
            for (name, value) in &entry.attributes {
                let value =
                    MessageAttributeValue::builder().data_type("String").string_value(value);
                one = one.message_attributes(name.as_ref(), value.build().map_err(unmade)?);
            }
            if let Some(fifo) = &entry.fifo {
                one =
                    one.message_group_id(&fifo.group).message_deduplication_id(&fifo.deduplication);
            }
            request = request.entries(one.build().map_err(unmade)?);
        }
        let answer = request.send().await.map_err(|error| Failure::of(&error))?;
        let sent = answer.successful().iter().map(|one| (one.id().to_owned(), None));
        let failed = answer
            .failed()
            .iter()
            .map(|one| (one.id().to_owned(), Some(Failure::of_entry(one.code(), one.message()))));
        Ok(sent.chain(failed).collect())
    }

    async fn look(&self) -> Result<(), Failure> {
        let asked = self.client.get_queue_attributes().queue_url(&self.url);
        let asked = asked.attribute_names(QueueAttributeName::QueueArn).send().await;
        asked.map(drop).map_err(|error| Failure::of(&error))
    }
}

/// The region of a queue of Amazon's own, such as `https://sqs.eu-west-1.amazonaws.com/1/orders`.
fn amazons_region(url: &Url) -> Option<&str> {
    let host = url.host_str()?;
    let host = host.strip_suffix(".amazonaws.com").or(host.strip_suffix(".amazonaws.com.cn"))?;
    host.strip_prefix("sqs.").or(host.strip_prefix("sqs-fips."))
}

fn origin(url: &Url) -> Option<Url> {
    url.join("/").ok()
}

fn is_queue_name(name: &str) -> bool {
    let plain = name.strip_suffix(".fifo").unwrap_or(name);
    !plain.is_empty()
        && name.len() <= 80
        && plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(integration: &str, values: Value) -> Result<SqsConfig, Vec<String>> {
        let Value::Object(values) = values else { panic!("a table") };
        let mut options = Options::new(values);
        let to = Destination { integration, timeout: Duration::from_secs(1) };
        let config = SqsConfig::read(&mut options, &to);
        let faults = options.finish(KIND.keys);
        if faults.is_empty() {
            return Ok(config.unwrap());
        }
        let words = faults.iter().map(|one| format!("{} {}", one.path.join("."), one.problem));
        Err(words.collect())
    }

    #[test]
    fn the_queue_is_the_channel_an_option_or_a_url() {
        assert_eq!(read("sqs:orders", json!({})).unwrap().queue, "orders");
        assert_eq!(read("sqs:orders", json!({"queue": "o.fifo"})).unwrap().queue, "o.fifo");
        let url = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo";
        let config = read("sqs:x", json!({"queue_url": url})).unwrap();
        assert_eq!(config.queue, "orders.fifo");
        assert_eq!(config.access.region.as_deref(), Some("eu-west-1"));
        assert_eq!(config.access.endpoint, None);
        let config = read("sqs:x", json!({"queue_url": url, "region": "eu-west-2"})).unwrap();
        assert_eq!(config.access.region.as_deref(), Some("eu-west-2"));
    }

    #[test]
    fn a_queue_elsewhere_is_where_its_url_says() {
        let url = "http://localhost:9324/000000000000/orders";
        let config = read("sqs:x", json!({"queue_url": url})).unwrap();
        assert_eq!(config.access.endpoint.unwrap().as_str(), "http://localhost:9324/");
        let through = json!({"queue_url": url, "endpoint": "http://proxy:1"});
        let config = read("sqs:x", through).unwrap();
        assert_eq!(config.access.endpoint.unwrap().as_str(), "http://proxy:1/");
    }

    #[test]
    fn what_cannot_work_is_a_fault() {
        for (integration, values, fault) in [
            ("sqs:two words", json!({}), "queue names no queue"),
            ("sqs:x", json!({"queue": ".fifo"}), "queue names no queue"),
            ("sqs:x", json!({"queue_url": "https://host/"}), "queue_url names no queue"),
            ("sqs:x", json!({"queue": "x", "queue_url": "http://h/1/x"}), "queue is not needed"),
            ("sqs:x", json!({"format": "cloudevents-binary"}), "format needs more attributes"),
        ] {
            let faults = read(integration, values).unwrap_err();
            assert!(faults[0].starts_with(fault), "{faults:?}");
        }
    }
}
