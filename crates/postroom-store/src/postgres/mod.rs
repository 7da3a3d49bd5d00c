//! The outbox on PostgreSQL.

mod admin;
mod attempts;
mod claims;
mod error;
mod list;
mod marks;
mod migrate;
mod operate;
#[cfg(test)]
mod plan_tests;
mod row;
mod settle;
mod transaction;
mod upkeep;
mod wake;

pub use migrate::{MIGRATIONS, migrate, set_notify};

use crate::OpenOptions;
use attempts::Swept;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use error::{pool_error, store_error};
use marks::Marks;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::time::Duration;
use tokio_postgres::{Config, NoTls};

/// How long a caller waits for a connection before the database counts as away.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// How long the network may swallow packets before a connection counts as lost.
const NETWORK_SILENCE: Duration = Duration::from_secs(30);

/// The statements of the hot path, public so that benchmarks and plan tests measure exactly
/// what the relay runs.
pub mod statements {
    /// Takes due deliveries and reads their messages.
    pub const TAKE: &str = concat!(include_str!("sql/take.sql"), include_str!("sql/content.sql"));
    /// Records SENT.
    pub const SETTLE_SENT: &str = include_str!("sql/settle_sent.sql");
    /// Removes a claim under which nothing is held. Something may be, whatever the relay thinks:
    /// part of its batch may be recorded beside this, or could not be. Then the claim stays, and
    /// its end brings back what is left.
    pub const FORGET_CLAIM: &str = include_str!("sql/forget_claim.sql");
    /// Opens the transaction they run in.
    pub const BEGIN: &str = super::transaction::BEGIN;
}

/// The outbox on PostgreSQL.
#[derive(Debug)]
pub struct PgStore {
    pool: Pool,
    config: Config,
    keep_sent: bool,
    notify: bool,
    marks: Marks,
    swept: Swept,
}

impl PgStore {
    /// A store on the database at `url`. Connects on first use.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub fn new(url: &str, options: &OpenOptions) -> StoreResult<Self> {
        let config = config(url)?;
        let manager = Manager::from_config(
            config.clone(),
            NoTls,
            ManagerConfig { recycling_method: RecyclingMethod::Fast },
        );
        let pool = Pool::builder(manager)
            .max_size(options.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECTION_WAIT))
            .create_timeout(Some(CONNECTION_WAIT))
            .build()
            .map_err(|error| {
                StoreError::new(StoreErrorKind::Refused, "setting up the connection pool", error)
            })?;
        Ok(Self {
            pool,
            config,
            keep_sent: options.keep_sent,
            notify: options.notify,
            marks: Marks::default(),
            swept: Swept::default(),
        })
    }

    async fn connection(&self) -> StoreResult<Object> {
        self.pool.get().await.map_err(pool_error)
    }
}

/// Reads a URL. The error never repeats it, since it may hold a password.
fn config(url: &str) -> StoreResult<Config> {
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        StoreError::new(
            StoreErrorKind::Refused,
            "the database URL is malformed: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE",
            error,
        )
    })?;
    if config.get_application_name().is_none() {
        config.application_name("postroom");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECTION_WAIT);
    }
    // A network that swallows packets must look like a database that is away, not like one that
    // thinks for a quarter of an hour.
    config.keepalives_idle(NETWORK_SILENCE);
    config.tcp_user_timeout(NETWORK_SILENCE);
    Ok(config)
}

/// Connects outside the pool, for migrations and listening.
async fn connect(
    config: &Config,
) -> StoreResult<(
    tokio_postgres::Client,
    tokio_postgres::Connection<tokio_postgres::Socket, tokio_postgres::tls::NoTlsStream>,
)> {
    config.connect(NoTls).await.map_err(|error| store_error("connecting", error))
}
