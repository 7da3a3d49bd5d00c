//! Workers that somebody wrote in Python, with the `bullmq` of PyPI.

use crate::servers::LONG;
use crate::transport::outbox::external;
use postroom_bullmq::Part;
use postroom_testkit::{OrSkip as _, Process, Redis, python_with};
use std::path::Path;
use std::process::Command;

/// `UnrecoverableError` means the same in both languages, and any other error is a failed attempt.
#[tokio::test]
async fn an_unrecoverable_error_in_python_is_dead_too() {
    let server = Redis::shared().await;
    let python = python_with(&["bullmq==3.4.4"]).or_skip();
    let outbox = external(server.address());
    let failing = outbox.enqueue(&outbox.message("fail", 2)).await;
    let never = outbox.enqueue(&outbox.message("never", 9)).await;
    let sent = outbox.enqueue(&outbox.message("order.created", 9)).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/worker.py");
    let mut command = Command::new(python);
    command.arg(script).arg(outbox.queue().name()).arg(server.address().port().to_string());
    let worker = Process::spawn(&mut command);
    worker.wait_for_line("ready", LONG).await;
    let relay = outbox.start(Part::Relay);
    for (id, attempts) in [(never, 1), (failing, 2)] {
        let record = outbox.wait(&id, "DEAD").await;
        assert_eq!(record.message.attempts, attempts);
        assert_eq!(record.last_error.as_deref(), Some("not today"));
    }
    assert_eq!(outbox.wait(&sent, "SENT").await.message.attempts, 0);
    relay.stop().await;
}
