//! Connections of the pool, and statements that run on whatever session they come to.
//!
//! A statement whose answer nobody waits for any more (its call missed its deadline, or was
//! cancelled) leaves its connection in an unknown state, and the server may never answer on it
//! again. Such a connection is closed and does not go back to its pool. Nor are those that lie idle
//! in the store's pools trusted then: whatever silenced one connection may have silenced them too.

use super::error::store_error;
use super::layout::{Foreign, Text, Wording};
use super::transaction::{COMMIT, READ_COMMITTED};
use deadpool_postgres::{Object, Pool, Transaction};
use futures_util::future::join3;
use postroom_core::StoreResult;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, IsolationLevel, Row, RowStream, Statement};

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The types of statements' parameters, learnt at their first use. Kept where statements cannot
/// be prepared by name: behind a pooler in transaction mode the next one may come to another
/// session.
#[derive(Debug, Default)]
pub(super) struct KnownTypes(Mutex<HashMap<String, Arc<[Type]>>>);

/// A connection of the pool.
pub(super) struct Connection {
    object: Lent,
    /// `None` where a connection is a session of its own.
    types: Option<Arc<KnownTypes>>,
    is_for_taking: bool,
    wording: Wording,
}

/// What the pool lent. It goes back when it is dropped, unless an answer is outstanding.
struct Lent {
    /// `None` only while it is dropped.
    object: Option<Object>,
    /// Where the store's other connections lie idle.
    other: Option<Pool>,
    /// Statements and transactions that have begun and not ended.
    unanswered: AtomicUsize,
}

impl Lent {
    fn new(object: Object, other: Option<Pool>) -> Self {
        Self { object: Some(object), other, unanswered: AtomicUsize::new(0) }
    }

    /// Waits for an answer. If this future is dropped first, the connection is given up.
    async fn answer<T>(&self, work: impl Future<Output = T>) -> T {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let answer = work.await;
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        answer
    }
}

impl Deref for Lent {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.object.as_ref().unwrap_or_else(|| unreachable!("only a drop takes it"))
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Object {
        self.object.as_mut().unwrap_or_else(|| unreachable!("only a drop takes it"))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if *self.unanswered.get_mut() == 0 {
            return;
        }
        let Some(object) = self.object.take() else { return };
        let pool = Object::pool(&object);
        // Ends the driver's task too, which would wait for the answer for ever.
        drop(Object::take(object));
        for pool in pool.iter().chain(&self.other) {
            drop(pool.retain(|_, _| false));
        }
    }
}

/// A transaction of several round trips. Its connection is closed unless it is [ended](Self::end),
/// which rolls back what was begun.
pub(super) struct OpenTransaction<'a> {
    inner: Transaction<'a>,
    unanswered: &'a AtomicUsize,
    wording: Wording,
}

impl OpenTransaction<'_> {
    /// Commits what went well, rolls back what did not, and lets the connection go back to the pool.
    pub(super) async fn end<T>(self, doing: &str, work: StoreResult<T>) -> StoreResult<T> {
        let Self { inner, unanswered, .. } = self;
        let ended = match &work {
            Ok(_) => inner.commit().await,
            Err(_) => inner.rollback().await,
        };
        if ended.is_ok() {
            unanswered.fetch_sub(1, Ordering::AcqRel);
        }
        // What went wrong first says more.
        let done = work?;
        ended.map_err(|error| store_error(doing, error))?;
        Ok(done)
    }

    /// Runs a statement.
    pub(super) async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.inner.query(&*self.wording.put(sql), params).await
    }

    /// Runs a statement that answers with one row.
    pub(super) async fn query_one(&self, sql: &str, params: Params<'_>) -> Result<Row, Error> {
        self.inner.query_one(&*self.wording.put(sql), params).await
    }

    /// Runs a statement, and returns how many rows it changed.
    pub(super) async fn execute(&self, sql: &str, params: Params<'_>) -> Result<u64, Error> {
        self.inner.execute(&*self.wording.put(sql), params).await
    }

    /// Runs a statement that is not prepared by name.
    pub(super) async fn query_typed(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        self.inner.query_typed(&self.wording.put(sql), params).await
    }

    /// Runs a statement that is not prepared by name, and returns how many rows it changed.
    pub(super) async fn execute_typed(
        &self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<u64, Error> {
        self.inner.execute_typed(&self.wording.put(sql), params).await
    }
}

