//! How long what was delivered is known, and when it is written down.

use crate::command::Folder;
use postroom_testkit::{Postgres, Signal, TestDatabase, eventually};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

async fn outbox(more: &str) -> (TestDatabase, Folder) {
    let database = Postgres::shared().await.database().await;
    let folder = Folder::new();
    let url = database.url();
    folder.write(
        "postroom.toml",
        &format!("[database]\nurl = \"{url}\"\n[server]\nlisten = \"127.0.0.1:0\"\n{more}"),
    );
    folder.run(&["migrate"]).ok();
    (database, folder)
}

/// The relay notes what it delivered; every tool says SENT at once, and the table some seconds later.
#[tokio::test]
async fn in_the_background_sent_is_seen_at_once_and_written_later() {
    let (database, folder) = outbox("[integrations.noop]\nrecord_sent = \"background\"\n").await;
    let mut relay = folder.start(&["run"]);
    let id = folder.enqueue("noop", &[]);
    let status = || folder.run(&["messages", "show", &id, "--json"]).json()["status"].clone();
    eventually("it to be SENT", SOON, async || (status() == "SENT").then_some(())).await;
    let client = database.client().await;
    let written = "SELECT count(*) FROM core_outbox.integration_outbox WHERE status = 'SENT'";
    eventually("that to be written", SOON, async || {
        let written: i64 = client.query_one(written, &[]).await.unwrap().get(0);
        assert_eq!(status(), "SENT");
        (written == 1).then_some(())
    })
    .await;
    relay.signal(Signal::SIGTERM);
    assert!(relay.wait(SOON).await.success(), "{}", relay.stderr());
}

/// One pass leaves nothing to write.
#[tokio::test]
async fn one_pass_writes_what_it_noted() {
    let (database, folder) = outbox("[integrations.noop]\nrecord_sent = \"background\"\n").await;
    folder.enqueue("noop", &[]);
    folder.run(&["run", "--once"]).ok();
    let left = "SELECT (SELECT count(*) FROM core_outbox.sent)
        + (SELECT count(*) FROM core_outbox.integration_outbox WHERE status <> 'SENT')";
    let left: i64 = database.client().await.query_one(left, &[]).await.unwrap().get(0);
    assert_eq!(left, 0);
}

#[test]
fn where_there_is_no_background_it_is_refused_before_anything_runs() {
    let folder = Folder::new();
    folder.write("postroom.toml", "[integrations.noop]\nrecord_sent = \"background\"\n");
    for command in ["run", "check"] {
        let refused = folder.run(&[command]);
        assert_eq!(refused.code, 2, "{refused:?}");
        let said = format!("{}{}", refused.stdout, refused.stderr);
        let expected =
            "integrations.\"noop\".record_sent = \"background\" is for an outbox on PostgreSQL";
        assert!(said.contains(expected), "{refused:?}");
    }
}

/// The message is gone, and its event comes again.
#[tokio::test]
async fn a_pruned_event_is_not_delivered_again_while_it_is_remembered() {
    let (_database, folder) =
        outbox("[retention]\nsent = \"0s\"\ndedupe = \"30d\"\n[integrations.noop]\n").await;
    let event = ["--event-id", "order-1"];
    folder.enqueue("noop", &event);
    assert!(folder.run(&["run", "--once"]).stderr.contains("\n1 taken: 1 sent"));
    let again = folder.enqueue("noop", &event);
    let shown = folder.run(&["messages", "show", &again, "--json"]).json();
    assert_eq!(shown["status"], "SENT", "{shown}");
    assert!(shown["last_error"].as_str().unwrap().contains("delivered before"), "{shown}");
    assert!(folder.run(&["run", "--once"]).stderr.contains("\n0 taken"));
}
