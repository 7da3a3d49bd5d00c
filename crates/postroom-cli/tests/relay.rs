//! `postroom run`, alone in a folder.

use crate::command::Folder;
use postroom_testkit::{Behaviour, Receiver, Signal, eventually};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn without_a_configuration_it_serves_an_outbox_in_the_folder() {
    let folder = Folder::new();
    let id = folder.enqueue("stdout", &[]);
    let mut relay = folder.start(&["run"]);
    let line = relay.wait_for_line(&id, SOON).await;
    let message: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(message["payload"]["n"], 1);
    relay.signal(Signal::SIGTERM);
    assert!(relay.wait(SOON).await.success(), "{}", relay.stderr());
    let shown = folder.run(&["messages", "show", &id, "--json"]).json();
    assert_eq!(shown["status"], "SENT");
}

#[tokio::test]
async fn one_pass_delivers_what_is_due_and_says_what_it_did() {
    let folder = Folder::new();
    for _ in 0..5 {
        folder.enqueue("noop", &[]);
    }
    let pass = folder.run(&["run", "--once", "--limit", "3", "--json"]).json();
    assert_eq!((&pass["taken"], &pass["sent"]), (&3.into(), &3.into()), "{pass}");
    let answer = folder.run(&["run", "--once"]);
    assert_eq!((answer.code, answer.stdout.as_str()), (0, ""), "{answer:?}");
    assert!(answer.stderr.contains("\n2 taken: 2 sent"), "{answer:?}");
    assert!(folder.run(&["run", "--once"]).stderr.contains("\n0 taken"));
}

#[tokio::test]
async fn a_webhook_is_delivered_and_its_failure_is_recorded() {
    let folder = Folder::new();
    let receiver = Receiver::start();
    folder.write(
        "postroom.toml",
        &format!(
            "[integrations.\"webhook:a\"]\nurl = \"{}\"\nallow_addresses = [\"127.0.0.0/8\"]\n",
            receiver.url()
        ),
    );
    receiver.next([Behaviour::Answer(400)]);
    let rejected = folder.enqueue("webhook:a", &[]);
    folder.run(&["run", "--once"]).ok();
    let shown = folder.run(&["messages", "show", &rejected, "--json"]).json();
    assert_eq!(shown["status"], "DEAD", "{shown}");
    assert!(shown["last_error"].as_str().unwrap().contains("400 Bad Request"), "{shown}");
    let accepted = folder.enqueue("webhook:a", &[]);
    folder.run(&["run", "--once"]).ok();
    let shown = folder.run(&["messages", "show", &accepted, "--json"]).json();
    assert_eq!(shown["status"], "SENT", "{shown}");
}

#[tokio::test]
async fn it_serves_its_health_where_it_was_told() {
    let folder = Folder::new();
    folder.write("postroom.toml", "[integrations.noop]\n[server]\nlisten = \"127.0.0.1:0\"\n");
    let relay = folder.start(&["run"]);
    let line = relay.wait_for_line("serving /healthz", SOON).await;
    let address = line.rsplit("address=").next().unwrap().trim().to_owned();
    eventually("readiness", SOON, async || {
        get(&address, "/readyz").filter(|a| a.contains(" 200 "))
    })
    .await;
    assert!(get(&address, "/healthz").unwrap().contains("\"status\":\"ok\""));
    assert!(get(&address, "/metrics").unwrap().contains("# EOF"));
}

#[tokio::test]
async fn a_database_that_is_down_at_start_is_waited_for_and_said_to_be() {
    let folder = Folder::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    folder.write(
        "postroom.toml",
        &format!(
            "[database]\nurl = \"postgres://app:hunter2@{nobody}/shop\"\n\
             [server]\nlisten = \"127.0.0.1:0\"\n[integrations.noop]\n"
        ),
    );
    let mut relay = folder.start(&["run"]);
    let line = relay.wait_for_line("serving /healthz", SOON).await;
    let address = line.rsplit("address=").next().unwrap().trim().to_owned();
    relay.wait_for_line("the database cannot be used", SOON).await;
    let ready = get(&address, "/readyz").unwrap();
    assert!(ready.contains(" 503 ") && ready.contains("refused"), "{ready}");
    relay.signal(Signal::SIGINT);
    assert!(relay.wait(SOON).await.success());
    assert!(!relay.stderr().contains("hunter2"), "{}", relay.stderr());
    let answer = folder.run(&["run", "--once"]);
    assert_eq!(answer.code, 1, "one pass does not wait: {answer:?}");
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let folder = Folder::new();
    let receiver = Receiver::start();
    receiver.always(Behaviour::HoldResponse);
    folder.write(
        "postroom.toml",
        &format!(
            "[relay]\nstop_limit = \"10m\"\n\
             [integrations.\"webhook:a\"]\nurl = \"{}\"\ntimeout = \"10m\"\n\
             allow_addresses = [\"127.0.0.0/8\"]\n",
            receiver.url()
        ),
    );
    folder.enqueue("webhook:a", &[]);
    let mut relay = folder.start(&["run"]);
    receiver.wait_for(1, SOON).await;
    relay.signal(Signal::SIGTERM);
    relay.wait_for_line("stopping", SOON).await;
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.wait(SOON).await.code(), Some(1), "{}", relay.stderr());
}

#[tokio::test]
async fn an_address_in_use_is_a_failure_only_if_it_was_asked_for() {
    let folder = Folder::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("[server]\nlisten = \"{}\"\n", taken.local_addr().unwrap());
    folder.write("postroom.toml", &listen);
    let answer = folder.run(&["run"]);
    assert_eq!(answer.code, 1);
    assert!(answer.stderr.contains("set [server] listen"), "{}", answer.stderr);
}

#[tokio::test]
async fn logs_can_be_json() {
    let folder = Folder::new();
    let relay = folder.start(&["run", "--log-format", "json"]);
    let line = relay.wait_for_line("the relay runs", SOON).await;
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["fields"]["database"], "sqlite://postroom.db");
}

/// One GET over a plain socket; `None` when nobody answers.
fn get(address: &str, path: &str) -> Option<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
