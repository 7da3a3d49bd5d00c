//! Where a webhook does not go, even where someone listens.

use crate::messages::{deliver_one, message};
use postroom_core::{Outcome, Sink as _};
use postroom_sinks::{Destination, SinkKind, WebhookConfig, WebhookSink};
use postroom_testkit::Receiver;
use serde_json::{Value, json};
use std::time::Duration;

fn validate(options: Value) -> Result<(), String> {
    let to = Destination { integration: "webhook:x", timeout: Duration::from_secs(5) };
    let Value::Object(options) = options else { panic!("options are a table") };
    let checked = SinkKind::of("webhook:x").unwrap().validate(options, &to);
    checked.map(drop).map_err(|faults| format!("{faults:?}"))
}

#[tokio::test]
async fn fault_32_an_address_within_is_blocked_before_connecting_however_it_is_written() {
    let receiver = Receiver::start();
    let port = receiver.address().port();
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "017700000001",
        "0",
        "localhost",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "169.254.169.254",
        "[fd00::]",
        "[64:ff9b::]",
        "[64:ff9b::7f00:1]",
    ] {
        let url = format!("http://{host}:{port}/");
        let fault = validate(json!({ "url": url })).unwrap_err();
        assert!(fault.contains("allow_addresses"), "{host}: {fault}");
        let built = WebhookSink::new(WebhookConfig::new(&url).unwrap());
        assert!(built.is_err(), "{host}");
    }
    assert_eq!(receiver.count(), 0);
    // The same receiver, once its network is listed.
    for host in ["127.0.0.1", "2130706433", "localhost"] {
        let url = format!("http://{host}:{port}/");
        assert_eq!(validate(json!({"url": url, "allow_addresses": ["127.0.0.0/8"]})), Ok(()));
        let config = WebhookConfig::new(&url).unwrap().allow("127.0.0.0/8").unwrap();
        let sink = WebhookSink::new(config).unwrap();
        assert_eq!(deliver_one(&sink, message("e-1")).await, Outcome::Delivered, "{host}");
    }
    assert_eq!(receiver.count(), 3);
}

/// This machine's own name leads to itself, and no URL shows that.
#[tokio::test]
async fn fault_32_a_name_that_leads_within_pauses_the_lane_and_check_says_so() {
    let name = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let found: Vec<_> = match tokio::net::lookup_host((name.as_str(), 0)).await {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(_) => Vec::new(),
    };
    let is_within = |ip: &std::net::IpAddr| match ip {
        std::net::IpAddr::V4(ip) => ip.is_private() || ip.is_loopback(),
        std::net::IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local(),
    };
    if found.is_empty() || !found.iter().all(is_within) {
        let reason = "this machine's name does not lead to a private address";
        return postroom_testkit::skip("fault_32_a_name_that_leads_within", reason);
    }
    let sink = WebhookSink::new(WebhookConfig::new(&format!("http://{name}:9/")).unwrap()).unwrap();
    let outcome = deliver_one(&sink, message("e-1")).await;
    let Outcome::Refuse { error } = outcome else { panic!("{outcome:?}") };
    assert!(error.contains("allow_addresses"), "{error}");
    let probe = sink.probe().await.unwrap_err().to_string();
    assert!(probe.contains("allow_addresses"), "{probe}");
}
