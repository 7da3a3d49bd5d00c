//! The sink for standard output in a process of its own, whose output is read through a pipe.

use crate::destination::refused;
use crate::messages::deliver;
use crate::page;
use crate::whole::{NOWHERE, received};
use async_trait::async_trait;
use postroom_core::{Message, Outcome, RawJson, Report, Sink};
use postroom_sinks::StdoutSink;
use postroom_testkit::Proxy;
use postroom_testkit::sink_contract::{Received, SinkHarness, deliver_all, message};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Tells the process that it is one.
const PROCESS: &str = "POSTROOM_TEST_STDOUT";
/// Begins the lines on standard error that are outcomes.
const OUTCOME: &str = "outcome ";
/// Says on standard error that a delivery is no longer waited for.
const GIVEN_UP: &str = "given up";

/// What differs between the contract's messages.
type Sent = (String, String, String, String, i32, String, Option<String>);
/// A class, and why.
type Said = (String, String);

/// Not a test but the process itself; as a test it does nothing.
#[tokio::test]
async fn delivers() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    let sent: Vec<Sent> = serde_json::from_reader(std::io::stdin()).unwrap();
    let batch: Vec<Message> = sent.into_iter().map(made).collect();
    for outcome in deliver(&*page::sink("stdout", json!({})), &batch).await {
        let (class, error) = match outcome {
            Outcome::Delivered => ("delivered", String::new()),
            Outcome::Reject { error } => ("reject", error),
            Outcome::Refuse { error } => ("refuse", error),
            other => ("other", format!("{other:?}")),
        };
        eprintln!("{OUTCOME}{}", serde_json::to_string(&(class, error)).unwrap());
    }
}

/// Another process: gives up on a message whose line does not go out, and delivers the next.
#[tokio::test]
async fn gives_up_on_one() {
    if std::env::var_os(PROCESS).is_none() {
        return;
    }
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let sink = page::sink("stdout", json!({}));
    let payload = RawJson::trusted(format!("\"{}\"", "x".repeat(5 << 20)));
    let large = [Message { payload, ..message("large") }];
    let delivery = deliver(&*sink, &large);
    let given_up = tokio::time::timeout(Duration::from_secs(1), delivery).await;
    assert!(given_up.is_err(), "nobody reads, and it does not fit into a pipe");
    eprintln!("{GIVEN_UP}");
    assert_eq!(deliver(&*sink, &[message("next")]).await, [Outcome::Delivered]);
}

fn sent(message: &Message) -> Sent {
    let Message { id, event_id, stream_id, integration, payload, headers, copy, .. } =
        message.clone();
    let headers = headers.map(|headers| headers.as_str().to_owned());
    let payload = payload.as_str().to_owned();
    (event_id, id.to_string(), stream_id, integration, copy, payload, headers)
}

fn made((event_id, id, stream_id, integration, copy, payload, headers): Sent) -> Message {
    Message {
        id: id.parse().unwrap(),
        stream_id,
        integration,
        copy,
        payload: RawJson::trusted(payload),
        headers: headers.map(RawJson::trusted),
        ..message(&event_id)
    }
}

/// Starts one of the processes. The test harness in it has begun, and waits for its input.
fn start_process(test: &str) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    // With one thread, the name of the test would stand before the first line.
    command.args(["--exact", test, "--nocapture", "--test-threads", "2"]);
    command.env(PROCESS, "").stdin(Stdio::piped());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("running") {
        line.clear();
        assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the process ended");
    }
    (process, stdout)
}

