//! Sinks made as a configuration makes them.

use postroom_core::{Outcome, Sink};
use postroom_sinks::{Destination, SinkKind};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// A sink for an integration with these options, and an attempt of five seconds: few for a test that
/// waits for its end, and enough for a busy machine.
pub(crate) fn sink(integration: &str, options: Value) -> Arc<dyn Sink> {
    let Value::Object(options) = options else { panic!("options are a table") };
    let destination = Destination { integration, timeout: Duration::from_secs(5) };
    let kind = SinkKind::of(integration).unwrap();
    let config = kind.validate(options, &destination).unwrap();
    config.build().unwrap()
}

/// The text of a refusal.
pub(crate) fn refused(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Refuse { error } => error,
        other => panic!("this concerns the destination: {other:?}"),
    }
}

/// The text of a rejection.
pub(crate) fn rejected(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Reject { error } => error,
        other => panic!("this concerns the message: {other:?}"),
    }
}

/// The text of a retry.
pub(crate) fn retried(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Retry { error, .. } => error,
        other => panic!("this may work later: {other:?}"),
    }
}
