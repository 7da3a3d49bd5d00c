//! One post for each message.

use super::classify::{classify, error_of};
use super::config::{SlackConfig, Way};
use crate::api::Api;
use crate::jinja::Context;
use crate::registry::BuildError;
use crate::retry_after::retry_after;
use crate::wrapping::Wrapping;
use async_trait::async_trait;
use chrono::Utc;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::{Map, Value, json};

/// Posts messages to one channel.
pub struct SlackSink {
    config: SlackConfig,
    api: Api,
}

impl SlackSink {
    /// A sink for `config`. Connects to nothing yet.
    ///
    /// # Errors
    /// When the TLS client cannot be set up, such as on a machine without root certificates.
    pub fn new(config: SlackConfig) -> Result<Self, BuildError> {
        let api = Api::new(config.url(), config.timeout)?;
        Ok(Self { config, api })
    }

    async fn post(&self, message: &Message) -> Result<(), Outcome> {
        let body = self.body(message)?;
        let mut request = self.api.client().post(self.config.url().clone());
        request = request.header(CONTENT_TYPE, "application/json; charset=utf-8");
        if let Way::Token { authorization, .. } = &self.config.way {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let answer = self.api.send(request.body(body.to_string())).await?;
        let after = retry_after(&answer.headers, Utc::now());
        match classify(self.api.place(), answer.status, error_of(&answer).as_deref(), after) {
            Outcome::Delivered => Ok(()),
            failed => Err(failed),
        }
    }

    fn body(&self, message: &Message) -> Result<Value, Outcome> {
        let wrapped = Wrapping::default().wrap(message)?;
        let context = Context::of(message, &wrapped.idempotency_key)?;
        let mut body = Map::new();
        if let Some(text) = &self.config.text {
            body.insert("text".to_owned(), text.render(&context)?.into());
        }
        if let Some(blocks) = &self.config.blocks {
            body.insert("blocks".to_owned(), blocks.render(&context)?);
        }
        if let Way::Token { channel, .. } = &self.config.way {
            body.insert("channel".to_owned(), channel.as_str().into());
            // Nobody sees it in the channel; apps can read it.
            let attributes = wrapped.attributes.into_iter();
            let attributes: Map<String, Value> =
                attributes.map(|(name, value)| (name.into_owned(), value.into())).collect();
            let metadata = json!({"event_type": "postroom_message", "event_payload": attributes});
            body.insert("metadata".to_owned(), metadata);
        }
        Ok(Value::Object(body))
    }
}

#[async_trait]
impl Sink for SlackSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for (index, message) in batch.iter().enumerate() {
            let outcome = self.post(message).await.err().unwrap_or(Outcome::Delivered);
            report.outcome(index, outcome);
        }
    }

    /// A message has the time of an attempt for itself.
    fn batch_max(&self) -> usize {
        1
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let Way::Token { test, authorization, .. } = &self.config.way else {
            return self.api.probe(self.config.url()).await;
        };
        let request = self.api.client().post(test.clone());
        let request = request.header(AUTHORIZATION, authorization.clone());
        let outcome = match self.api.send(request).await {
            Ok(answer) => {
                classify(self.api.place(), answer.status, error_of(&answer).as_deref(), None)
            }
            Err(outcome) => outcome,
        };
        match outcome {
            Outcome::Delivered => Ok(()),
            failed => Err(failed.into()),
        }
    }
}
