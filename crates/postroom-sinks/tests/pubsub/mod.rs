//! The Pub/Sub sink against Google's own emulator, read back over REST.

mod client;

use crate::destination::{refused, rejected, sink};
use crate::page;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use postroom_testkit::{Authority, Passage, Proxy, PubSub, Smtp, SmtpSecurity, eventually, skip};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

/// A topic with a subscription, and what was pulled from that so far.
struct Topic {
    server: &'static PubSub,
    name: String,
    pulled: Mutex<Vec<Value>>,
}

impl Topic {
    fn create(server: &'static PubSub, subscription: Value) -> Self {
        let name = format!("t{}", Uuid::now_v7().simple());
        client::create(server.address(), &name, subscription);
        Self { server, name, pulled: Mutex::default() }
    }

    /// For a test beyond the contract. `None` is a skip of it.
    async fn open(test: &str, subscription: Value) -> Option<Self> {
        match PubSub::shared().await {
            Ok(server) => Some(Self::create(server, subscription)),
            Err(reason) => {
                skip(&format!("pubsub: {test}"), &reason);
                None
            }
        }
    }

    fn with(&self, options: &Value) -> Arc<dyn Sink> {
        sink_at(self.server.address(), &self.name, options)
    }

    /// Everything that has arrived so far, in the order of its ids.
    fn messages(&self) -> Vec<Value> {
        let mut pulled = self.pulled.lock().unwrap();
        pulled.extend(client::pull(self.server.address(), &self.name));
        let id = |one: &Value| one["messageId"].as_str().unwrap().parse::<u64>().unwrap();
        pulled.sort_by_key(id);
        pulled.clone()
    }
}

fn sink_at(address: SocketAddr, topic: &str, more: &Value) -> Arc<dyn Sink> {
    let mut options = json!({"project": "test", "endpoint": format!("http://{address}")});
    for (key, value) in more.as_object().unwrap() {
        options[key] = value.clone();
    }
    sink(&format!("pubsub:{topic}"), options)
}

fn received(message: &Value) -> Received {
    let attributes: BTreeMap<String, String> =
        serde_json::from_value(message["attributes"].clone()).unwrap();
    let body = BASE64_STANDARD.decode(message["data"].as_str().unwrap()).unwrap();
    Received {
        key: attributes["idempotency-key"].clone(),
        body: String::from_utf8(body).unwrap(),
        attributes,
    }
}

/// A topic, or why there is none.
struct Harness(Result<Topic, String>);

async fn start() -> Harness {
    Harness(PubSub::shared().await.map(|server| Topic::create(server, json!({}))))
}

impl Harness {
    fn topic(&self) -> &Topic {
        self.0.as_ref().unwrap()
    }
}

impl SinkHarness for Harness {
    fn name(&self) -> &'static str {
        "pubsub"
    }

    fn missing(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    fn server(&self) -> SocketAddr {
        self.topic().server.address()
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        sink_at(address, &self.topic().name, &json!({}))
    }

    async fn received(&self) -> Vec<Received> {
        self.topic().messages().iter().map(received).collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        let headers = json!({"x": "v".repeat(1025)}).to_string();
        Ok(Message { headers: Some(RawJson::trusted(headers)), ..message("e-2") })
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        let payload = RawJson::trusted(format!("\"{}\"", "x".repeat(10_000_000)));
        Ok(Message { payload, ..message("e-1") })
    }
}

postroom_testkit::sink_contract_tests!(start);

