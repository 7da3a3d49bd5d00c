//! Lists: a page is read with about as many rows as it shows.

use super::parcels::take_parcels;
use super::{
    LIMIT, STATISTICS, close, defer, enqueue, explain_take, explain_under, outbox, rows_read,
};
use crate::postgres::list;
use postroom_core::{Filter, Status};
use serde_json::Value;
use tokio_postgres::Client;

/// How many rows of messages and deliveries a page is read with.
async fn rows_listed(client: &Client, filter: &Filter) -> (Value, f64) {
    let (begin, sql) = list::statement(filter);
    let prepare = format!(
        "PREPARE list (text, text, text, text, text, text, timestamptz, timestamptz, bigint, bigint,
                       text, text)
         AS {sql}"
    );
    client.batch_execute(&prepare).await.unwrap();
    let text = |text: Option<&str>| text.map_or("NULL".to_owned(), |text| format!("'{text}'"));
    let execute = format!(
        "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE list ({}, {}, NULL, NULL, NULL, {}, NULL, NULL, {}, {},
                                              NULL, NULL)",
        text(filter.status.map(Status::as_str)),
        text(filter.integration.as_deref()),
        text(filter.event_id.as_deref()),
        filter.before.unwrap_or(i64::MAX),
        filter.limit,
    );
    let plan = explain_under(client, begin, &execute).await;
    client.batch_execute("DEALLOCATE list").await.unwrap();
    let rows = rows_read(&plan, "delivery") + rows_read(&plan, "integration_outbox");
    (plan, rows)
}

#[tokio::test]
async fn a_page_of_a_list_reads_about_what_it_shows() {
    const PAGE: usize = 50;
    let (_database, client) = outbox().await;
    // Some that are dead, far back; a history; a backlog of both kinds in front; some that are held.
    defer(&client, "dead-1", 30).await;
    defer(&client, "dead-2", 30).await;
    client
        .batch_execute("UPDATE core_outbox.integration_outbox SET status = 'DEAD'")
        .await
        .unwrap();
    enqueue(&client, "sent", 30_000).await;
    close(&client, "sent").await;
    defer(&client, "noop", 20_000).await;
    explain_take(&client).await;
    enqueue(&client, "fresh", 20_000).await;
    take_parcels(&client, "fresh", LIMIT).await;
    let newest_sent: i64 = client
        .query_one("SELECT max(seq) FROM core_outbox.messages WHERE status = 'SENT'", &[])
        .await
        .unwrap()
        .get(0);
    let page = || Filter { limit: PAGE, ..Filter::default() };
    let of = |status| Filter { status: Some(status), ..page() };
    let lane = |name: &str| Some(name.to_owned());
    for prepare in STATISTICS {
        client.batch_execute(prepare).await.unwrap();
        for (filter, shown, most) in [
            (page(), PAGE, 4 * PAGE),
            (Filter { before: Some(newest_sent + 1), ..of(Status::Sent) }, PAGE, 6 * PAGE),
            (of(Status::Pending), PAGE, 6 * PAGE),
            // Deliveries of other lanes are looked through, and their messages are not.
            (Filter { integration: lane("fresh"), ..of(Status::Pending) }, PAGE, 20_060 + 6 * PAGE),
            // All that is held is looked at.
            (of(Status::Claimed), PAGE, 4 * LIMIT as usize + 4 * PAGE),
            (of(Status::Dead), PAGE, 10 * PAGE),
            (Filter { integration: lane("dead-1"), ..of(Status::Dead) }, 30, 10 * PAGE),
            (Filter { event_id: lane("sent4000"), ..page() }, 1, 6),
            (Filter { event_id: lane("sent4000"), ..of(Status::Sent) }, 1, 6),
        ] {
            let (plan, rows) = rows_listed(&client, &filter).await;
            assert_eq!(plan["Actual Rows"], shown, "after {prepare}: {filter:?}\n{plan:#}");
            assert!(rows <= most as f64, "after {prepare}: {filter:?} read {rows} rows\n{plan:#}");
        }
    }
}
