//! A table of somebody else's, what Postroom makes of it, and a receiver for its rows.

use crate::command::Folder;
use crate::faults_outbox::SOON;
use postroom_testkit::{Behaviour, Process, Receiver, Request, eventually};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

pub(super) const ROWS: usize = 1_000;

/// The database that the table is in.
pub(super) trait Adopted {
    fn url(&self) -> &str;

    /// A Python that its producers run in.
    fn python(&self) -> PathBuf;

    /// What a question of the project's own finds.
    async fn count(&self, sql: &str) -> i64;
}

pub(super) struct Scene<D> {
    pub(super) database: D,
    receiver: Receiver,
    folder: Folder,
}

impl<D: Adopted> Scene<D> {
    pub(super) fn of(database: D) -> Self {
        Self { database, receiver: Receiver::start(), folder: Folder::new() }
    }

    /// Runs a command that must succeed, and returns what it printed.
    pub(super) fn run(&self, words: &[&str]) -> String {
        let output = self.folder.command(words).env("DATABASE_URL", self.database.url()).output();
        let output = output.unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {printed}{errors}");
        printed
    }

    /// Adopts the table: the proposal with what the user has to choose, which is where its rows go.
    pub(super) fn adopt(
        &self,
        table: &str,
        chosen: &[(&str, &str)],
        integrations: &[&str],
    ) -> String {
        let mut text = self.run(&["adopt", table]);
        for (proposed, instead) in chosen {
            assert!(text.contains(proposed), "no {proposed} in\n{text}");
            text = text.replace(proposed, instead);
        }
        text.push_str("\n[relay]\nclaim_time = \"2s\"\n");
        text.push_str("retry = { base = \"50ms\", cap = \"200ms\", jitter = \"0s\" }\n");
        text.push_str("[server]\nlisten = \"127.0.0.1:0\"\n");
        for name in integrations {
            text.push_str(&format!(
                "[integrations.\"{name}\"]\nurl = \"{}\"\nallow_addresses = [\"127.0.0.0/8\"]\n",
                self.receiver.url()
            ));
        }
        self.folder.write("postroom.toml", &text);
        self.run(&["migrate", "--dry-run"]);
        self.run(&["migrate"]);
        self.run(&["check"]);
        text
    }

    pub(super) fn relay(&self) -> Process {
        let mut command = self.folder.command(&["run"]);
        Process::spawn(command.env("DATABASE_URL", self.database.url()))
    }

    /// Runs a producer to its end. It inserts as the project does.
    pub(super) async fn produce(&self, script: &str) {
        let mut command = Command::new(self.database.python());
        command.arg(self.folder.write("producer.py", script)).arg(ROWS.to_string());
        let mut producer = Process::spawn(command.env("DATABASE_URL", self.database.url()));
        assert!(producer.wait(SOON).await.success(), "{}", producer.stderr());
    }

    /// What has been delivered. A check asks a receiver too, and sends nothing.
    pub(super) fn deliveries(&self) -> Vec<Request> {
        let requests = self.receiver.requests().into_iter();
        requests.filter(|request| request.method == "POST").collect()
    }

    pub(super) async fn count(&self, sql: &str) -> i64 {
        self.database.count(sql).await
    }

    /// Waits until the project's own question finds nothing, and checks what has arrived.
    pub(super) async fn everything_arrives(&self, unsent: &str) {
        eventually("nothing unsent", SOON, async || (self.count(unsent).await == 0).then_some(()))
            .await;
        let numbers: BTreeSet<u64> =
            self.deliveries().iter().map(|one| one.json()["n"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..ROWS as u64).collect());
    }

    pub(super) fn fail_now_and_then(&self) {
        self.receiver.next((0..3 * ROWS).map(|number| match number % 10 {
            9 => Behaviour::Answer(503),
            _ => Behaviour::Accept,
        }));
    }
}
