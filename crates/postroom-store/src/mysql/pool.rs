//! Connections that are lent and come back, unless they stopped answering.
//!
//! sqlx's own pool asks a connection for a ping before it takes it back, and waits for the answer
//! without a limit: a server that never answers again would keep a place in the pool for ever. Here
//! every wait has a limit. A connection whose last call was given up has to answer a ROLLBACK in
//! time before it is lent again; one that does not is closed, and with it those that lie idle:
//! whatever silenced one connection may have silenced them too.

use super::connect::{CONNECTION_WAIT, connect, connect_writable};
use super::hosts::Hosts;
use super::session::Session;
use deadpool::Runtime;
use deadpool::managed::{
    self, BuildError, Manager, Metrics, Object, PoolError, RecycleError, RecycleResult,
};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use sqlx::mysql::{MySqlConnectOptions, MySqlQueryResult, MySqlRow, MySqlStatement, MySqlTypeInfo};
use sqlx::{Connection as _, Either, Error, Execute, Executor, MySql, SqlStr};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long a connection may take to answer a ROLLBACK or a ping.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A connection that was not used for so long is asked for a ping first: the server may have closed
/// it meanwhile.
const PING_AFTER: Duration = Duration::from_secs(1);

/// Of the next transaction alone: the session goes on in its own isolation.
const SNAPSHOT: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
     START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

/// Makes connections.
struct Connector {
    server: Mutex<Server>,
    /// Whether there are other servers, so that one that takes no writes will not do.
    are_several: bool,
    /// Whether this is the ledger of somebody else's table.
    is_of_rows: bool,
}

/// The server that connections lead to.
struct Server {
    options: MySqlConnectOptions,
    /// Since when. Older connections lead to a server that was left.
    since: Instant,
}

impl Connector {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Manager for Connector {
    type Type = Session;
    type Error = Error;

    async fn create(&self) -> Result<Session, Error> {
        let (options, since) = {
            let server = self.server();
            (server.options.clone(), server.since)
        };
        if !self.are_several {
            return Session::open(connect(&options).await?, self.is_of_rows).await;
        }
        let connection = connect_writable(&options).await?;
        // One that was begun before a move and made after it would pass for one to the new server.
        let is_left = self.server().since != since;
        if is_left {
            return Err(Error::PoolTimedOut);
        }
        Session::open(connection, self.is_of_rows).await
    }

    async fn recycle(&self, connection: &mut Session, metrics: &Metrics) -> RecycleResult<Error> {
        if metrics.created < self.server().since {
            return Err(RecycleError::message("its server was left"));
        }
        if metrics.last_used() > PING_AFTER {
            connection.ping().await.map_err(RecycleError::Backend)?;
        }
        Ok(())
    }
}

/// A pool of connections, cheap to clone.
#[derive(Clone)]
pub(super) struct Pool(managed::Pool<Connector>);

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the options, which hold the password.
        f.debug_tuple("Pool").field(&self.0.status()).finish()
    }
}

impl Pool {
    /// A pool that connects on first use.
    pub(super) fn new(
        hosts: &Hosts,
        connections: usize,
        is_of_rows: bool,
    ) -> Result<Self, BuildError> {
        let server = Server { options: hosts.first().clone(), since: Instant::now() };
        let (server, are_several) = (Mutex::new(server), hosts.are_several());
        let pool = managed::Pool::builder(Connector { server, are_several, is_of_rows })
            .max_size(connections.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECTION_WAIT))
            .create_timeout(Some(CONNECTION_WAIT))
            .recycle_timeout(Some(ANSWER_WITHIN))
            .build()?;
        Ok(Self(pool))
    }

    /// Leads to another server from now on. Connections to the one before are closed, those that
    /// are lent when they come back.
    pub(super) fn lead_to(&self, options: MySqlConnectOptions) {
        *self.0.manager().server() = Server { options, since: Instant::now() };
        drop(self.0.retain(|_, _| false));
    }

    /// Lends a connection.
    pub(super) async fn acquire(&self) -> Result<Lent, Error> {
        let object = self.0.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Closed => Error::PoolClosed,
            PoolError::Timeout(_)
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => Error::PoolTimedOut,
        })?;
        Ok(Lent { object: Some(object), is_clean: false })
    }

    /// Begins a transaction.
    pub(super) async fn begin(&self) -> Result<OpenTransaction, Error> {
        let mut connection = self.acquire().await?;
        connection.execute("BEGIN").await?;
        Ok(OpenTransaction(connection))
    }

    /// Begins a transaction whose statements all see the same moment, and that changes nothing.
    pub(super) async fn snapshot(&self) -> Result<OpenTransaction, Error> {
        let mut connection = self.acquire().await?;
        connection.execute(SNAPSHOT).await?;
        Ok(OpenTransaction(connection))
    }
}

