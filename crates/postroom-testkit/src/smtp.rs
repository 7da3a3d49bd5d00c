//! SMTP for tests: aiosmtpd, and mails read back by Python's own parser.

use crate::guarded::{Guarded, Kind, NotStarted, on_free_port, shared};
use crate::{CertificateFiles, python_with};
use anyhow::{Context as _, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// As root: its interpreter is in the cache of whoever runs the tests.
const KIND: Kind = Kind { name: "SMTP", prefix: "postroom-smtp-", user: "root", crash: "KILL" };
const START_LIMIT: Duration = Duration::from_secs(60);
const PACKAGES: &[&str] = &["aiosmtpd==1.4.6"];

/// How a private server protects itself.
#[derive(Clone, Copy, Debug)]
pub enum SmtpSecurity<'a> {
    /// Not at all.
    None,
    /// It insists on STARTTLS.
    StartTls(&'a CertificateFiles),
    /// TLS from the first byte.
    Tls(&'a CertificateFiles),
}

/// A mail as Python's parser reads it.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Mail {
    /// Whom the server took it for.
    pub recipients: Vec<String>,
    /// Its headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its plain text.
    pub text: Option<String>,
    /// Its HTML.
    pub html: Option<String>,
}

/// A private SMTP server that ends with the process that started it, or with the value.
///
/// A sender or recipient `refuse-550@…` is answered with 550, `refuse-554-5.7.1@…` with that finer
/// code, `later-451@…` with 451 the first time, and the subject `refuse 554` with 554 after the
/// content. It takes 200,000 bytes at most, and knows the user `relay` with the password `hunter2`
/// where it asks for a login.
#[derive(Debug)]
pub struct Smtp {
    guarded: Guarded,
    python: PathBuf,
    port: u16,
}

impl Smtp {
    /// The server that all tests of this process share: neither TLS nor a login.
    ///
    /// # Panics
    /// When it cannot be started: as a skip of this test where it cannot be installed.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceLock<Result<Smtp, NotStarted>> = OnceLock::new();
        shared(&SHARED, || Self::start(SmtpSecurity::None, false)).await
    }

    /// A server of its own. Blocks while it starts.
    ///
    /// # Errors
    /// When it cannot be had, for a skip.
    pub fn start(security: SmtpSecurity<'_>, login: bool) -> anyhow::Result<Self> {
        let python = python_with(PACKAGES)?;
        let guarded = Guarded::new(KIND)?;
        let folder = guarded.folder().to_owned();
        let script = folder.join("server.py");
        fs::write(&script, include_str!("smtp/server.py")).context("the server's script")?;
        fs::write(folder.join("read.py"), include_str!("smtp/read.py")).context("its reader")?;
        let port = on_free_port(
            |port| {
                let mut command = Command::new(&python);
                command.arg(&script).args(["--port", &port.to_string(), "--mails"]);
                command.arg(folder.join("mails"));
                let (mode, files) = match security {
                    SmtpSecurity::None => ("none", None),
                    SmtpSecurity::StartTls(files) => ("starttls", Some(files)),
                    SmtpSecurity::Tls(files) => ("tls", Some(files)),
                };
                command.args(["--tls", mode]);
                if let Some(files) = files {
                    command.arg("--certificate").arg(files.certificate());
                    command.arg("--key").arg(files.key());
                }
                if login {
                    command.arg("--login");
                }
                let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
                guarded.start(&command, START_LIMIT, listens)
            },
            || guarded.log_end().contains("address already in use"),
        )?;
        Ok(Self { guarded, python, port })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The mails whose first recipient is of this domain, in the order they came.
    ///
    /// # Panics
    /// When Python finds fault with one.
    #[must_use]
    pub fn mails(&self, domain: &str) -> Vec<Mail> {
        let read = || {
            let output = Command::new(&self.python)
                .arg(self.guarded.folder().join("read.py"))
                .arg(self.guarded.folder().join("mails").join(domain))
                .output()?;
            let errors = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{errors}");
            Ok(serde_json::from_slice(&output.stdout)?)
        };
        read().unwrap_or_else(|error: anyhow::Error| panic!("reading mails: {error:#}"))
    }
}
