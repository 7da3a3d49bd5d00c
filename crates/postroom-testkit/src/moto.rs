//! Amazon's services for tests: moto, and Amazon's own library for Python as another client.

use crate::guarded::{Guarded, Kind, on_free_port, shared_or_reason};
use crate::python_with;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// As root: its interpreter is in the cache of whoever runs the tests.
const KIND: Kind = Kind { name: "moto", prefix: "postroom-moto-", user: "root", crash: "KILL" };
const START_LIMIT: Duration = Duration::from_secs(60);
const PACKAGES: &[&str] = &["moto[server]==5.2.5", "boto3==1.44.0", "waitress==3.0.2"];

/// A private server that answers as SQS and SNS do; it ends with the process that started it, or
/// with the value.
#[derive(Debug)]
pub struct Moto {
    _guarded: Guarded,
    port: u16,
    client: Mutex<Client>,
}

/// A program that calls Amazon's library. It ends when its standard input does.
#[derive(Debug)]
struct Client {
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Moto {
    /// The server that all tests of this process share.
    ///
    /// # Errors
    /// When it cannot be had, for a skip.
    pub async fn shared() -> Result<&'static Self, String> {
        static SHARED: OnceLock<Result<Moto, String>> = OnceLock::new();
        shared_or_reason(&SHARED, Self::start).await.map_err(str::to_owned)
    }

    fn start() -> anyhow::Result<Self> {
        let python = python_with(PACKAGES)?;
        let guarded = Guarded::new(KIND)?;
        let script = guarded.folder().join("server.py");
        fs::write(&script, include_str!("moto/server.py")).context("the server's script")?;
        let port = on_free_port(
            |port| {
                let mut command = Command::new(&python);
                command.arg(&script).arg(port.to_string());
                let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
                guarded.start(&command, START_LIMIT, listens)
            },
            || guarded.log_end().contains("Address already in use"),
        )?;
        let client = Mutex::new(Client::start(&python, guarded.folder(), port)?);
        Ok(Self { _guarded: guarded, port, client })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// What Amazon's own library answers to a call, such as `sqs`, `create_queue`.
    ///
    /// # Panics
    /// When the service answers with an error.
    pub fn call(&self, service: &str, operation: &str, arguments: &Value) -> Value {
        let call = json!({"service": service, "operation": operation, "arguments": arguments});
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = client.call(&call).unwrap_or_else(|error| panic!("{operation}: {error:#}"));
        assert!(answer["Error"].is_null(), "{operation}: {}", answer["Error"]);
        answer
    }
}

impl Client {
    fn start(python: &Path, folder: &Path, port: u16) -> anyhow::Result<Self> {
        let script = folder.join("client.py");
        fs::write(&script, include_str!("moto/client.py")).context("the client's script")?;
        let mut child = Command::new(python)
            .arg(&script)
            .arg(format!("http://127.0.0.1:{port}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the client of moto")?;
        let stdin = child.stdin.take().context("its standard input is piped")?;
        let stdout = child.stdout.take().context("its standard output is piped")?;
        Ok(Self { _child: child, stdin, stdout: BufReader::new(stdout) })
    }

    fn call(&mut self, call: &Value) -> anyhow::Result<Value> {
        writeln!(self.stdin, "{call}")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the client has ended");
        Ok(serde_json::from_str(&line)?)
    }
}