impl<'a> Deref for OpenTransaction<'a> {
    type Target = Transaction<'a>;

    fn deref(&self) -> &Transaction<'a> {
        &self.inner
    }
}

impl DerefMut for OpenTransaction<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

/// A statement that can be run again and again.
#[derive(Clone)]
pub(super) enum Prepared {
    /// Planned once per connection.
    Named(Statement),
    /// Sent with its text each time.
    Unnamed(Arc<str>, Arc<[Type]>),
}

impl Connection {
    /// `other` is the pool that it does not come from.
    pub(super) fn new(
        object: Object,
        other: Option<Pool>,
        types: Option<Arc<KnownTypes>>,
        wording: Wording,
    ) -> Self {
        Self { object: Lent::new(object, other), types, is_for_taking: false, wording }
    }

    /// One whose session has the settings of a take.
    pub(super) fn for_taking(object: Object, other: Pool, wording: Wording) -> Self {
        Self { object: Lent::new(object, Some(other)), types: None, is_for_taking: true, wording }
    }

    /// The table that its statements are put for, unless that is Postroom's own.
    pub(super) fn foreign(&self) -> Option<&Foreign> {
        self.wording.foreign()
    }

    /// A statement in the words of this connection's store, for those who send it to the driver's own client.
    pub(super) fn put<'a>(&self, sql: &'a str) -> Text<'a> {
        self.wording.put(sql)
    }

    /// Whether each statement of a take is a transaction of its own here.
    pub(super) fn is_for_taking(&self) -> bool {
        self.is_for_taking
    }

    /// Prepares a statement of the hot path.
    pub(super) async fn prepare_cached(&self, sql: &str) -> Result<Prepared, Error> {
        let sql: &str = &self.wording.put(sql);
        match &self.types {
            None => Ok(Prepared::Named(self.object.answer(self.object.prepare_cached(sql)).await?)),
            Some(known) => {
                let types = self.types_of(known, sql).await?;
                Ok(Prepared::Unnamed(Arc::from(sql), types))
            }
        }
    }

    /// Runs a prepared statement.
    pub(super) async fn run(
        &self,
        statement: &Prepared,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        match statement {
            Prepared::Named(statement) => {
                self.object.answer(self.object.query(statement, params)).await
            }
            Prepared::Unnamed(sql, types) => {
                self.object.answer(self.object.query_typed(sql, &typed(params, types))).await
            }
        }
    }

    /// Runs a prepared statement, row by row. What it is asked is waited for by
    /// [`answer`](Self::answer), to the last row.
    pub(super) async fn stream(
        &self,
        statement: &Prepared,
        params: Params<'_>,
    ) -> Result<RowStream, Error> {
        match statement {
            Prepared::Named(statement) => {
                self.object.query_raw(statement, params.iter().copied()).await
            }
            Prepared::Unnamed(sql, types) => {
                self.object.query_typed_raw(sql, typed(params, types)).await
            }
        }
    }

    /// Runs a statement once, in a transaction of its own.
    pub(super) async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Error> {
        let statement = self.prepare(sql).await?;
        self.alone(self.run(&statement, params)).await
    }

    /// Runs a statement that answers with one row or none.
    pub(super) async fn query_opt(
        &self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Option<Row>, Error> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Runs a statement that answers with one row.
    pub(super) async fn query_one(&self, sql: &str, params: Params<'_>) -> Result<Row, Error> {
        match self.prepare(sql).await? {
            Prepared::Named(statement) => {
                self.alone(self.object.query_one(&statement, params)).await
            }
            Prepared::Unnamed(sql, types) => {
                self.alone(self.object.query_typed_one(&sql, &typed(params, &types))).await
            }
        }
    }

    /// Runs a statement, and returns how many rows it changed.
    pub(super) async fn execute(&self, sql: &str, params: Params<'_>) -> Result<u64, Error> {
        match self.prepare(sql).await? {
            Prepared::Named(statement) => self.alone(self.object.execute(&statement, params)).await,
            Prepared::Unnamed(sql, types) => {
                self.alone(self.object.execute_typed(&sql, &typed(params, &types))).await
            }
        }
    }

    /// Prepares a statement that is run once.
    async fn prepare(&self, sql: &str) -> Result<Prepared, Error> {
        let sql: &str = &self.wording.put(sql);
        match &self.types {
            None => Ok(Prepared::Named(self.object.answer(self.object.prepare(sql)).await?)),
            Some(known) => Ok(Prepared::Unnamed(Arc::from(sql), self.types_of(known, sql).await?)),
        }
    }

    /// Runs what is prepared in a transaction of its own, in one round trip.
    async fn alone<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        // Polled, and so sent, in this order.
        let (begin, commit) = (self.batch_execute(READ_COMMITTED), self.batch_execute(COMMIT));
        let (begun, done, ended) = join3(begin, self.object.answer(work), commit).await;
        begun?;
        let done = done?;
        ended.map(|()| done)
    }

    /// Runs statements without parameters: settings, and the beginnings and ends of transactions.
    pub(super) async fn batch_execute(&self, sql: &str) -> Result<(), Error> {
        self.object.answer(self.object.batch_execute(sql)).await
    }

    /// Begins a transaction, which stays in one session: what is prepared in it is known there.
    pub(super) async fn transaction(&mut self) -> Result<OpenTransaction<'_>, Error> {
        let Lent { object, unanswered, .. } = &mut self.object;
        let object = object.as_mut().unwrap_or_else(|| unreachable!("only a drop takes it"));
        unanswered.fetch_add(1, Ordering::AcqRel);
        let isolation = IsolationLevel::ReadCommitted;
        let inner = object.build_transaction().isolation_level(isolation).start().await?;
        Ok(OpenTransaction { inner, unanswered, wording: self.wording.clone() })
    }

    /// The driver's own, for statements that are prepared without a name. What it is asked is
    /// waited for by [`answer`](Self::answer).
    pub(super) fn client(&self) -> &Client {
        &self.object
    }

    /// Waits for what the driver's own client was asked.
    pub(super) async fn answer<T>(&self, asked: impl Future<Output = T>) -> T {
        self.object.answer(asked).await
    }

    async fn types_of(&self, known: &KnownTypes, sql: &str) -> Result<Arc<[Type]>, Error> {
        if let Some(types) = known.get(sql) {
            return Ok(types);
        }
        // A transaction stays in one session, and the name is given up before it ends.
        self.batch_execute("BEGIN").await?;
        let prepared = self.object.answer(self.object.prepare(sql)).await;
        let learnt = prepared.map(|one| Arc::from(one.params()));
        self.batch_execute("ROLLBACK").await?;
        let types: Arc<[Type]> = learnt?;
        known.put(sql, &types);
        Ok(types)
    }
}

impl Prepared {
    /// Runs it in a transaction.
    pub(super) async fn run_in(
        &self,
        tx: &Transaction<'_>,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        match self {
            Self::Named(statement) => tx.query(statement, params).await,
            Self::Unnamed(sql, types) => tx.query_typed(sql, &typed(params, types)).await,
        }
    }
}

impl KnownTypes {
    fn get(&self, sql: &str) -> Option<Arc<[Type]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned()
    }

    fn put(&self, sql: &str, types: &Arc<[Type]>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(sql.to_owned(), Arc::clone(types));
    }
}

fn typed<'a>(params: Params<'a>, types: &[Type]) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    params.iter().copied().zip(types.iter().cloned()).collect()
}
