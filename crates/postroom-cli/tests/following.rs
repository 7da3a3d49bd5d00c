//! What is delivered and what fails, live.

use crate::command::Folder;
use postroom_testkit::{Behaviour, MariaDb, Postgres, Process, Receiver, Signal, eventually};
use serde_json::Value;
use std::process::{Child, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// The lines of a tail, as JSON.
fn lines(tail: &Process) -> Vec<Value> {
    tail.stdout().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A folder with a webhook on this database. A failure can be seen for a while before its retry.
fn scene(url: &str, receiver: &Receiver) -> Folder {
    let folder = Folder::new();
    folder.write(
        "postroom.toml",
        &format!(
            "[database]\nurl = \"{url}\"\n[integrations.noop]\n[integrations.\"webhook:a\"]\n\
             url = \"{}\"\nallow_addresses = [\"127.0.0.0/8\"]\n\
             retry = {{ base = \"3s\", jitter = \"0s\" }}\n",
            receiver.url()
        ),
    );
    folder.run(&["migrate"]).ok();
    folder
}

/// Failures, deaths and deliveries are told once each, those that were there before are not.
async fn outcomes_are_told_as_they_happen(url: &str) {
    let receiver = Receiver::start();
    let folder = scene(url, &receiver);
    folder.enqueue("noop", &["--event-id", "before"]);
    folder.run(&["run", "--once"]).ok();
    folder.enqueue("webhook:a", &["--event-id", "waiting"]);

    let mut tail = folder.start(&["messages", "tail", "--json", "--interval", "50ms"]);
    let only = ["messages", "tail", "--json", "--interval", "50ms"];
    let only = folder.start(&[&only[..], &["--status", "dead", "--count", "1"]].concat());
    // It says nothing until something happens: these messages are for its signs of life.
    folder.write("noop.toml", &format!("[database]\nurl = \"{url}\"\n[integrations.noop]\n"));
    eventually("the tail to follow", SOON, async || {
        folder.enqueue("noop", &[]);
        folder.run(&["run", "--once", "--config", "noop.toml"]).ok();
        (!lines(&tail).is_empty()).then_some(())
    })
    .await;
    receiver.next([Behaviour::Answer(503)]);
    eventually("a failure and a delivery", SOON, async || {
        folder.run(&["run", "--once"]).ok();
        let told: Vec<Value> =
            lines(&tail).into_iter().filter(|line| line["event_id"] == "waiting").collect();
        let statuses: Vec<&str> = told.iter().filter_map(|line| line["status"].as_str()).collect();
        (statuses == ["FAILED", "SENT"]).then_some(())
    })
    .await;
    let failed = lines(&tail).into_iter().find(|line| line["status"] == "FAILED").unwrap();
    assert!(failed["error"].as_str().unwrap().contains("503"), "{failed}");

    receiver.always(Behaviour::Answer(400));
    folder.enqueue("webhook:a", &["--event-id", "rejected"]);
    folder.run(&["run", "--once"]).ok();
    let line = only.wait_for_line("rejected", SOON).await;
    assert!(line.contains("DEAD"), "{line}");
    tail.wait_for_line("rejected", SOON).await;
    let told = lines(&tail);
    assert!(told.iter().all(|line| line["event_id"] != "before"), "{told:?}");
    let rejected = told.iter().filter(|line| line["event_id"] == "rejected").count();
    assert_eq!(rejected, 1, "{told:?}");
    tail.signal(Signal::SIGINT);
    assert!(tail.wait(SOON).await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_tells_outcomes_as_they_happen_on_sqlite() {
    outcomes_are_told_as_they_happen("sqlite://postroom.db").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_tells_outcomes_as_they_happen_on_postgres() {
    let database = Postgres::shared().await.database().await;
    outcomes_are_told_as_they_happen(database.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_tells_outcomes_as_they_happen_on_mariadb() {
    let database = MariaDb::shared().await.database().await;
    outcomes_are_told_as_they_happen(database.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_shows_how_many_are_sent_per_second() {
    let folder = Folder::new();
    folder.run(&["migrate"]).ok();
    let mut watch = folder.start(&["messages", "watch", "--json", "--interval", "100ms"]);
    watch.wait_for_line("integrations", SOON).await;
    eventually("a rate", SOON, async || {
        folder.enqueue("noop", &[]);
        folder.run(&["run", "--once"]).ok();
        let sent = |line: &Value| line["integrations"][0]["sent_per_second"].as_f64();
        lines(&watch).iter().filter_map(sent).find(|rate| *rate > 0.0)
    })
    .await;
    watch.signal(Signal::SIGINT);
    assert!(watch.wait(SOON).await.success());
    let text = folder.run(&["messages", "watch", "--count", "1"]).ok();
    assert!(text.contains("nothing is waiting"), "{text}");
    folder.enqueue("kafka:x", &[]);
    let text = folder.run(&["messages", "watch", "--count", "2", "--interval", "10ms"]).ok();
    assert!(text.contains("SENT") && text.contains("0/s"), "{text}");
}

/// A command that does not outlive its test, whatever becomes of that.
struct Going(Child);

impl Drop for Going {
    fn drop(&mut self) {
        // It has ended, if all is well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_on_ends_when_its_reader_has_gone() {
    let folder = Folder::new();
    folder.run(&["migrate"]).ok();
    for command in ["watch", "tail"] {
        let mut command = folder.command(&["messages", command, "--json", "--interval", "20ms"]);
        let mut going = Going(command.stdout(Stdio::piped()).spawn().unwrap());
        drop(going.0.stdout.take());
        let status = eventually("the end", SOON, async || {
            folder.enqueue("noop", &[]);
            folder.run(&["run", "--once"]).ok();
            going.0.try_wait().unwrap()
        })
        .await;
        assert!(status.success(), "{status}");
    }
}
