//! The one list of sinks that a configuration can name.
//!
//! Validating does no I/O and finds every fault; building makes clients and spawns nothing.

use crate::options::{OptionFault, Options, nearest};
use crate::{FileConfig, FileSink, NoopSink, StdoutSink, WebhookConfig, WebhookSink};
use postroom_core::Sink;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// Every sink, by name.
pub const SINKS: &[SinkKind] = &[
    SinkKind {
        name: "file",
        keys: &["path"],
        concurrency: 1,
        timeout: Duration::from_secs(30),
        read: |options, _| FileConfig::read(options).map(SinkConfig::File),
    },
    SinkKind {
        name: "noop",
        keys: &[],
        concurrency: 4,
        timeout: Duration::from_secs(30),
        read: |_, _| Some(SinkConfig::Noop),
    },
    SinkKind {
        name: "stdout",
        keys: &[],
        concurrency: 1,
        timeout: Duration::from_secs(30),
        read: |_, _| Some(SinkConfig::Stdout),
    },
    SinkKind {
        name: "webhook",
        keys: &["url", "headers"],
        concurrency: 16,
        timeout: WebhookConfig::DEFAULT_TIMEOUT,
        read: |options, timeout| WebhookConfig::read(options, timeout).map(SinkConfig::Webhook),
    },
];

/// A sink as the registry knows it.
#[derive(Clone, Copy, Debug)]
pub struct SinkKind {
    /// The part of an integration's name before `:`.
    pub name: &'static str,
    /// The options of its own that it takes.
    pub keys: &'static [&'static str],
    /// How many batches it has under way at once, unless the integration says otherwise.
    pub concurrency: usize,
    /// How long one attempt may take, unless the integration says otherwise.
    pub timeout: Duration,
    read: fn(&mut Options, Duration) -> Option<SinkConfig>,
}

impl SinkKind {
    /// The sink that serves an integration such as `webhook:partnerX`.
    ///
    /// # Errors
    /// When no sink has that name; the error lists those there are.
    pub fn of(integration: &str) -> Result<&'static Self, UnknownSink> {
        let name = integration.split_once(':').map_or(integration, |(name, _)| name);
        SINKS.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let known: Vec<&str> = SINKS.iter().map(|kind| kind.name).collect();
            UnknownSink { name: name.to_owned(), near: nearest(name, &known), known }
        })
    }

    /// Checks options without any I/O. `timeout` limits one attempt.
    ///
    /// # Errors
    /// Every fault there is, unknown keys included.
    pub fn validate(
        &self,
        options: Map<String, Value>,
        timeout: Duration,
    ) -> Result<SinkConfig, Vec<OptionFault>> {
        let mut options = Options::new(options);
        let config = (self.read)(&mut options, timeout);
        let faults = options.finish(self.keys);
        match config {
            Some(config) if faults.is_empty() => Ok(config),
            _ => Err(faults),
        }
    }
}

/// No sink has this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("there is no sink `{name}`")]
pub struct UnknownSink {
    /// The name that was asked for.
    pub name: String,
    /// The one that was probably meant.
    pub near: Option<&'static str>,
    /// Those there are.
    pub known: Vec<&'static str>,
}

impl UnknownSink {
    /// What the reader can do.
    #[must_use]
    pub fn hint(&self) -> String {
        let known = self.known.join(", ");
        match self.near {
            Some(near) => {
                format!("did you mean `{near}`? The part before `:` names the sink: {known}")
            }
            None => format!("the part before `:` names the sink, one of: {known}"),
        }
    }
}

/// A checked configuration of one sink.
#[derive(Clone, Debug)]
pub enum SinkConfig {
    /// Lines in a file.
    File(FileConfig),
    /// Nothing.
    Noop,
    /// Lines on standard output.
    Stdout,
    /// POST to a URL.
    Webhook(WebhookConfig),
}

impl SinkConfig {
    /// Makes the sink. Connects to nothing yet.
    ///
    /// # Errors
    /// When a client cannot be made, such as for a machine without root certificates.
    pub fn build(self) -> Result<Arc<dyn Sink>, BuildError> {
        Ok(match self {
            Self::File(config) => Arc::new(FileSink::new(config)),
            Self::Noop => Arc::new(NoopSink),
            Self::Stdout => Arc::new(StdoutSink),
            Self::Webhook(config) => Arc::new(WebhookSink::new(config)?),
        })
    }
}

/// Why a sink could not be made from a good configuration.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct BuildError {
    /// What was being done, and what the operator can do.
    pub context: String,
    /// The client library's error.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn validate(integration: &str, options: Value) -> Result<SinkConfig, Vec<OptionFault>> {
        let Value::Object(options) = options else { panic!("options are a table") };
        SinkKind::of(integration).unwrap().validate(options, Duration::from_secs(1))
    }

    #[test]
    fn the_part_before_the_colon_names_the_sink() {
        assert_eq!(SinkKind::of("webhook:partner:x").unwrap().name, "webhook");
        assert_eq!(SinkKind::of("noop").unwrap().name, "noop");
    }

    #[test]
    fn an_unknown_sink_is_answered_with_those_there_are() {
        let error = SinkKind::of("webhok:x").unwrap_err();
        assert_eq!(error.to_string(), "there is no sink `webhok`");
        assert!(error.hint().starts_with("did you mean `webhook`?"));
        let error = SinkKind::of("carrier-pigeon").unwrap_err();
        assert!(error.hint().ends_with("file, noop, stdout, webhook"), "{}", error.hint());
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let faults = validate("webhook:x", json!({"urll": "http://a", "headers": {"a b": "c"}}));
        let faults = faults.unwrap_err();
        let problems: Vec<String> = faults
            .iter()
            .map(|fault| format!("{} {}", fault.path.join("."), fault.problem))
            .collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("url is missing"), "{problems:?}");
        assert!(problems[1].starts_with("headers.a b "), "{problems:?}");
        assert_eq!(problems[2], "urll is unknown");
        assert_eq!(faults[2].hint.as_deref(), Some("did you mean `url`?"));
    }

    #[test]
    fn good_options_build_a_sink() {
        for (integration, options) in [
            ("noop", json!({})),
            ("stdout", json!({})),
            ("file:audit", json!({"path": "audit.jsonl"})),
            ("webhook:x", json!({"url": "http://127.0.0.1:1/", "headers": {"x-a": "1"}})),
            ("webhook:y", json!({"url": "https://example.org/hook?key=1"})),
        ] {
            assert!(validate(integration, options).unwrap().build().is_ok(), "{integration}");
        }
    }

    #[test]
    fn wrong_types_are_named() {
        let faults = validate("file:x", json!({"path": 7})).unwrap_err();
        assert_eq!(faults[0].problem, "must be the path of a file");
        assert!(validate("noop", json!({"url": "x"})).is_err());
    }
}