/// A connection that was lent. One that is not known to be clean when it is dropped, since a call
/// was given up half-way or a transaction was not committed, has to prove itself first.
pub(super) struct Lent {
    /// `None` only while it is dropped.
    object: Option<Object<Connector>>,
    is_clean: bool,
}

impl Lent {
    /// The last call was answered: it can be lent again as it is.
    pub(super) fn answered(mut self) {
        self.is_clean = true;
    }
}

impl Deref for Lent {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.object.as_ref().unwrap_or_else(|| unreachable!("only a drop takes it"))
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Session {
        self.object.as_mut().unwrap_or_else(|| unreachable!("only a drop takes it"))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else { return };
        if self.is_clean {
            return drop(object);
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(prove(object))),
            Err(_) => drop(Object::take(object)),
        }
    }
}

/// Ends what a connection was doing, and lets it go back to the pool; or closes it.
async fn prove(mut object: Object<Connector>) {
    if let Ok(Ok(())) = timeout(ANSWER_WITHIN, object.end_what_it_did()).await {
        return;
    }
    let pool = Object::pool(&object);
    drop(Object::take(object));
    if let Some(pool) = pool {
        drop(pool.retain(|_, _| false));
    }
}

/// A transaction; it is rolled back unless it is committed.
pub(super) struct OpenTransaction(Lent);

impl OpenTransaction {
    /// Commits, and gives the connection back.
    pub(super) async fn commit(mut self) -> Result<(), Error> {
        self.0.execute("COMMIT").await?;
        self.0.is_clean = true;
        Ok(())
    }
}

impl Deref for OpenTransaction {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl DerefMut for OpenTransaction {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0
    }
}

/// One statement on a connection of the pool.
impl<'p> Executor<'p> for &'_ Pool {
    type Database = MySql;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<MySqlQueryResult, MySqlRow>, Error>>
    where
        E: 'q + Execute<'q, MySql>,
    {
        let pool = self.clone();
        let answers = async move {
            let mut lent = pool.acquire().await?;
            let answers: Result<Vec<_>, Error> = lent.fetch_many(query).try_collect().await;
            lent.is_clean = is_answered(&answers);
            Ok::<_, Error>(stream::iter(answers?).map(Ok))
        };
        stream::once(answers).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<MySqlRow>, Error>>
    where
        E: 'q + Execute<'q, MySql>,
    {
        let pool = self.clone();
        Box::pin(async move {
            let mut lent = pool.acquire().await?;
            let answer = lent.fetch_optional(query).await;
            lent.is_clean = is_answered(&answer);
            answer
        })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [MySqlTypeInfo],
    ) -> BoxFuture<'e, Result<MySqlStatement, Error>>
    where
        'p: 'e,
    {
        let pool = self.clone();
        Box::pin(async move {
            let mut lent = pool.acquire().await?;
            let answer = lent.prepare_with(sql, parameters).await;
            lent.is_clean = is_answered(&answer);
            answer
        })
    }
}

/// Whether the server has answered, be it with an error of its own: then the connection is as good
/// as before.
fn is_answered<T>(answer: &Result<T, Error>) -> bool {
    answer.is_ok() || matches!(answer, Err(Error::Database(_)))
}
