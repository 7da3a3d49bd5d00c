//! The MQTT sink against a real broker, read back by mosquitto_sub.

use crate::destination::{refused, rejected, retried, sink};
use crate::page;
use crate::verifiers;
use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use postroom_testkit::{Authority, Mosquitto, OrSkip as _, Process, eventually};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

const SOON: Duration = Duration::from_secs(60);

/// A topic of its own, and a subscriber that was there before anything was published.
struct Topic {
    server: &'static Mosquitto,
    name: String,
    subscriber: Process,
    qos: u8,
}

async fn start() -> Topic {
    start_with(1).await
}

async fn start_with(qos: u8) -> Topic {
    subscribe(format!("t{}", Uuid::now_v7().simple()), qos).await
}

/// A subscriber of all topics below one.
async fn subscribe(name: String, qos: u8) -> Topic {
    let server = Mosquitto::shared().await;
    // Line by line, which it does not do by itself into a pipe. With QoS 0 on this side: with
    // another, this Mosquitto forgets about what waits behind the first twenty.
    let mut command = Command::new("stdbuf");
    command.args([
        "-oL",
        "mosquitto_sub",
        "-d",
        "-V",
        "5",
        "-q",
        "0",
        "-F",
        "%J",
        "-h",
        "127.0.0.1",
        "-p",
    ]);
    command.arg(server.address().port().to_string()).args(["-t", &format!("{name}/#")]);
    let subscriber = Process::spawn(&mut command);
    subscriber.wait_for_line("Subscribed", SOON).await;
    Topic { server, name, subscriber, qos }
}

impl Topic {
    fn with(&self, options: Value) -> Arc<dyn Sink> {
        let url = format!("mqtt://{}", self.server.address());
        let topic = format!("{}/{{event_type}}", self.name);
        let mut all = json!({"url": url, "topic": topic, "qos": self.qos});
        for (key, value) in options.as_object().unwrap() {
            all[key] = value.clone();
        }
        sink(&format!("mqtt:{}", self.name), all)
    }

