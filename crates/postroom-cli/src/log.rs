//! The log, on standard error.

use crate::args::LogFormat;
use std::io;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What the log of a relay holds.
pub(crate) const OF_A_RELAY: &str = "info";

/// Starts the log. `RUST_LOG` says what it holds; without it, `default` does.
pub(crate) fn start(format: LogFormat, default: &str) {
    let asked = std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let filter = asked.and_then(|text| EnvFilter::try_new(directives(&text)).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(directives(default)));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}

/// A bare level is meant for this program: the drivers it uses would bury its lines in theirs, and
/// some of them write down statements, subjects and keys. They are heard from `warn` on, and at
/// another level when they are named.
fn directives(text: &str) -> String {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parts = parts.map(|part| match part.parse::<LevelFilter>() {
        Ok(level) => format!("{},postroom={level}", level.min(LevelFilter::WARN)),
        Err(_) => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join(",")
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

    /// What is left of some lines.
    fn logged(filter: &str) -> String {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(directives(filter)))
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(log, || {
            tracing::info!(target: "async_nats", "event: refused tenant-7");
            tracing::warn!(target: "async_nats", "a driver warns");
            tracing::debug!(target: "sqlx::query", "SELECT 1");
            tracing::info!(target: "postroom_relay", "we say");
            tracing::debug!(target: "postroom", "we say more");
        });
        String::from_utf8(written.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_relay_does_not_log_what_a_nats_server_says_about_subjects() {
        let text = logged(OF_A_RELAY);
        assert!(!text.contains("tenant-7"), "{text}");
        assert!(text.contains("a driver warns") && text.contains("we say"), "{text}");
        assert!(!text.contains("we say more"), "{text}");
    }

    #[test]
    fn a_bare_level_is_ours_and_a_driver_speaks_when_it_is_named() {
        let text = logged("debug");
        assert!(text.contains("we say more"), "{text}");
        assert!(!text.contains("SELECT 1") && !text.contains("tenant-7"), "{text}");
        assert!(logged("debug,sqlx=debug").contains("SELECT 1"));
        assert!(logged("warn,sqlx=debug").contains("SELECT 1"));
        assert_eq!(logged("off"), "");
        assert_eq!(logged("error"), "");
        assert!(!logged("postroom_relay=info").contains("we say more"));
    }
}
