//! The trace context is the producer's, captured at enqueue.

use crate::outbox::{End, every_driver};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, trace::FutureExt};
use postroom::NewMessage;

#[tokio::test]
async fn the_current_span_becomes_the_traceparent_header() {
    let span = SpanContext::new(
        TraceId::from_hex("4bf92f3577b34da6a3ce929d0e0e4736").unwrap(),
        SpanId::from_hex("00f067aa0ba902b7").unwrap(),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    );
    let context = Context::new().with_remote_span_context(span);
    for outbox in every_driver().await {
        let message = NewMessage::new("noop", "order.created");
        outbox.place_order(message, End::Commit).with_context(context.clone()).await.unwrap();
        let headers = outbox.messages().await.remove(0).message.headers.unwrap();
        let headers: serde_json::Value = serde_json::from_str(headers.as_str()).unwrap();
        assert_eq!(
            headers["traceparent"],
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        );
    }
}

#[tokio::test]
async fn without_a_span_there_is_no_header() {
    for outbox in every_driver().await {
        outbox.place_order(NewMessage::new("noop", "t"), End::Commit).await.unwrap();
        assert_eq!(outbox.messages().await.remove(0).message.headers, None);
    }
}