    /// What the subscriber has heard, as it prints it.
    fn heard(&self) -> Vec<Value> {
        let lines = self.subscriber.stdout();
        let objects = lines.lines().filter(|line| line.starts_with('{'));
        objects.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl SinkHarness for Topic {
    fn name(&self) -> &'static str {
        "mqtt"
    }

    fn server(&self) -> SocketAddr {
        self.server.address()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        self.with(json!({"url": format!("mqtt://{address}")}))
    }

    async fn received(&self) -> Vec<Received> {
        let received = self.heard().into_iter().map(|heard| {
            let properties = &heard["properties"]["user-properties"];
            let attributes: BTreeMap<String, String> =
                serde_json::from_value(properties.clone()).unwrap();
            let body = match &heard["payload"] {
                Value::String(text) => text.clone(),
                object => object.to_string(),
            };
            Received { key: attributes["idempotency-key"].clone(), body, attributes }
        });
        received.collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        let mut bad = message("e-2");
        bad.headers = Some(RawJson::trusted(r#"{"a":"\u0000"}"#));
        Ok(bad)
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        let mut large = message("e-1");
        large.payload = RawJson::trusted(format!("\"{}\"", "x".repeat(1_000_000)));
        Ok(large)
    }

    fn recovers_by_itself(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

postroom_testkit::sink_contract_tests!(start);

mod twice_confirmed {
    async fn start() -> super::Topic {
        super::start_with(2).await
    }

    postroom_testkit::sink_contract_tests!(start);
}

#[tokio::test]
async fn order_within_a_batch_is_order_at_the_subscriber() {
    for qos in [1, 2] {
        let topic = start_with(qos).await;
        let batch: Vec<_> = (0..1500).map(|n| message(&format!("e-{n}"))).collect();
        let outcomes = deliver_all(&*topic.with(json!({})), &batch).await;
        assert_eq!(outcomes, vec![Outcome::Delivered; 1500]);
        let received = eventually("all to be heard", SOON, async || {
            Some(topic.received().await).filter(|received| received.len() >= 1500)
        })
        .await;
        let keys: Vec<_> = received.into_iter().map(|one| one.key).collect();
        let expected: Vec<_> = batch.into_iter().map(|one| one.event_id).collect();
        assert_eq!(keys, expected);
    }
}

#[tokio::test]
async fn concurrent_batches_share_a_connection_and_each_hears_of_its_own() {
    let topic = start().await;
    let sink = topic.with(json!({}));
    let batches = (0..8).map(|n| {
        let sink = Arc::clone(&sink);
        tokio::spawn(async move {
            let mut batch: Vec<_> = (0..50).map(|m| message(&format!("e-{n}-{m}"))).collect();
            batch[n].tenant_id = Some("\0".to_owned());
            (n, deliver_all(&*sink, &batch).await)
        })
    });
    for batch in batches.collect::<Vec<_>>() {
        let (bad, outcomes) = batch.await.unwrap();
        for (index, outcome) in outcomes.iter().enumerate() {
            assert_eq!(*outcome == Outcome::Delivered, index != bad, "{index}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_topic_without_subscribers_is_no_failure() {
    let topic = start().await;
    for qos in [1, 2] {
        let sink = topic.with(json!({"topic": "nobody/listens", "qos": qos}));
        assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    }
}

#[tokio::test]
async fn a_cloud_event_in_binary_mode_has_its_attributes_as_user_properties() {
    let topic = start().await;
    let sink = topic.with(json!({"format": "cloudevents-binary"}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let heard = eventually("the message", SOON, async || topic.heard().pop()).await;
    let properties = &heard["properties"];
    assert_eq!(properties["content-type"], "application/json");
    assert_eq!(properties["user-properties"]["specversion"], "1.0");
    assert_eq!(properties["user-properties"]["id"], "e-1");
    assert_eq!(heard["topic"], format!("{}/order.placed.v1", topic.name));
}

#[tokio::test]
async fn a_topic_with_a_wildcard_in_it_is_rejected() {
    let topic = start().await;
    let mut wild = message("e-1");
    wild.event_type = "order.#".to_owned();
    let outcomes = deliver_all(&*topic.with(json!({})), &[wild, message("e-2")]).await;
    assert!(rejected(&outcomes[0]).contains("`topic`"), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Delivered);
}

/// A broker where the user `relay` may publish below `allowed` alone.
struct Guarded {
    server: Mosquitto,
    _folder: TempDir,
}

impl Guarded {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let (passwords, acl) = (folder.path().join("passwords"), folder.path().join("acl"));
        let status = Command::new("mosquitto_passwd")
            .args(["-c", "-b"])
            .arg(&passwords)
            .args(["relay", "hunter2"])
            .status();
        assert!(status.unwrap().success());
        std::fs::write(&acl, "user relay\ntopic write allowed/#\n").unwrap();
        for file in [&passwords, &acl] {
            std::fs::set_permissions(file, PermissionsExt::from_mode(0o644)).unwrap();
        }
        let (passwords, acl) = (passwords.display(), acl.display());
        let settings = format!("password_file {passwords}\nacl_file {acl}\n");
        Self { server: Mosquitto::private(&settings).await.or_skip(), _folder: folder }
    }

    fn url(&self) -> String {
        format!("mqtt://relay:hunter2@{}", self.server.address())
    }
}

/// Mosquitto lets twenty be under way.
#[tokio::test]
async fn many_refusals_keep_nobody_from_being_published() {
    let broker = Guarded::start().await;
    for qos in [1, 2] {
        let options = json!({"url": broker.url(), "topic": "{source}/x", "qos": qos});
        let sink = sink("mqtt:x", options);
        let of = |number: usize| {
            let source = if number.is_multiple_of(3) { "allowed" } else { "forbidden" };
            Message { source: Some(source.to_owned()), ..message(&format!("e-{number}")) }
        };
        let mixed: Vec<_> = (0..120).map(of).collect();
        let mut in_turn = mixed.clone();
        in_turn.sort_by_key(|one| one.source.as_deref() == Some("allowed"));
        // Two at a time share the connection.
        let (first, second) =
            tokio::join!(deliver_all(&*sink, &mixed), deliver_all(&*sink, &in_turn));
        for (message, outcome) in mixed.iter().zip(first).chain(in_turn.iter().zip(second)) {
            if message.source.as_deref() == Some("allowed") {
                assert_eq!(outcome, Outcome::Delivered, "{qos} {}", message.event_id);
            } else {
                assert!(retried(&outcome).contains("0x87"), "{qos} {outcome:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_a_user_may_not_do_pauses_the_lane_and_shows_no_password() {
    let broker = Guarded::start().await;
    let (address, url) = (broker.server.address(), broker.url());
    for qos in [1, 2] {
        let topic = "{source}/x";
        let sink = sink("mqtt:x", json!({"url": url, "topic": topic, "qos": qos}));
        let mut allowed = message("e-2");
        allowed.source = Some("allowed".to_owned());
        // The refusal is of that message alone, and the sink goes on after it.
        for _ in 0..3 {
            let batch = [message("e-1"), allowed.clone()];
            let outcomes = deliver_all(&*sink, &batch).await;
            assert!(retried(&outcomes[0]).contains("0x87"), "{outcomes:?} {qos}");
            assert_eq!(outcomes[1], Outcome::Delivered);
        }
    }
    // When every message goes there, none can be published.
    let fixed = sink("mqtt:x", json!({"url": url, "topic": "forbidden/x"}));
    let outcomes = deliver_all(&*fixed, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("0x87"), "{outcomes:?}");
    let wrong = json!({"url": format!("mqtt://relay:hunter3@{address}")});
    let outcomes = deliver_all(&*sink("mqtt:x", wrong), &[message("e-1")]).await;
    let error = refused(&outcomes[0]);
    assert!(error.contains("check the user and password") && !error.contains("hunter"), "{error}");
}

#[tokio::test]
async fn tls_is_checked_against_the_named_authority() {
    let authority = Authority::new();
    let files = authority.issue(&["localhost"], "nobody");
    let settings = format!(
        "allow_anonymous true\ncertfile {}\nkeyfile {}\n",
        files.certificate().display(),
        files.key().display()
    );
    let server = Mosquitto::private(&settings).await.or_skip();
    let url = format!("mqtts://localhost:{}", server.address().port());
    let trusting = json!({"url": url, "ca_file": authority.file()});
    let outcomes = deliver_all(&*sink("mqtt:a", trusting), &[message("e-1")]).await;
    assert_eq!(outcomes, [Outcome::Delivered]);
    let outcomes = deliver_all(&*sink("mqtt:a", json!({"url": url})), &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("`ca_file`"), "{outcomes:?}");
}

#[tokio::test]
async fn cloud_events_are_read_by_the_official_sdk_in_both_modes() {
    let mut cases = Vec::new();
    for format in verifiers::FORMATS {
        let topic = start().await;
        let sink = topic.with(json!({"format": format}));
        let received = verifiers::read_back(&topic, &*sink).await;
        let content_type = &topic.heard()[0]["properties"]["content-type"];
        cases.push(json!({
            "kind": "mqtt", "headers": received.attributes, "body": received.body,
            "content_type": content_type,
        }));
    }
    verifiers::expect_events("mqtt: CloudEvents", verifiers::by_node, &cases);
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let topic = subscribe("shop".to_owned(), 1).await;
    page::deliver("mqtt", json!({"url": format!("mqtt://{}", topic.server())})).await;
    let heard = eventually("the message to be heard", SOON, async || topic.heard().pop()).await;
    assert_eq!(heard["topic"], "shop/acme/order.placed.v1");
}
