//! From a URL to connections.

use super::error::{connect_error, store_error};
use super::hosts::Hosts;
use super::{locks, tls};
use deadpool_postgres::{ClientWrapper, Hook, HookError};
use postroom_core::{StoreError, StoreErrorKind, StoreResult, url_per_host};
use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How long a caller waits for a connection before the database counts as away, and how long one
/// may take to be made: TCP, TLS and the server's greeting.
pub(super) const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// How long the network may swallow packets before a connection counts as lost.
const NETWORK_SILENCE: Duration = Duration::from_secs(30);

/// How long a transaction may wait for its next statement. Ours follow each other at once.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(10);

/// A connection's half that talks to the server.
pub(super) type Driver =
    tokio_postgres::Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A database, and how it is connected to.
#[derive(Clone)]
pub(super) struct Target {
    /// With all hosts of the URL.
    pub(super) config: Config,
    pub(super) hosts: Hosts,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The driver's own form leaves the password out.
        self.config.fmt(f)
    }
}

impl Target {
    /// Reads a URL. The error never repeats it, since it may hold a password.
    pub(super) fn parse(url: &str) -> StoreResult<Self> {
        let Parts { url, security, attributes } = Parts::of(url)?;
        let config = read(&url, &security, attributes)?;
        let per_host = url_per_host(&url);
        // Where the driver reads the URL in another way, it is left to the driver.
        let configs = if per_host.len() == config.get_hosts().len() {
            let configs = per_host.iter().map(|url| read(url, &security, attributes));
            let mut configs = configs.collect::<StoreResult<Vec<_>>>()?;
            for one in &mut configs {
                one.target_session_attrs(config.get_target_session_attrs());
            }
            configs
        } else {
            vec![config.clone()]
        };
        let tls = MakeRustlsConnect::new(tls::client_config(&security)?);
        Ok(Self { config, hosts: Hosts { configs, tls } })
    }

    /// Connects outside the pool, for migrations and listening. The driver limits only the TCP
    /// handshake with each host: a server that accepts and never greets is met here.
    pub(super) async fn connect(&self) -> StoreResult<(Client, Driver)> {
        match tokio::time::timeout(CONNECTION_WAIT, self.hosts.connect()).await {
            Ok(connected) => connected.map_err(connect_error),
            Err(_) => Err(StoreError::plain(
                StoreErrorKind::Unavailable,
                format!(
                    "connecting: no answer from PostgreSQL within {CONNECTION_WAIT:?}: check that \
                     the server at that address is up and not overloaded"
                ),
            )),
        }
    }

    /// The same for those who leave the connection to itself.
    pub(super) async fn session(&self) -> StoreResult<Session> {
        let (client, driver) = self.connect().await?;
        let mut task = JoinSet::new();
        task.spawn(driver);
        Ok(Session { client, _driver: task })
    }
}

/// Reads what the driver knows, and sets what every connection gets.
fn read(
    url: &str,
    security: &Security,
    attributes: Option<TargetSessionAttrs>,
) -> StoreResult<Config> {
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        StoreError::new(
            StoreErrorKind::Refused,
            "the database URL is malformed: expected \
             postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            error,
        )
    })?;
    if config.get_application_name().is_none() {
        config.application_name("postroom");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECTION_WAIT);
    }
    // A network that swallows packets must look like a database that is away, not like one
    // that thinks for a quarter of an hour.
    config.keepalives_idle(NETWORK_SILENCE);
    config.tcp_user_timeout(NETWORK_SILENCE);
    config.ssl_mode(match security.mode {
        Mode::Disable => SslMode::Disable,
        Mode::Prefer => SslMode::Prefer,
        Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
    });
    // An outbox is written to: of several hosts, only one that takes writes will do.
    let are_several = config.get_hosts().len().max(config.get_hostaddrs().len()) > 1;
    let default = if are_several { TargetSessionAttrs::ReadWrite } else { TargetSessionAttrs::Any };
    config.target_session_attrs(attributes.unwrap_or(default));
    Ok(config)
}

