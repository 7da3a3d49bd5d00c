//! Topics.

use super::Kafka;
use anyhow::{Context as _, anyhow};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use std::time::Duration;

impl Kafka {
    /// Makes a topic with these settings.
    ///
    /// # Errors
    /// When it cannot be made.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<()> {
        create(&self.brokers, name, partitions, 1, settings).await
    }
}

/// Makes a topic with so many replicas.
pub(super) async fn create(
    brokers: &str,
    name: &str,
    partitions: i32,
    replicas: usize,
    settings: &[(&str, &str)],
) -> anyhow::Result<()> {
    let replicas = TopicReplication::Fixed(i32::try_from(replicas).context("replicas")?);
    let topic = NewTopic::new(name, partitions, replicas);
    let topic = settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value));
    let limit = Some(Duration::from_secs(30));
    let options = AdminOptions::new().operation_timeout(limit).request_timeout(limit);
    let made = admin(brokers)?.create_topics([&topic], &options).await;
    let made = made.context("creating a topic")?.into_iter().next().context("no answer")?;
    made.map_err(|(name, code)| anyhow!("creating {name}: {code}"))?;
    Ok(())
}

fn admin(brokers: &str) -> anyhow::Result<AdminClient<DefaultClientContext>> {
    ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .create()
        .context("a client for administration")
}
