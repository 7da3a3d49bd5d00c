//! TLS for the clients of brokers.

use postroom_core::Outcome;
use rustls::crypto::ring;
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
#[cfg(feature = "mqtt")]
use {
    rustls::pki_types::CertificateDer,
    rustls::pki_types::pem::PemObject as _,
    rustls::{ClientConfig, RootCertStore},
};

/// Two TLS providers in one program leave rustls without a default. Whoever comes first sets it,
/// and that is an answer too.
pub(crate) fn choose_provider() {
    let _ = ring::default_provider().install_default();
}

/// What TLS itself says behind an error: a certificate that nobody vouches for, or a server that
/// does not speak it. That is for the operator to settle.
pub(crate) fn fault_behind<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut cause = Some(error);
    while let Some(mut error) = cause {
        // A shared error, too, shows the source of what it wraps.
        if let Some(shared) = error.downcast_ref::<Arc<dyn Error + Send + Sync>>() {
            error = shared.as_ref();
        }
        // An I/O error shows the source of what it wraps, and not that itself; and it may be
        // wrapped in another.
        let mut wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        while let Some(inner) = wrapped {
            if let Some(fault) = inner.downcast_ref() {
                return Some(fault);
            }
            wrapped = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        }
        if let Some(fault) = error.downcast_ref() {
            return Some(fault);
        }
        cause = error.source();
    }
    None
}

/// Whether an error comes from TLS itself.
pub(crate) fn is_behind(error: &(dyn Error + 'static)) -> bool {
    fault_behind(error).is_some()
}

/// What an integration's `ca_file` holds.
///
/// # Errors
/// The refusal to report when it cannot be read.
pub(crate) async fn read_ca_file(file: &Path) -> Result<Vec<u8>, Outcome> {
    tokio::fs::read(file).await.map_err(|error| unusable(file, &error))
}

fn unusable(file: &Path, problem: &dyn Error) -> Outcome {
    Outcome::refuse(format!(
        "cannot use {}: {problem}: correct the integration's `ca_file`",
        file.display()
    ))
}

/// What a client trusts: the system's authorities, and those in this file.
///
/// # Errors
/// The refusal to report when the file cannot be used.
#[cfg(feature = "mqtt")]
pub(crate) async fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, Outcome> {
    let mut roots = RootCertStore::empty();
    // One that cannot be read is one that is not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = ca_file {
        let pem = read_ca_file(file).await?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| unusable(file, &error))?;
            roots.add(certificate).map_err(|error| unusable(file, &error))?;
        }
    }
    choose_provider();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}
