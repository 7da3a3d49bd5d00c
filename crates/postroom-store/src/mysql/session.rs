//! One connection, and in which words the store's statements are put to it.

use super::layout::{MODE, of_rows};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use sqlx::mysql::{MySqlQueryResult, MySqlRow, MySqlStatement, MySqlTypeInfo};
use sqlx::{
    AssertSqlSafe, Connection as _, Either, Error, Execute, Executor, MySql, MySqlConnection,
    SqlStr,
};
use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

/// A connection.
#[derive(Debug)]
pub(super) struct Session {
    connection: MySqlConnection,
    is_of_rows: bool,
}

impl Session {
    /// A connection to Postroom's own outbox or, where `is_of_rows`, to the ledger of somebody else's table.
    pub(super) async fn open(
        mut connection: MySqlConnection,
        is_of_rows: bool,
    ) -> Result<Self, Error> {
        if is_of_rows {
            // Expressions of the layout are part of some statements.
            connection.execute(MODE).await?;
        }
        Ok(Self { connection, is_of_rows })
    }

    /// Runs statements that were put together here, and counts the rows they met.
    pub(super) async fn run(&mut self, sql: String) -> Result<u64, Error> {
        let sql = self.worded(sql);
        let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.connection).await?;
        Ok(done.rows_affected())
    }

    /// The rows of statements that were put together here.
    pub(super) async fn rows(&mut self, sql: String) -> Result<Vec<MySqlRow>, Error> {
        let sql = self.worded(sql);
        sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut self.connection).await
    }

    fn worded(&self, sql: String) -> String {
        if !self.is_of_rows {
            return sql;
        }
        match of_rows(&sql) {
            Cow::Borrowed(_) => sql,
            Cow::Owned(worded) => worded,
        }
    }

    /// Ends what a call was doing that was given up half-way. Reconciling somebody else's table may have left its
    /// session for changes by hand. In two calls: answers to several statements in one have been waited for in vain
    /// after a call that was given up.
    pub(super) async fn end_what_it_did(&mut self) -> Result<(), Error> {
        self.connection.execute("ROLLBACK").await?;
        if self.is_of_rows {
            self.connection.execute("SET @postroom_relay = 1").await?;
        }
        Ok(())
    }

    pub(super) async fn close(self) -> Result<(), Error> {
        self.connection.close().await
    }
}

impl Deref for Session {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.connection
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.connection
    }
}

/// Statements with values of their own, as they are.
impl<'c> Executor<'c> for &'c mut Session {
    type Database = MySql;

    fn fetch_many<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxStream<'e, Result<Either<MySqlQueryResult, MySqlRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, MySql>,
    {
        self.connection.fetch_many(query)
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<MySqlRow>, Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, MySql>,
    {
        self.connection.fetch_optional(query)
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [MySqlTypeInfo],
    ) -> BoxFuture<'e, Result<MySqlStatement, Error>>
    where
        'c: 'e,
    {
        self.connection.prepare_with(sql, parameters)
    }
}
