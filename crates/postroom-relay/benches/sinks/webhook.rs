//! The webhook, against the same HTTP client: a request per message, its status and its body.

use crate::against::{Ready, Subject, sink};
use crate::size::Size;
use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use reqwest::{Client, Url};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const SUBJECT: Subject = Subject {
    name: "webhook",
    reference_is: "reqwest in a bare loop: POST with the same headers, status, body",
    messages: 20_000,
    concurrency: 16,
    batch_size: 1,
};

pub(crate) async fn run(size: Size) -> anyhow::Result<()> {
    let url = format!("http://{}/hook", receiver()?);
    let sink = sink("webhook:bench", json!({"url": url, "allow_addresses": ["127.0.0.0/8"]}))?;
    let client = Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent("postroom/bench")
        .tls_certs_only([])
        .build()
        .context("the bare client")?;
    let url: Url = url.parse()?;
    let deliver = move |messages: Arc<[Ready]>| {
        let (client, url) = (client.clone(), url.clone());
        async move {
            for message in messages.iter() {
                post_one(&client, &url, message).await?;
            }
            Ok(())
        }
    };
    SUBJECT.measure(size, sink, deliver).await
}

async fn post_one(client: &Client, url: &Url, message: &Ready) -> anyhow::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut request = client
        .post(url.clone())
        .header("content-type", "application/json")
        .header("webhook-id", &message.event_id)
        .header("webhook-timestamp", now);
    for (name, value) in &message.headers {
        request = request.header(*name, value);
    }
    let response = request.body(message.body.clone()).send().await?;
    ensure!(response.status().is_success(), "{}", response.status());
    response.bytes().await?;
    Ok(())
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
