//! Runs `postroom` in a folder of its own.

use postroom_testkit::Process;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder to run commands in.
pub(crate) struct Folder(tempfile::TempDir);

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// The output of a command that must have succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// The same, as JSON.
    pub(crate) fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and returns where it is.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The command, ready to run here and in a clean environment.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postroom"));
        command.args(args).current_dir(self.path()).env_clear().env("PATH", "/usr/bin:/bin");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Answer {
        let Output { status, stdout, stderr } = self.command(args).output().unwrap();
        Answer {
            code: status.code().unwrap_or(-1),
            stdout: String::from_utf8(stdout).unwrap(),
            stderr: String::from_utf8(stderr).unwrap(),
        }
    }

    /// Starts a command that goes on by itself.
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        Process::spawn(&mut self.command(args))
    }

    /// Enqueues a message and returns its id. The outbox is made first if it is not there.
    pub(crate) fn enqueue(&self, to: &str, more: &[&str]) -> String {
        let args = ["enqueue", "--to", to, "--type", "t", "--payload", "{\"n\":1}", "--json"];
        let args = [&args[..], more].concat();
        let mut answer = self.run(&args);
        if answer.code == 1 && answer.stderr.contains("postroom migrate") {
            let at = more.iter().position(|word| *word == "--database");
            let database = at.map_or(&[][..], |at| &more[at..at + 2]);
            self.run(&[&["migrate"], database].concat()).ok();
            answer = self.run(&args);
        }
        answer.json()["id"].as_str().unwrap().to_owned()
    }
}
