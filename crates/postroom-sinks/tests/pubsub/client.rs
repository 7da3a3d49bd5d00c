//! Pub/Sub over its REST interface, by hand: nothing of the sink's client is in it.

use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A request and its answer; panics when that is an error.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, body: &Value) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let body = body.to_string();
    let head = format!(
        "{method} /v1/{path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let (mut answer, mut part) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.expect("the answer has a length").parse().unwrap();
            if body.len() >= length {
                assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {text}");
                return serde_json::from_str(body).unwrap();
            }
        }
        let read = stream.read(&mut part).unwrap();
        assert_ne!(read, 0, "{method} {path}: the answer is cut off: {text}");
        answer.extend_from_slice(&part[..read]);
    }
}

/// Makes a topic and a subscription of the same name.
pub(crate) fn create(address: SocketAddr, name: &str, more: Value) {
    ask(address, "PUT", &format!("projects/test/topics/{name}"), &json!({}));
    let mut subscription = more;
    subscription["topic"] = json!(format!("projects/test/topics/{name}"));
    ask(address, "PUT", &format!("projects/test/subscriptions/{name}"), &subscription);
}

/// What waits in a subscription; it is not there any more after.
pub(crate) fn pull(address: SocketAddr, name: &str) -> Vec<Value> {
    let path = format!("projects/test/subscriptions/{name}");
    let asked = json!({"maxMessages": 1000, "returnImmediately": true});
    let mut pulled = Vec::new();
    loop {
        let answer = ask(address, "POST", &format!("{path}:pull"), &asked);
        let Some(received) = answer["receivedMessages"].as_array() else { return pulled };
        let ids: Vec<_> = received.iter().map(|one| one["ackId"].clone()).collect();
        ask(address, "POST", &format!("{path}:acknowledge"), &json!({"ackIds": ids}));
        pulled.extend(received.iter().map(|one| one["message"].clone()));
    }
}
