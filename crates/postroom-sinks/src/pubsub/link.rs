//! A client of Pub/Sub.

use super::PubSubConfig;
use super::classify::{Failure, classify, unusable_file};
use crate::cause::root;
use google_cloud_auth::credentials::{self, Credentials, anonymous, service_account};
use google_cloud_gax::client_builder;
use google_cloud_gax::retry_policy::{NeverRetry, RetryPolicyExt as _};
use google_cloud_pubsub::builder::publisher::PublisherPartialBuilder;
use google_cloud_pubsub::client::{BasePublisher, Publisher, TopicAdmin};
use postroom_core::Outcome;
use std::path::Path;
use std::time::Duration;

/// As many messages as one request takes.
const MESSAGES_MAX: u32 = 1000;
/// Less than the ten million that one request takes: the client does not count all of them.
const BYTES_MAX: u32 = 9_000_000;
/// Each batch is flushed, so nothing ever waits for this.
const DELAY: Duration = Duration::from_secs(60);

/// A client, and which topic it publishes to.
#[derive(Clone, Debug)]
pub(super) struct Link {
    client: BasePublisher,
    admin: TopicAdmin,
    topic: String,
}

impl Link {
    /// One that gathers messages until it is flushed.
    pub(super) fn publisher(&self) -> Publisher {
        self.builder().set_message_count_threshold(MESSAGES_MAX).build()
    }

    /// One that sends each message at once.
    pub(super) fn publisher_of_single_messages(&self) -> Publisher {
        self.builder().set_message_count_threshold(1).build()
    }

    fn builder(&self) -> PublisherPartialBuilder {
        self.client.publisher(&self.topic).set_byte_threshold(BYTES_MAX).set_delay_threshold(DELAY)
    }

    /// Asks for the topic.
    pub(super) async fn look(&self) -> Result<(), Failure> {
        let asked = self.admin.get_topic().set_topic(&self.topic).send().await;
        asked.map(drop).map_err(|error| Failure::of_call(&error))
    }
}

/// Makes a client. It connects when it is first used.
pub(super) async fn connect(config: PubSubConfig) -> Result<Link, Outcome> {
    let credentials = credentials(&config).await?;
    expect_token(&config, &credentials).await?;
    let topic = config.full_name();
    // The outbox retries, and it alone.
    let retry = || NeverRetry.with_time_limit(config.limit);
    let mut publisher =
        BasePublisher::builder().with_credentials(credentials.clone()).with_retry_policy(retry());
    let mut admin = TopicAdmin::builder().with_credentials(credentials).with_retry_policy(retry());
    if let Some(endpoint) = &config.endpoint {
        let endpoint = endpoint.as_str().trim_end_matches('/');
        publisher = publisher.with_endpoint(endpoint);
        admin = admin.with_endpoint(endpoint);
    }
    let unusable = |error: client_builder::Error| {
        Outcome::refuse(format!(
            "cannot make a client for the topic `{}` ({error}): check the integration's `endpoint`",
            config.topic
        ))
    };
    let client = publisher.build().await.map_err(unusable)?;
    let admin = admin.build().await.map_err(unusable)?;
    Ok(Link { client, admin, topic })
}

/// Who publishes: whom the file names, or whom Google's libraries find by themselves.
async fn credentials(config: &PubSubConfig) -> Result<Credentials, Outcome> {
    if config.endpoint.as_ref().is_some_and(|endpoint| endpoint.scheme() == "http") {
        // An emulator asks for none, and none go out without TLS.
        return Ok(anonymous::Builder::new().build());
    }
    let Some(file) = &config.credentials_file else {
        return credentials::Builder::default().build().map_err(|error| {
            Outcome::refuse(format!(
                "there are no credentials for the topic `{}` ({error}): set the integration's \
                 `credentials_file`, or GOOGLE_APPLICATION_CREDENTIALS",
                config.topic
            ))
        });
    };
    from_file(file).await.map_err(|problem| unusable_file(file, &problem))
}

/// Has a first token made, so that nothing is published, and no attempt used, until there is one.
async fn expect_token(config: &PubSubConfig, credentials: &Credentials) -> Result<(), Outcome> {
    let missing = |said| classify(&config.topic, &Failure::NoCredentials(said));
    // In time to be the one who tells why there is no client.
    let limit = config.limit - config.limit / 10;
    match tokio::time::timeout(limit, credentials.headers(Default::default())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(missing(root(&error))),
        Err(_) => Err(missing("no token in time".to_owned())),
    }
}

/// The key of a service account. What is wrong with it is said without what it holds.
async fn from_file(file: &Path) -> Result<Credentials, String> {
    let text = tokio::fs::read(file).await.map_err(|error| error.kind().to_string())?;
    let key = serde_json::from_slice(&text).map_err(|_| "it is no JSON".to_owned())?;
    let built = service_account::Builder::new(key).build();
    built.map_err(|_| "it is no key of a service account".to_owned())
}
