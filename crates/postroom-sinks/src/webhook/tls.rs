//! Certificates: whom to trust, and how to show who we are.

use crate::options::Options;
use crate::registry::BuildError;
use reqwest::{Certificate, ClientBuilder, Identity};
use std::path::{Path, PathBuf};

/// PEM files; read when the sink is made.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls {
    /// The authorities to trust, instead of the system's.
    ca: Option<PathBuf>,
    /// This side's certificate with its chain, and its key.
    identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    pub(super) fn read(options: &mut Options) -> Option<Self> {
        options.table("tls", &["ca", "certificate", "key"], |tls| {
            let mut file = |key: &str| tls.optional::<PathBuf>(key, "the path of a PEM file");
            let (ca, certificate, key) = (file("ca"), file("certificate"), file("key"));
            match (&certificate, &key) {
                (Some(_), None) => tls.fault(&["key"], "is missing: `certificate` needs it", None),
                (None, Some(_)) => tls.fault(&["certificate"], "is missing: `key` needs it", None),
                _ => {}
            }
            Some(Self { ca, identity: certificate.zip(key) })
        })
    }

    /// Whether the system's own authorities are to be trusted.
    pub(super) fn trusts_the_system(&self) -> bool {
        self.ca.is_none()
    }

    /// Gives a client these certificates.
    pub(super) fn apply(&self, mut builder: ClientBuilder) -> Result<ClientBuilder, BuildError> {
        if let Some(ca) = &self.ca {
            let trusted = Certificate::from_pem_bundle(&read_file(ca)?)
                .map_err(|error| unusable(ca, "certificates of authorities", error))?;
            builder = builder.tls_certs_only(trusted);
        }
        if let Some((certificate, key)) = &self.identity {
            let both = [read_file(certificate)?, b"\n".to_vec(), read_file(key)?].concat();
            let identity = Identity::from_pem(&both)
                .map_err(|error| unusable(certificate, "a certificate with its key", error))?;
            builder = builder.identity(identity);
        }
        Ok(builder)
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, BuildError> {
    std::fs::read(path).map_err(|error| BuildError {
        context: format!("cannot read {}: check the integration's `tls`", path.display()),
        source: Box::new(error),
    })
}

fn unusable(path: &Path, expected: &str, error: reqwest::Error) -> BuildError {
    BuildError {
        context: format!(
            "{} holds no {expected} in PEM: check the integration's `tls`",
            path.display()
        ),
        source: Box::new(error),
    }
}
