//! Queues on moto, read by Amazon's own library for Python.

use postroom_testkit::Moto;
use postroom_testkit::sink_contract::Received;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use uuid::Uuid;

/// A name that no other test has.
pub(crate) fn fresh_name() -> String {
    format!("q-{}", Uuid::now_v7().simple())
}

/// A queue, and what was read from it so far.
pub(crate) struct Queue {
    pub(crate) server: &'static Moto,
    pub(crate) name: String,
    pub(crate) url: String,
    read: Mutex<Vec<Value>>,
}

impl Queue {
    pub(crate) fn create(server: &'static Moto, name: &str, attributes: Value) -> Self {
        let arguments = json!({"QueueName": name, "Attributes": attributes});
        let made = server.call("sqs", "create_queue", &arguments);
        let url = made["QueueUrl"].as_str().unwrap().to_owned();
        Self { server, name: name.to_owned(), url, read: Mutex::default() }
    }

    pub(crate) fn arn(&self) -> String {
        format!("arn:aws:sqs:us-east-1:123456789012:{}", self.name)
    }

    /// Everything that has arrived so far, as the library shows it.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let mut read = self.read.lock().unwrap();
        loop {
            let arguments = json!({"QueueUrl": self.url, "MaxNumberOfMessages": 10,
                "MessageAttributeNames": ["All"], "AttributeNames": ["All"]});
            let answer = self.server.call("sqs", "receive_message", &arguments);
            let Some(messages) = answer["Messages"].as_array() else { return read.clone() };
            for message in messages {
                let handle = &message["ReceiptHandle"];
                let arguments = json!({"QueueUrl": self.url, "ReceiptHandle": handle});
                self.server.call("sqs", "delete_message", &arguments);
                read.push(message.clone());
            }
        }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.messages().iter().map(received).collect()
    }
}

/// A message with its attributes; what travels together in one of them is taken apart.
fn received(message: &Value) -> Received {
    let mut attributes = BTreeMap::new();
    for (name, value) in message["MessageAttributes"].as_object().unwrap() {
        let value = value["StringValue"].as_str().unwrap();
        if name == "postroom-headers" {
            let rest: Map<String, Value> = serde_json::from_str(value).unwrap();
            let rest =
                rest.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned()));
            attributes.extend(rest);
        } else {
            attributes.insert(name.clone(), value.to_owned());
        }
    }
    Received {
        key: attributes["idempotency-key"].clone(),
        body: message["Body"].as_str().unwrap().to_owned(),
        attributes,
    }
}

/// An answer of one of Amazon's services.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}").into_bytes()
}
