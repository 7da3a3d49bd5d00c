//! Certificates for servers, from an authority that a test may trust or not.

use nix::unistd::{Uid, User};
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fmt;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A certificate authority of its own, gone with the value.
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

/// A server's certificate and key, in files that only the server's user may read.
#[derive(Debug)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    _folder: TempDir,
}

impl Authority {
    /// Makes one.
    ///
    /// # Panics
    /// When a file cannot be written.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        // Another name than those it certifies have: OpenSSL takes them for self-signed otherwise.
        params.distinguished_name.push(DnType::CommonName, "Postroom's tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder for the authority");
        fs::write(folder.path().join("ca.pem"), certificate.pem()).expect("the certificate");
        Self { certificate, issuer: Issuer::new(params, key), folder }
    }

    /// The file that clients name to trust it.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The same as PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A certificate made out to `names`, for a server that runs as `user` when the tests run as
    /// root.
    ///
    /// # Panics
    /// When the files cannot be written.
    #[must_use]
    pub fn issue(&self, names: &[&str], user: &str) -> CertificateFiles {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("names of hosts");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder for a certificate");
        let files = CertificateFiles {
            certificate: folder.path().join("server.pem"),
            key: folder.path().join("server.key"),
            _folder: folder,
        };
        fs::write(&files.certificate, certificate.pem()).expect("the certificate");
        fs::write(&files.key, key.serialize_pem()).expect("the key");
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).expect("its rights");
        if Uid::effective().is_root() {
            let user = User::from_name(user).expect("a list of users").expect("the user");
            for path in [files._folder.path(), &files.certificate, &files.key] {
                chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("handed over");
            }
        }
        files
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authority").field(&self.file()).finish()
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl CertificateFiles {
    /// The certificate, as PEM.
    #[must_use]
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Its key, as PEM.
    #[must_use]
    pub fn key(&self) -> &Path {
        &self.key
    }
}