/// A connection outside the pool. It is closed when this is dropped, also while an answer is
/// outstanding that may never come.
pub(super) struct Session {
    client: Client,
    _driver: JoinSet<Result<(), tokio_postgres::Error>>,
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// What every connection of a pool is told at its start. No statement waits for a lock without a
/// limit. A transaction whose client fell silent is rolled back by the server, so that the rows it
/// has locked are free again. `besides` is what the sessions of one pool are told on top.
pub(super) fn session_settings(besides: &str) -> Hook {
    let settings = format!(
        "SET lock_timeout = '{wait}s'; SET idle_in_transaction_session_timeout = '{idle}s'; {besides}",
        wait = locks::TABLE_WAIT.as_secs(),
        idle = IDLE_IN_TRANSACTION.as_secs(),
    );
    Hook::async_fn(move |client: &mut ClientWrapper, _| {
        let settings = settings.clone();
        Box::pin(async move {
            match tokio::time::timeout(CONNECTION_WAIT, client.batch_execute(&settings)).await {
                Ok(set) => set.map_err(HookError::Backend),
                Err(_) => Err(HookError::message("the server greets and does not answer")),
            }
        })
    })
}

/// How much a connection must be protected, in libpq's words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mode {
    /// Never encrypted.
    Disable,
    /// Encrypted if the server can.
    Prefer,
    /// Encrypted, with whoever answers.
    Require,
    /// The certificate must come from a trusted authority.
    VerifyCa,
    /// It must also be made out to the host's name.
    VerifyFull,
}

/// `sslmode` and `sslrootcert` of a URL, which the driver does not know in full.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Security {
    pub(super) mode: Mode,
    /// The file of trusted authorities; those of the system otherwise.
    pub(super) roots: Option<PathBuf>,
}

/// A URL, and what it says that the driver does not know in full.
struct Parts {
    /// Without the rest.
    url: String,
    security: Security,
    attributes: Option<TargetSessionAttrs>,
}

impl Parts {
    fn of(url: &str) -> StoreResult<Self> {
        let mut security = Security { mode: Mode::Prefer, roots: None };
        let mut attributes = None;
        // As the driver reads it: the credentials end at the first `@`, and may hold a `?`.
        let host = url.find('@').map_or(0, |at| at + 1);
        let Some(question) = url[host..].find('?') else {
            return Ok(Self { url: url.to_owned(), security, attributes });
        };
        let (address, query) = (&url[..host + question], &url[host + question + 1..]);
        let mut rest = Vec::new();
        for pair in query.split('&') {
            match pair.split_once('=') {
                Some(("sslmode", mode)) => security.mode = Mode::parse(mode)?,
                Some(("sslrootcert", "system")) => security.roots = None,
                Some(("sslrootcert", file)) => {
                    let file = percent_encoding::percent_decode_str(file).decode_utf8_lossy();
                    security.roots = Some(PathBuf::from(file.as_ref()));
                }
                Some(("target_session_attrs", word)) => attributes = Some(session(word)?),
                _ => rest.push(pair),
            }
        }
        // As libpq: who names authorities wants them asked.
        if security.mode == Mode::Require && security.roots.is_some() {
            security.mode = Mode::VerifyCa;
        }
        let rest = rest.join("&");
        let separator = if rest.is_empty() { "" } else { "?" };
        Ok(Self { url: format!("{address}{separator}{rest}"), security, attributes })
    }
}

/// What `target_session_attrs` asks for, as far as an outbox can be there. A primary is a server
/// that takes writes.
fn session(word: &str) -> StoreResult<TargetSessionAttrs> {
    match word {
        "any" => Ok(TargetSessionAttrs::Any),
        "read-write" | "primary" => Ok(TargetSessionAttrs::ReadWrite),
        _ => Err(StoreError::plain(
            StoreErrorKind::Refused,
            "the database URL asks for a server that an outbox cannot be on: target_session_attrs \
             is read-write (or primary) or any",
        )),
    }
}

impl Mode {
    fn parse(word: &str) -> StoreResult<Self> {
        Ok(match word {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                return Err(StoreError::plain(
                    StoreErrorKind::Refused,
                    "the database URL has an unknown sslmode: expected disable, prefer, require, \
                     verify-ca or verify-full",
                ));
            }
        })
    }
}

