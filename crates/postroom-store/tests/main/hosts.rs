//! Several hosts in one URL: the one that takes writes is used, before and after a switchover.

use postroom_core::{NewMessage, Store, StoreErrorKind};
use postroom_store::OpenOptions;
use postroom_testkit::{MariaDb, Postgres, eventually, free_port};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::NoTls;

const SOON: Duration = Duration::from_secs(60);

/// `host:port` of a server's URL.
fn place(url: &str) -> String {
    url.split('@').nth(1).and_then(|rest| rest.split('/').next()).expect("a place").to_owned()
}

async fn open(url: &str) -> Arc<dyn Store> {
    postroom_store::open(url, &OpenOptions::default()).await.expect("a store")
}

/// Enqueues messages until one of them is in the outbox at `url`.
async fn writes_go_to(store: &dyn Store, url: &str) {
    let there = open(url).await;
    eventually("a message to be written there", SOON, async || {
        let written = match store.enqueue(&NewMessage::new("noop", "t").raw("{}")).await {
            Ok(enqueued) => enqueued.into_id(),
            Err(error) if error.kind == StoreErrorKind::Unavailable => return None,
            Err(error) => panic!("a switchover is an outage, and nothing else: {error}"),
        };
        there.find(&written).await.expect("find").map(|_| ())
    })
    .await;
}

mod postgres {
    use super::*;

    async fn execute(server: &Postgres, sql: &str) {
        let (client, driver) = tokio_postgres::connect(server.url(), NoTls).await.expect("connect");
        tokio::spawn(driver);
        client.batch_execute(sql).await.expect(sql);
    }

    /// What a standby is to its clients, without the replication.
    async fn set_read_only(server: &Postgres, value: &str) {
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
        execute(server, &set).await;
        execute(server, "SELECT pg_reload_conf()").await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_host_that_takes_writes_is_used_before_and_after_a_switchover() {
        let (one, other) = (Postgres::private(&[]).await, Postgres::private(&[]).await);
        let (one, other) = (one.expect("a server"), other.expect("a server"));
        for server in [&one, &other] {
            postroom_store::migrate(server.url()).await.expect("migrate");
        }
        set_read_only(&one, "on").await;
        let dead = free_port().expect("a port");
        let hosts = format!("127.0.0.1:{dead},{},{}", place(one.url()), place(other.url()));
        let url = format!("postgres://postgres@{hosts}/postgres");
        let store = open(&url).await;
        store.ready().await.expect("ready");
        writes_go_to(&*store, other.url()).await;

        // Its connections stay open.
        set_read_only(&other, "on").await;
        set_read_only(&one, "off").await;
        writes_go_to(&*store, one.url()).await;

        set_read_only(&other, "off").await;
        one.stop().await.expect("stopped");
        writes_go_to(&*store, other.url()).await;
    }

    #[tokio::test]
    async fn without_a_host_that_takes_writes_the_error_says_so() {
        let server = Postgres::private(&[("default_transaction_read_only", "on")]).await;
        let (server, dead) = (server.expect("a server"), free_port().expect("a port"));
        let here = place(server.url());
        for hosts in [format!("127.0.0.1:{dead},{here}"), format!("{here},127.0.0.1:{dead}")] {
            let url = format!("postgres://postgres@{hosts}/postgres");
            let error = postroom_store::migrate(&url).await.expect_err("nobody takes writes");
            assert_eq!(error.kind, StoreErrorKind::Unavailable);
            assert!(error.to_string().contains("no host of the database URL takes writes"));
            let error = open(&url).await.ready().await.expect_err("nobody takes writes");
            assert!(error.to_string().contains("takes writes"), "{error}");
        }
        let alone = format!("{}?target_session_attrs=primary", server.url());
        let error = open(&alone).await.ready().await.expect_err("it is no primary");
        assert!(error.to_string().contains("takes writes"), "{error}");
    }
}

mod mariadb {
    use super::*;

    async fn execute(server: &MariaDb, sql: &str) {
        let mut connection = MySqlConnection::connect(server.url()).await.expect("connect");
        let sql = AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(sql).execute(&mut connection).await.expect("executed");
    }

    fn url_of(hosts: &str) -> String {
        format!("mysql://root@{hosts}/shop")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_that_takes_writes_is_used_when_another_is_dead_read_only_or_killed() {
        let (one, other) = (MariaDb::private(&[]).await, MariaDb::private(&[]).await);
        let (one, other) = (one.expect("a server"), other.expect("a server"));
        for server in [&one, &other] {
            execute(server, "CREATE DATABASE shop").await;
            postroom_store::migrate(&url_of(&place(server.url()))).await.expect("migrate");
        }
        let (first, second) = (place(one.url()), place(other.url()));
        let dead = free_port().expect("a port");
        let store = open(&url_of(&format!("127.0.0.1:{dead},{first},{second}"))).await;
        store.ready().await.expect("ready");
        writes_go_to(&*store, &url_of(&first)).await;

        execute(&one, "SET GLOBAL read_only = ON").await;
        writes_go_to(&*store, &url_of(&second)).await;

        execute(&one, "SET GLOBAL read_only = OFF").await;
        other.stop().await.expect("killed");
        writes_go_to(&*store, &url_of(&first)).await;
    }

    #[tokio::test]
    async fn without_a_server_that_takes_writes_the_error_says_what_is_wrong_with_each() {
        let server = MariaDb::private(&[("read-only", "1")]).await.expect("a server");
        execute(&server, "CREATE DATABASE shop").await;
        let (here, dead) = (place(server.url()), free_port().expect("a port"));
        let url = url_of(&format!("127.0.0.1:{dead},{here}"));
        let error = postroom_store::migrate(&url).await.expect_err("nobody takes writes");
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.contains("takes writes") && text.contains(&dead.to_string()), "{text}");
        assert!(text.contains(&format!("{here} is read-only")), "{text}");
    }

    /// MariaDB answers what it is told to when it is asked for its version.
    #[tokio::test]
    async fn tidb_is_refused_by_name() {
        let version = [("version", "8.0.11-TiDB-v7.5.1")];
        let server = MariaDb::private(&version).await.expect("a server");
        let refused = postroom_store::migrate(server.url()).await.expect_err("it is TiDB");
        assert_eq!(refused.kind, StoreErrorKind::Refused);
        assert!(refused.to_string().contains("this server is TiDB"), "{refused}");
        let refused = open(server.url()).await.ready().await.expect_err("it is TiDB");
        assert!(refused.to_string().contains("this server is TiDB"), "{refused}");
    }
}
