//! The sink that sends each message to a URL as an HTTP POST.
//!
//! The body is the payload as it stands. `Idempotency-Key` and `webhook-id` carry the event id;
//! `x-postroom-*` carry the rest of what a receiver may want to know, as UTF-8. The message's own
//! headers follow where they are strings, numbers or booleans; the names that Postroom sets
//! itself, and those of the configuration, are not theirs to change.

use crate::options::Options;
use crate::registry::{Build, BuildError, SinkConfig, SinkKind};
use crate::retry_after::retry_after;
use async_trait::async_trait;
use chrono::Utc;
use postroom_core::{Message, Outcome, ProbeError, Report, Sink};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The most of an answer's body that is read, to be able to use its connection again.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Headers that frame the request itself. A stored one could smuggle a second request.
const FRAMING: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers whose value is Postroom's alone, besides all that begin with `x-postroom-`.
const OURS: [&str; 2] = ["idempotency-key", "webhook-id"];

pub(crate) const KIND: SinkKind = SinkKind {
    name: "webhook",
    keys: &["url", "headers"],
    concurrency: 16,
    timeout: WebhookConfig::DEFAULT_TIMEOUT,
    read: |options, to| WebhookConfig::read(options, to.timeout).map(SinkConfig::new),
};

/// Where to POST, and how.
#[derive(Clone)]
pub struct WebhookConfig {
    url: Url,
    headers: HeaderMap,
    timeout: Duration,
}

impl WebhookConfig {
    /// How long an attempt may take unless the integration says otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

    /// A webhook at `url`, with the default timeout.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn new(url: &str) -> Result<Self, String> {
        let url = check_url(url)?;
        Ok(Self { url, headers: HeaderMap::new(), timeout: Self::DEFAULT_TIMEOUT })
    }

    /// Sets how long an attempt may take, from connecting to the end of the answer's body.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn read(options: &mut Options, timeout: Duration) -> Option<Self> {
        let url: Option<String> = options.required("url", "an http or https URL");
        let url = url.and_then(|url| {
            check_url(&url).map_err(|problem| options.fault(&["url"], problem, None)).ok()
        });
        let table: Option<Map<String, Value>> =
            options.optional("headers", "a table of names and values");
        let mut headers = HeaderMap::new();
        for (name, value) in table.unwrap_or_default() {
            match header(&name, &value) {
                Ok(Some((own, _))) if is_ours(&own) => {
                    options.fault(&["headers", &name], "is set by Postroom itself", None);
                }
                Ok(Some((name, mut value))) => {
                    // Credentials come this way; keep them out of every Debug output.
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                Ok(None) => options.fault(&["headers", &name], "must be a string", None),
                Err(problem) => options.fault(&["headers", &name], problem, None),
            }
        }
        Some(Self { url: url?, headers, timeout })
    }
}

impl fmt::Debug for WebhookConfig {
    /// Paths, queries and headers can hold secrets; the host does not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookConfig")
            .field("host", &place(&self.url))
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or password: put an Authorization header into \
                    `headers` instead"
            .to_owned());
    }
    Ok(url)
}

impl Build for WebhookConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(WebhookSink::new(self.clone())?))
    }
}

/// Sends messages to one URL over a pool of connections that stay open. Follows no redirect and
/// uses no proxy.
pub struct WebhookSink {
    client: Client,
    config: WebhookConfig,
    /// `host:port`, which is all of the URL that an error text may show.
    place: String,
}

impl WebhookSink {
    /// A sink for `config`. Connects to nothing yet.
    ///
    /// # Errors
    /// When the TLS client cannot be set up, such as on a machine without root certificates.
    pub fn new(config: WebhookConfig) -> Result<Self, BuildError> {
        // Two TLS providers in one program leave rustls without a default; whoever comes first
        // sets it, and that is an answer too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .timeout(config.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .user_agent(concat!("postroom/", env!("CARGO_PKG_VERSION")))
            // Shorter than what servers and balancers usually allow, so that we close first.
            .pool_idle_timeout(Duration::from_secs(30));
        if config.url.scheme() == "http" {
            // No certificate is needed, so a machine that has none will do.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| BuildError {
            context: "cannot set up TLS: install the system's root certificates (package \
                      ca-certificates)"
                .to_owned(),
            source: Box::new(error),
        })?;
        let place = place(&config.url);
        Ok(Self { client, config, place })
    }

    async fn post(&self, message: &Message) -> Result<Response, Outcome> {
        let mut headers = stored_headers(message)?;
        headers.extend(self.config.headers.clone());
        set_own_headers(&mut headers, message)?;
        self.client
            .post(self.config.url.clone())
            .headers(headers)
            .body(message.payload.as_str().to_owned())
            .send()
            .await
            .map_err(|error| Outcome::retry(self.describe(error)))
    }

    /// An error in words that name the host and the cause, never the URL.
    fn describe(&self, error: reqwest::Error) -> String {
        let place = &self.place;
        if error.is_timeout() {
            return format!("no answer from {place} within {:?}", self.config.timeout);
        }
        let what = if error.is_connect() { "cannot connect to" } else { "no answer from" };
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        format!("{what} {place}: {cause}")
    }
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
                    report.outcome(index, classify(&self.place, &response));
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
            Err(error) => Err(ProbeError(self.describe(error))),
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

