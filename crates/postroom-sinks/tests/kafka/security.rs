//! SASL and TLS, as passed through to librdkafka.

use super::topic;
use crate::destination::{refused, sink};
use crate::page;
use postroom_core::{Outcome, Sink};
use postroom_testkit::sink_contract::{deliver_all, message};
use postroom_testkit::skip;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

fn secure(
    topic: &str,
    address: SocketAddr,
    login: (&str, &str),
    ca: Option<&Path>,
) -> Arc<dyn Sink> {
    let mut settings = json!({
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": login.0,
        "sasl.password": login.1,
    });
    if let Some(ca) = ca {
        settings["ssl.ca.location"] = json!(ca);
    }
    let options = json!({"brokers": address.to_string(), "settings": settings});
    sink(&format!("kafka:{topic}"), options)
}

async fn expect_refusal(sink: &dyn Sink, word: &str) {
    let outcomes = deliver_all(sink, &[message("e-1"), message("e-2")]).await;
    for outcome in &outcomes {
        let error = refused(outcome);
        assert!(error.contains(word) && !error.contains("hunter"), "{error}");
    }
    let error = sink.probe().await.unwrap_err().to_string();
    assert!(!error.contains("hunter"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_and_certificates_are_checked_and_never_shown() {
    let test = "logins_and_certificates_are_checked_and_never_shown";
    let Some(topic) = topic(test).await else { return };
    let (address, ca) = match topic.kafka().secure_address() {
        Ok(secure) => secure,
        Err(reason) => return skip(&format!("kafka: {test}"), reason),
    };
    let name = &topic.name;
    let good = secure(name, address, ("relay", "hunter2"), Some(&ca));
    assert_eq!(deliver_all(&*good, &[message("e-1")]).await, [Outcome::Delivered]);
    good.probe().await.unwrap();
    assert_eq!(topic.records().await.len(), 1);

    let wrong = secure(name, address, ("relay", "hunter3"), Some(&ca));
    expect_refusal(&*wrong, "`sasl.`").await;
    let doubting = secure(name, address, ("relay", "hunter2"), None);
    expect_refusal(&*doubting, "`ssl.`").await;
    let stranger = secure(name, address, ("stranger", "hunter2"), Some(&ca));
    expect_refusal(&*stranger, "Write").await;
    let missing = secure(name, address, ("relay", "hunter2"), Some(Path::new("/nowhere.pem")));
    expect_refusal(&*missing, "`settings`").await;
    assert_eq!(topic.records().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_librdkafka_cannot_combine_pause_the_lane() {
    let settings: Value = json!({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"});
    let options = json!({"brokers": "127.0.0.1:1", "settings": settings});
    let sink = sink("kafka:payments", options);
    let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
    assert!(refused(&outcomes[0]).contains("`settings`"), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_on_its_page_delivers() {
    let test = "the_configuration_on_its_page_delivers";
    let Some(topic) = topic(test).await else { return };
    let (address, ca) = match topic.kafka().secure_address() {
        Ok(secure) => secure,
        Err(reason) => return skip(&format!("kafka: {test}"), reason),
    };
    // The broker of the tests knows passwords by PLAIN only.
    let settings = json!({"sasl.mechanism": "PLAIN", "ssl.ca.location": ca});
    let replaced =
        json!({"brokers": address.to_string(), "topic": topic.name, "settings": settings});
    page::deliver("kafka", replaced).await;
    assert_eq!(topic.records().await.len(), 1);
}
