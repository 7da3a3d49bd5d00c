//! The outbox on PostgreSQL.

mod admin;
mod attempts;
#[doc(hidden)]
pub mod bare;
mod caution;
mod claims;
mod columns;
mod connect;
mod connection;
mod content;
mod diagnose;
mod dispatch;
mod error;
mod growth;
mod hosts;
mod ids;
mod inspect;
mod intake;
mod lanes;
pub(crate) mod layout;
mod list;
mod locked;
pub mod locks;
mod marks;
mod migrate;
mod noted;
mod operate;
mod orphans;
mod outcomes;
mod parcels;
#[cfg(test)]
mod plan_tests;
mod polled;
mod pooler;
mod reconcile;
mod recording;
mod relays;
#[cfg(test)]
mod reopen_tests;
mod rescue;
mod restored;
mod row;
mod settle;
mod tls;
mod transaction;
mod upkeep;
mod vanished;
mod wake;

pub use migrate::{MIGRATIONS, migrate, plan, set_notify};

use crate::OpenOptions;
use crate::layout::Layout;
use crate::vanished::Untold;
use attempts::Swept;
use caution::Caution;
use connect::{CONNECTION_WAIT, Target, session_settings};
use connection::{Connection, KnownTypes};
use deadpool::managed::QueueMode;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use error::pool_error;
use lanes::Lanes;
use layout::{Foreign, Wording};
use marks::Marks;
use orphans::LookedThrough;
use polled::NextLook;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use recording::Recording;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::sync::OnceCell;
use transaction::TAKING_SESSION;
use wake::Hurry;

/// The statements that make a role for producers and one for relays.
pub(crate) const GRANTS: &str = include_str!("../../migrations/postgres/grants.sql");

/// Connects to the database at `url` as the store does, TLS included, for tools that need a
/// connection of their own.
///
/// # Errors
/// When the URL is malformed, or the database cannot be reached.
pub async fn connect(url: &str) -> StoreResult<tokio_postgres::Client> {
    let (client, driver) = Target::parse(url)?.connect().await?;
    // It ends when the client is dropped; what goes wrong before, the client reports.
    tokio::spawn(driver);
    Ok(client)
}

/// Proposes a layout for a table that somebody else made, as the `[database]` section of a configuration.
///
/// # Errors
/// When the database cannot be reached, or there is no such table, or nothing in it can be a message.
pub(crate) async fn propose_layout(url: &str, table: &str) -> StoreResult<String> {
    let session = Target::parse(url)?.session().await?;
    layout::propose(&session, table).await
}

/// Removes the ledger and the triggers of a table that somebody else made. Its rows stay as they are.
///
/// # Errors
/// When the database cannot be reached or refuses, or somebody holds the table for too long.
pub(crate) async fn remove_ledger(url: &str, layout: &Layout) -> StoreResult<()> {
    migrate::remove_ledger(url, layout).await
}

/// The statements of the hot path, which plan tests look at too.
mod statements {
    /// Takes due deliveries and reads their messages.
    pub(super) const TAKE: &str = concat!(include_str!("sql/take.sql"), super::content::content!());
    /// Takes rescued deliveries and reads their messages.
    pub(super) const TAKE_RESCUED: &str =
        concat!(include_str!("sql/take_rescued.sql"), super::content::content!());
    /// Records SENT.
    pub(super) const SETTLE_SENT: &str = include_str!("sql/settle_sent.sql");
    /// Removes a claim under which nothing is held. Something may be, whatever the relay thinks:
    /// part of its batch may be recorded beside this, or could not be. Then the claim stays, and
    /// its end brings back what is left.
    pub(super) const FORGET_CLAIM: &str = include_str!("sql/forget_claim.sql");
}

/// The schema of Postroom's own table and its ledger.
const OWN_SCHEMA: &str = "core_outbox";

/// How many connections take: the relay's claimer, and the one that assists it.
const TAKERS: usize = 2;

/// The outbox on PostgreSQL.
#[derive(Debug)]
pub struct PgStore {
    pool: Pool,
    /// Sessions in which each statement of a take is a transaction of its own. There are none where a
    /// pooler in transaction mode stands in between, since settings would reach other programs' sessions,
    /// and none where there is one connection for everything.
    taking: Option<Pool>,
    target: Target,
    recording: Recording,
    remember_events: Duration,
    /// Where to listen for new messages, if at all.
    listens_on: Option<Target>,
    hurry: Arc<Hurry>,
    marks: Marks,
    lanes: Lanes,
    /// How many takes there were.
    takes: AtomicUsize,
    caution: Caution,
    swept: Swept,
    looked_through: LookedThrough,
    /// The types of parameters, where a pooler in transaction mode stands in between.
    types: Option<Arc<KnownTypes>>,
    pooler_looked_for: OnceCell<()>,
    restore_looked_for: OnceCell<()>,
    /// How the message table is read and written, unless it is Postroom's own.
    layout: Option<Arc<Layout>>,
    vanished: Untold,
    next_look: NextLook,
    /// How statements are put for it, from the first connection on.
    wording: OnceCell<Wording>,
}

