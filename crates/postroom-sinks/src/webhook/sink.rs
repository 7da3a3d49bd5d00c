//! One client, and one request per message.

use super::classify::{answered, unanswered};
use super::config::WebhookConfig;
use super::request::{headers, place};
use super::resolver::{Lookup, System, Vetting};
use crate::registry::BuildError;
use async_trait::async_trait;
use chrono::Utc;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use reqwest::{Client, Response};
use std::sync::Arc;
use std::time::Duration;

/// The most of an answer's body that is read, to be able to use its connection again.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Sends messages to one URL over a pool of connections that stay open. Follows no redirect, uses
/// no proxy, and connects to no address but those it may.
pub struct WebhookSink {
    client: Client,
    config: WebhookConfig,
    place: String,
}

impl WebhookSink {
    /// A sink for `config`. Connects to nothing yet.
    ///
    /// # Errors
    /// When the URL leads where it may not, or the TLS client cannot be set up, such as on a
    /// machine without root certificates.
    pub fn new(config: WebhookConfig) -> Result<Self, BuildError> {
        Self::with_lookup(config, Arc::new(System))
    }

    fn with_lookup(config: WebhookConfig, lookup: Arc<dyn Lookup>) -> Result<Self, BuildError> {
        let place = place(&config.url);
        // The client asks no resolver about a URL that shows its address by itself.
        config.allowed.check_url(&config.url).map_err(|refused| BuildError {
            context: format!("cannot send to {place}"),
            source: Box::new(refused),
        })?;
        let client = client(&config, lookup)?;
        Ok(Self { client, config, place })
    }

    async fn post(&self, message: &Message) -> Result<Response, Outcome> {
        let parcel = self.config.wrapping.parcel(message)?;
        let headers = headers(&self.config, &parcel, Utc::now())?;
        let request = self.client.post(self.config.url.clone()).headers(headers).body(parcel.body);
        request.send().await.map_err(|error| self.unanswered(error))
    }

    fn unanswered(&self, error: reqwest::Error) -> Outcome {
        unanswered(&self.place, self.config.timeout, error)
    }
}

fn client(config: &WebhookConfig, lookup: Arc<dyn Lookup>) -> Result<Client, BuildError> {
    // Two TLS providers in one program leave rustls without a default; whoever comes first
    // sets it, and that is an answer too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let vetting = Vetting { lookup, allowed: config.allowed.clone() };
    let mut builder = Client::builder()
        // A little before the lane gives up, so that the error can name the host.
        .timeout(config.timeout - config.timeout / 50)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .dns_resolver(Arc::new(vetting))
        // Whatever other crates enable: an answer is never unpacked.
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .user_agent(concat!("postroom/", env!("CARGO_PKG_VERSION")))
        // Shorter than what servers and balancers usually allow, so that we close first.
        .pool_idle_timeout(Duration::from_secs(30));
    builder = config.tls.apply(builder)?;
    if config.url.scheme() == "http" && config.tls.trusts_the_system() {
        // No certificate is needed, so a machine that has none will do.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| BuildError {
        context: "cannot set up TLS: check the integration's `tls`, and that the system's root \
                  certificates are installed (package ca-certificates)"
            .to_owned(),
        source: Box::new(error),
    })
}

#[async_trait]
impl Sink for WebhookSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for (index, message) in batch.iter().enumerate() {
            match self.post(message).await {
                Err(outcome) => report.outcome(index, outcome),
                Ok(response) => {
                    // The status is the receiver's word. What its body does afterwards cannot
                    // take that back, so it is reported first.
                    let outcome = answered(&self.place, response.status(), response.headers());
                    report.outcome(index, outcome);
                    drain(response).await;
                }
            }
        }
    }

    fn batch_max(&self) -> usize {
        1
    }

    /// Asks for the head of the URL: any answer shows that name, port and certificate are right.
    async fn probe(&self) -> Result<(), ProbeError> {
        match self.client.head(self.config.url.clone()).send().await {
            Ok(_) => Ok(()),
            Err(error) => match self.unanswered(error) {
                Outcome::Delivered => Ok(()),
                Outcome::Retry { error, .. }
                | Outcome::Reject { error }
                | Outcome::Gone { error }
                | Outcome::Refuse { error } => Err(ProbeError(error)),
            },
        }
    }
}

/// Reads a bounded part of the body, so that the connection can be used again. One that is
/// larger costs its connection instead. The client's timeout covers this too.
async fn drain(mut response: Response) {
    let mut read = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        read += chunk.len();
        if read > BODY_BYTES_MAX {
            return;
        }
    }
}
