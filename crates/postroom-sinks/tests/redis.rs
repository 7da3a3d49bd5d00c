//! The Redis sink against a real server, read back by redis-cli.

use crate::destination::{refused, rejected, retried, sink};
use crate::page;
use crate::verifiers;
use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use postroom_testkit::{Authority, OrSkip as _, Proxy, Redis, eventually, free_port};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A stream of its own, whose name begins with the message's source.
struct Stream {
    server: &'static Redis,
    name: String,
}

async fn start() -> Stream {
    let server = Redis::shared().await;
    // The least that Redis allows: enough for every other test.
    server.cli(&["CONFIG", "SET", "proto-max-bulk-len", "1mb"]).await.unwrap();
    Stream { server, name: format!("s{}", Uuid::now_v7().simple()) }
}

/// A message with a value of three megabytes.
fn large(event_id: &str) -> Message {
    let payload = RawJson::trusted(format!("\"{}\"", "x".repeat(3 << 20)));
    Message { payload, ..message(event_id) }
}

impl Stream {
    fn key(&self) -> String {
        format!("shop:{}", self.name)
    }

    fn with(&self, options: Value) -> Arc<dyn Sink> {
        let url = format!("redis://{}", self.server.address());
        let mut all = json!({"url": url, "key": format!("{{source}}:{}", self.name)});
        for (key, value) in options.as_object().unwrap() {
            all[key] = value.clone();
        }
        sink(&format!("redis:{}", self.name), all)
    }
}

async fn entries(server: &Redis, key: &str) -> Vec<Received> {
    let entries = server.cli(&["XRANGE", key, "-", "+"]).await.unwrap();
    let entries: Vec<(String, Vec<String>)> = serde_json::from_value(entries).unwrap();
    let received = entries.into_iter().map(|(_, fields)| {
        let pairs = fields.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        let mut attributes: BTreeMap<String, String> = pairs.collect();
        let body = attributes.remove("body").unwrap();
        Received { key: attributes["idempotency-key"].clone(), body, attributes }
    });
    received.collect()
}

impl SinkHarness for Stream {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn server(&self) -> SocketAddr {
        self.server.address()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        self.with(json!({"url": format!("redis://{address}")}))
    }

    async fn received(&self) -> Vec<Received> {
        entries(self.server, &self.key()).await
    }

