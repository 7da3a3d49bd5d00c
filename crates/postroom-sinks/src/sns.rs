//! The sink that publishes to a topic of Amazon SNS, or of what speaks like it.
//!
//! A message is delivered once the service has answered with its id. In FIFO topics the
//! ordering key is the message group.

use crate::aws::{Access, AwsSink, Entry, Failure, Make, Post, Target, read_wrapping};
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination, SinkConfig, SinkKind};
use crate::wrapping::Wrapping;
use aws_sdk_sns::Client;
use aws_sdk_sns::config::Builder;
use aws_sdk_sns::types::{MessageAttributeValue, PublishBatchRequestEntry};
use postroom_core::{Outcome, Sink};
use std::sync::Arc;
use std::time::Duration;

/// All that a topic takes, attributes included.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;

pub(crate) const KIND: SinkKind = SinkKind {
    name: "sns",
    keys: &[
        "topic_arn",
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
    read: |options, to| SnsConfig::read(options, to).map(SinkConfig::new),
};

/// Which topic, and who publishes.
#[derive(Clone, Debug)]
pub(crate) struct SnsConfig {
    topic_arn: String,
    access: Access,
    wrapping: Wrapping,
}

impl SnsConfig {
    fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        const EXPECTED: &str = "such as \"arn:aws:sns:eu-west-1:123456789012:orders\"";
        let topic_arn: Option<String> = options.required("topic_arn", EXPECTED);
        let mut access = Access::read(options, to.own_timeout());
        let wrapping = read_wrapping(options);
        let topic_arn = topic_arn?;
        match region_of(&topic_arn) {
            Some(region) => access.region = access.region.or_else(|| Some(region.to_owned())),
            None => options.fault(&["topic_arn"], format!("must be {EXPECTED}"), None),
        }
        Some(Self { topic_arn, access, wrapping })
    }

    fn name(&self) -> &str {
        self.topic_arn.rsplit(':').next().unwrap_or_default()
    }

    fn target(&self) -> Target {
        Target {
            name: format!("the topic `{}`", self.name()),
            action: "sns:Publish",
            options: "`topic_arn`",
        }
    }

    async fn connect(self) -> Result<Topic, Outcome> {
        let sdk = self.access.sdk_config(&self.target()).await?;
        let mut config = Builder::from(&sdk);
        config.set_endpoint_url(self.access.endpoint.map(|url| url.to_string()));
        Ok(Topic { client: Client::from_conf(config.build()), arn: self.topic_arn })
    }
}

impl Build for SnsConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        let make = Make {
            wrapping: self.wrapping,
            is_fifo: self.name().ends_with(".fifo"),
            bytes_max: MESSAGE_BYTES_MAX,
        };
        let config = self.clone();
        let connect = move || config.clone().connect();
        Ok(Arc::new(AwsSink::new(self.target(), make, self.access.limit, connect)))
    }
}

/// A topic, and a client that publishes to it.
#[derive(Clone)]
struct Topic {
    client: Client,
    arn: String,
}

impl Post for Topic {
    async fn send(&self, entries: &[Entry]) -> Result<Vec<(String, Option<Failure>)>, Failure> {
        let unmade = |error: aws_sdk_sns::error::BuildError| Failure::Client(error.to_string());
        let mut request = self.client.publish_batch().topic_arn(&self.arn);
        for entry in entries {
            let mut one = PublishBatchRequestEntry::builder().id(entry.id()).message(&entry.body);
            for (name, value) in &entry.attributes {
                let value =
                    MessageAttributeValue::builder().data_type("String").string_value(value);
                one = one.message_attributes(name.as_ref(), value.build().map_err(unmade)?);
            }
            if let Some(fifo) = &entry.fifo {
                one =
                    one.message_group_id(&fifo.group).message_deduplication_id(&fifo.deduplication);
            }
            request = request.publish_batch_request_entries(one.build().map_err(unmade)?);
        }
        let answer = request.send().await.map_err(|error| Failure::of(&error))?;
        let sent = answer.successful().iter();
        let sent = sent.filter_map(|one| Some((one.id()?.to_owned(), None)));
        let failed = answer
            .failed()
            .iter()
            .map(|one| (one.id().to_owned(), Some(Failure::of_entry(one.code(), one.message()))));
        Ok(sent.chain(failed).collect())
    }

    async fn look(&self) -> Result<(), Failure> {
        let asked = self.client.get_topic_attributes().topic_arn(&self.arn).send().await;
        asked.map(drop).map_err(|error| Failure::of(&error))
    }
}

/// The region that a topic's ARN names, if it is one.
fn region_of(arn: &str) -> Option<&str> {
    let parts: Vec<&str> = arn.split(':').collect();
    match parts[..] {
        ["arn", partition, "sns", region, account, name]
            if ![partition, region, account, name].contains(&"") =>
        {
            Some(region)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_names_the_region_of_its_topic() {
        assert_eq!(region_of("arn:aws:sns:eu-west-1:123456789012:orders"), Some("eu-west-1"));
        assert_eq!(region_of("arn:aws-cn:sns:cn-north-1:1:o.fifo"), Some("cn-north-1"));
        for bad in
            ["", "orders", "arn:aws:sqs:eu-west-1:1:orders", "arn:aws:sns:::", "arn:aws:sns:a:b"]
        {
            assert_eq!(region_of(bad), None, "{bad}");
        }
    }
}
