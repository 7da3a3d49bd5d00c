//! What others' libraries make of our requests: the official ones where there are any.

use super::configured;
use crate::http_receiver::Receiver;
use crate::messages::{deliver_one, message};
use crate::verifiers::{self, Verify, by_node, by_python};
use postroom_core::{Message, Outcome, RawJson};
use postroom_testkit::skip;
use serde_json::{Value, json};

const OLD: &str = "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQh";
const NEW: &str = "whsec_bmV3IG5ldyBuZXcgbmV3IG5ldyBuZXch";
const OTHER: &str = "whsec_b3RoZXIgb3RoZXIgb3RoZXIgb3RoZXIh";
/// RFC 8032, test 1: a private key and its public half.
const PRIVATE: &str = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
const PUBLIC: &str = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

/// Asks each language that can be had.
fn by_others(test: &str, check: impl Fn(&str, &dyn Fn(&Value) -> Vec<Value>)) {
    let languages: [(&str, Verify); 2] = [("Python", by_python), ("Node", by_node)];
    for (language, verify) in languages {
        match verify(&json!([])) {
            Ok(_) => check(language, &|cases| verify(cases).unwrap()),
            Err(error) => skip(&format!("webhook: {test} by {language}"), &format!("{error:#}")),
        }
    }
}

/// What arrives when `sent` is delivered with these options, as `{headers, body}`.
async fn request(options: Value, sent: Message) -> Value {
    let receiver = Receiver::answering("200 OK", "").await;
    let sink = configured(&receiver.url(), options);
    assert_eq!(deliver_one(&*sink, sent).await, Outcome::Delivered);
    let request = receiver.requests().remove(0);
    json!({"headers": request.headers, "body": request.body})
}

fn with(request: &Value, more: Value) -> Value {
    let mut case = request.clone();
    for (key, value) in more.as_object().unwrap() {
        case[key] = value.clone();
    }
    case
}

fn ok(verdict: &Value) -> bool {
    verdict.get("ok").is_some()
}

/// A payload with characters that could go astray.
fn sent() -> Message {
    let mut sent = message("e-1");
    sent.payload = RawJson::trusted("{\"name\": \"Zoë \u{1f980}\",\n \"sum\": 1.50}");
    sent
}

#[tokio::test]
async fn fault_36_what_is_old_changed_or_signed_by_another_is_refused_by_the_official_verifiers() {
    let request = request(json!({"secrets": [NEW]}), sent()).await;
    let body = request["body"].as_str().unwrap();
    let mut id = request.clone();
    id["headers"]["webhook-id"] = json!("e-2");
    let cases = json!([
        with(&request, json!({"kind": "shared", "secret": NEW})),
        with(&request, json!({"kind": "shared", "secret": NEW, "later": 200})),
        with(&request, json!({"kind": "shared", "secret": NEW, "later": 302})),
        with(&request, json!({"kind": "shared", "secret": NEW, "later": -600})),
        with(
            &request,
            json!({"kind": "shared", "secret": NEW, "body": body.replace("1.50", "1.51")})
        ),
        with(&id, json!({"kind": "shared", "secret": NEW})),
        with(&request, json!({"kind": "shared", "secret": OTHER})),
    ]);
    by_others("fault_36", |language, verify| {
        let verdicts = verify(&cases);
        let expected = [true, true, false, false, false, false, false];
        assert_eq!(
            verdicts.iter().map(ok).collect::<Vec<_>>(),
            expected,
            "{language} {verdicts:?}"
        );
        assert!(verdicts[2]["error"].as_str().unwrap().contains("too old"), "{verdicts:?}");
    });
}

#[tokio::test]
async fn fault_37_while_secrets_are_rotated_old_and_new_both_verify() {
    let request = request(json!({"secrets": [NEW, OLD, PRIVATE]}), sent()).await;
    let cases = json!([
        with(&request, json!({"kind": "shared", "secret": NEW})),
        with(&request, json!({"kind": "shared", "secret": OLD})),
        with(&request, json!({"kind": "public", "key": PUBLIC})),
        with(&request, json!({"kind": "shared", "secret": OTHER})),
    ]);
    by_others("fault_37", |language, verify| {
        let verdicts = verify(&cases);
        let expected = [true, true, true, false];
        assert_eq!(
            verdicts.iter().map(ok).collect::<Vec<_>>(),
            expected,
            "{language} {verdicts:?}"
        );
    });
}

