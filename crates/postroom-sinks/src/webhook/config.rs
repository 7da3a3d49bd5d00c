//! What an integration says about its webhook.

use super::addresses::Allowed;
use super::request::{Refused, header, place};
use super::signature::Signing;
use super::sink::WebhookSink;
use super::tls::Tls;
use crate::options::Options;
use crate::registry::{Build, BuildError};
use crate::wrapping::{Name, Wrapping};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postroom_core::Sink;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where to POST, and how.
#[derive(Clone)]
pub struct WebhookConfig {
    pub(super) url: Url,
    /// Of the configuration, credentials included.
    pub(super) headers: HeaderMap,
    pub(super) wrapping: Wrapping,
    pub(super) signing: Signing,
    pub(super) allowed: Allowed,
    pub(super) tls: Tls,
    pub(super) timeout: Duration,
    /// Whether what the receiver answers to a failed attempt is kept with it.
    pub(super) keep_response: bool,
}

impl WebhookConfig {
    /// How long an attempt may take unless the integration says otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

    /// A webhook at `url`, with the default timeout.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn new(url: &str) -> Result<Self, String> {
        Ok(Self {
            url: read_url(url)?,
            headers: HeaderMap::new(),
            wrapping: Wrapping::default(),
            signing: Signing::default(),
            allowed: Allowed::default(),
            tls: Tls::default(),
            timeout: Self::DEFAULT_TIMEOUT,
            keep_response: false,
        })
    }

    /// Sets how long an attempt may take, from connecting to the end of the answer's body.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Opens a network that is not the public internet, such as `127.0.0.0/8`.
    ///
    /// # Errors
    /// When it is no network.
    pub fn allow(mut self, network: &str) -> Result<Self, String> {
        self.allowed.add(network)?;
        Ok(self)
    }

    pub(super) fn read(options: &mut Options, timeout: Duration) -> Option<Self> {
        let url: Option<String> = options.required("url", "an http or https URL");
        let url = url.and_then(|url| {
            read_url(&url).map_err(|problem| options.fault(&["url"], problem, None)).ok()
        });
        let allowed = read_allowed(options);
        if let Some(Err(refused)) = url.as_ref().map(|url| allowed.check_url(url)) {
            let problem = format!("leads to {}, {}", refused.address, refused.why);
            let hint = "webhooks go to the public internet only: if it is meant, list its network \
                        in `allow_addresses`";
            options.fault(&["url"], problem, Some(hint.to_owned()));
        }
        let mut headers = read_headers(options);
        if let Some(credentials) = read_auth(options) {
            if headers.contains_key(AUTHORIZATION) {
                options.fault(&["auth"], "and an authorization in `headers` exclude another", None);
            }
            headers.insert(AUTHORIZATION, credentials);
        }
        let signing = read_secrets(options);
        let tls = Tls::read(options);
        if tls.is_some() && url.as_ref().is_some_and(|url| url.scheme() != "https") {
            options.fault(&["tls"], "needs a `url` that begins with https://", None);
        }
        let wrapping = Wrapping::read(options);
        let tls = tls.unwrap_or_default();
        let keep_response = options.optional("keep_response", "true or false").unwrap_or(false);
        Some(Self { url: url?, headers, wrapping, signing, allowed, tls, timeout, keep_response })
    }
}

impl fmt::Debug for WebhookConfig {
    /// Paths, queries and headers can hold secrets; the host does not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookConfig")
            .field("host", &place(&self.url))
            .field("timeout", &self.timeout)
            .field("signing", &self.signing)
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

impl Build for WebhookConfig {
    fn build(&self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(Arc::new(WebhookSink::new(self.clone())?))
    }
}

/// Reads a URL that leads where it seems to lead.
fn read_url(text: &str) -> Result<Url, String> {
    // The parser drops line breaks, reads `\` as `/`, and turns look-alike letters into the ones
    // they look like or into a name that nobody sees: what is read would not be what is written.
    let authority = text.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]@".contains(&byte);
    let credentials = authority.contains('@');
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be plain ASCII: write a name in other letters in its `xn--` form, and \
                    anything else percent-encoded"
            .to_owned());
    }
    if !credentials && !authority.bytes().all(is_plain) {
        return Err("has a host with a character that no host has".to_owned());
    }
    let url = Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !text.contains("://") {
        return Err("must begin with http:// or https://".to_owned());
    }
    if authority.is_empty() {
        return Err("names no host".to_owned());
    }
    if credentials || !url.username().is_empty() || url.password().is_some() {
        return Err("must not hold a user or password: use `auth` instead".to_owned());
    }
    Ok(url)
}