/// The message's own headers, without those that are Postroom's.
fn stored_headers(message: &Message) -> Result<HeaderMap, Outcome> {
    let mut headers = HeaderMap::new();
    let Some(stored) = &message.headers else { return Ok(headers) };
    let stored: Map<String, Value> = serde_json::from_str(stored.as_str()).map_err(|_| {
        Outcome::reject(
            "the headers are no JSON object: correct the row and set it back to PENDING",
        )
    })?;
    for (name, value) in &stored {
        let (name, value) = match header(name, value) {
            Ok(Some(header)) => header,
            Ok(None) => continue,
            Err(problem) => {
                return Err(Outcome::reject(format!(
                    "the stored header `{}` {problem}",
                    name.escape_default()
                )));
            }
        };
        if !is_ours(&name) {
            headers.insert(name, value);
        }
    }
    Ok(headers)
}

/// One header from JSON; `None` for values that have no place in a header.
fn header(name: &str, value: &Value) -> Result<Option<(HeaderName, HeaderValue)>, &'static str> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return Ok(None),
    };
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "has a name that HTTP does not allow")?;
    if FRAMING.contains(&name.as_str()) {
        return Err("would change how the request is framed, and may not be set");
    }
    let value = HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| "has a value with a control character, which HTTP does not allow")?;
    Ok(Some((name, value)))
}

fn is_ours(name: &HeaderName) -> bool {
    OURS.contains(&name.as_str()) || name.as_str().starts_with("x-postroom-")
}

fn set_own_headers(headers: &mut HeaderMap, message: &Message) -> Result<(), Outcome> {
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    let attempt = u64::from(message.attempts) + 1;
    let fields = [
        ("idempotency-key", Some(message.event_id.clone())),
        ("webhook-id", Some(message.event_id.clone())),
        ("x-postroom-message-id", Some(message.id.to_string())),
        ("x-postroom-event-type", Some(message.event_type.clone())),
        ("x-postroom-stream", Some(message.stream_id.clone())),
        ("x-postroom-tenant", message.tenant_id.clone()),
        ("x-postroom-user", message.user_id.clone()),
        ("x-postroom-correlation", message.correlation_id.clone()),
        ("x-postroom-causation", message.causation_id.clone()),
        ("x-postroom-schema-version", Some(message.schema_version.to_string())),
        ("x-postroom-attempt", Some(attempt.to_string())),
    ];
    for (name, value) in fields {
        let Some(value) = value else { continue };
        let value =
            HeaderValue::from_bytes(value.as_bytes()).map_err(|_: InvalidHeaderValue| {
                Outcome::reject(format!(
                    "the value for {name} holds a control character, which HTTP does not allow"
                ))
            })?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(())
}

/// `host:port` of a URL.
fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or("?");
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn classify(place: &str, response: &Response) -> Outcome {
    let status = response.status();
    let text = format!("{place} answered {status}");
    match status.as_u16() {
        200..=299 => Outcome::Delivered,
        300..=399 => Outcome::refuse(format!(
            "{text}: redirects are never followed; set `url` to where the receiver has moved"
        )),
        401 | 403 => {
            Outcome::refuse(format!("{text}: check the credentials in the integration's `headers`"))
        }
        404 => Outcome::refuse(format!("{text}: check the path of the integration's `url`")),
        408 | 425 | 429 | 500..=599 => {
            Outcome::Retry { error: text, after: retry_after(response.headers(), Utc::now()) }
        }
        410 => Outcome::reject(format!(
            "{text}: the receiver wants no more of these; remove the integration"
        )),
        400..=499 => Outcome::reject(match status {
            StatusCode::PAYLOAD_TOO_LARGE => format!("{text}: send a reference instead"),
            _ => text,
        }),
        _ => Outcome::retry(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_34_urls_with_credentials_or_other_schemes_are_refused() {
        for bad in [
            "http://user:pass@host/",
            "http://user@host/",
            "file:///etc/passwd",
            "gopher://host/",
            "host/path",
            "",
            "http://",
        ] {
            assert!(WebhookConfig::new(bad).is_err(), "{bad}");
        }
        let problem = WebhookConfig::new("http://user:hunter2@host/").unwrap_err();
        assert!(!problem.contains("hunter2"));
    }

    #[test]
    fn debug_shows_the_host_alone() {
        let config = WebhookConfig::new("https://hooks.example/T0/secret?key=secret").unwrap();
        let shown = format!("{config:?}");
        assert!(shown.contains("hooks.example:443") && !shown.contains("secret"), "{shown}");
    }
}
