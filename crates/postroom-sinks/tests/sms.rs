//! The sms sink. Twilio itself cannot be had for tests: a stand-in answers as Twilio's
//! documentation says, over a real socket.

use crate::destination::{refused, rejected, retried, sink};
use crate::http_receiver::{Answer, Receiver, Request};
use crate::page;
use postroom_core::{Message, Outcome, RawJson, Sink};
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// `AC1:hunter2`
const LOGIN: &str = "Basic QUMxOmh1bnRlcjI=";
const MESSAGES: &str = "POST /2010-04-01/Accounts/AC1/Messages.json ";

type Form = HashMap<String, String>;

/// A stand-in for Twilio, and what it has sent.
struct Twilio {
    receiver: Receiver,
    sent: Arc<Mutex<Vec<Form>>>,
}

async fn start() -> Twilio {
    let sent = Arc::<Mutex<Vec<Form>>>::default();
    let kept = Arc::clone(&sent);
    let answer = Answer::By(Arc::new(move |request| match api(request) {
        Ok(Some(form)) => {
            kept.lock().unwrap().push(form);
            http("201 Created", "", &json!({"sid": "SM1", "status": "queued"}))
        }
        Ok(None) => http("200 OK", "", &json!({"sid": "AC1", "status": "active"})),
        Err((status, code)) => {
            http(status, "", &json!({"code": code, "message": "+1 555 says no", "status": 400}))
        }
    }));
    Twilio { receiver: Receiver::start(answer).await, sent }
}

/// Twilio's own numbers for tests lead to its codes.
fn api(request: &Request) -> Result<Option<Form>, (&'static str, u32)> {
    if request.headers.get("authorization").map(String::as_str) != Some(LOGIN) {
        return Err(("401 Unauthorized", 20003));
    }
    if request.line.starts_with("GET /2010-04-01/Accounts/AC1.json ") {
        return Ok(None);
    }
    if !request.line.starts_with(MESSAGES) {
        return Err(("404 Not Found", 20404));
    }
    let url = url(&request.body);
    let form: Form = url.into_iter().collect();
    let bad = |code| Err(("400 Bad Request", code));
    match (form["To"].as_str(), form.get("From").map(String::as_str)) {
        (_, Some("+15005550001")) => bad(21212),
        (_, Some("+15005550007")) => bad(21606),
        (_, Some("+15005550008")) => bad(21611),
        ("+15005550001", _) => bad(21211),
        ("+15005550009", _) => bad(21614),
        ("+15005550004", _) => bad(21610),
        _ if form["Body"].is_empty() => bad(21602),
        _ if form["Body"].chars().count() > 1_600 => bad(21617),
        _ => Ok(Some(form)),
    }
}

/// The pairs of a form, taken apart by a parser that is not the sink's.
fn url(body: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let bytes = text.replace('+', " ").into_bytes();
        let (mut decoded, mut rest) = (Vec::new(), bytes.as_slice());
        while let [first, after @ ..] = rest {
            if *first == b'%' {
                let hex = std::str::from_utf8(&after[..2]).unwrap();
                decoded.push(u8::from_str_radix(hex, 16).unwrap());
                rest = &after[2..];
            } else {
                decoded.push(*first);
                rest = after;
            }
        }
        String::from_utf8(decoded).unwrap()
    };
    let pairs = body.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn http(status: &str, headers: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}

fn configured(address: SocketAddr, options: Value) -> Arc<dyn Sink> {
    let mut all = json!({
        "url": format!("http://{address}"), "account_sid": "AC1", "auth_token": "hunter2",
        "from": "+15005550006", "to": "{{ payload.to|default('+14155550100') }}",
        "text": "{{ payload|tojson }}",
    });
    for (key, value) in options.as_object().unwrap() {
        all[key] = value.clone();
        if key == "messaging_service_sid" {
            all.as_object_mut().unwrap().remove("from");
        }
    }
    sink("sms:codes", all)
}

fn to(number: &str) -> Message {
    let payload = json!({"to": number});
    Message { payload: RawJson::trusted(payload.to_string()), ..message("e-1") }
}