fn read_headers(options: &mut Options) -> HeaderMap {
    let table: Option<Map<String, Value>> =
        options.optional("headers", "a table of names and values");
    let mut headers = HeaderMap::new();
    for (name, value) in table.unwrap_or_default() {
        let text = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                options.fault(&["headers", &name], "must be a string", None);
                continue;
            }
        };
        match header(&Name::Owned(name.clone()), text) {
            Ok((own, _)) if crate::wrapping::is_ours(own.as_str()) => {
                options.fault(&["headers", &name], "is set by Postroom itself", None);
            }
            Ok((name, value)) => {
                headers.insert(name, sensitive(value));
            }
            Err(Refused(problem)) => options.fault(&["headers", &name], problem, None),
        }
    }
    headers
}

fn read_auth(options: &mut Options) -> Option<HeaderValue> {
    options.table("auth", &["basic", "bearer"], |auth| {
        let basic = auth.table("basic", &["user", "password"], |basic| {
            let user: Option<String> = basic.required("user", "a string");
            let password: Option<String> = basic.required("password", "a string");
            let (user, password) = (user?, password?);
            if user.contains(':') {
                basic.fault(&["user"], "must not hold `:`, which ends it", None);
            }
            Some(format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
        });
        let bearer: Option<String> = auth.optional("bearer", "a string");
        let bearer = bearer.map(|token| format!("Bearer {token}"));
        match (basic, bearer) {
            (Some(_), Some(_)) => {
                auth.fault(&["bearer"], "and `basic` exclude another", None);
                None
            }
            (one, other) => match HeaderValue::try_from(one.or(other)?) {
                Ok(value) => Some(sensitive(value)),
                Err(_) => {
                    auth.fault(&["bearer"], "holds a character that HTTP does not allow", None);
                    None
                }
            },
        }
    })
}

fn read_secrets(options: &mut Options) -> Signing {
    let secrets: Option<Vec<String>> = options.optional("secrets", "a list of strings");
    let mut signing = Signing::default();
    for (index, secret) in secrets.unwrap_or_default().iter().enumerate() {
        if let Err(problem) = signing.add(secret) {
            options.fault(&["secrets", &index.to_string()], problem, None);
        }
    }
    signing
}

fn read_allowed(options: &mut Options) -> Allowed {
    let networks: Option<Vec<String>> = options.optional("allow_addresses", "a list of strings");
    let mut allowed = Allowed::default();
    for (index, network) in networks.unwrap_or_default().iter().enumerate() {
        if let Err(problem) = allowed.add(network) {
            options.fault(&["allow_addresses", &index.to_string()], problem, None);
        }
    }
    allowed
}

/// Credentials come as headers; keep them out of every Debug output.
fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Destination, SinkKind};
    use serde_json::json;

    fn faults(options: Value) -> Vec<String> {
        let Value::Object(options) = options else { panic!("a table") };
        let destination = Destination { integration: "webhook:x", timeout: Duration::from_secs(1) };
        match SinkKind::of("webhook:x").unwrap().validate(options, &destination) {
            Ok(_) => Vec::new(),
            Err(faults) => faults
                .into_iter()
                .map(|fault| format!("{} {}", fault.path.join("."), fault.problem))
                .collect(),
        }
    }

    fn url_faults(url: &str) -> Vec<String> {
        faults(json!({"url": url}))
    }

    #[test]
    fn fault_32_urls_that_show_an_address_within_are_refused() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://0/",
            "http://127.0.0.1./",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:10.0.0.1]/",
            "http://[::ffff:a00:1]/",
            "http://[::10.0.0.1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://10.0.0.1/",
            "http://172.16.0.1/",
            "http://192.168.0.1/",
            "http://100.64.0.1/",
            "http://224.0.0.1/",
            "http://[fd00::]/",
            "http://[fe80::1]/",
            "http://[ff02::1]/",
            "http://[64:ff9b::]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "https://localhost/",
            "https://LOCALHOST./",
            "https://a.localhost:8080/",
        ] {
            let found = url_faults(url);
            assert!(found.len() == 1 && found[0].starts_with("url leads to "), "{url}: {found:?}");
            // Nor can a program get past it.
            assert!(WebhookSink::new(WebhookConfig::new(url).unwrap()).is_err(), "{url}");
        }
        for url in ["http://8.8.8.8/", "https://[2600::1]:8443/", "https://partner.example/"] {
            assert_eq!(url_faults(url), [""; 0], "{url}");
        }
        for (url, network) in [
            ("http://127.0.0.1/", "127.0.0.0/8"),
            ("http://localhost/", "127.0.0.0/8"),
            ("http://2130706433/", "127.0.0.1"),
            ("http://[fd00::5]/", "fd00::/8"),
        ] {
            let open = faults(json!({"url": url, "allow_addresses": [network]}));
            assert_eq!(open, [""; 0], "{url}");
        }
    }

    #[test]
    fn fault_34_urls_that_are_not_what_they_seem_are_refused() {
        for bad in [
            "http://user:pass@host/",
            "http://user@host/",
            "http://:pass@host/",
            "http://@host/",
            "http://host@evil.example/",
            "http://host:80@evil.example/",
            "http://host%40evil.example/",
            "file:///etc/passwd",
            "gopher://host/",
            "ftp://host/",
            "javascript:alert(1)",
            "data:text/plain,x",
            "unix:///var/run/docker.sock",
            "http:host/",
            "http:/host/",
            "//host/",
            "host/path",
            "",
            "http://",
            "http:///path",
            "http://host\\@evil.example/",
            "http://host/\r\nx: y",
            " http://host/",
            "http://ho\tst/",
            "http://host /",
            "http://pаrtner.example/",
            "http://ｌocalhost/",
            "http://127。0。0。1/",
            "http://①②⑦.⓪.⓪.①/",
            "http://%31%32%37.0.0.1/",
            "http://host:99999/",
            "http://[::1/",
            "http://[fe80::1%25eth0]/",
        ] {
            let found = url_faults(bad);
            assert!(!found.is_empty() && found[0].starts_with("url "), "{bad}: {found:?}");
            assert!(WebhookConfig::new(bad).is_err(), "{bad}");
        }
        let problem = WebhookConfig::new("http://user:hunter2@host/").unwrap_err();
        assert!(problem.contains("`auth`") && !problem.contains("hunter2"), "{problem}");
    }

    #[test]
    fn every_fault_of_the_options_is_found_and_none_shows_a_value() {
        let found = faults(json!({
            "url": "http://partner.example/",
            "headers": {"Webhook-Id": "hunter2", "postroom-x": "hunter2", "ce-id": "hunter2",
                        "host": "hunter2", "ok": ["hunter2"], "line": "hunter2\n"},
            "auth": {"basic": {"user": "hunter2:", "passwort": "hunter2"}, "token": "hunter2"},
            "secrets": ["whsec_aHVudGVyMmh1bnRlcjI=", "hunter2"],
            "tls": {"certificate": "hunter2"},
            "allow_addresses": ["hunter2"],
            "format": "hunter2",
        }));
        let places: Vec<&str> =
            found.iter().map(|fault| fault.split(' ').next().unwrap()).collect();
        for place in [
            "headers.Webhook-Id",
            "headers.postroom-x",
            "headers.ce-id",
            "headers.host",
            "headers.ok",
            "headers.line",
            "auth.basic.password",
            "auth.basic.passwort",
            "auth.token",
            "secrets.1",
            "tls.key",
            "tls",
            "allow_addresses.0",
            "format",
        ] {
            assert!(places.contains(&place), "{place} in {found:#?}");
        }
        assert!(!found.concat().contains("hunter2"), "{found:#?}");
    }

    #[test]
    fn credentials_are_given_once() {
        let url = "https://partner.example/";
        let basic = json!({"user": "u", "password": "p"});
        assert_eq!(faults(json!({"url": url, "auth": {"basic": basic}})), [""; 0]);
        let twice = faults(json!({"url": url, "auth": {"basic": basic, "bearer": "t"}}));
        assert_eq!(twice, ["auth.bearer and `basic` exclude another"]);
        let twice =
            faults(json!({"url": url, "auth": {"bearer": "t"}, "headers": {"Authorization": "x"}}));
        assert_eq!(twice, ["auth and an authorization in `headers` exclude another"]);
        let line = faults(json!({"url": url, "auth": {"bearer": "t\r\nx: y"}}));
        assert_eq!(line, ["auth.bearer holds a character that HTTP does not allow"]);
    }

    #[test]
    fn fault_38_debug_shows_the_host_and_no_secret() {
        let options = json!({
            "url": "https://hooks.example/T0/s3cret?key=s3cret",
            "headers": {"x-key": "s3cret"},
            "auth": {"bearer": "s3cret"},
            "secrets": ["whsec_czNjcmV0czNjcmV0czNjcmV0"],
        });
        let Value::Object(options) = options else { panic!("a table") };
        let destination = Destination { integration: "webhook:x", timeout: Duration::from_secs(1) };
        let config = SinkKind::of("webhook:x").unwrap().validate(options, &destination).unwrap();
        let shown = format!("{config:?} {config:#?}");
        assert!(shown.contains("hooks.example:443"), "{shown}");
        assert!(!shown.contains("s3cret") && !shown.contains("czNj"), "{shown}");
    }
}
