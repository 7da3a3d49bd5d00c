//! Connections, and the words in which statements are put to them.
//!
//! The store's statements are written for Postroom's own table. On a table that somebody else made they are put in
//! other words on their way to the database, here and nowhere else; without a layout they go as they are.

use super::layout::Foreign;
use crate::layout::Layout;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, future::BoxFuture};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnection, SqlitePool, SqliteQueryResult, SqliteRow, SqliteStatement,
    SqliteTypeInfo,
};
use sqlx::{
    AssertSqlSafe, Either, Error, Execute, Executor, SqlSafeStr as _, SqlStr, Sqlite, Transaction,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

/// How statements are worded: as they are for Postroom's own table, made again for another.
#[derive(Clone, Debug, Default)]
pub(super) struct Wording(Option<Arc<Worded>>);

#[derive(Debug)]
struct Worded {
    foreign: Foreign,
    /// What was worded before, by the text it came from.
    known: Mutex<HashMap<String, Arc<str>>>,
}

impl Wording {
    fn text(worded: &Worded, sql: &str) -> SqlStr {
        let mut known = worded.known.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match known.get(sql) {
            Some(text) => Arc::clone(text),
            None => {
                let text: Arc<str> = Arc::from(worded.foreign.rendered(sql));
                known.insert(sql.to_owned(), Arc::clone(&text));
                text
            }
        };
        AssertSqlSafe(text).into_sql_str()
    }
}

/// The wording, looked up when it is first needed: there may be no table before the first migration.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    layout: Option<Arc<Layout>>,
    found: OnceCell<Wording>,
}

impl Lookup {
    pub(super) fn of(layout: Option<Arc<Layout>>) -> Self {
        let found =
            if layout.is_none() { OnceCell::from(Wording::default()) } else { OnceCell::new() };
        Self { layout, found }
    }

    pub(super) fn layout(&self) -> Option<&Layout> {
        self.layout.as_deref()
    }

    /// The table is looked up in `pool`.
    pub(super) async fn wording(&self, pool: &SqlitePool) -> Result<&Wording, Error> {
        self.found
            .get_or_try_init(async || {
                let Some(layout) = &self.layout else { return Ok(Wording::default()) };
                let mut connection = pool.acquire().await?;
                let foreign = Foreign::find(&mut connection, layout).await;
                let foreign = foreign.map_err(|error| Error::Configuration(error.into()))?;
                Ok(Wording(Some(Arc::new(Worded { foreign, known: Mutex::default() }))))
            })
            .await
    }
}

/// The connections that only look.
#[derive(Debug)]
pub(super) struct Readers {
    pub(super) pool: SqlitePool,
    pub(super) lookup: Arc<Lookup>,
}

impl Readers {
    pub(super) async fn wording(&self) -> Result<&Wording, Error> {
        self.lookup.wording(&self.pool).await
    }

    /// One of them.
    pub(super) async fn session(&self) -> Result<Session, Error> {
        let wording = self.wording().await?.clone();
        Ok(Session { held: Held::Connection(self.pool.acquire().await?), wording })
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Session {
    held: Held,
    wording: Wording,
}

#[derive(Debug)]
enum Held {
    Connection(PoolConnection<Sqlite>),
    Transaction(Transaction<'static, Sqlite>),
}

impl Session {
    pub(super) fn of(transaction: Transaction<'static, Sqlite>, wording: Wording) -> Self {
        Self { held: Held::Transaction(transaction), wording }
    }

    /// Ends its transaction, if it is in one. Without this, that is rolled back.
    pub(super) async fn commit(self) -> Result<(), Error> {
        match self.held {
            Held::Connection(_) => Ok(()),
            Held::Transaction(transaction) => transaction.commit().await,
        }
    }

    /// The connection itself: what is said to it is put in no other words.
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        match &mut self.held {
            Held::Connection(connection) => connection,
            Held::Transaction(transaction) => transaction,
        }
    }
}

type Steps<'e> = BoxStream<'e, Result<Either<SqliteQueryResult, SqliteRow>, Error>>;

/// Runs a statement in the words of this store.
fn fetch_many<'c, 'e, 'q, C, E>(to: C, wording: &Wording, mut query: E) -> Steps<'e>
where
    'q: 'e,
    'c: 'e,
    C: Executor<'c, Database = Sqlite>,
    E: 'q + Execute<'q, Sqlite>,
{
    let Some(worded) = &wording.0 else { return to.fetch_many(query) };
    let arguments: SqliteArguments = match query.take_arguments() {
        Ok(arguments) => arguments.unwrap_or_default(),
        Err(error) => {
            return futures_util::stream::iter([Err(Error::Encode(error))]).boxed();
        }
    };
    let text = Wording::text(worded, query.sql().as_str());
    to.fetch_many(sqlx::query_with(text, arguments))
}

/// The first row of what comes.
async fn first(mut steps: Steps<'_>) -> Result<Option<SqliteRow>, Error> {
    while let Some(step) = steps.try_next().await? {
        if let Either::Right(row) = step {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

impl<'c> Executor<'c> for &'c mut Session {
    type Database = Sqlite;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> Steps<'e>
    where
        'c: 'e,
        E: 'q + Execute<'q, Sqlite>,
    {
        let wording = self.wording.clone();
        fetch_many(self.connection(), &wording, query)
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<SqliteRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Sqlite>,
    {
        first(self.fetch_many(query)).boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [SqliteTypeInfo],
    ) -> BoxFuture<'e, Result<SqliteStatement, Error>>
    where
        'c: 'e,
    {
        self.connection().prepare_with(sql, parameters)
    }
}

impl<'c> Executor<'c> for &'c Readers {
    type Database = Sqlite;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> Steps<'e>
    where
        'c: 'e,
        E: 'q + Execute<'q, Sqlite>,
    {
        if self.lookup.layout.is_none() {
            return self.pool.fetch_many(query);
        }
        let put = async move {
            let wording = self.wording().await?;
            Ok::<_, Error>(fetch_many(&self.pool, wording, query))
        };
        futures_util::stream::once(put).try_flatten().boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<SqliteRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Sqlite>,
    {
        first(self.fetch_many(query)).boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [SqliteTypeInfo],
    ) -> BoxFuture<'e, Result<SqliteStatement, Error>>
    where
        'c: 'e,
    {
        self.pool.prepare_with(sql, parameters)
    }
}
