//! What others' libraries make of what arrived: the official ones where there are any.

use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use postroom_testkit::{eventually, node_with, python_with, skip};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const PYTHON: &[&str] = &["standardwebhooks==1.1.0", "cloudevents==2.2.0", "cryptography==50.0.2"];
const NODE: &[&str] = &["standardwebhooks@1.1.1", "cloudevents@10.0.0"];

/// Both modes of a CloudEvent.
pub(crate) const FORMATS: [&str; 2] = ["cloudevents", "cloudevents-binary"];

/// One language's verdicts on some cases: `{"ok": …}` or `{"error": …}` for each.
pub(crate) type Verify = fn(&Value) -> anyhow::Result<Vec<Value>>;

pub(crate) fn by_python(cases: &Value) -> anyhow::Result<Vec<Value>> {
    let mut command = Command::new(python_with(PYTHON)?);
    Ok(run(command.arg(script("verify.py")), cases))
}

pub(crate) fn by_node(cases: &Value) -> anyhow::Result<Vec<Value>> {
    let modules = node_with(NODE)?;
    Ok(run(Command::new("node").arg(script("verify.mjs")).arg(modules), cases))
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verifiers").join(name)
}

fn run(command: &mut Command, cases: &Value) -> Vec<Value> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(cases.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is sent as a CloudEvent.
pub(crate) fn event() -> Message {
    let payload = RawJson::trusted("{\"sum\": 12.5, \"name\": \"Zoë\"}");
    Message { payload, source: Some("my shop".to_owned()), ..message("e-1") }
}

/// Delivers [`event`], and returns what the harness's own client reads.
pub(crate) async fn read_back(harness: &impl SinkHarness, sink: &dyn Sink) -> Received {
    assert_eq!(deliver_all(sink, &[event()]).await, [Outcome::Delivered]);
    let soon = Duration::from_secs(60);
    eventually("the event to be there", soon, async || harness.received().await.pop()).await
}

/// That each verdict is [`event`], with all that it must say.
pub(crate) fn expect_event(whose: &str, verdict: &Value) {
    let event = verdict.get("ok").unwrap_or_else(|| panic!("{whose}: {verdict}"));
    for (name, value) in [
        ("specversion", "1.0"),
        ("id", "e-1"),
        ("source", "my%20shop"),
        ("type", "order.placed.v1"),
        ("subject", "order-1"),
        ("datacontenttype", "application/json"),
        ("tenantid", "acme"),
        ("correlationid", "c-1"),
        ("causationid", "k-1"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ] {
        assert_eq!(event["attributes"][name], value, "{whose}: {name} in {event}");
    }
    assert!(event["attributes"]["time"].is_string(), "{whose}: {event}");
    assert_eq!(event["data"], json!({"sum": 12.5, "name": "Zoë"}), "{whose}: {event}");
}

/// The same for every case, by one language; a skip where it cannot be had.
pub(crate) fn expect_events(test: &str, verify: Verify, cases: &[Value]) {
    match verify(&json!(cases)) {
        Ok(verdicts) => verdicts.iter().for_each(|verdict| expect_event(test, verdict)),
        Err(error) => skip(test, &format!("{error:#}")),
    }
}
