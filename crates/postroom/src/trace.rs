//! The trace context at the moment of enqueue, not of dispatch.

use postroom_core::{MessageError, NewMessage};

/// Adds the current span's `traceparent` to the headers, if there is a span and none is set.
#[cfg(feature = "opentelemetry")]
pub(crate) fn capture(message: NewMessage) -> Result<NewMessage, MessageError> {
    use opentelemetry::trace::TraceContextExt;

    let context = opentelemetry::Context::current();
    let span = context.span().span_context().clone();
    if !span.is_valid() {
        return Ok(message);
    }
    let traceparent =
        format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8());
    message.with_traceparent(&traceparent)
}

/// Without the feature there is no ambient context; `NewMessage::with_traceparent` sets one.
#[cfg(not(feature = "opentelemetry"))]
#[allow(clippy::unnecessary_wraps, reason = "same shape as with the feature")]
pub(crate) fn capture(message: NewMessage) -> Result<NewMessage, MessageError> {
    Ok(message)
}
