//! A NATS client of a few lines, which shares nothing with the sink's.

use postroom_testkit::sink_contract::Received;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection that asks and listens.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    /// Where answers to this client go.
    inbox: String,
}

/// What arrived on a subscription.
pub(crate) struct Arrived {
    pub(crate) subject: String,
    /// The status line's words after the version, for what the server itself says.
    pub(crate) status: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let inbox = format!("answers.{}", uuid::Uuid::now_v7());
        let mut client = Self { stream: BufReader::new(stream), inbox };
        assert!(client.line().starts_with("INFO "));
        client.write("CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n");
        client.write(&format!("SUB {} 1\r\n", client.inbox));
        client
    }

    pub(crate) fn subscribe(&mut self, subject: &str) {
        self.write(&format!("SUB {subject} 2\r\nPING\r\n"));
        while self.line() != "PONG" {}
    }

    /// The answer to a request.
    pub(crate) fn ask(&mut self, subject: &str, body: &Value) -> Arrived {
        let body = body.to_string();
        self.write(&format!("PUB {subject} {} {}\r\n{body}\r\n", self.inbox, body.len()));
        self.next()
    }

    /// The next message.
    pub(crate) fn next(&mut self) -> Arrived {
        loop {
            let line = self.line();
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |back: usize| words[words.len() - back].parse::<usize>().unwrap();
            let (head, total) = match words[0] {
                "MSG" => (0, number(1)),
                "HMSG" => (number(2), number(1)),
                // Servers of a cluster tell of each other.
                "INFO" => continue,
                "PING" => {
                    self.write("PONG\r\n");
                    continue;
                }
                other => panic!("unexpected {other}: {line}"),
            };
            let mut bytes = vec![0; total + 2];
            self.stream.read_exact(&mut bytes).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            let (head, body) = text[..total].split_at(head);
            let mut lines = head.trim_end().split("\r\n");
            let status = lines.next().unwrap_or_default();
            let headers = lines.map(|line| {
                let (name, value) = line.split_once(':').unwrap();
                (name.to_lowercase(), value.trim().to_owned())
            });
            return Arrived {
                subject: words[1].to_owned(),
                status: status.trim_start_matches("NATS/1.0").trim().to_owned(),
                headers: headers.collect(),
                body: body.to_owned(),
            };
        }
    }

    /// Makes a stream of this name and these subjects.
    pub(crate) fn create_stream(&mut self, name: &str, subjects: &[&str], more: Value) {
        let mut config = json!({"name": name, "subjects": subjects, "allow_direct": true,
            "allow_rollup_hdrs": true});
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        let answer = self.ask(&format!("$JS.API.STREAM.CREATE.{name}"), &config);
        assert!(!answer.body.contains("\"error\""), "{}", answer.body);
    }

    /// Everything in a stream.
    pub(crate) fn read_stream(&mut self, name: &str) -> Vec<Received> {
        let mut received = Vec::new();
        loop {
            let request = json!({"seq": received.len() + 1});
            let answer = self.ask(&format!("$JS.API.DIRECT.GET.{name}"), &request);
            if answer.status.starts_with("404") {
                return received;
            }
            let key = answer.headers["idempotency-key"].clone();
            received.push(Received { key, body: answer.body, attributes: answer.headers });
        }
    }

    fn write(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
