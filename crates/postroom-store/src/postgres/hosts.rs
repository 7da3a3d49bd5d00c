//! Several hosts in one URL: connections are made to the first that takes writes.
//!
//! The driver tries hosts in turn too, but limits only the TCP handshake of each: one that accepts
//! and says nothing would keep it from the others.

use super::connect::{CONNECTION_WAIT, Driver};
use deadpool_postgres::{ClientWrapper, Connect, Hook, HookError, Metrics};
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Config, Error, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How often a server in use is asked whether it still takes writes, and how long it may take to
/// answer.
const ASK_EVERY: Duration = Duration::from_secs(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The hosts of a URL, and how they are connected to.
#[derive(Clone)]
pub(super) struct Hosts {
    /// One for each host, in the URL's order.
    pub(super) configs: Vec<Config>,
    pub(super) tls: MakeRustlsConnect,
}

impl Hosts {
    /// Connects to the first host that accepts. All but the last have their part of the time that a
    /// caller waits; the last has what is left of it.
    ///
    /// # Errors
    /// Of those that the hosts gave, the one that says most: that a server takes no writes, or else
    /// the last.
    pub(super) async fn connect(&self) -> Result<(Client, Driver), Error> {
        let part = CONNECTION_WAIT / u32::try_from(self.configs.len()).unwrap_or(u32::MAX);
        let (last, others) = match self.configs.split_last() {
            Some((last, others)) => (last.clone(), others),
            None => (Config::new(), &[][..]),
        };
        let mut read_only = None;
        for config in others {
            match tokio::time::timeout(part, config.connect(self.tls.clone())).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) if is_read_only(&error) => read_only = Some(error),
                Ok(Err(error)) => tracing::debug!(%error, "a database host cannot be used"),
                Err(_) => tracing::debug!("a database host does not answer"),
            }
        }
        last.connect(self.tls.clone()).await.map_err(|error| read_only.unwrap_or(error))
    }
}

impl Connect for Hosts {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        Box::pin(async {
            let (client, driver) = Self::connect(self).await?;
            // What goes wrong, the client reports.
            Ok((client, tokio::spawn(async { drop(driver.await) })))
        })
    }
}

/// Whether a connection was given up because its server takes no writes.
pub(super) fn is_read_only(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref());
    cause.is_some_and(|cause: &std::io::Error| {
        cause.kind() == std::io::ErrorKind::PermissionDenied
            && cause.to_string() == "database does not allow writes"
    })
}

/// Whether only a host that takes writes will do.
pub(super) fn needs_writes(config: &Config) -> bool {
    config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite
}

/// Gives up connections to a server that has become read-only while another took its place. Asked
/// once in a while, when a connection of the pool is about to be used again.
pub(super) fn leave_read_only() -> Hook {
    let state: Arc<Mutex<Asked>> = Arc::default();
    Hook::async_fn(move |client: &mut ClientWrapper, metrics: &Metrics| {
        let (state, made) = (Arc::clone(&state), metrics.created);
        Box::pin(async move {
            let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
            if lock().left.is_some_and(|left| made <= left) {
                return Err(HookError::message("its server was left"));
            }
            if !lock().is_due() {
                return Ok(());
            }
            let asked = Instant::now();
            let asking = client.simple_query("SHOW transaction_read_only");
            let problem = match tokio::time::timeout(ANSWER_WITHIN, asking).await {
                Ok(Ok(answer)) if answer.iter().any(says_on) => "takes no writes any more",
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(HookError::Backend(error)),
                Err(_) => "does not answer",
            };
            tracing::warn!("the database {problem}; looking for another host");
            lock().left = Some(asked);
            Err(HookError::message(problem))
        })
    })
}

fn says_on(message: &SimpleQueryMessage) -> bool {
    matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on"))
}

/// When the servers were asked last.
#[derive(Default)]
struct Asked {
    last: Option<Instant>,
    /// Connections made before this lead to a server that takes no writes, or does not answer.
    left: Option<Instant>,
}

impl Asked {
    /// Whether it is time to ask again; then somebody does.
    fn is_due(&mut self) -> bool {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= ASK_EVERY);
        if is_due {
            self.last = Some(Instant::now());
        }
        is_due
    }
}