/// Asks one question that is answered by one value.
pub(super) async fn ask<T>(client: &Client, doing: &str, query: &str) -> StoreResult<T>
where
    T: for<'a> tokio_postgres::types::FromSql<'a>,
{
    // Without a name: behind a pooler the next session would not know it.
    let row = client.query_typed_one(query, &[]).await.map_err(|e| store_error(doing, e))?;
    row.try_get(0).map_err(|e| store_error(doing, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(url: &str) -> (String, Security) {
        let parts = Parts::of(url).unwrap();
        (parts.url, parts.security)
    }

    fn attributes(url: &str) -> Vec<TargetSessionAttrs> {
        let target = Target::parse(url).unwrap();
        target.hosts.configs.iter().map(Config::get_target_session_attrs).collect()
    }

    #[test]
    fn of_several_hosts_one_that_takes_writes_is_wanted() {
        use TargetSessionAttrs::{Any, ReadWrite};
        assert_eq!(attributes("postgres://u@a/d"), [Any]);
        assert_eq!(attributes("postgres://u@a:1,b:2/d"), [ReadWrite; 2]);
        assert_eq!(attributes("postgres://u@a,b/d?target_session_attrs=any"), [Any; 2]);
        assert_eq!(attributes("postgres://u@a/d?target_session_attrs=primary"), [ReadWrite]);
        let standby = Target::parse("postgres://u@a,b/d?target_session_attrs=prefer-standby");
        assert!(standby.unwrap_err().to_string().contains("target_session_attrs"));
    }

    #[test]
    fn each_host_is_connected_to_by_itself_and_with_the_same_login() {
        let target = Target::parse("postgres://u:p,w@a:1,b/d?sslmode=disable").unwrap();
        let hosts: Vec<_> = target.hosts.configs.iter().map(|one| one.get_hosts()).collect();
        let tcp = |host: &str| vec![tokio_postgres::config::Host::Tcp(host.to_owned())];
        assert_eq!(hosts, [tcp("a"), tcp("b")]);
        for one in &target.hosts.configs {
            assert_eq!((one.get_password(), one.get_dbname()), (Some(&b"p,w"[..]), Some("d")));
        }
        // A slash in a password is for the driver to read.
        let odd = Target::parse("postgres://u:p,w/x@a/d").unwrap();
        assert_eq!(odd.hosts.configs.len(), 1);
    }

    #[test]
    fn sslmode_and_sslrootcert_are_taken_out_of_the_url() {
        let (rest, security) = split(
            "postgres://a:b@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fca%20x.pem",
        );
        assert_eq!(rest, "postgres://a:b@h/d?connect_timeout=3");
        let roots = Some(PathBuf::from("/ca x.pem"));
        assert_eq!(security, Security { mode: Mode::VerifyFull, roots });
        let (rest, security) = split("postgres://h/d?sslmode=disable");
        assert_eq!((rest.as_str(), security.mode), ("postgres://h/d", Mode::Disable));
        assert_eq!(split("postgres://h/d").1.mode, Mode::Prefer);
    }

    #[test]
    fn a_password_may_hold_a_question_mark() {
        let (rest, security) = split("postgres://a:b?c@h/d?sslmode=require&connect_timeout=3");
        assert_eq!(rest, "postgres://a:b?c@h/d?connect_timeout=3");
        assert_eq!(security.mode, Mode::Require);
        let config: Config = rest.parse().unwrap();
        assert_eq!(config.get_password(), Some(&b"b?c"[..]), "the driver reads it alike");
    }

    #[test]
    fn naming_authorities_asks_for_them() {
        assert_eq!(split("postgres://h?sslmode=require").1.mode, Mode::Require);
        let named = split("postgres://h?sslrootcert=/ca.pem&sslmode=require").1;
        assert_eq!(named.mode, Mode::VerifyCa);
        assert_eq!(split("postgres://h?sslmode=verify-ca&sslrootcert=system").1.roots, None);
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for url in [
            "postgres://u:hunter2@h/d?sslmode=allow",
            "postgres://u:hunter2@h/d?sslkey=/x",
            "postgres://u:hunter2@h:x/d",
            "postgres://u:hunter2@h,g:x/d",
        ] {
            let error = Target::parse(url).unwrap_err();
            let mut text = format!("{error:?} {error}");
            let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
            while let Some(error) = cause {
                text.push_str(&error.to_string());
                cause = error.source();
            }
            assert!(!text.contains("hunter2"), "{text}");
        }
        let target = Target::parse("postgres://u:hunter2@h/d").unwrap();
        assert!(!format!("{target:?}").contains("hunter2"), "{target:?}");
    }
}