impl SinkHarness for Twilio {
    fn name(&self) -> &'static str {
        "sms"
    }

    fn server(&self) -> SocketAddr {
        self.receiver.address
    }

    async fn sink(&self, address: SocketAddr) -> Arc<dyn Sink> {
        configured(address, json!({}))
    }

    async fn received(&self) -> Vec<Received> {
        let sent = self.sent.lock().unwrap().clone();
        sent.into_iter()
            .map(|form| {
                // The protocol has no key: what tells messages apart is what the text says.
                let text: Value = serde_json::from_str(&form["Body"]).unwrap();
                Received {
                    key: text["event"].as_str().unwrap().to_owned(),
                    body: form["Body"].clone(),
                    attributes: BTreeMap::new(),
                }
            })
            .collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        Ok(to("+15005550001"))
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        let payload = RawJson::trusted(format!("{{\"x\":\"{}\"}}", "x".repeat(1_700)));
        Ok(Message { payload, ..message("large") })
    }

    fn carries_attributes(&self) -> Result<(), &'static str> {
        Err("an SMS is a text and nothing else")
    }
}

mod contract {
    use super::start;

    postroom_testkit::sink_contract_tests!(start);
}

#[tokio::test]
async fn a_text_arrives_as_it_was_written() {
    let twilio = start().await;
    let options = json!({"to": " +14155550100\n", "text": "Zoë & co: 1+1=2 100% {{ event_id }}"});
    let sink = configured(twilio.receiver.address, options);
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let sent = twilio.sent.lock().unwrap()[0].clone();
    assert_eq!(sent["To"], "+14155550100");
    assert_eq!(sent["From"], "+15005550006");
    assert_eq!(sent["Body"], "Zoë & co: 1+1=2 100% e-1");
    let service = json!({"messaging_service_sid": "MG1"});
    let sink = configured(twilio.receiver.address, service);
    assert_eq!(deliver_all(&*sink, &[message("e-1")]).await, [Outcome::Delivered]);
    let sent = twilio.sent.lock().unwrap()[1].clone();
    assert_eq!((sent.get("From"), sent["MessagingServiceSid"].as_str()), (None, "MG1"));
}

#[tokio::test]
async fn codes_of_the_number_are_final_and_those_of_the_account_pause_the_lane() {
    let twilio = start().await;
    let at = twilio.receiver.address;
    let sink = configured(at, json!({}));
    for (number, code) in
        [("+15005550001", "21211"), ("+15005550009", "21614"), ("+15005550004", "21610")]
    {
        let outcomes = deliver_all(&*sink, &[to(number)]).await;
        let error = rejected(&outcomes[0]);
        assert!(error.contains(code) && !error.contains("555"), "{error}");
    }
    rejected(&deliver_all(&*sink, &[to(" ")]).await[0]);
    for (options, code) in [
        (json!({"auth_token": "hunter3"}), "20003"),
        (json!({"account_sid": "AC2"}), "20003"),
        (json!({"from": "+15005550001"}), "21212"),
    ] {
        let sink = configured(at, options);
        let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
        let error = refused(&outcomes[0]);
        assert!(error.contains(code) && !error.contains("hunter"), "{error}");
        assert_eq!(sink.probe().await.is_err(), code == "20003");
    }
    // The queue is full; or the sender will not do for this recipient, and may do for others.
    for (from, code) in [("+15005550008", "21611"), ("+15005550007", "21606")] {
        let sink = configured(at, json!({ "from": from }));
        let outcomes = deliver_all(&*sink, &[message("e-1")]).await;
        assert!(retried(&outcomes[0]).contains(code), "{outcomes:?}");
    }
    assert!(twilio.sent.lock().unwrap().is_empty());
}

#[tokio::test]
async fn fault_28_a_limit_is_obeyed_within_an_hour() {
    for (value, after) in [("30", Some(30)), ("1000000000000", Some(3_600)), ("rubbish", None)] {
        let headers = format!("retry-after: {value}\r\n");
        let body = json!({"code": 20429, "status": 429});
        let answer = Answer::Bytes(http("429 Too Many Requests", &headers, &body));
        let receiver = Receiver::start(answer).await;
        let sink = configured(receiver.address, json!({}));
        let outcome = deliver_all(&*sink, &[message("e-1")]).await.remove(0);
        let Outcome::Retry { after: found, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(found, after.map(Duration::from_secs), "{value}");
    }
}

#[tokio::test]
async fn the_configuration_on_its_page_delivers() {
    let twilio = start().await;
    let url = format!("http://{}", twilio.receiver.address);
    page::deliver("sms", json!({"url": url, "account_sid": "AC1"})).await;
    assert_eq!(twilio.sent.lock().unwrap()[0]["Body"], "Your code is 1234");
}
