//! The webhook, against the same HTTP client: a request per message, its status and its body.

use crate::against::{Subject, payload};
use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use postroom_sinks::{WebhookConfig, WebhookSink};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use std::net::SocketAddr;
use std::sync::Arc;

const SUBJECT: Subject = Subject {
    name: "webhook",
    reference_is: "reqwest in a bare loop: POST with as many headers, status, body",
    messages: 20_000,
    concurrency: 16,
    batch_size: 1,
};

pub(crate) async fn run() -> anyhow::Result<()> {
    let address = receiver()?;
    let url = format!("http://{address}/hook");
    let config = WebhookConfig::new(&url).and_then(|config| config.allow("127.0.0.0/8"));
    let sink = WebhookSink::new(config.map_err(anyhow::Error::msg)?)?;
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .tls_certs_only([])
        .build()
        .context("the bare client")?;
    let (headers, payload) = (headers(), payload());
    SUBJECT
        .measure(Arc::new(sink), move |n| {
            let event_id = format!("event-{n}");
            let request = client
                .post(&url)
                .headers(headers.clone())
                .header("idempotency-key", event_id)
                .body(payload.clone());
            async move {
                let response = request.send().await?;
                ensure!(response.status().is_success(), "{}", response.status());
                response.bytes().await?;
                Ok(())
            }
        })
        .await
}

/// As many headers as a message has, made once.
fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for name in [
        "postroom-event-id",
        "postroom-event-type",
        "postroom-message-id",
        "postroom-stream",
        "postroom-schema-version",
        "postroom-attempt",
        "webhook-id",
        "webhook-timestamp",
    ] {
        let value = HeaderValue::from_static("018f0000-0000-7000-8000-000000000001");
        headers.insert(HeaderName::from_static(name), value);
    }
    headers
}

/// A receiver on a thread of its own that answers at once.
fn receiver() -> anyhow::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let app = Router::new().route("/hook", post(|_: Bytes| async {}));
            axum::serve(listener, app).await
        })
    });
    Ok(address)
}
