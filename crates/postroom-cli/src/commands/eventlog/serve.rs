//! `postroom eventlog serve`.

use super::super::stop::StopSignals;
use crate::args::Serve;
use crate::failure::Failure;
use anyhow::Context as _;
use postroom_eventlog::server::{Server, ServerSettings, Tls, Users};
use postroom_eventlog::{EventLog, Settings};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

pub(super) async fn run(args: &Serve) -> Result<(), Failure> {
    let mut signals = StopSignals::listen()?;
    let settings = ServerSettings {
        listen: args.listen,
        tls: tls(args)?,
        users: args.users.as_deref().map(users).transpose()?,
        ..ServerSettings::default()
    };
    warn_of_open_doors(&settings);
    let folder = args.data.data.clone();
    let opening = tokio::task::spawn_blocking(move || EventLog::open(&folder, Settings::default()));
    let log = tokio::select! {
        opened = opening => opened.map_err(anyhow::Error::from)?.map_err(anyhow::Error::from)?,
        // A large log takes a while to check, and whoever presses Ctrl-C wants no log.
        () = signals.next() => return Ok(()),
    };
    let server = Server::bind(log.clone(), settings).map_err(anyhow::Error::from)?;
    tracing::info!(
        data = %args.data.data.display(),
        version = env!("CARGO_PKG_VERSION"),
        "the event log is served: {} (for development, tests and single nodes)",
        server.connection_string()
    );
    let stop = async {
        signals.next().await;
        tracing::info!("stopping: clients are told to connect again, which takes some seconds");
    };
    let served = server.serve(stop).await;
    log.close().await;
    tracing::info!("the event log is closed");
    Ok(served.map_err(anyhow::Error::from)?)
}

fn tls(args: &Serve) -> Result<Option<Tls>, Failure> {
    let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) else {
        return Ok(None);
    };
    Ok(Some(Tls { certificate: read(certificate)?, key: read(key)? }))
}

fn users(path: &Path) -> Result<Users, Failure> {
    let text = String::from_utf8(read(path)?)
        .map_err(|_| Failure::Usage(format!("{} is no UTF-8 text", path.display())))?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(
            file = %path.display(),
            "other users of this machine may read the passwords in this file: chmod 600"
        );
    }
    Users::parse(&text).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    Ok(fs::read(path).with_context(|| format!("reading {}", path.display()))?)
}

fn warn_of_open_doors(settings: &ServerSettings) {
    if settings.listen.ip().is_loopback() {
        return;
    }
    let address = settings.listen;
    if settings.users.is_none() {
        tracing::warn!(
            %address,
            "whoever reaches this address may read and write everything: --users names who may"
        );
    }
    if settings.tls.is_none() {
        tracing::warn!(
            %address,
            "events and passwords travel in the clear: --tls-certificate and --tls-key encrypt them"
        );
    }
}
