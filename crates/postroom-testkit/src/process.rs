//! A program in a process of its own, to read from, signal and kill.

use crate::eventually::within;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use nix::sys::signal::Signal;

/// A running program whose output is kept line by line. It is killed when the value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl Process {
    /// Starts `command`; its standard input is closed unless the command says otherwise. The
    /// program does not see this process's `DATABASE_URL`, which names the server of the tests,
    /// unless the command sets it.
    ///
    /// ```no_run
    /// # use postroom_testkit::Process; use std::process::Command;
    /// let relay = Process::spawn(Command::new("postroom").args(["run", "--config", "relay.toml"]));
    /// ```
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn spawn(command: &mut Command) -> Self {
        hide_database(command);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("starting {}: {error}", program(command)));
        let stdout = Lines::follow(child.stdout.take());
        let stderr = Lines::follow(child.stderr.take());
        Self { child, stdout, stderr }
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard output so far, in whole lines.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// What it has written to standard error so far, in whole lines.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits for the first line that contains `part`, on either stream, and returns it.
    ///
    /// # Panics
    /// When there is none within `deadline`; the message holds what the program did write.
    pub async fn wait_for_line(&self, part: &str, deadline: Duration) -> String {
        let look = async || self.stdout.find(part).or_else(|| self.stderr.find(part));
        match within(deadline, look).await {
            Some(line) => line,
            None => panic!("no line with {part:?} within {deadline:?}\n{}", self.output()),
        }
    }

    /// Kills it with SIGKILL and waits until it is gone; it has no chance to say goodbye.
    ///
    /// # Panics
    /// When it cannot be signalled.
    pub fn kill9(&mut self) -> ExitStatus {
        self.child.kill().expect("SIGKILL to a child of ours");
        self.child.wait().expect("waiting for a child of ours")
    }

    /// Sends a signal, e.g. [`Signal::SIGSTOP`], [`Signal::SIGCONT`] or [`Signal::SIGTERM`].
    ///
    /// # Panics
    /// When it has ended already.
    pub fn signal(&mut self, signal: Signal) {
        let ended = self.child.try_wait().expect("waiting for a child of ours");
        assert!(ended.is_none(), "{signal} to a process that has ended\n{}", self.output());
        let pid = i32::try_from(self.child.id()).expect("process ids are positive");
        kill(Pid::from_raw(pid), signal).expect("signalling a child of ours");
    }

    /// Waits until it has ended by itself.
    ///
    /// # Panics
    /// When it has not within `deadline`; the message holds what the program wrote.
    pub async fn wait(&mut self, deadline: Duration) -> ExitStatus {
        let child = &mut self.child;
        let look = async || child.try_wait().expect("waiting for a child of ours");
        let Some(status) = within(deadline, look).await else {
            panic!("still running after {deadline:?}\n{}", self.output());
        };
        // What it wrote last may still be on its way through the pipes; a program that it started
        // in turn may keep them open for longer than anyone wants to wait.
        let read = async || (self.stdout.is_closed() && self.stderr.is_closed()).then_some(());
        within(deadline, read).await;
        status
    }

    fn output(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}", self.stdout(), self.stderr())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of one stream, filled by a thread of its own so that the pipe never runs full.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Written>>);

#[derive(Debug, Default)]
struct Written {
    lines: Vec<String>,
    closed: bool,
}

impl Lines {
    fn follow(stream: Option<impl Read + Send + 'static>) -> Self {
        let lines = Self::default();
        let (writer, stream) = (lines.clone(), stream.expect("the stream was asked to be piped"));
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                writer.written().lines.push(text);
                line.clear();
            }
            writer.written().closed = true;
        });
        lines
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, part: &str) -> Option<String> {
        self.written().lines.iter().find(|line| line.contains(part)).cloned()
    }

    fn text(&self) -> String {
        self.written().lines.join("\n")
    }

    fn is_closed(&self) -> bool {
        self.written().closed
    }
}

/// Keeps `DATABASE_URL` from a program that would take it for its outbox, unless the command sets it.
pub(crate) fn hide_database(command: &mut Command) -> &mut Command {
    if command.get_envs().all(|(name, _)| name != "DATABASE_URL") {
        command.env_remove("DATABASE_URL");
    }
    command
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
