//! One SMS for each message.

use super::classify::{classify, code_of};
use super::config::{Sender, SmsConfig};
use crate::api::Api;
use crate::jinja::Context;
use crate::registry::BuildError;
use crate::retry_after::retry_after;
use async_trait::async_trait;
use chrono::Utc;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use reqwest::RequestBuilder;
use reqwest::header::CONTENT_TYPE;
use url::form_urlencoded::Serializer;

/// Sends SMS from one account.
pub struct SmsSink {
    config: SmsConfig,
    api: Api,
}

impl SmsSink {
    /// A sink for `config`. Connects to nothing yet.
    ///
    /// # Errors
    /// When the TLS client cannot be set up, such as on a machine without root certificates.
    pub fn new(config: SmsConfig) -> Result<Self, BuildError> {
        let api = Api::new(&config.messages, config.timeout)?;
        Ok(Self { config, api })
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        request.basic_auth(&self.config.account_sid, Some(&self.config.auth_token))
    }

    async fn send(&self, message: &Message) -> Outcome {
        let form = match self.form(message) {
            Ok(form) => form,
            Err(rejection) => return rejection,
        };
        let request = self.authorized(self.api.client().post(self.config.messages.clone()));
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        match self.api.send(request.body(form)).await {
            Ok(answer) => {
                let after = retry_after(&answer.headers, Utc::now());
                classify(self.api.place(), answer.status, code_of(&answer.body), after)
            }
            Err(outcome) => outcome,
        }
    }

    fn form(&self, message: &Message) -> Result<String, Outcome> {
        let context = Context::of(message, &message.event_id)?;
        let to = self.config.to.render(&context)?;
        if to.trim().is_empty() {
            return Err(Outcome::reject(
                "the SMS has no recipient: give the message what the integration's `to` names",
            ));
        }
        let mut form = Serializer::new(String::new());
        form.append_pair("To", to.trim());
        match &self.config.sender {
            Sender::Number(number) => form.append_pair("From", number),
            Sender::Service(sid) => form.append_pair("MessagingServiceSid", sid),
        };
        form.append_pair("Body", &self.config.text.render(&context)?);
        Ok(form.finish())
    }
}

#[async_trait]
impl Sink for SmsSink {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        for (index, message) in batch.iter().enumerate() {
            report.outcome(index, self.send(message).await);
        }
    }

    /// A message has the time of an attempt for itself.
    fn batch_max(&self) -> usize {
        1
    }

    async fn probe(&self) -> Result<(), ProbeError> {
        let request = self.authorized(self.api.client().get(self.config.account.clone()));
        let outcome = match self.api.send(request).await {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            Ok(answer) => classify(self.api.place(), answer.status, code_of(&answer.body), None),
            Err(outcome) => outcome,
        };
        match outcome {
            Outcome::Delivered => Ok(()),
            failed => Err(failed.into()),
        }
    }
}