fn keyed(event_id: &str, key: &str) -> Message {
    Message { ordering_key: Some(key.to_owned()), ..message(event_id) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_with_an_ordering_key_arrive_with_it_and_in_order() {
    let subscription = json!({"enableMessageOrdering": true});
    let Some(topic) = Topic::open("messages_with_an_ordering_key", subscription).await else {
        return;
    };
    let batch: Vec<_> = (0..60).map(|n| keyed(&format!("e-{n}"), ["a", "b"][n % 2])).collect();
    let outcomes = deliver_all(&*topic.with(&json!({})), &batch).await;
    assert_eq!(outcomes, vec![Outcome::Delivered; 60]);
    let messages = topic.messages();
    for (key, rest) in [("a", 0), ("b", 1)] {
        let of_key = messages.iter().filter(|one| one["orderingKey"] == key);
        let found: Vec<_> = of_key.map(|one| received(one).key).collect();
        let sent: Vec<_> = (0..60).filter(|n| n % 2 == rest).map(|n| format!("e-{n}")).collect();
        assert_eq!(found, sent);
    }
}

/// The client stops at an ordering key after an error; the next attempt must not find it so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordering_key_is_published_again_after_an_error() {
    let Some(topic) = Topic::open("an_ordering_key_is_published_again", json!({})).await else {
        return;
    };
    let proxy = Proxy::start(topic.server.address());
    let sink = sink_at(proxy.address(), &topic.name, &json!({}));
    assert_eq!(deliver_all(&*sink, &[keyed("e-1", "k")]).await, [Outcome::Delivered]);
    proxy.set(Passage::Down);
    let batch = [keyed("e-2", "k"), keyed("e-3", "k")];
    let outcomes = deliver_all(&*sink, &batch).await;
    let is_retry = |outcome: &Outcome| matches!(outcome, Outcome::Retry { .. });
    assert!(outcomes.iter().all(is_retry), "{outcomes:?}");
    proxy.set(Passage::Open);
    eventually("the key to be free", Duration::from_secs(30), async || {
        let outcomes = deliver_all(&*sink, &batch).await;
        (outcomes == [Outcome::Delivered, Outcome::Delivered]).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_topic_pauses_the_lane_and_check_says_so() {
    let Some(topic) = Topic::open("a_missing_topic", json!({})).await else { return };
    let sink = topic.with(&json!({"topic": "nobody-made-this"}));
    let outcomes = deliver_all(&*sink, &[message("e-1"), keyed("e-2", "k")]).await;
    assert!(refused(&outcomes[0]).contains("NOT_FOUND"), "{outcomes:?}");
    assert!(refused(&outcomes[1]).contains("create the topic"), "{outcomes:?}");
    assert!(sink.probe().await.unwrap_err().to_string().contains("NOT_FOUND"));
}

/// A topic with a schema refuses a whole request for one message that does not fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_does_not_fit_the_topics_schema_is_final_and_its_neighbours_are_not() {
    let test = "a_message_that_does_not_fit_the_topics_schema";
    let Some(topic) = Topic::open(test, json!({})).await else { return };
    let (address, name) = (topic.server.address(), format!("s{}", topic.name));
    let definition = json!({"type": "record", "name": "Order", "fields": [
        {"name": "event", "type": "string"}, {"name": "sum", "type": "double"}]});
    let schema = json!({"type": "AVRO", "definition": definition.to_string()});
    client::ask(address, "POST", &format!("projects/test/schemas?schemaId={name}"), &schema);
    let settings = json!({"schema": format!("projects/test/schemas/{name}"), "encoding": "JSON"});
    let path = format!("projects/test/topics/{name}");
    client::ask(address, "PUT", &path, &json!({"schemaSettings": settings}));
    let sink = topic.with(&json!({"topic": name}));
    let bad = |message: Message| Message { payload: RawJson::trusted("{}"), ..message };
    let batch = [
        message("e-1"),
        bad(message("e-2")),
        message("e-3"),
        keyed("e-4", "k"),
        bad(keyed("e-5", "k")),
        keyed("e-6", "k"),
    ];
    let outcomes = deliver_all(&*sink, &batch).await;
    for (index, outcome) in outcomes.iter().enumerate() {
        match index {
            1 | 4 => assert!(rejected(outcome).contains("INVALID_ARGUMENT"), "{outcome:?}"),
            _ => assert_eq!(*outcome, Outcome::Delivered, "{index}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_event_in_binary_mode_has_its_attributes_beside_it() {
    let Some(topic) = Topic::open("a_cloud_event_in_binary_mode", json!({})).await else { return };
    let sink = topic.with(&json!({"format": "cloudevents-binary"}));
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let received = received(&topic.messages()[0]);
    for (name, value) in [
        ("ce-id", "e-1"),
        ("ce-specversion", "1.0"),
        ("ce-type", "order.placed.v1"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(received.attributes[name], value);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_file_that_cannot_be_used_pauses_the_lane() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.json");
    for content in [None, Some("hunter2"), Some("{\"type\": \"hunter2\"}")] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let options = json!({"project": "test", "endpoint": "https://pubsub.example",
            "credentials_file": file});
        let sink = sink("pubsub:orders", options);
        let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
        let error = refused(&outcomes[0]);
        assert!(error.contains("`credentials_file`") && !error.contains("hunter2"), "{error}");
    }
}

/// A token is made from the key of a service account, and TLS begun. Whatever speaks that will do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_nobody_vouches_for_pauses_the_lane() {
    let name = "pubsub: a_certificate_that_nobody_vouches_for_pauses_the_lane";
    let arguments = ["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
    let Ok(made) = Command::new("openssl").args(arguments).output() else {
        return skip(name, "there is no openssl to make a key with");
    };
    let key = String::from_utf8(made.stdout).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.json");
    let account = json!({"type": "service_account", "project_id": "test", "private_key": key,
        "private_key_id": "1", "client_email": "relay@test.example",
        "universe_domain": "googleapis.com"});
    std::fs::write(&file, account.to_string()).unwrap();
    let authority = Authority::new();
    let files = authority.issue(&["127.0.0.1"], "root");
    let server = match Smtp::start(SmtpSecurity::Tls(&files), false) {
        Ok(server) => server,
        Err(error) => return skip(name, &format!("{error:#}")),
    };
    let endpoint = format!("https://{}", server.address());
    let options = json!({"project": "test", "endpoint": endpoint, "credentials_file": file});
    let sink = sink("pubsub:orders", options);
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("certificate"), "{outcomes:?}");
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let Some(topic) = Topic::open("the_configuration_on_its_page", json!({})).await else { return };
    let endpoint = format!("http://{}", topic.server.address());
    let replaced = json!({"project": "test", "topic": topic.name, "endpoint": endpoint});
    page::deliver("pubsub", replaced).await;
    assert_eq!(topic.messages().len(), 1);
}
