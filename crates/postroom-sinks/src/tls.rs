//! TLS for the clients of brokers.

use rustls::crypto::ring;
use std::error::Error;
use std::sync::Arc;
#[cfg(feature = "mqtt")]
use {
    postroom_core::Outcome,
    rustls::pki_types::CertificateDer,
    rustls::pki_types::pem::PemObject as _,
    rustls::{ClientConfig, RootCertStore},
    std::path::Path,
};

/// Two TLS providers in one program leave rustls without a default. Whoever comes first sets it,
/// and that is an answer too.
pub(crate) fn choose_provider() {
    let _ = ring::default_provider().install_default();
}

/// Whether an error comes from TLS itself: a certificate that nobody vouches for, or a server
/// that does not speak it. That is for the operator to settle.
pub(crate) fn is_behind(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // redis-rs shares its causes, and an error in an Arc shows only the source of itself.
        let shared = error.downcast_ref::<Arc<dyn Error + Send + Sync>>();
        let error = shared.map_or(error, |shared| &**shared);
        if error.is::<rustls::Error>() {
            return true;
        }
        // An I/O error shows the source of what it wraps, and not that itself.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if wrapped.is_some_and(|wrapped| wrapped.is::<rustls::Error>()) {
            return true;
        }
        cause = error.source();
    }
    false
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
        let unusable = |problem: String| {
            Outcome::refuse(format!(
                "cannot use {}: {problem}: correct the integration's `ca_file`",
                file.display()
            ))
        };
        let pem = tokio::fs::read(file).await.map_err(|error| unusable(error.to_string()))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
        }
    }
    choose_provider();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}