/// Headers as most servers show them: bytes as Latin-1, and no spaces around them.
fn as_servers_show(mut request: Value) -> Value {
    for (_, value) in request["headers"].as_object_mut().unwrap() {
        let shown: String = value.as_str().unwrap().bytes().map(char::from).collect();
        *value = json!(shown.trim_matches([' ', '\t']));
    }
    request
}

#[tokio::test]
async fn an_unusual_event_id_is_percent_encoded_and_verified() {
    let ids = [
        ("bestellung-ü", "bestellung-%C3%BC"),
        (" e 1 ", "%20e%201%20"),
        ("100%", "100%25"),
        ("a.b:c/d~\"e\"", "a.b:c/d~\"e\""),
    ];
    let mut cases = Vec::new();
    for (id, encoded) in ids {
        let sent = Message { event_id: id.to_owned(), ..sent() };
        let shown = as_servers_show(request(json!({"secrets": [NEW, PRIVATE]}), sent).await);
        for name in ["webhook-id", "idempotency-key"] {
            assert_eq!(shown["headers"][name], encoded, "{name}");
        }
        cases.push(with(&shown, json!({"kind": "shared", "secret": NEW})));
        cases.push(with(&shown, json!({"kind": "public", "key": PUBLIC})));
    }
    by_others("unusual event ids", |language, verify| {
        let verdicts = verify(&json!(cases));
        assert!(
            verdicts.len() == cases.len() && verdicts.iter().all(ok),
            "{language} {verdicts:?}"
        );
    });
}

#[tokio::test]
async fn an_ed25519_signature_is_verified_by_independent_libraries() {
    let request = request(json!({"secrets": [PRIVATE]}), sent()).await;
    let body = request["body"].as_str().unwrap();
    let cases = json!([
        with(&request, json!({"kind": "public", "key": PUBLIC})),
        with(
            &request,
            json!({"kind": "public", "key": PUBLIC, "body": body.replace("1.50", "1.51")})
        ),
    ]);
    by_others("ed25519", |language, verify| {
        let verdicts = verify(&cases);
        assert!(ok(&verdicts[0]) && !ok(&verdicts[1]), "{language} {verdicts:?}");
    });
}

#[tokio::test]
async fn cloud_events_are_read_by_the_official_sdks_in_both_modes() {
    let sent = verifiers::event();
    let binary = request(json!({"format": "cloudevents-binary"}), sent.clone()).await;
    let structured = request(json!({"format": "cloudevents"}), sent.clone()).await;
    assert_eq!(structured["headers"]["content-type"], "application/cloudevents+json");
    assert_eq!(binary["headers"]["content-type"], "application/json");
    assert!(binary["headers"].get("ce-datacontenttype").is_none());
    let cases = json!([
        with(&binary, json!({"kind": "cloud"})),
        with(&structured, json!({"kind": "cloud"})),
    ]);
    by_others("CloudEvents", |language, verify| {
        for verdict in verify(&cases) {
            verifiers::expect_event(language, &verdict);
        }
    });
}

/// The binding wants such values percent-encoded; Python's SDK decodes them, Node's does not.
#[tokio::test]
async fn letters_beyond_ascii_survive_a_cloud_events_headers() {
    let mut sent = sent();
    sent.tenant_id = Some("Müller & Söhne 100%".to_owned());
    let binary = request(json!({"format": "cloudevents-binary"}), sent).await;
    assert_eq!(binary["headers"]["ce-tenantid"], "M%C3%BCller%20&%20S%C3%B6hne%20100%25");
    match by_python(&json!([with(&binary, json!({"kind": "cloud"}))])) {
        Ok(verdicts) => {
            assert_eq!(verdicts[0]["ok"]["attributes"]["tenantid"], "Müller & Söhne 100%");
        }
        Err(error) => skip("webhook: CloudEvents beyond ASCII by Python", &format!("{error:#}")),
    }
}
