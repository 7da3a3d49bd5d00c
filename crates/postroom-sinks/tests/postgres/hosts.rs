//! Several servers in one URL.

use super::{TABLE, configured, psql};
use postroom_core::Outcome;
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::{Postgres, eventually, free_port};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn the_host_that_takes_writes_gets_the_rows_and_without_one_the_error_says_so() {
    let read_only = ("default_transaction_read_only", "on");
    let (standby, primary) = (Postgres::private(&[read_only]).await, Postgres::private(&[]).await);
    let (standby, primary) = (standby.unwrap(), primary.unwrap());
    let execute = async |server: &Postgres, sql: &str| {
        let (client, driver) =
            tokio_postgres::connect(server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(driver);
        client.batch_execute(sql).await.unwrap();
    };
    execute(&primary, TABLE).await;
    let host = |server: &Postgres| {
        let url = server.url().to_owned();
        url.split('@').nth(1).unwrap().split('/').next().unwrap().to_owned()
    };
    let dead = free_port().unwrap();
    let hosts = format!("127.0.0.1:{dead},{},{}", host(&standby), host(&primary));
    let sink = configured(&format!("postgres://postgres@{hosts}/postgres"), json!({}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let rows = |server: &Postgres| psql(server.url(), "SELECT json_agg(event_id) FROM events");
    assert_eq!(rows(&primary), json!(["e-1"]));

    // Connections to the primary stay open, and cannot write any more.
    let reload = "SELECT pg_reload_conf()";
    let turn = |value: &str| format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
    execute(&primary, &turn("on")).await;
    execute(&primary, reload).await;
    eventually("no host to be left that takes writes", Duration::from_secs(60), async || {
        let outcomes = deliver_all(&*sink, &[message("e-2")]).await;
        // It may arrive once more before the server has read its settings again.
        match &outcomes[0] {
            Outcome::Retry { error, .. } if error.contains("does not allow writes") => Some(()),
            _ => None,
        }
    })
    .await;
    execute(&primary, &turn("off")).await;
    execute(&primary, reload).await;
    eventually("the primary to take writes again", Duration::from_secs(60), async || {
        let outcomes = deliver_all(&*sink, &[message("e-2")]).await;
        (outcomes == [Outcome::Delivered]).then_some(())
    })
    .await;
    assert_eq!(rows(&primary), json!(["e-1", "e-2"]));
}
