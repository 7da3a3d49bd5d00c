//! MariaDB for tests: real, private, and gone with its owner.

use postroom_testkit::MariaDb;
use sqlx::{Connection as _, MySqlConnection};

#[tokio::test]
async fn each_database_is_fresh_and_dropped_with_its_value() {
    let server = MariaDb::shared().await;
    let (first, second) = (server.database().await, server.database().await);
    for database in [&first, &second] {
        let create = sqlx::raw_sql("CREATE TABLE t (n INT)");
        create.execute(&mut database.connection().await).await.unwrap();
    }

    // Someone in the middle of a transaction does not keep it alive.
    let mut held = first.connection().await;
    sqlx::raw_sql("BEGIN; SELECT n FROM t").execute(&mut held).await.unwrap();
    let name = first.name().to_owned();
    drop(first);
    let left: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?",
    )
    .bind(name)
    .fetch_one(&mut second.connection().await)
    .await
    .unwrap();
    assert_eq!(left, 0);
    assert!(held.ping().await.is_err());
}

#[tokio::test]
async fn a_private_server_stops_like_a_crash_and_starts_on_the_same_port_with_its_data() {
    let server = MariaDb::private(&[("max-connections", "17")]).await.unwrap();
    let database = server.database().await;
    let mut connection = database.connection().await;
    let create = "CREATE TABLE t AS SELECT 42 AS n";
    sqlx::raw_sql(create).execute(&mut connection).await.unwrap();

    server.stop().await.unwrap();
    assert!(connection.ping().await.is_err());
    assert!(MySqlConnection::connect(database.url()).await.is_err());

    server.start().await.unwrap();
    let mut connection = database.connection().await;
    let n: i64 = sqlx::query_scalar("SELECT CAST(n AS SIGNED) FROM t")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(n, 42);
    let limit: i64 = sqlx::query_scalar("SELECT CAST(@@max_connections AS SIGNED)")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(limit, 17);
}
