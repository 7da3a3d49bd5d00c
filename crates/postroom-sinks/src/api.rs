//! Requests to the HTTP interface of a service, and as much of its answers as is needed.

use crate::registry::BuildError;
use postroom_core::{Outcome, ProbeError};
use reqwest::header::HeaderMap;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use std::error::Error;
use std::time::Duration;

/// The most of an answer's body that is read. A service may repeat all of a message in it, with
/// more around; what is cut off cannot be read, and a message that was taken would come again.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// A service: one client with connections that stay open. Follows no redirect and uses no proxy.
pub(crate) struct Api {
    client: Client,
    place: String,
    timeout: Duration,
}

/// What the service answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Api {
    /// A client for the service at `url`. Connects to nothing yet.
    pub(crate) fn new(url: &Url, timeout: Duration) -> Result<Self, BuildError> {
        // Two TLS providers in one program leave rustls without a default; whoever comes first
        // sets it, and that is an answer too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .user_agent(concat!("postroom/", env!("CARGO_PKG_VERSION")))
            .pool_idle_timeout(Duration::from_secs(30));
        if url.scheme() == "http" {
            // No certificate is needed, so a machine that has none will do.
            builder = builder.tls_certs_only([]);
        }
        let client = builder.build().map_err(|error| BuildError {
            context: "cannot set up TLS: check that the system's root certificates are installed \
                      (package ca-certificates)"
                .to_owned(),
            source: Box::new(error),
        })?;
        Ok(Self { client, place: place(url), timeout })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// `host:port`.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// What it means that there is none.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Answer, Outcome> {
        let mut response = request.send().await.map_err(|error| self.unanswered(error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while body.len() < BODY_BYTES_MAX {
            match response.chunk().await {
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                // What is cut short says no more than its status.
                Ok(None) | Err(_) => break,
            }
        }
        Ok(Answer { status, headers, body })
    }

    /// Whether the service answers at all, for sinks whose service has no question to ask that
    /// delivers nothing.
    pub(crate) async fn probe(&self, url: &Url) -> Result<(), ProbeError> {
        let answer = self.client.head(url.clone()).send().await;
        answer.map(drop).map_err(|error| match self.unanswered(error) {
            Outcome::Retry { error, .. }
            | Outcome::Reject { error }
            | Outcome::Gone { error }
            | Outcome::Refuse { error } => ProbeError(error),
            Outcome::Delivered => ProbeError(format!("no answer from {}", self.place)),
        })
    }

    fn unanswered(&self, error: reqwest::Error) -> Outcome {
        let place = &self.place;
        if error.is_timeout() {
            return Outcome::retry(format!("no answer from {place} within {:?}", self.timeout));
        }
        let what = if error.is_connect() { "cannot connect to" } else { "no answer from" };
        let error = error.without_url();
        let mut root: &(dyn Error + 'static) = &error;
        loop {
            // An I/O error shows the source of what it wraps, and not that itself.
            let wrapped = root.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            let fault = wrapped.and_then(|wrapped| wrapped.downcast_ref::<rustls::Error>());
            let fault = fault.or_else(|| root.downcast_ref::<rustls::Error>());
            if let Some(rustls::Error::InvalidCertificate(problem)) = fault {
                return Outcome::refuse(format!(
                    "cannot trust {place}: its certificate is not valid here ({problem}); check \
                     the URL, and the system's root certificates"
                ));
            }
            match root.source() {
                Some(source) => root = source,
                None => return Outcome::retry(format!("{what} {place}: {root}")),
            }
        }
    }
}

/// `host:port` of a URL, which is all of it that an error text may show.
pub(crate) fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or("?");
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}
