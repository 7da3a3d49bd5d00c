//! What Prometheus' own tool makes of the metrics.

use crate::command::Folder;
use crate::faults_outbox::{SOON, page};
use postroom_testkit::{OrSkip as _, Process, Redis, eventually, find_promtool};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// What it has to say against names that the outbox was specified with, and that are kept.
const GIVEN: [&str; 6] = [
    "outbox_pending_total non-counter metrics should not have \"_total\" suffix",
    "outbox_claimed_total non-counter metrics should not have \"_total\" suffix",
    "outbox_failed_total non-counter metrics should not have \"_total\" suffix",
    "outbox_dead_total non-counter metrics should not have \"_total\" suffix",
    "outbox_claim_duration_ms metric names should not contain abbreviated units",
    "outbox_delivery_duration_ms metric names should not contain abbreviated units",
];

/// What `promtool check metrics` says of these.
fn check(text: &str) -> Vec<String> {
    let mut promtool = Command::new(find_promtool().or_skip())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = String::from_utf8(promtool.wait_with_output().unwrap().stderr).unwrap();
    said.lines().map(str::to_owned).collect()
}

/// The metrics of a process once they have all of these.
async fn metrics(process: &Process, names: &[&str]) -> String {
    eventually(&format!("{names:?}"), SOON, async || {
        let page = page(process, "/metrics").await?;
        let (head, text) = page.split_once("\r\n\r\n")?;
        assert!(head.contains("text/plain; version=0.0.4"), "{head}");
        names.iter().all(|name| text.contains(name)).then(|| text.to_owned())
    })
    .await
}

/// A relay's and a worker's, with something of everything in them.
#[tokio::test]
async fn promtool_has_nothing_to_say_against_our_metrics() {
    let folder = Folder::new();
    let redis = Redis::private(&[]).await.unwrap();
    let config = format!(
        "[integrations.noop]\n[server]\nlisten = \"127.0.0.1:0\"\n\
         [redis]\nurl = \"redis://{}\"\n[integrations.\"noop:queued\"]\ntransport = \"bullmq\"\n",
        redis.address()
    );
    folder.write("postroom.toml", &config);
    for integration in ["noop", "noop:queued", "nobody"] {
        folder.enqueue(integration, &[]);
    }
    let relay = folder.start(&["run"]);
    let of_relay = metrics(
        &relay,
        &["outbox_sent_total{", "outbox_unrouted{", "outbox_jobs_total{", "outbox_pending_total{"],
    )
    .await;
    drop(relay);
    // Its jobs are for a worker now.
    let external = config.replace("\"bullmq\"", "\"bullmq\"\nworkers = \"external\"");
    folder.write("external.toml", &external);
    folder.enqueue("noop:queued", &[]);
    let _dispatching = folder.start(&["run", "--config", "external.toml"]);
    let worker = folder.start(&["work"]);
    let of_worker = metrics(&worker, &["outbox_sent_total{", "outbox_delivery_duration_ms"]).await;
    for text in [of_relay, of_worker] {
        let against: Vec<String> =
            check(&text).into_iter().filter(|line| !GIVEN.contains(&line.as_str())).collect();
        assert_eq!(against, Vec::<String>::new(), "{text}");
    }
}
