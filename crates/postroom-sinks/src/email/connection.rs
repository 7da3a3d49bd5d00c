//! Connections to the server, and one mail over one of them.

use super::classify::{Reply, Step};
use super::config::{EmailConfig, Security};
use super::letter::Letter;
use crate::registry::BuildError;
use lettre::Address;
use lettre::transport::smtp::authentication::Mechanism;
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shorter than what servers allow, so that we close first.
const IDLE_MAX: Duration = Duration::from_secs(30);
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

/// What the server said to one mail.
pub(super) struct Receipt {
    /// Those who have the mail.
    pub(super) accepted: Vec<Address>,
    /// Those whom the server does not take it for.
    pub(super) refused: Vec<(Address, Reply)>,
}

/// One server, and connections to it that nobody uses at the moment.
pub(super) struct Server {
    config: EmailConfig,
    tls: Option<TlsParameters>,
    hello: ClientId,
    idle: Mutex<Vec<(AsyncSmtpConnection, Instant)>>,
}

impl Server {
    pub(super) fn new(config: EmailConfig) -> Result<Self, BuildError> {
        let tls = match config.security {
            Security::None => None,
            Security::StartTls | Security::Tls => Some(tls(&config)?),
        };
        let hello = ClientId::Domain(config.from.email.domain().to_owned());
        Ok(Self { config, tls, hello, idle: Mutex::default() })
    }

    /// Sends a mail to `recipients` in one transaction. A mail that stays unanswered may have
    /// been taken.
    pub(super) async fn send(
        &self,
        letter: &Letter,
        recipients: &[&Address],
    ) -> Result<Receipt, (Step, Reply)> {
        if let Some(mut connection) = self.take() {
            match self.begin(&mut connection, letter).await {
                // The server has closed what was idle: nothing is lost, and another will do.
                Err((_, reply)) if reply.ends_connection() => {}
                begun => return self.go_on(connection, begun, letter, recipients).await,
            }
        }
        let mut connection = self.connect().await?;
        let begun = self.begin(&mut connection, letter).await;
        self.go_on(connection, begun, letter, recipients).await
    }

    /// Connects and logs in, as far as a mail would need it.
    pub(super) async fn connect(&self) -> Result<AsyncSmtpConnection, (Step, Reply)> {
        let at = |step: Step| move |error| (step, Reply::from(error));
        let config = &self.config;
        let implicit = self.tls.clone().filter(|_| config.security == Security::Tls);
        let address = (config.host.as_str(), config.port);
        let timeout = Some(config.timeout);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(address, timeout, &self.hello, implicit, None)
                .await
                .map_err(at(Step::Connect))?;
        if config.security == Security::StartTls
            && let Some(tls) = self.tls.clone()
        {
            if !connection.can_starttls() {
                return Err((Step::StartTls, Reply::Unsupported));
            }
            connection.starttls(tls, &self.hello).await.map_err(at(Step::StartTls))?;
        }
        if let Some(login) = &config.login {
            if connection.server_info().get_auth_mechanism(&MECHANISMS).is_none() {
                return Err((Step::Login, Reply::Unsupported));
            }
            connection.auth(&MECHANISMS, login).await.map_err(at(Step::Login))?;
        }
        Ok(connection)
    }

    async fn begin(
        &self,
        connection: &mut AsyncSmtpConnection,
        letter: &Letter,
    ) -> Result<(), (Step, Reply)> {
        let mut parameters = Vec::new();
        if letter.is_international(&self.config.from) {
            if !connection.server_info().supports_feature(Extension::SmtpUtfEight) {
                return Err((Step::Content, Reply::Unsupported));
            }
            parameters.push(MailParameter::SmtpUtfEight);
        }
        let sender = Some(self.config.from.email.clone());
        let begun = connection.command(Mail::new(sender, parameters)).await;
        begun.map(drop).map_err(|error| (Step::Sender, error.into()))
    }

    async fn go_on(
        &self,
        mut connection: AsyncSmtpConnection,
        begun: Result<(), (Step, Reply)>,
        letter: &Letter,
        recipients: &[&Address],
    ) -> Result<Receipt, (Step, Reply)> {
        let sent = match begun {
            Ok(()) => finish(&mut connection, letter, recipients).await,
            Err(refused) => Err(refused),
        };
        let is_alive = !matches!(&sent, Err((_, reply)) if reply.ends_connection());
        // Whatever was begun is over, so that the next mail begins afresh.
        let is_clean = matches!(&sent, Ok(receipt) if !receipt.accepted.is_empty());
        if is_clean || (is_alive && connection.command("RSET\r\n").await.is_ok()) {
            self.put_back(connection);
        }
        sent
    }

    fn take(&self) -> Option<AsyncSmtpConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, since)| since.elapsed() < IDLE_MAX);
        idle.pop().map(|(connection, _)| connection)
    }

    fn put_back(&self, connection: AsyncSmtpConnection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push((connection, Instant::now()));
    }
}

/// The recipients and the content, after the sender.
async fn finish(
    connection: &mut AsyncSmtpConnection,
    letter: &Letter,
    recipients: &[&Address],
) -> Result<Receipt, (Step, Reply)> {
    let mut receipt = Receipt { accepted: Vec::new(), refused: Vec::new() };
    for recipient in recipients {
        match connection.command(Rcpt::new((*recipient).clone(), Vec::new())).await {
            Ok(_) => receipt.accepted.push((*recipient).clone()),
            Err(error) => {
                let reply = Reply::from(error);
                if reply.ends_connection() || reply.wants_login() {
                    return Err((Step::Recipient, reply));
                }
                receipt.refused.push(((*recipient).clone(), reply));
            }
        }
    }
    if !receipt.accepted.is_empty() {
        connection.command(Data).await.map_err(|error| (Step::Content, error.into()))?;
        let sent = connection.message(&letter.bytes).await;
        sent.map_err(|error| (Step::Content, error.into()))?;
    }
    Ok(receipt)
}

fn tls(config: &EmailConfig) -> Result<TlsParameters, BuildError> {
    // Two TLS providers in one program leave rustls without a default; whoever comes first
    // sets it, and that is an answer too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let unusable = |context: String, source: Box<dyn std::error::Error + Send + Sync>| BuildError {
        context,
        source,
    };
    let mut builder = TlsParameters::builder(config.host.clone());
    if let Some(file) = &config.ca_file {
        let place = file.display();
        let pem = std::fs::read(file).map_err(|error| {
            unusable(format!("cannot read {place}: check `ca_file`"), error.into())
        })?;
        let authority = Certificate::from_pem(&pem).map_err(|error| {
            unusable(format!("{place} holds no certificates in PEM: check `ca_file`"), error.into())
        })?;
        let builder_of_these = builder.certificate_store(CertificateStore::None);
        builder = builder_of_these.add_root_certificate(authority);
    }
    builder.build_rustls().map_err(|error| {
        unusable("cannot set up TLS: check `host` and `ca_file`".to_owned(), error.into())
    })
}
