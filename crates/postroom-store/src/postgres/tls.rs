//! Who the server must prove to be.

use super::connect::{Mode, Security};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;

/// The client's side of TLS. The provider is named: a program may hold several, and rustls
/// refuses to choose.
pub(super) fn client_config(security: &Security) -> StoreResult<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = match security.mode {
        Mode::Disable | Mode::Prefer | Mode::Require => None,
        Mode::VerifyCa | Mode::VerifyFull => Some(Arc::new(roots(security.roots.as_deref())?)),
    };
    let verifier: Arc<dyn ServerCertVerifier> = match (security.mode, roots) {
        (Mode::VerifyFull, Some(roots)) => {
            WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|error| setting_up(error))?
        }
        (_, roots) => Arc::new(AnyName { roots, provider: Arc::clone(&provider) }),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(setting_up)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(config)
}

fn setting_up(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::new(StoreErrorKind::Refused, "setting up TLS to PostgreSQL", error)
}

/// The authorities to trust: those of the file, or those of the system.
fn roots(file: Option<&Path>) -> StoreResult<RootCertStore> {
    let mut store = RootCertStore::empty();
    let Some(file) = file else {
        let found = rustls_native_certs::load_native_certs();
        store.add_parsable_certificates(found.certs);
        if store.is_empty() {
            return Err(StoreError::plain(
                StoreErrorKind::Refused,
                "this system has no list of trusted certificate authorities: name a file with \
                 sslrootcert= in the database URL",
            ));
        }
        return Ok(store);
    };
    let refused = |problem: String| {
        let place = file.display();
        StoreError::plain(StoreErrorKind::Refused, format!("sslrootcert {place}: {problem}"))
    };
    let certificates = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| refused(format!("cannot be read as PEM: {error}")))?;
    for certificate in certificates {
        store.add(certificate).map_err(|error| {
            refused(format!("holds a certificate that is no authority: {error}"))
        })?;
    }
    if store.is_empty() {
        return Err(refused("holds no certificate".to_owned()));
    }
    Ok(store)
}

/// Accepts a certificate for any name: from a trusted authority where there are such, else from
/// anyone. That is what `verify-ca`, and `require` and `prefer`, promise.
#[derive(Debug)]
struct AnyName {
    roots: Option<Arc<RootCertStore>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
