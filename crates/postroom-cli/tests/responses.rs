//! What a receiver answers to a failed attempt is kept, where that is asked for.

use crate::command::Folder;
use postroom_testkit::{Redis, eventually};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

/// Answers every request with 500 and this body, on a thread that ends with the process. Where it
/// announces more than that, the rest never comes.
fn receiver(body: &'static [u8], announced: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 2) {
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                line.clear();
            }
            let mut request = vec![0; length];
            let _ = reader.read_exact(&mut request);
            let head = format!(
                "HTTP/1.1 500 Oops\r\ncontent-length: {announced}\r\nconnection: close\r\n\r\n"
            );
            let mut stream = reader.into_inner();
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
            open.extend((announced > body.len()).then_some(stream));
        }
    });
    url
}

/// A message that such a receiver has answered, and the log of that.
fn failed_attempt(body: &'static [u8], keys: &str) -> (Folder, String, String) {
    failed_at(&receiver(body, body.len()), keys)
}

fn failed_at(url: &str, keys: &str) -> (Folder, String, String) {
    let folder = Folder::new();
    folder.write(
        "postroom.toml",
        &format!(
            "[integrations.\"webhook:a\"]\nurl = \"{url}\"\n\
             allow_addresses = [\"127.0.0.0/8\"]\n{keys}"
        ),
    );
    let id = folder.enqueue("webhook:a", &[]);
    let output = folder.command(&["run", "--once"]).env("RUST_LOG", "trace").output().unwrap();
    (folder, id, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_response_is_kept_with_its_attempt_and_stands_nowhere_else() {
    let (folder, id, log) =
        failed_attempt(b"{\"fault\": \"no such order\x1b[2J\"}\nline 2", "keep_response = true\n");
    let shown = folder.run(&["messages", "show", &id, "--json"]).json();
    let response = shown["failed_attempts"][0]["response"].as_str().unwrap();
    assert!(response.contains("no such order"), "{shown}");
    assert!(!shown["last_error"].as_str().unwrap().contains("no such order"), "{shown}");
    assert!(!log.contains("no such order"), "{log}");
    let text = folder.run(&["messages", "show", &id]).ok();
    assert!(text.contains("response at ") && text.contains("\n  line 2\n"), "{text}");
    assert!(!text.contains('\x1b'), "a terminal obeys nothing of it");
}

#[test]
fn a_response_is_kept_only_where_that_is_asked_for() {
    let (folder, id, _) = failed_attempt(b"no such order", "");
    let shown = folder.run(&["messages", "show", &id, "--json"]).json();
    assert_eq!(shown["failed_attempts"].as_array().unwrap().len(), 1, "{shown}");
    assert!(shown["failed_attempts"][0].get("response").is_none(), "{shown}");
}

#[test]
fn a_long_response_is_cut_between_two_characters() {
    // An odd byte first, so that the limit falls into the middle of a character.
    let body: &'static str = format!("a{}", "é".repeat(2_000)).leak();
    let (folder, id, _) = failed_attempt(body.as_bytes(), "keep_response = true\n");
    let shown = folder.run(&["messages", "show", &id, "--json"]).json();
    let response = shown["failed_attempts"][0]["response"].as_str().unwrap();
    assert_eq!(response.len(), 2_047, "{response}");
    assert!(body.starts_with(response), "{response}");
}

#[test]
fn a_response_that_does_not_end_takes_nothing_back() {
    let url = receiver(b"the beginning", 100);
    let (folder, id, _) = failed_at(&url, "keep_response = true\ntimeout = \"3s\"\n");
    let shown = folder.run(&["messages", "show", &id, "--json"]).json();
    assert!(shown["last_error"].as_str().unwrap().contains("answered 500"), "{shown}");
    assert_eq!(shown["failed_attempts"][0]["response"], "the beginning", "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_is_kept_through_bullmq_too() {
    let redis = Redis::private(&[]).await.unwrap();
    let folder = Folder::new();
    folder.write(
        "postroom.toml",
        &format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[redis]\nurl = \"redis://{}\"\n\
             [integrations.\"webhook:a\"]\nurl = \"{}\"\nallow_addresses = [\"127.0.0.0/8\"]\n\
             transport = \"bullmq\"\nkeep_response = true\nretry = {{ base = \"1h\" }}\n",
            redis.address(),
            receiver(b"no such order", 13)
        ),
    );
    let id = folder.enqueue("webhook:a", &[]);
    let _relay = folder.start(&["run"]);
    let response = eventually("a response", Duration::from_secs(60), async || {
        let shown = folder.run(&["messages", "show", &id, "--json"]).json();
        shown["failed_attempts"][0]["response"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(response, "no such order");
}
