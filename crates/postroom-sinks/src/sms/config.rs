//! What an integration says about its SMS.

use super::sink::SmsSink;
use crate::api::place;
use crate::jinja::{Form, Template};
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination};
use postroom_core::Sink;
use reqwest::Url;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const TWILIO: &str = "https://api.twilio.com";

/// Whose account, from which number, to whom, and what.
#[derive(Clone)]
pub struct SmsConfig {
    /// Of the account itself.
    pub(super) account: Url,
    /// Where messages are made.
    pub(super) messages: Url,
    pub(super) account_sid: String,
    pub(super) auth_token: String,
    pub(super) sender: Sender,
    pub(super) to: Template,
    pub(super) text: Template,
    /// How long one message may take.
    pub(super) timeout: Duration,
}

/// Who sends.
#[derive(Clone, Debug)]
pub(super) enum Sender {
    Number(String),
    Service(String),
}

impl SmsConfig {
    pub(super) fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let base = if options.has("url") {
            options.http_url("url", None)
        } else {
            Url::parse(TWILIO).ok()
        };
        let account_sid: Option<String> = options.required("account_sid", "a string");
        let account_sid = account_sid.filter(|sid| {
            let is_sid = !sid.is_empty() && sid.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if !is_sid {
                options.fault(&["account_sid"], "must be letters and digits", None);
            }
            is_sid
        });
        let auth_token: Option<String> = options.required("auth_token", "a string");
        if options.has("from") == options.has("messaging_service_sid") {
            let problem = "or `messaging_service_sid` is needed, and not both";
            options.fault(&["from"], problem, None);
        }
        let number: Option<String> = options.optional("from", "a number or a name");
        let service: Option<String> = options.optional("messaging_service_sid", "a string");
        let sender = number.map(Sender::Number).or(service.map(Sender::Service));
        let mut template = |key: &str| {
            if !options.has(key) {
                options.fault(&[key], "is missing: it must be a template", None);
            }
            Template::read(options, key, Form::Plain)
        };
        let (recipient, text) = (template("to"), template("text"));
        let (base, account_sid) = (base?, account_sid?);
        let root = base.path().trim_end_matches('/');
        let at = |path: &str| {
            let mut url = base.clone();
            url.set_path(&format!("{root}/2010-04-01/Accounts/{account_sid}{path}"));
            url
        };
        Some(Self {
            account: at(".json"),
            messages: at("/Messages.json"),
            account_sid: account_sid.clone(),
            auth_token: auth_token?,
            sender: sender?,
            to: recipient?,
            text: text?,
            timeout: to.own_timeout(),
        })
    }
}

impl fmt::Debug for SmsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmsConfig")
            .field("host", &place(&self.messages))
            .field("sender", &self.sender)
            .finish_non_exhaustive()
    }
}

impl Build for SmsConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(SmsSink::new(self.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use crate::registry::{Destination, SinkKind};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn read(options: Value) -> Result<String, Vec<String>> {
        let Value::Object(options) = options else { panic!("a table") };
        let to = Destination { integration: "sms:x", timeout: Duration::from_secs(1) };
        let read = SinkKind::of("sms:x").unwrap().validate(options, &to);
        read.map(|config| format!("{config:?}"))
            .map_err(|faults| faults.into_iter().map(|fault| fault.path.join(".")).collect())
    }

    #[test]
    fn every_fault_is_found() {
        let keys = ["account_sid", "auth_token", "from", "to", "text"];
        assert_eq!(read(json!({})).unwrap_err(), keys);
        let bad = json!({
            "url": "https://u:p@h", "account_sid": "../x", "auth_token": "t", "from": "1",
            "messaging_service_sid": "2", "to": "{{", "text": "{{ sum }}",
        });
        assert_eq!(read(bad).unwrap_err(), ["url", "account_sid", "from", "to", "text"]);
    }

    #[test]
    fn the_token_is_never_shown() {
        let shown = read(json!({
            "account_sid": "AC1", "auth_token": "hunter2", "from": "+15005550006",
            "to": "+1", "text": "x",
        }));
        assert!(!shown.unwrap().contains("hunter2"));
    }
}
