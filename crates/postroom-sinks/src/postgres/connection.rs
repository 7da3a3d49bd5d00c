//! Connections, and who the server must prove to be.

use super::classify::{Fault, classify};
use super::config::{PostgresConfig, place};
use crate::endpoints::in_turn;
use crate::pool::Pool;
use crate::registry::BuildError;
use postroom_core::Outcome;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Idle connections are closed after this.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The connections to one database.
pub(super) fn connections(config: &PostgresConfig) -> Result<Pool<Client>, BuildError> {
    let tls = MakeRustlsConnect::new(tls(config)?);
    let (servers, limit) = (config.servers.clone(), config.timeout);
    let connect = move || {
        let (servers, tls) = (servers.clone(), tls.clone());
        async move { connect_in_turn(&servers, &tls, limit).await }
    };
    Ok(Pool::new(config.timeout, IDLE_MAX, |client| !client.is_closed(), connect))
}

/// Connects to the first server that accepts, each within its part of `limit`.
async fn connect_in_turn(
    servers: &[tokio_postgres::Config],
    tls: &MakeRustlsConnect,
    limit: Duration,
) -> Result<Client, Outcome> {
    let part = limit / u32::try_from(servers.len().max(1)).unwrap_or(u32::MAX);
    in_turn(servers, |server| {
        let (server, tls) = (server.clone(), tls.clone());
        async move {
            let place = place(&server);
            match tokio::time::timeout(part, server.connect(tls)).await {
                Ok(Ok((client, driver))) => {
                    // It ends when the client is dropped; what goes wrong before, the client
                    // reports.
                    tokio::spawn(driver);
                    Ok(client)
                }
                Ok(Err(error)) => Err(classify(&place, &Fault::of(&error))),
                Err(_) => Err(Outcome::retry(format!("no connection to {place} within {part:?}"))),
            }
        }
    })
    .await
}

/// A certificate is always checked against its authority, and against the host's name unless
/// `sslmode` asks for the authority alone. The provider is named: a program may hold several, and
/// rustls refuses to choose.
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
        None if config.servers.iter().any(|one| one.get_ssl_mode() != SslMode::Disable) => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("cannot set up TLS", error.into()))?;
    if config.checks_name {
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let checked = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| unusable("cannot set up TLS: check `ca_file`", error.into()))?;
    let any_name = Arc::new(AnyName(checked));
    Ok(builder.dangerous().with_custom_certificate_verifier(any_name).with_no_client_auth())
}

fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, Box<dyn Error + Send + Sync>> {
    let found = CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        return Err("it holds no certificate in PEM".into());
    }
    Ok(found)
}

/// Takes a certificate from a trusted authority whatever name it is made out to.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        match self.0.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            // The name is looked at last: all else is in order.
            Err(rustls::Error::InvalidCertificate(
                NotValidForName | NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            checked => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
