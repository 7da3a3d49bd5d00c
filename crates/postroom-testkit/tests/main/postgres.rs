//! PostgreSQL for tests: real, private, and gone with its owner.

use postroom_testkit::{Postgres, Process, eventually};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn each_database_is_fresh_and_dropped_with_its_value() {
    let server = Postgres::shared().await;
    let (first, second) = (server.database().await, server.database().await);
    first.client().await.batch_execute("CREATE TABLE t ()").await.unwrap();
    second.client().await.batch_execute("CREATE TABLE t ()").await.unwrap();

    // Someone still being connected does not keep it alive.
    let held = first.client().await;
    let name = first.name().to_owned();
    drop(first);
    let sql = "SELECT count(*) FROM pg_database WHERE datname = $1";
    let left: i64 = second.client().await.query_one(sql, &[&name]).await.unwrap().get(0);
    assert_eq!(left, 0);
    assert!(held.simple_query("SELECT 1").await.is_err());
}

#[tokio::test]
async fn a_private_server_stops_like_a_crash_and_starts_on_the_same_port_with_its_data() {
    let server = Postgres::private(&[("max_connections", "17")]).await.unwrap();
    let database = server.database().await;
    let client = database.client().await;
    client.batch_execute("CREATE TABLE t AS SELECT 42 AS n").await.unwrap();

    server.stop().await.unwrap();
    assert!(client.simple_query("SELECT 1").await.is_err());
    assert!(tokio_postgres::connect(database.url(), tokio_postgres::NoTls).await.is_err());

    server.start().await.unwrap();
    let client = database.client().await;
    let n: i32 = client.query_one("SELECT n FROM t", &[]).await.unwrap().get(0);
    assert_eq!(n, 42);
    let limit: String = client.query_one("SHOW max_connections", &[]).await.unwrap().get(0);
    assert_eq!(limit, "17");
}

#[tokio::test]
async fn a_private_server_and_its_folder_are_gone_when_the_value_is_dropped() {
    let server = Postgres::private(&[]).await.unwrap();
    let folder = data_folder(server.url()).await;
    assert!(folder.exists());
    let url = server.url().to_owned();
    drop(server);
    assert!(!folder.exists());
    assert!(tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_err());
}

#[tokio::test]
async fn a_private_server_and_its_folder_are_gone_when_its_owner_is_killed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_private-postgres"));
    let mut owner = Process::spawn(command.stdin(Stdio::piped()));
    let url = owner.wait_for_line("postgres://", DEADLINE).await;
    let folder = data_folder(&url).await;
    assert!(folder.exists());

    owner.kill9();
    eventually("the server to stop listening", DEADLINE, async || {
        tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_err().then_some(())
    })
    .await;
    eventually("its folder to be removed", DEADLINE, async || (!folder.exists()).then_some(()))
        .await;
}

/// The temporary folder around the server's data.
async fn data_folder(url: &str) -> PathBuf {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let row = client.query_one("SHOW data_directory", &[]).await.unwrap();
    let data = PathBuf::from(row.get::<_, String>(0));
    data.parent().unwrap().to_owned()
}
