//! The log, on standard error.

use crate::args::LogFormat;
use std::io;
use tracing_subscriber::EnvFilter;

/// What the log of a relay holds. The client for NATS reports every word of the server at `info`,
/// with subjects that may be made of tenants and streams; what matters of it, its sink says.
pub(crate) const OF_A_RELAY: &str = "info,async_nats=warn";

/// Starts the log. `RUST_LOG` says what it holds; without it, `default` does.
pub(crate) fn start(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_relay_does_not_log_what_a_nats_server_says_about_subjects() {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(OF_A_RELAY))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(log, || {
            tracing::info!(target: "async_nats", "event: refused tenant-7");
            tracing::warn!(target: "async_nats", "kept");
            tracing::info!(target: "postroom_relay", "also kept");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert!(!text.contains("tenant-7"), "{text}");
        assert_eq!(text.matches("kept").count(), 2, "{text}");
    }
}
