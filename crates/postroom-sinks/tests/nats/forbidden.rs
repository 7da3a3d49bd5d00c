//! What a user may not publish without a stream, where the server answers nothing else.

use crate::destination::{refused, retried, sink};
use postroom_core::{Message, Outcome, Sink};
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{Nats, OrSkip as _, eventually};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Two users with the same rights to publish. Only one may ask the server anything.
const USERS: &str = r#"authorization { users = [
    { user: asking, password: p, permissions: { publish: ["ok.>"], subscribe: ["_INBOX.>"] } }
    { user: mute, password: p, permissions: { publish: ["ok.>"], subscribe: ["nothing"] } }
] }"#;

async fn start() -> Nats {
    Nats::private(USERS).await.or_skip()
}

fn core(server: &Nats, user: &str, subject: &str) -> Arc<dyn Sink> {
    let url = format!("nats://{user}:p@{}", server.address());
    sink("nats:core", json!({"url": url, "mode": "core", "subject": subject}))
}

/// A message for `TENANT.STREAM`.
fn to(tenant: &str, stream: &str) -> Message {
    let (tenant_id, stream_id) = (Some(tenant.to_owned()), stream.to_owned());
    Message { tenant_id, stream_id, ..message("e-1") }
}

#[tokio::test]
async fn a_forbidden_subject_is_never_delivered_however_often_it_is_tried() {
    let server = start().await;
    for user in ["asking", "mute"] {
        let sink = core(&server, user, "no.orders");
        for _ in 0..30 {
            let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
            assert!(refused(&outcomes[0]).contains("does not allow this user"), "{outcomes:?}");
        }
    }
}

#[tokio::test]
async fn of_a_thousand_forbidden_subjects_none_is_delivered_and_their_neighbours_are() {
    let server = start().await;
    let mut batch: Vec<_> = (0..1000).map(|n| to("no", &format!("s-{n}"))).collect();
    for place in [0, 77, 500, 999] {
        batch[place] = to("ok", "s");
    }
    for user in ["asking", "mute"] {
        let sink = core(&server, user, "{tenant}.{stream}");
        for _ in 0..2 {
            let outcomes = deliver_all(&*sink, &batch).await;
            for (sent, outcome) in batch.iter().zip(&outcomes) {
                if sent.tenant_id.as_deref() == Some("no") {
                    retried(outcome);
                }
            }
            deliver_with_retry(&*sink, &batch, outcomes).await;
        }
    }
}

#[tokio::test]
async fn batches_at_the_same_time_do_not_take_each_others_answers() {
    let server = start().await;
    let sink = core(&server, "asking", "{tenant}.{stream}");
    let batches = [("ok", "a"), ("no", "b"), ("ok", "c"), ("no", "d")].map(|(tenant, name)| {
        let sink = Arc::clone(&sink);
        let batch: Vec<_> = (0..300).map(|n| to(tenant, &format!("{name}-{n}"))).collect();
        tokio::spawn(async move { (deliver_all(&*sink, &batch).await, batch) })
    });
    for batch in batches {
        let (outcomes, batch) = batch.await.unwrap();
        if batch[0].tenant_id.as_deref() == Some("no") {
            for outcome in &outcomes {
                retried(outcome);
            }
        }
        deliver_with_retry(&*sink, &batch, outcomes).await;
    }
}

/// Where the server says more than the client can keep, an allowed message may have to be tried
/// again.
async fn deliver_with_retry(sink: &dyn Sink, batch: &[Message], mut outcomes: Vec<Outcome>) {
    let mut left = batch.to_vec();
    eventually("all that is allowed to be delivered", SOON, async || {
        let tried = left.iter().cloned().zip(std::mem::take(&mut outcomes));
        left = tried
            .filter(|(message, outcome)| {
                message.tenant_id.as_deref() == Some("ok") && *outcome != Outcome::Delivered
            })
            .map(|(message, _)| message)
            .collect();
        if left.is_empty() {
            return Some(());
        }
        outcomes = deliver_all(sink, &left).await;
        None
    })
    .await;
}

#[tokio::test]
async fn a_subject_that_the_server_quotes_is_recognised() {
    let server = start().await;
    let sink = core(&server, "asking", "{tenant}.{stream}");
    let batch = [to("no", "a\"b\\c\u{200b}\u{e0001}ü"), to("ok", "a\"b\\c\u{200b}\u{e0001}ü")];
    let outcomes = deliver_all(&*sink, &batch).await;
    assert!(retried(&outcomes[0]).contains("does not allow this user"), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Delivered);
}
