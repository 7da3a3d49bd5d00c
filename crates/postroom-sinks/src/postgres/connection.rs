//! Connections, and who the server must prove to be.

use super::config::PostgresConfig;
use crate::registry::BuildError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Idle connections are closed after this.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// One database, and connections to it that nobody uses at the moment.
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    idle: Mutex<Vec<(Client, Instant)>>,
}

impl Server {
    pub(super) fn new(config: &PostgresConfig) -> Result<Self, BuildError> {
        let tls = MakeRustlsConnect::new(tls(config)?);
        Ok(Self { config: config.server.clone(), tls, idle: Mutex::default() })
    }

    /// A connection that was used before, if there is one that still seems to be open.
    pub(super) fn take(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(client, since)| !client.is_closed() && since.elapsed() < IDLE_MAX);
        idle.pop().map(|(client, _)| client)
    }

    pub(super) async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, driver) = self.config.connect(self.tls.clone()).await?;
        // It ends when the client is dropped; what goes wrong before, the client reports.
        tokio::spawn(driver);
        Ok(client)
    }

    pub(super) fn put_back(&self, client: Client) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push((client, Instant::now()));
    }
}

/// A certificate is always checked, against its authority and the host's name. The provider is
/// named: a program may hold several, and rustls refuses to choose.
fn tls(config: &PostgresConfig) -> Result<ClientConfig, BuildError> {
    let unusable = |context: &str, source: Box<dyn Error + Send + Sync>| BuildError {
        context: context.to_owned(),
        source,
    };
    let mut roots = RootCertStore::empty();
    match &config.ca_file {
        Some(file) => {
            let certificates = authorities(file).map_err(|error| {
                unusable(&format!("{}: check `ca_file`", file.display()), error)
            })?;
            roots.add_parsable_certificates(certificates);
        }
        None if config.server.get_ssl_mode() != SslMode::Disable => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("cannot set up TLS", error.into()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, Box<dyn Error + Send + Sync>> {
    let found = CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        return Err("it holds no certificate in PEM".into());
    }
    Ok(found)
}