    fn bad(&self) -> Result<Message, &'static str> {
        let mut bad = message("e-2");
        bad.source = None;
        Ok(bad)
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        Ok(large("e-1"))
    }

    fn recovers_by_itself(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

postroom_testkit::sink_contract_tests!(start);

#[tokio::test]
async fn a_repetition_is_appended_once_and_its_mark_expires() {
    let stream = start().await;
    let sink = stream.with(json!({"dedupe": "1h"}));
    for _ in 0..2 {
        let outcomes = deliver_all(&*sink, &[message("e-1"), message("e-2"), message("e-1")]).await;
        assert_eq!(outcomes, vec![Outcome::Delivered; 3]);
    }
    assert_eq!(stream.received().await.len(), 2);
    let mark = format!("{{{}}}:postroom:test:contract/order-1/e-1", stream.key());
    let rest = stream.server.cli(&["PTTL", &mark]).await.unwrap();
    assert!((3_500_000..=3_600_000).contains(&rest.as_u64().unwrap()), "{rest}");
}

#[tokio::test]
async fn without_dedupe_each_delivery_is_an_entry() {
    let stream = start().await;
    let sink = stream.with(json!({"dedupe": "0s"}));
    for _ in 0..2 {
        assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    }
    assert_eq!(stream.received().await.len(), 2);
}

#[tokio::test]
async fn order_within_a_batch_is_order_in_the_stream() {
    let stream = start().await;
    let batch: Vec<_> = (0..300).map(|n| message(&format!("e-{n}"))).collect();
    let outcomes = deliver_all(&*stream.with(json!({})), &batch).await;
    assert_eq!(outcomes, vec![Outcome::Delivered; 300]);
    let keys: Vec<_> = stream.received().await.into_iter().map(|one| one.key).collect();
    let expected: Vec<_> = batch.into_iter().map(|one| one.event_id).collect();
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn a_stream_is_kept_at_about_its_greatest_length() {
    let stream = start().await;
    let batch: Vec<_> = (0..1000).map(|n| message(&format!("e-{n}"))).collect();
    let sink = stream.with(json!({"max_length": 100}));
    assert_eq!(deliver_all(&*sink, &batch).await, vec![Outcome::Delivered; 1000]);
    let length = stream.received().await.len();
    // Redis removes whole nodes of about a hundred entries.
    assert!((100..=300).contains(&length), "{length}");
}

#[tokio::test]
async fn a_cloud_event_in_binary_mode_has_its_attributes_in_fields() {
    let stream = start().await;
    let sink = stream.with(json!({"format": "cloudevents-binary"}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let received = stream.received().await.remove(0);
    assert_eq!(received.attributes["ce-id"], "e-1");
    assert_eq!(received.attributes["content-type"], "application/json");
}

#[tokio::test]
async fn cloud_events_are_read_by_the_official_sdk_in_both_modes() {
    let mut cases = Vec::new();
    for format in verifiers::FORMATS {
        let stream = start().await;
        let sink = stream.with(json!({"format": format, "key": stream.key()}));
        let mut received = verifiers::read_back(&stream, &*sink).await;
        // Redis has no binding of its own: the fields are those of HTTP's headers, but for the
        // encoding that those need.
        for value in received.attributes.values_mut() {
            *value = value.replace('%', "%25");
        }
        cases.push(json!({"kind": "cloud", "headers": received.attributes, "body": received.body}));
    }
    verifiers::expect_events("redis: CloudEvents", verifiers::by_python, &cases);
}

#[tokio::test]
async fn a_list_gets_each_message_once_as_a_cloud_event() {
    let stream = start().await;
    let sink = stream.with(json!({"mode": "list"}));
    for _ in 0..2 {
        let outcomes = deliver_all(&*sink, &[message("e-1"), message("e-2")]).await;
        assert_eq!(outcomes, vec![Outcome::Delivered; 2]);
    }
    let items = stream.server.cli(&["LRANGE", &stream.key(), "0", "-1"]).await.unwrap();
    let items: Vec<String> = serde_json::from_value(items).unwrap();
    let events: Vec<Value> = items.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
    let ids: Vec<&Value> = events.iter().map(|event| &event["id"]).collect();
    assert_eq!(ids, ["e-2", "e-1"], "the newest is at the head");
    assert_eq!(events[0]["attempt"], "5", "what has no place beside the event is inside");
}

#[tokio::test]
async fn subscribers_of_a_channel_hear_it() {
    let stream = start().await;
    let sink = stream.with(json!({"mode": "publish"}));
    assert_eq!(deliver_all(&*sink, &[message("e-0")]).await, [Outcome::Delivered], "unheard");
    let port = stream.server.address().port().to_string();
    let mut command = std::process::Command::new("redis-cli");
    command.args(["-p", &port, "SUBSCRIBE", &stream.key()]);
    let subscriber = postroom_testkit::Process::spawn(&mut command);
    let soon = Duration::from_secs(60);
    subscriber.wait_for_line("subscribe", soon).await;
    eventually("the subscription to be there", soon, async || {
        let counts = stream.server.cli(&["PUBSUB", "NUMSUB", &stream.key()]).await.unwrap();
        counts.to_string().contains('1').then_some(())
    })
    .await;
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    subscriber.wait_for_line("\"id\":\"e-1\"", soon).await;
}

#[tokio::test]
async fn a_key_that_holds_something_else_pauses_the_lane() {
    let stream = start().await;
    stream.server.cli(&["SET", &stream.key(), "text"]).await.unwrap();
    let mut other = message("e-2");
    other.source = Some("other".to_owned());
    for options in [json!({}), json!({"dedupe": "0s"})] {
        // When the key is made from the message, it is the key of some of them.
        let batch = [message("e-1"), other.clone()];
        let outcomes = deliver_all(&*stream.with(options.clone()), &batch).await;
        assert!(retried(&outcomes[0]).contains("WRONGTYPE"), "{outcomes:?}");
        assert_eq!(outcomes[1], Outcome::Delivered);
        let mut fixed = options;
        fixed["key"] = stream.key().into();
        for mode in ["stream", "list"] {
            fixed["mode"] = mode.into();
            let outcomes = deliver_all(&*stream.with(fixed.clone()), &[message("e-1")]).await;
            assert!(refused(&outcomes[0]).contains("WRONGTYPE"), "{outcomes:?}");
        }
    }
}

#[tokio::test]
async fn a_brace_in_a_field_of_the_key_is_the_fault_of_that_message() {
    let stream = start().await;
    let mut braced = message("e-1");
    braced.source = Some("sh}op".to_owned());
    let outcomes = deliver_all(&*stream.with(json!({})), &[braced, message("e-2")]).await;
    assert!(rejected(&outcomes[0]).contains("braces"), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Delivered);
}

/// Redis ends the connection at a value that is too large, and with it the whole pipeline.
#[tokio::test]
async fn a_value_too_large_for_the_server_fails_alone() {
    let server = Redis::private(&["--proto-max-bulk-len", "1mb"]).await.or_skip();
    let url = format!("redis://{}", server.address());
    for (name, options) in [
        ("once", json!({"url": url})),
        ("plain", json!({"url": url, "dedupe": "0s"})),
        ("keys", json!({"url": url, "key": "{source}"})),
    ] {
        let sink = sink(&format!("redis:{name}"), options);
        for at in [0, 5, 9] {
            let mut batch: Vec<_> = (0..10).map(|n| message(&format!("e-{at}-{n}"))).collect();
            // Of another key perhaps, but on the same connection.
            batch[7].source = Some("other".to_owned());
            batch[at] = large(&format!("e-{at}-{at}"));
            let outcomes = deliver_all(&*sink, &batch).await;
            for (index, outcome) in outcomes.iter().enumerate() {
                match outcome {
                    Outcome::Delivered => assert_ne!(index, at),
                    Outcome::Reject { error } => {
                        assert_eq!(index, at, "{error}");
                        assert!(error.contains("proto-max-bulk-len"), "{error}");
                    }
                    other => panic!("{index}: {other:?}"),
                }
            }
        }
    }
    assert_eq!(entries(&server, "once").await.len(), 27, "each of the others once");
}

/// Where nobody may ask for the limit, the usual one of 512 MB is assumed.
#[tokio::test]
async fn without_the_right_to_ask_for_the_limit_a_value_too_large_harms_no_other() {
    let server = Redis::private(&[
        "--proto-max-bulk-len",
        "1mb",
        "--user default on nopass ~* &* +@all -config",
    ]);
    let server = server.await.or_skip();
    let sink = sink("redis:x", json!({"url": format!("redis://{}", server.address())}));
    let outcomes = deliver_all(&*sink, &[message("e-1"), large("e-2"), message("e-3")]).await;
    assert_eq!((&outcomes[0], &outcomes[2]), (&Outcome::Delivered, &Outcome::Delivered));
    // Rejected where the server's answer could be read before it hung up.
    let failed = matches!(&outcomes[1], Outcome::Retry { .. } | Outcome::Reject { .. });
    assert!(failed, "{outcomes:?}");
    assert_eq!(entries(&server, "x").await.len(), 2);
}

#[tokio::test]
async fn a_server_out_of_memory_is_a_retry() {
    let server = Redis::private(&["--maxmemory", "100kb", "--maxmemory-policy", "noeviction"]);
    let server = server.await.or_skip();
    let full = sink("redis:full", json!({"url": format!("redis://{}", server.address())}));
    let outcomes = deliver_all(&*full, &[message("e-1")]).await;
    let Outcome::Retry { error, .. } = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(error.contains("OOM"), "{error}");
}

/// It keeps its clients, and the name that led there may lead to another by now.
#[tokio::test]
async fn a_primary_that_became_a_replica_is_left() {
    let server = Redis::private(&[]).await.or_skip();
    let proxy = Proxy::start(server.address());
    for (number, dedupe) in ["1h", "0s"].into_iter().enumerate() {
        let url = format!("redis://{}", proxy.address());
        let sink = sink("redis:x", json!({"url": url, "dedupe": dedupe}));
        let of = |event: u8| [message(&format!("e-{number}-{event}"))];
        assert_eq!(deliver_all(&*sink, &of(1)).await, [Outcome::Delivered]);
        let before = proxy.connections();
        server.cli(&["REPLICAOF", "127.0.0.1", "1"]).await.unwrap();
        let outcomes = deliver_all(&*sink, &of(2)).await;
        assert!(retried(&outcomes[0]).contains("READONLY"), "{outcomes:?}");
        eventually("another connection", Duration::from_secs(60), async || {
            (proxy.connections() > before).then_some(())
        })
        .await;
        server.cli(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
        assert_eq!(deliver_all(&*sink, &of(2)).await, [Outcome::Delivered]);
    }
}

#[tokio::test]
async fn what_a_user_may_not_do_pauses_the_lane_and_shows_no_password() {
    let server = Redis::private(&[
        "--user default on >hunter2 ~allowed* ~{allowed* +@all",
        "--user watcher on >hunter2 +ping",
    ]);
    let server = server.await.or_skip();
    let address = server.address();
    for (integration, login) in [
        ("redis:allowed", ":hunter3@"),
        ("redis:allowed", ""),
        ("redis:forbidden", ":hunter2@"),
        ("redis:allowed", "watcher:hunter2@"),
    ] {
        let barred = sink(integration, json!({"url": format!("redis://{login}{address}")}));
        let outcomes = deliver_all(&*barred, &[message("e-1")]).await;
        assert!(!refused(&outcomes[0]).contains("hunter"), "{outcomes:?}");
    }
    let allowed = sink("redis:allowed", json!({"url": format!("redis://:hunter2@{address}")}));
    assert_eq!(deliver_all(&*allowed, &[message("e-1")]).await, [Outcome::Delivered]);
}

#[tokio::test]
async fn in_a_cluster_the_mark_lies_in_the_slot_of_its_key() {
    let server = Redis::private(&["--cluster-enabled", "yes"]).await.or_skip();
    server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await.unwrap();
    eventually("the cluster to be up", Duration::from_secs(60), async || {
        let info = server.cli(&["CLUSTER", "INFO"]).await.unwrap();
        info.to_string().contains("cluster_state:ok").then_some(())
    })
    .await;
    let url = format!("redis://{}", server.address());
    for (key, stored) in [
        ("orders:{stream}", "orders:order-1"),
        ("{{{tenant}}}:{event_type}", "{acme}:order.placed.v1"),
    ] {
        let sink = sink("redis:x", json!({"url": url, "cluster": true, "key": key}));
        for _ in 0..2 {
            let mut other = message("e-2");
            other.stream_id = "order-2".to_owned();
            other.event_type = "order.paid.v1".to_owned();
            let outcomes = deliver_all(&*sink, &[message("e-1"), other]).await;
            assert_eq!(outcomes, vec![Outcome::Delivered; 2]);
        }
        assert_eq!(entries(&server, stored).await.len(), 1, "{stored}");
    }
}

#[tokio::test]
async fn tls_is_checked_against_the_named_authority() {
    let authority = Authority::new();
    let files = authority.issue(&["127.0.0.1"], "nobody");
    let port = free_port().unwrap();
    let (tls_port, ca_file) = (port.to_string(), authority.file().display().to_string());
    let arguments = [
        "--tls-port",
        &tls_port,
        "--tls-cert-file",
        files.certificate().to_str().unwrap(),
        "--tls-key-file",
        files.key().to_str().unwrap(),
        "--tls-ca-cert-file",
        &ca_file,
        "--tls-auth-clients",
        "no",
    ];
    let server = Redis::private(&arguments).await.or_skip();
    let url = format!("rediss://127.0.0.1:{port}");
    let trusting = sink("redis:a", json!({"url": url, "ca_file": authority.file()}));
    assert_eq!(deliver_all(&*trusting, &[message("e-1")]).await, [Outcome::Delivered]);
    assert_eq!(entries(&server, "a").await.len(), 1);
    // Nobody vouches for it, another does, and it is made out to another name.
    let stranger = Authority::new();
    for options in [
        json!({"url": url}),
        json!({"url": url, "ca_file": stranger.file()}),
        json!({"url": url.replace("127.0.0.1", "localhost"), "ca_file": authority.file()}),
    ] {
        let outcomes = deliver_all(&*sink("redis:a", options), &[message("e-2")]).await;
        assert!(refused(&outcomes[0]).contains("`ca_file`"), "{outcomes:?}");
    }
    assert_eq!(entries(&server, "a").await.len(), 1);
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let server = Redis::private(&["--user relay on >hunter2 ~* &* +@all"]).await.or_skip();
    let url = format!("redis://relay:hunter2@{}/0", server.address());
    page::deliver("redis", json!({"url": url})).await;
    assert_eq!(entries(&server, "orders:acme").await.len(), 1);
}
