//! Programs with the official clients in Node and Python.

use super::report::Report;
use super::servers::Servers;
use postroom_testkit::KurrentDbClient;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long a program may be silent. It limits each of its features itself, to less.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Runs the program of a client, for all its features.
///
/// # Errors
/// Why it cannot run here, for a skip.
pub(crate) async fn prove_all(
    client: KurrentDbClient,
    mut servers: Servers,
) -> Result<Report, String> {
    let main = match client {
        KurrentDbClient::Node => "tests/node/conformance/main.mjs",
        KurrentDbClient::Python => "tests/python/conformance/main.py",
    };
    let (script, options) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(main), servers.options());
    // It may install packages, which blocks.
    let command = tokio::task::spawn_blocking(move || client.script(&script, &options));
    let command = command.await.unwrap().map_err(|error| format!("{error:#}"))?;
    let mut command = Command::from(command);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    // Python's transport writes of every handshake that fails, which some have to.
    command.env("GRPC_VERBOSITY", "NONE");
    if let Some(wanted) = std::env::var_os("POSTROOM_CONFORMANCE_FEATURES") {
        command.args(wanted.to_string_lossy().split_whitespace());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    Ok(follow(command.spawn().unwrap(), &mut servers).await)
}

/// Reads what a program reports, and does what it asks for, until its end.
async fn follow(mut program: Child, servers: &mut Servers) -> Report {
    let mut answers = program.stdin.take().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut report = Report::default();
    loop {
        let line = match timeout(SILENCE_MAX, lines.next_line()).await {
            Ok(line) => line.unwrap(),
            Err(_) => break report.add("program", Err(format!("silent for {SILENCE_MAX:?}"))),
        };
        let Some(line) = line else {
            break report.add("program", Err("ended before it said so".to_owned()));
        };
        // A client may write lines of its own.
        let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
        if let Some(feature) = line["feature"].as_str() {
            let error = line["error"].as_str().unwrap_or("no reason").to_owned();
            report.add(feature, if line["ok"] == true { Ok(()) } else { Err(error) });
        } else if let Some(wish) = line["ask"].as_str() {
            match wish {
                "stop" => servers.stop().await,
                "start" => servers.start_again().await,
                other => panic!("the program asks for {other:?}"),
            }
            answers.write_all(b"done\n").await.unwrap();
        } else if line["end"] == true {
            break;
        }
    }
    report
}