impl PgStore {
    /// A store on the database at `url`. Connects on first use.
    ///
    /// # Errors
    /// When the URL is malformed.
    pub fn new(url: &str, options: &OpenOptions) -> StoreResult<Self> {
        let target = Target::parse(url)?;
        let listens_on = match &options.direct_url {
            _ if !options.notify => None,
            Some(direct) => Some(Target::parse(direct)?),
            None if options.transaction_pooler => None,
            None => Some(target.clone()),
        };
        let takers = if options.transaction_pooler {
            0
        } else {
            options.connections.saturating_sub(1).min(TAKERS)
        };
        let settings = (!options.transaction_pooler).then_some("");
        let others = pool(&target, options.connections - takers, settings)?;
        let taking = match takers {
            0 => None,
            takers => Some(pool(&target, takers, Some(TAKING_SESSION))?),
        };
        Ok(Self {
            pool: others,
            taking,
            target,
            recording: Recording::of(options),
            remember_events: options.remember_events,
            listens_on,
            hurry: Arc::default(),
            marks: Marks::default(),
            lanes: Lanes::default(),
            takes: AtomicUsize::new(0),
            caution: Caution::default(),
            swept: Swept::default(),
            looked_through: LookedThrough::default(),
            types: options.transaction_pooler.then(Arc::default),
            pooler_looked_for: OnceCell::new(),
            restore_looked_for: OnceCell::new(),
            layout: options.layout.clone(),
            wording: OnceCell::new(),
            vanished: Untold::default(),
            next_look: NextLook::default(),
        })
    }

    /// The table that somebody else made, once it was looked at.
    fn foreign(&self) -> Option<&Foreign> {
        self.wording.get().and_then(Wording::foreign)
    }

    /// The schema of the ledger.
    fn schema(&self) -> String {
        self.layout.as_ref().map_or_else(|| OWN_SCHEMA.to_owned(), |layout| layout.ledger_schema())
    }

    /// How statements are put. The table of a layout is looked up once.
    async fn wording(&self, client: &Object) -> StoreResult<Wording> {
        let Some(layout) = &self.layout else { return Ok(Wording::default()) };
        let find = async || Ok(Wording::of(Foreign::find(client, layout).await?));
        Ok(self.wording.get_or_try_init(find).await?.clone())
    }

    async fn connection(&self) -> StoreResult<Connection> {
        let object = self.pool.get().await.map_err(pool_error)?;
        let wording = self.wording(&object).await?;
        Ok(Connection::new(object, self.taking.clone(), self.types.clone(), wording))
    }

    /// A connection for the statements of a take, and for nothing else.
    async fn taking_connection(&self) -> StoreResult<Connection> {
        match &self.taking {
            None => self.connection().await,
            Some(pool) => {
                let object = pool.get().await.map_err(pool_error)?;
                let wording = self.wording(&object).await?;
                Ok(Connection::for_taking(object, self.pool.clone(), wording))
            }
        }
    }

    /// Makes sure that statements prepared by name reach the session that knows them.
    async fn refuse_unknown_pooler(&self) -> StoreResult<()> {
        if self.types.is_some() {
            return Ok(());
        }
        let look = async || {
            if !pooler::is_between(&self.target).await? {
                return Ok(());
            }
            Err(StoreError::plain(
                StoreErrorKind::Refused,
                "a pooler in transaction mode stands between this program and PostgreSQL: say \
                 pooler = \"transaction\" in [database], or connect directly",
            ))
        };
        self.pooler_looked_for.get_or_try_init(look).await.copied()
    }
}

/// A pool of connections whose sessions begin with `settings`, if they are anybody's own.
fn pool(target: &Target, size: usize, settings: Option<&str>) -> StoreResult<Pool> {
    let manager = Manager::from_connect(
        target.config.clone(),
        target.hosts.clone(),
        ManagerConfig { recycling_method: RecyclingMethod::Fast },
    );
    let mut pool = Pool::builder(manager)
        // The one that was used last: its session has its plans, and its memory is in the caches.
        .queue_mode(QueueMode::Lifo)
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(CONNECTION_WAIT))
        .create_timeout(Some(CONNECTION_WAIT));
    if hosts::needs_writes(&target.config) {
        pool = pool.pre_recycle(hosts::leave_read_only());
    }
    if let Some(settings) = settings {
        pool = pool.post_create(session_settings(settings));
    }
    pool.build().map_err(|error| {
        StoreError::new(StoreErrorKind::Refused, "setting up the connection pool", error)
    })
}
