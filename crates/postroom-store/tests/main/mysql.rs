//! The contract on MySQL 8.

use crate::mariadb::Maria;
use postroom_testkit::MySql;

async fn start() -> Maria {
    Maria::on(MySql::shared().await.database().await, "mysql").await
}

postroom_testkit::contract_tests!(start);
