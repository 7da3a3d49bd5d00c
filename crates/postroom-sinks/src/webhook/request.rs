//! The headers of one request.
//!
//! The message's own come first, then the configuration's, then Postroom's: what comes later
//! wins, and nothing that is stored can change how the request is framed.

use super::config::WebhookConfig;
use crate::wrapping::{Name, Wrapped};
use chrono::{DateTime, Utc};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postroom_core::Outcome;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

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

/// What is percent-encoded in an id, besides what is not ASCII. Servers show a header's bytes as
/// Latin-1 and without the spaces around them, and its signature would not be that of the id.
const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Why a header cannot be sent; holds nothing of its value.
#[derive(Debug)]
pub(super) struct Refused(pub(super) &'static str);

/// One header that may be sent.
pub(super) fn header(name: &Name, value: String) -> Result<(HeaderName, HeaderValue), Refused> {
    let name = match name {
        // A name of ours is known to be one.
        Name::Borrowed(name) => HeaderName::from_static(name),
        Name::Owned(name) => HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| Refused("has a name that HTTP does not allow"))?,
    };
    if FRAMING.contains(&name.as_str()) {
        return Err(Refused("would change how the request is framed, and may not be set"));
    }
    let value = HeaderValue::try_from(value)
        .map_err(|_| Refused("has a value with a control character, which HTTP does not allow"))?;
    Ok((name, value))
}

/// All headers of the request that carries `wrapped`, sent at `now`. Takes out what accompanies
/// its body.
///
/// # Errors
/// The rejection of a message that holds what no header may hold.
pub(super) fn headers(
    config: &WebhookConfig,
    wrapped: &mut Wrapped,
    now: DateTime<Utc>,
) -> Result<HeaderMap, Outcome> {
    wrapped.expect_one_line_each()?;
    let mut headers = HeaderMap::with_capacity(wrapped.attributes.len() + 8);
    for (name, value) in std::mem::take(&mut wrapped.attributes) {
        insert(&mut headers, name, value)?;
    }
    headers.extend(config.headers.clone());
    wrapped.encode_cloud();
    for (name, value) in std::mem::take(&mut wrapped.cloud) {
        // Its place in HTTP is `content-type`.
        if name != "datacontenttype" {
            insert(&mut headers, Name::Owned(format!("ce-{name}")), value)?;
        }
    }
    let content_type = HeaderValue::from_static(wrapped.content_type);
    if wrapped.content_type == "application/json" {
        headers.entry(CONTENT_TYPE).or_insert(content_type);
    } else {
        headers.insert(CONTENT_TYPE, content_type);
    }
    let id = utf8_percent_encode(&wrapped.idempotency_key, UNSAFE).to_string();
    let timestamp = now.timestamp();
    let signature = config.signing.sign(&id, timestamp, &wrapped.body);
    insert(&mut headers, Name::Borrowed("idempotency-key"), id.clone())?;
    insert(&mut headers, Name::Borrowed("webhook-id"), id)?;
    headers.insert(HeaderName::from_static("webhook-timestamp"), timestamp.into());
    if let Some(signature) = signature {
        insert(&mut headers, Name::Borrowed("webhook-signature"), signature)?;
    }
    Ok(headers)
}

fn insert(headers: &mut HeaderMap, name: Name, value: String) -> Result<(), Outcome> {
    let (name, value) = header(&name, value).map_err(|Refused(problem)| {
        Outcome::reject(format!(
            "the header `{}` {problem}: correct the row and set it back to PENDING",
            name.escape_default()
        ))
    })?;
    headers.insert(name, value);
    Ok(())
}

/// `host:port` of a URL, which is all of it that an error text may show.
pub(super) fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or("?");
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
