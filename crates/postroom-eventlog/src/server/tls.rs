//! TLS for connections.

use std::fmt;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// The certificate of a server and its key, both as PEM.
#[derive(Clone)]
pub struct Tls {
    /// The certificate, followed by those that it depends on.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate is no PEM.
    #[error("the certificate is no PEM: {0}")]
    Certificate(#[source] pem::Error),
    /// The file has no certificate.
    #[error("the file of the certificate has none")]
    NoCertificate,
    /// The key is no PEM.
    #[error("the key is no PEM, or of an unknown kind: {0}")]
    Key(#[source] pem::Error),
    /// The two do not fit, or are of a kind that is not supported.
    #[error("the certificate and its key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// What makes connections secure.
pub(crate) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(&tls.certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(TlsError::Certificate)?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(&tls.key).map_err(TlsError::Key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_none_is_refused() {
        let refusal = |certificate: &[u8], key: &[u8]| {
            let tls = Tls { certificate: certificate.to_vec(), key: key.to_vec() };
            acceptor(&tls).err().unwrap()
        };
        assert!(matches!(refusal(b"", b""), TlsError::NoCertificate));
        let broken = b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
        assert!(matches!(refusal(broken, b""), TlsError::Certificate(_)));
        let empty = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(refusal(empty, b"no key"), TlsError::Key(_)));
    }
}
