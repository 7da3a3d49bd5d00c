//! What nobody may read in a log, a metric or an error.

use crate::faults_outbox::{Outbox, SOON, webhook};
use postroom::{NewMessage, enqueue};
use postroom_testkit::{Behaviour, Receiver};
use std::time::Duration;

const SECRET: &str = "4111-1111-1111-1111";

#[tokio::test]
async fn no_payload_is_in_the_log_or_in_an_error_whatever_the_receiver_does() {
    let outbox = Outbox::postgres().await;
    let receiver = Receiver::start();
    receiver.next([
        Behaviour::Answer(500),
        Behaviour::ResetAfterWork,
        Behaviour::RespondSlowly(Duration::from_secs(3_600)),
        Behaviour::Answer(400),
    ]);
    let mut client = outbox.client().await;
    let mut tx = client.transaction().await.unwrap();
    let message = NewMessage::new("webhook:a", "card.charged.v1")
        .json(&serde_json::json!({ "card": SECRET }))
        .headers(&serde_json::json!({ "x-card": SECRET }));
    let id = enqueue(&mut tx, message).await.unwrap().id();
    tx.commit().await.unwrap();

    let lane = webhook(&receiver, "").replace("timeout = \"5m\"", "timeout = \"300ms\"");
    let relay = outbox.relay("", &lane);
    let dead = outbox.wait_for(id, "DEAD").await;
    assert_eq!(receiver.count(), 4);
    let error = dead.last_error.unwrap();
    assert!(error.contains("400 Bad Request") && !error.contains(SECRET), "{error}");
    // The log has the errors of all four attempts.
    relay.wait_for_line("phase=\"DEAD\"", SOON).await;
    let log = relay.stderr();
    assert_eq!(log.matches("phase=\"FAILED\"").count(), 3, "{log}");
    assert!(!log.contains(SECRET), "{log}");
}

#[tokio::test]
async fn a_database_password_is_in_no_line_of_a_relay_that_cannot_connect() {
    let outbox = Outbox::mariadb().await;
    let url = outbox.url().replace("root@", &format!("app:{SECRET}@"));
    let folder = outbox.folder();
    let config = folder.write("wrong.toml", &format!("[database]\nurl = \"{url}\"\n"));
    let config = config.display().to_string();
    for command in ["run", "check", "stats", "migrate"] {
        let answer = folder.run(&[command, "--config", &config]);
        assert_ne!(answer.code, 0, "{command}: {answer:?}");
        let said = format!("{}{}", answer.stdout, answer.stderr);
        assert!(said.contains("Access denied"), "{command}: {said}");
        assert!(!said.contains(SECRET), "{command}: {said}");
    }
}
