//! The log, on standard error.

use crate::args::LogFormat;
use std::io;
use tracing_subscriber::EnvFilter;

/// Starts the log. `RUST_LOG` says what it holds; without it, `default` does.
pub(crate) fn start(format: LogFormat, default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().init(),
    }
}
