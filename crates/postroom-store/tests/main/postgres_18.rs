//! The contract on PostgreSQL 18.

use crate::postgres::Database;
use postroom_testkit::Postgres;

async fn start() -> Database {
    Database::on(Postgres::shared_18().await.database().await).await
}

postroom_testkit::contract_tests!(start);