/// Delivers through the process, and returns what it has written and what it says about it.
fn through_process(batch: &[Message], is_read: bool) -> (Vec<String>, Vec<Outcome>) {
    let (mut process, stdout) = start_process("stdout::delivers");
    let mut stdout = Some(stdout).filter(|_| is_read);
    let sent: Vec<Sent> = batch.iter().map(sent).collect();
    let input = serde_json::to_vec(&sent).unwrap();
    process.stdin.take().unwrap().write_all(&input).unwrap();
    let mut written = String::new();
    if let Some(stdout) = &mut stdout {
        stdout.read_to_string(&mut written).unwrap();
    }
    let output = process.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let said = said.lines().filter_map(|line| line.strip_prefix(OUTCOME));
    let outcomes = said.map(|line| outcome(serde_json::from_str(line).unwrap())).collect();
    let is_message = |line: &&str| line.starts_with('{');
    (written.lines().filter(is_message).map(str::to_owned).collect(), outcomes)
}

fn outcome((class, error): Said) -> Outcome {
    match class.as_str() {
        "delivered" => Outcome::Delivered,
        "reject" => Outcome::reject(error),
        "refuse" => Outcome::refuse(error),
        _ => Outcome::retry(error),
    }
}

/// What the processes have written.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<String>>>);

async fn start() -> Pipe {
    Pipe::default()
}

/// Hands each batch to a process.
#[async_trait]
impl Sink for Pipe {
    async fn deliver(&self, batch: &[Message], report: &Report<'_>) {
        let batch = batch.to_vec();
        let through = tokio::task::spawn_blocking(move || through_process(&batch, true));
        let (written, outcomes) = through.await.unwrap();
        self.0.lock().unwrap().extend(written);
        for (index, outcome) in outcomes.into_iter().enumerate() {
            report.outcome(index, outcome);
        }
    }

    async fn probe(&self) -> Result<(), postroom_core::ProbeError> {
        StdoutSink.probe().await
    }
}

impl SinkHarness for Pipe {
    fn name(&self) -> &'static str {
        "stdout"
    }

    fn server(&self) -> SocketAddr {
        NOWHERE
    }

    fn proxy(&self) -> Result<Proxy, &'static str> {
        Err("nothing stands between a sink and its standard output")
    }

    async fn sink(&self, _: SocketAddr) -> Arc<dyn Sink> {
        Arc::new(self.clone())
    }

    async fn received(&self) -> Vec<Received> {
        let lines = self.0.lock().unwrap();
        lines.iter().map(|line| received(&serde_json::from_str(line).unwrap())).collect()
    }

    fn bad(&self) -> Result<Message, &'static str> {
        Ok(Message { payload: RawJson::trusted("{oops"), ..message("bad") })
    }

    fn oversized(&self) -> Result<Message, &'static str> {
        Err("a line may be as long as its reader takes")
    }
}

postroom_testkit::sink_contract_tests!(start);

#[tokio::test]
async fn a_reader_that_is_gone_pauses_the_lane() {
    let (_, outcomes) = through_process(&[message("e-1"), message("e-2")], false);
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes.iter().all(|outcome| refused(outcome).contains("a reader")), "{outcomes:?}");
}

#[test]
fn a_line_that_nobody_waits_for_any_more_is_finished_before_the_next() {
    let (mut process, mut stdout) = start_process("stdout::gives_up_on_one");
    drop(process.stdin.take());
    let mut said = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line == GIVEN_UP), "the process ended");
    let mut written = String::new();
    stdout.read_to_string(&mut written).unwrap();
    let lines = written.lines().filter(|line| line.starts_with('{'));
    let lines = lines.map(|line| received(&serde_json::from_str(line).unwrap()).key);
    assert_eq!(lines.collect::<Vec<_>>(), ["large", "next"]);
    assert!(process.wait().unwrap().success(), "{:?}", said.collect::<Vec<_>>());
}

#[tokio::test]
async fn lines_of_one_batch_come_in_its_order() {
    let pipe = start().await;
    let batch: Vec<_> = (0..300).map(|n| message(&format!("e-{n}"))).collect();
    assert_eq!(deliver_all(&pipe, &batch).await, vec![Outcome::Delivered; 300]);
    let keys: Vec<_> = pipe.received().await.into_iter().map(|one| one.key).collect();
    let expected: Vec<_> = batch.into_iter().map(|one| one.event_id).collect();
    assert_eq!(keys, expected);
}
