//! One outbox per driver, behind the few things the laws need.

use postroom::{EnqueueError, Enqueued, NewMessage, enqueue, enqueue_all};
use postroom_core::{Record, Store};
use postroom_store::OpenOptions;
use postroom_testkit::{MariaDatabase, MariaDb, Postgres, TestDatabase};
use sqlx::{MySqlPool, PgPool, SqlitePool};
use std::sync::Arc;

/// How a transaction ends.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum End {
    Commit,
    Rollback,
}

pub(crate) enum Driver {
    SqlxMysql(MySqlPool),
    SqlxPostgres(PgPool),
    SqlxSqlite(SqlitePool),
    TokioPostgres,
}

/// A migrated outbox, and a table `orders` of the application's own.
pub(crate) struct Outbox {
    pub(crate) driver: Driver,
    pub(crate) store: Arc<dyn Store>,
    place: Place,
}

/// Where it is; it goes with the value.
enum Place {
    MariaDb(#[allow(dead_code, reason = "keeps the database")] MariaDatabase),
    Postgres(TestDatabase),
    Sqlite(#[allow(dead_code, reason = "keeps the folder")] tempfile::TempDir),
}

const ORDERS: &str = "CREATE TABLE orders (id VARCHAR(40) PRIMARY KEY)";
const INSERT_ORDER: &str = "INSERT INTO orders (id) VALUES ('ord_1')";

pub(crate) async fn every_driver() -> Vec<Outbox> {
    vec![
        Outbox::sqlx_mysql().await,
        Outbox::sqlx_postgres().await,
        Outbox::sqlx_sqlite().await,
        Outbox::tokio_postgres().await,
    ]
}

impl Outbox {
    pub(crate) async fn sqlx_mysql() -> Self {
        let database = MariaDb::shared().await.database().await;
        postroom_store::migrate(database.url()).await.unwrap();
        let pool = MySqlPool::connect(database.url()).await.unwrap();
        sqlx::query(ORDERS).execute(&pool).await.unwrap();
        let store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
        Self { driver: Driver::SqlxMysql(pool), store, place: Place::MariaDb(database) }
    }

    async fn sqlx_postgres() -> Self {
        let database = Postgres::shared().await.database().await;
        let pool = PgPool::connect(database.url()).await.unwrap();
        Self::on_postgres(database, Driver::SqlxPostgres(pool)).await
    }

    async fn tokio_postgres() -> Self {
        let database = Postgres::shared().await.database().await;
        Self::on_postgres(database, Driver::TokioPostgres).await
    }

    async fn on_postgres(database: TestDatabase, driver: Driver) -> Self {
        postroom_store::migrate(database.url()).await.unwrap();
        database.client().await.batch_execute(ORDERS).await.unwrap();
        let store = postroom_store::open(database.url(), &OpenOptions::default()).await.unwrap();
        Self { driver, store, place: Place::Postgres(database) }
    }

    async fn sqlx_sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("outbox.db").display());
        postroom_store::migrate(&url).await.unwrap();
        let pool = SqlitePool::connect(&url).await.unwrap();
        sqlx::query(ORDERS).execute(&pool).await.unwrap();
        let store = postroom_store::open(&url, &OpenOptions::default()).await.unwrap();
        Self { driver: Driver::SqlxSqlite(pool), store, place: Place::Sqlite(folder) }
    }

    async fn client(&self) -> tokio_postgres::Client {
        match &self.place {
            Place::Postgres(database) => database.client().await,
            Place::MariaDb(_) | Place::Sqlite(_) => panic!("this outbox is not on PostgreSQL"),
        }
    }

    /// Places an order and enqueues the message in one transaction of the driver.
    pub(crate) async fn place_order(
        &self,
        message: NewMessage,
        end: End,
    ) -> Result<Enqueued, EnqueueError> {
        match &self.driver {
            Driver::SqlxPostgres(pool) => {
                let mut tx = pool.begin().await.unwrap();
                sqlx::query(INSERT_ORDER).execute(&mut *tx).await.unwrap();
                let enqueued = enqueue(&mut tx, message).await?;
                if end == End::Commit {
                    tx.commit().await.unwrap();
                }
                Ok(enqueued)
            }
            Driver::SqlxMysql(pool) => {
                let mut tx = pool.begin().await.unwrap();
                sqlx::query(INSERT_ORDER).execute(&mut *tx).await.unwrap();
                let enqueued = enqueue(&mut tx, message).await?;
                if end == End::Commit {
                    tx.commit().await.unwrap();
                }
                Ok(enqueued)
            }
            Driver::SqlxSqlite(pool) => {
                let mut tx = pool.begin().await.unwrap();
                sqlx::query(INSERT_ORDER).execute(&mut *tx).await.unwrap();
                let enqueued = enqueue(&mut tx, message).await?;
                if end == End::Commit {
                    tx.commit().await.unwrap();
                }
                Ok(enqueued)
            }
            Driver::TokioPostgres => {
                let mut client = self.client().await;
                let mut tx = client.transaction().await.unwrap();
                tx.execute(INSERT_ORDER, &[]).await.unwrap();
                let enqueued = enqueue(&mut tx, message).await?;
                if end == End::Commit {
                    tx.commit().await.unwrap();
                }
                Ok(enqueued)
            }
        }
    }

    /// Enqueues several messages in one transaction and commits.
    pub(crate) async fn enqueue_all(&self, messages: Vec<NewMessage>) -> Vec<Enqueued> {
        match &self.driver {
            Driver::SqlxPostgres(pool) => {
                let mut tx = pool.begin().await.unwrap();
                let answers = enqueue_all(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
                answers
            }
            Driver::SqlxMysql(pool) => {
                let mut tx = pool.begin().await.unwrap();
                let answers = enqueue_all(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
                answers
            }
            Driver::SqlxSqlite(pool) => {
                let mut tx = pool.begin().await.unwrap();
                let answers = enqueue_all(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
                answers
            }
            Driver::TokioPostgres => {
                let mut client = self.client().await;
                let mut tx = client.transaction().await.unwrap();
                let answers = enqueue_all(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
                answers
            }
        }
    }

    pub(crate) async fn orders(&self) -> i64 {
        const COUNT: &str = "SELECT count(*) FROM orders";
        match &self.driver {
            Driver::SqlxPostgres(pool) => sqlx::query_scalar(COUNT).fetch_one(pool).await.unwrap(),
            Driver::SqlxMysql(pool) => sqlx::query_scalar(COUNT).fetch_one(pool).await.unwrap(),
            Driver::SqlxSqlite(pool) => sqlx::query_scalar(COUNT).fetch_one(pool).await.unwrap(),
            Driver::TokioPostgres => {
                let client = self.client().await;
                client.query_one(COUNT, &[]).await.unwrap().get(0)
            }
        }
    }

    pub(crate) async fn messages(&self) -> Vec<Record> {
        let filter = postroom_core::Filter { limit: 100, ..Default::default() };
        self.store.list(&filter).await.unwrap()
    }
}
