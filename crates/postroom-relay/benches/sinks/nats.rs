//! JetStream, against the same client: a batch is published, then its acknowledgements awaited.

use crate::against::{Ready, Subject, sink};
use crate::size::Size;
use async_nats::HeaderMap;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::stream;
use futures_util::future::try_join_all;
use postroom_testkit::Nats;
use serde_json::json;
use std::sync::Arc;

const SUBJECT: Subject = Subject {
    name: "nats",
    reference_is: "async-nats in a bare loop: a batch published with the same headers, then its acknowledgements",
    messages: 100_000,
    concurrency: 4,
    batch_size: 100,
};

pub(crate) async fn run(size: Size) -> anyhow::Result<()> {
    let server = Nats::private("").await?;
    let url = format!("nats://{}", server.address());
    let client = async_nats::connect(&url).await?;
    // As in the sink: what is under way is bounded by the loops.
    let jetstream = ContextBuilder::new().max_ack_inflight(1 << 20).build(client);
    let config = stream::Config {
        name: "bench".to_owned(),
        subjects: vec!["bench".to_owned()],
        // The stream stays as long as it is, however many rounds there were.
        max_messages: 10_000,
        ..stream::Config::default()
    };
    jetstream.create_stream(config).await?;
    let deliver = move |messages: Arc<[Ready]>| {
        let jetstream = jetstream.clone();
        async move {
            let mut acknowledgements = Vec::with_capacity(messages.len());
            for message in messages.iter() {
                let mut headers = HeaderMap::new();
                for (name, value) in &message.headers {
                    headers.insert(*name, value.as_str());
                }
                headers.insert("content-type", "application/json");
                headers.insert("Nats-Msg-Id", message.once.as_str());
                let body = message.body.clone().into();
                let published = jetstream.publish_with_headers("bench", headers, body).await?;
                acknowledgements.push(published.into_future());
            }
            try_join_all(acknowledgements).await?;
            Ok(())
        }
    };
    SUBJECT.measure(size, sink("nats:bench", json!({"url": url}))?, deliver).await
}
