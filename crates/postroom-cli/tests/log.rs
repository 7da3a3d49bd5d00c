//! What stands in the log, and what an error says.

use crate::command::Folder;
use postroom_testkit::{MariaDb, Postgres};
use std::net::TcpListener;

#[tokio::test(flavor = "multi_thread")]
async fn rust_log_shows_our_lines_and_not_the_drivers() {
    let database = Postgres::shared().await.database().await;
    let folder = Folder::new();
    let at = ["--database", database.url()];
    let run = |level: &str| {
        folder.enqueue("noop", &at);
        let mut command = folder.command(&[&["run", "--once"], &at[..]].concat());
        let output = command.env("RUST_LOG", level).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let (ours, drivers) = ("OUTBOX_DELIVER", "preparing query");
    for level in ["debug", "trace"] {
        let text = run(level);
        assert!(text.contains(ours) && !text.contains(drivers), "{level}: {text}");
    }
    let text = run("debug,tokio_postgres=debug");
    assert!(text.contains(ours) && text.contains(drivers), "{text}");
    assert!(!run("info").contains(ours));
}

#[test]
fn what_cannot_be_reached_is_named_once_by_host_and_port() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = Folder::new();
    for (scheme, command) in [
        ("postgres", &["messages", "list"][..]),
        ("postgres", &["migrate"]),
        ("postgres", &["run", "--once"]),
        ("mysql", &["messages", "list"]),
    ] {
        let url = format!("{scheme}://app:hunter2@{nobody}/shop");
        let answer = folder.run(&[command, &["--json", "--database", &url]].concat());
        assert_eq!(answer.code, 1, "{answer:?}");
        let error = answer.stderr.lines().last().unwrap();
        assert_eq!(error.matches(&nobody.to_string()).count(), 1, "{error}");
        assert!(error.contains("cannot be reached") && !error.contains("hunter2"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_points_to_the_statements_that_give_it_on_postgres() {
    let database = Postgres::shared().await.database().await;
    let folder = Folder::new();
    folder.run(&["migrate", "--database", database.url()]).ok();
    let client = database.client().await;
    let role = format!("stranger_{}", database.name());
    client.batch_execute(&format!("CREATE ROLE \"{role}\" LOGIN PASSWORD 'x'")).await.unwrap();
    let (scheme, rest) = database.url().split_once("://").unwrap();
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let answer = folder.run(&["stats", "--database", &format!("{scheme}://{role}:x@{place}")]);
    client.batch_execute(&format!("DROP ROLE \"{role}\"")).await.unwrap();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("permission denied"), "{}", answer.stderr);
    assert!(answer.stderr.contains("`postroom migrate --print-grants`"), "{}", answer.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_points_to_the_statements_that_give_it_on_mariadb() {
    let database = MariaDb::shared().await.database().await;
    let folder = Folder::new();
    folder.run(&["migrate", "--database", database.url()]).ok();
    let mut connection = database.connection().await;
    let user = format!("s_{}", &database.name()[..database.name().len().min(20)]);
    for sql in [
        format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'x'"),
        format!("GRANT SELECT ON {}.outbox_schema_migration TO '{user}'@'%'", database.name()),
    ] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    }
    let (scheme, rest) = database.url().split_once("://").unwrap();
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let answer = folder.run(&["stats", "--database", &format!("{scheme}://{user}:x@{place}")]);
    let drop = format!("DROP USER '{user}'@'%'");
    sqlx::raw_sql(sqlx::AssertSqlSafe(drop)).execute(&mut connection).await.unwrap();
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stderr.contains("`postroom migrate --print-grants`"), "{}", answer.stderr);
}
