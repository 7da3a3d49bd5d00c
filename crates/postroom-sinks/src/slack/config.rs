//! What an integration says about its Slack.

use super::blocks::Blocks;
use super::sink::SlackSink;
use crate::api::place;
use crate::jinja::{Form, Template};
use crate::options::Options;
use crate::registry::{Build, BuildError, Destination};
use postroom_core::Sink;
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const API: &str = "https://slack.com/api/";

/// Where to post, and what.
#[derive(Clone)]
pub struct SlackConfig {
    pub(super) way: Way,
    pub(super) text: Option<Template>,
    pub(super) blocks: Option<Blocks>,
    /// How long one message may take.
    pub(super) timeout: Duration,
}

/// How a message gets there.
#[derive(Clone)]
pub(super) enum Way {
    /// An incoming webhook, whose URL is a secret and names the channel.
    Webhook { url: Url },
    /// `chat.postMessage`.
    Token { post: Url, test: Url, authorization: HeaderValue, channel: String },
}

impl SlackConfig {
    pub(super) fn read(options: &mut Options, to: &Destination<'_>) -> Option<Self> {
        let has_url = options.has("url");
        let (has_token, has_channel) = (options.has("token"), options.has("channel"));
        if has_url == has_token {
            let problem = "or `token` is needed, and not both";
            let hint = "`url` is that of an incoming webhook; `token` is that of an app";
            options.fault(&["url"], problem, Some(hint.to_owned()));
        }
        if has_url && (has_channel || options.has("api_url")) {
            let key = if has_channel { "channel" } else { "api_url" };
            options.fault(&[key], "has no meaning with `url`, which names the channel", None);
        }
        let url = options.http_url("url", None);
        let api = if options.has("api_url") {
            options.http_url("api_url", None)
        } else {
            Url::parse(API).ok()
        };
        let channel: Option<String> = options.optional("channel", "a string");
        let channel = channel.unwrap_or_else(|| format!("#{}", to.channel()));
        let token: Option<String> = options.optional("token", "a string");
        let token = token.and_then(|token| {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let value = value.map_err(|_| {
                options.fault(&["token"], "holds a character that HTTP does not allow", None);
            });
            value.ok().map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let way = match (url, token, api) {
            (Some(url), None, _) => Some(Way::Webhook { url }),
            (None, Some(authorization), Some(api)) => {
                let method = |name: &str| {
                    let mut url = api.clone();
                    url.set_path(&format!("{}/{name}", api.path().trim_end_matches('/')));
                    url
                };
                let (post, test) = (method("chat.postMessage"), method("auth.test"));
                Some(Way::Token { post, test, authorization, channel })
            }
            _ => None,
        };
        if !options.has("text") && !options.has("blocks") {
            let problem = "is missing: a message needs `text`, `blocks` or both";
            options.fault(&["text"], problem, None);
        }
        let text = Template::read(options, "text", Form::Slack);
        let blocks: Option<Vec<Value>> = options.optional("blocks", "a list of Slack's blocks");
        let blocks = blocks.map(|blocks| Blocks::parse(options, blocks));
        Some(Self { way: way?, text, blocks, timeout: to.own_timeout() })
    }

    /// Whom to ask.
    pub(super) fn url(&self) -> &Url {
        match &self.way {
            Way::Webhook { url } => url,
            Way::Token { post, .. } => post,
        }
    }
}

impl fmt::Debug for SlackConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlackConfig").field("host", &place(self.url())).finish_non_exhaustive()
    }
}

impl Build for SlackConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(SlackSink::new(self.clone())?))
    }
}

#[cfg(test)]
mod tests {
    use crate::registry::{Destination, SinkKind};
    use serde_json::{Value, json};
    use std::time::Duration;

    fn read(options: Value) -> Result<String, Vec<String>> {
        let Value::Object(options) = options else { panic!("a table") };
        let to = Destination { integration: "slack:alerts", timeout: Duration::from_secs(1) };
        let read = SinkKind::of("slack:x").unwrap().validate(options, &to);
        read.map(|config| format!("{config:?}")).map_err(|faults| {
            faults.into_iter().map(|fault| format!("{} {}", fault.path[0], fault.problem)).collect()
        })
    }

    #[test]
    fn one_way_is_needed_and_every_fault_found() {
        assert_eq!(read(json!({})).unwrap_err().len(), 2);
        let both = json!({"url": "https://a/hunter2", "token": "hunter2", "text": "x"});
        assert_eq!(read(both).unwrap_err(), ["url or `token` is needed, and not both"]);
        let faults = read(json!({
            "url": "ftp://hunter2", "channel": "c", "text": "{{ paylod }}",
            "blocks": [{"text": {"text": "{{ x"}}],
        }));
        let keys: Vec<String> = faults
            .unwrap_err()
            .iter()
            .map(|fault| fault.split_once(' ').unwrap().0.to_owned())
            .collect();
        assert_eq!(keys, ["channel", "url", "text", "blocks"]);
    }

    #[test]
    fn neither_url_nor_token_is_shown() {
        let url = json!({"url": "https://hooks.example/T0/hunter2", "text": "x"});
        assert_eq!(read(url).unwrap(), "SlackConfig { host: \"hooks.example:443\", .. }");
        let token = read(json!({"token": "hunter2", "text": "x"})).unwrap();
        assert_eq!(token, "SlackConfig { host: \"slack.com:443\", .. }");
    }
}
