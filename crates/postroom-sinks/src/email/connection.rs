//! Connections to the server, and one mail over one of them.

use super::classify::{Reply, Step, classify};
use super::config::{EmailConfig, Security};
use super::letter::Letter;
use crate::pool::Pool;
use crate::registry::BuildError;
use crate::tls::choose_provider;
use lettre::Address;
use lettre::transport::smtp::authentication::Mechanism;
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters,
};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use postroom_core::Outcome;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

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

/// One server, and the connections to it.
pub(super) struct Server {
    account: Arc<Account>,
    connections: Pool<AsyncSmtpConnection>,
}

/// Where and as whom to connect.
struct Account {
    config: EmailConfig,
    place: String,
    tls: Option<TlsParameters>,
    hello: ClientId,
}

impl Server {
    pub(super) fn new(config: EmailConfig) -> Result<Self, BuildError> {
        let tls = match config.security {
            Security::None => None,
            Security::StartTls | Security::Tls => Some(tls(&config)?),
        };
        let hello = ClientId::Domain(config.from.email.domain().to_owned());
        let limit = config.timeout;
        let account = Arc::new(Account { place: config.place(), config, tls, hello });
        let connecting = Arc::clone(&account);
        // Whether the server has closed one is only seen when it is used.
        let connections = Pool::new(
            limit,
            IDLE_MAX,
            |_| true,
            move || {
                let account = Arc::clone(&connecting);
                async move {
                    let connected = account.connect().await;
                    connected.map_err(|(step, reply)| classify(&account.place, step, &reply))
                }
            },
        );
        Ok(Self { account, connections })
    }

    /// Sends a mail to `recipients` in one transaction, until `deadline`. A mail that stays
    /// unanswered may have been taken.
    pub(super) async fn send(
        &self,
        letter: &Letter,
        recipients: &[&Address],
        deadline: Instant,
    ) -> Result<Receipt, Outcome> {
        let sending = self.send_over_one(letter, recipients, deadline);
        match tokio::time::timeout_at(deadline, sending).await {
            Ok(sent) => sent.map_err(|refused| match refused {
                Refused::Connecting(outcome) => outcome,
                Refused::Reply(step, reply) => classify(&self.account.place, step, &reply),
            }),
            Err(_) => {
                self.connections.doubt();
                Err(self.account.too_slow())
            }
        }
    }

    /// Connects and logs in, as far as a mail would need it.
    pub(super) async fn probe(&self, deadline: Instant) -> Result<(), Outcome> {
        self.connections.make(deadline).await.map(drop)
    }

    async fn send_over_one(
        &self,
        letter: &Letter,
        recipients: &[&Address],
        deadline: Instant,
    ) -> Result<Receipt, Refused> {
        let mut lent = self.connections.take(deadline).await?;
        let mut begun = self.account.begin(&mut lent.connection, letter).await;
        if matches!(&begun, Err((_, reply)) if reply.ends_connection()) {
            // The server has closed what was idle: nothing is lost, and another will do.
            self.connections.lost(lent);
            lent = self.connections.take(deadline).await?;
            begun = self.account.begin(&mut lent.connection, letter).await;
        }
        let sent = match begun {
            Ok(()) => finish(&mut lent.connection, letter, recipients).await,
            Err(refused) => Err(refused),
        };
        if matches!(&sent, Err((_, reply)) if reply.ends_connection()) {
            self.connections.lost(lent);
            return sent.map_err(Refused::from);
        }
        // Whatever was begun is over, so that the next mail begins afresh.
        let is_clean = matches!(&sent, Ok(receipt) if !receipt.accepted.is_empty());
        if is_clean || lent.connection.command("RSET\r\n").await.is_ok() {
            self.connections.give_back(lent);
        }
        sent.map_err(Refused::from)
    }
}

/// Why a mail was not sent: what came of connecting, or the server's reply.
enum Refused {
    Connecting(Outcome),
    Reply(Step, Reply),
}

impl From<Outcome> for Refused {
    fn from(outcome: Outcome) -> Self {
        Self::Connecting(outcome)
    }
}

impl From<(Step, Reply)> for Refused {
    fn from((step, reply): (Step, Reply)) -> Self {
        Self::Reply(step, reply)
    }
}

impl Account {
    async fn connect(&self) -> Result<AsyncSmtpConnection, (Step, Reply)> {
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

    fn too_slow(&self) -> Outcome {
        Outcome::retry(format!("no answer from {} within {:?}", self.place, self.config.timeout))
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
    choose_provider();
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
