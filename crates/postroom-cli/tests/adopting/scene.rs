//! One of the examples on a database of its own, with relays and a receiver that fails on purpose.

use crate::command::Folder;
use crate::docs::pages::root;
use postroom_testkit::{
    Behaviour, OrSkip as _, Postgres, Process, Receiver, Redis, Request, TestDatabase, node_with,
    python_with,
};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use toml::{Table, Value};

/// How the rows of an example come about.
#[derive(Clone, Copy)]
pub(super) enum Producer {
    Node,
    Python,
}

pub(super) struct Scene {
    example: PathBuf,
    pub(super) database: TestDatabase,
    pub(super) receiver: Receiver,
    folder: Folder,
    redis: Option<Redis>,
}

impl Scene {
    /// Makes the table as its owner does, and the ledger beside it.
    pub(super) async fn set(example: &str) -> Self {
        let example = root().join("examples/adopting").join(example);
        let table = read(&example.join("table.sql"));
        Self::with_table(example, &table).await
    }

    /// The same with another statement for the table.
    pub(super) async fn with_table(example: PathBuf, table: &str) -> Self {
        let database = Postgres::shared().await.database().await;
        database.client().await.batch_execute(table).await.unwrap();
        let configuration: Table = read(&example.join("postroom.toml")).parse().unwrap();
        let redis = match configuration.contains_key("redis") {
            true => Some(Redis::private(&[]).await.or_skip()),
            false => None,
        };
        let (receiver, folder) = (Receiver::start(), Folder::new());
        let scene = Self { example, database, receiver, folder, redis };
        let configuration = scene.sped_up(configuration);
        scene.folder.write("postroom.toml", &configuration.to_string());
        scene.run(&["migrate"]);
        scene.run(&["check"]);
        scene
    }

    /// The example's own configuration, but for what a test cannot have: its delays, and its destinations, which
    /// are the receiver.
    fn sped_up(&self, mut configuration: Table) -> Table {
        let relay = table(&mut configuration, "relay");
        relay.insert("claim_time".into(), "2s".into());
        let retry = table(relay, "retry");
        for (key, value) in [("base", "50ms"), ("cap", "200ms"), ("jitter", "0s")] {
            retry.insert(key.into(), value.into());
        }
        relay.remove("dead_letter");
        table(&mut configuration, "server").insert("listen".into(), "127.0.0.1:0".into());
        if let Some(redis) = &self.redis {
            let url = format!("redis://{}", redis.address());
            table(&mut configuration, "redis").insert("url".into(), url.into());
        }
        let integrations = std::mem::take(table(&mut configuration, "integrations"));
        let integrations = integrations.into_iter().map(|(name, mut keys)| {
            let keys = keys.as_table_mut().unwrap();
            keys.remove("subject");
            if !keys.contains_key("workers") {
                keys.insert("url".into(), self.receiver.url().into());
                keys.insert("allow_addresses".into(), Value::Array(vec!["127.0.0.0/8".into()]));
                keys.insert("concurrency".into(), 32.into());
            }
            (webhook(&name), Value::Table(keys.clone()))
        });
        let integrations = integrations.collect();
        *table(&mut configuration, "integrations") = integrations;
        let database = table(&mut configuration, "database");
        if let Some(to) = database.get_mut("to") {
            *to = webhook(to.as_str().unwrap()).into();
        }
        let routes = database.get_mut("routes").and_then(Value::as_array_mut);
        for route in routes.into_iter().flatten() {
            let to = webhook(route["to"].as_str().unwrap());
            route.as_table_mut().unwrap().insert("to".into(), to.into());
        }
        configuration
    }

    fn environment(&self, command: &mut Command) {
        command.env("DATABASE_URL", self.database.url());
        for name in ["PARTNERX_URL", "EVENTS_URL", "NATS_URL", "ORDERS_URL", "FULFILMENT_URL"] {
            command.env(name, self.receiver.url());
        }
    }

    /// What has been delivered. A check asks a receiver too, and sends nothing.
    pub(super) fn deliveries(&self) -> Vec<Request> {
        let requests = self.receiver.requests().into_iter();
        requests.filter(|request| request.method == "POST").collect()
    }

    /// Runs a command that ends by itself, and returns what it printed.
    pub(super) fn run(&self, words: &[&str]) -> String {
        let mut command = self.folder.command(words);
        self.environment(&mut command);
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{words:?}: {printed}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        printed
    }

    pub(super) fn relay(&self) -> Process {
        let mut command = self.folder.command(&["run"]);
        self.environment(&mut command);
        Process::spawn(&mut command)
    }

    /// Starts the example's own producer.
    pub(super) fn produce(&self, producer: Producer, count: usize) -> Process {
        let mut command = match producer {
            Producer::Python => {
                let mut command = Command::new(python_with(&["psycopg[binary]==3.2.10"]).or_skip());
                command.arg(self.example.join("producer.py"));
                command
            }
            // Modules are looked for beside the script.
            Producer::Node => {
                let modules = node_with(&["pg@8.13.1"]).or_skip().join("node_modules");
                let link = self.folder.path().join("node_modules");
                std::os::unix::fs::symlink(modules, link).unwrap();
                let script = read(&self.example.join("producer.mjs"));
                let mut command = Command::new("node");
                command.arg(self.folder.write("producer.mjs", &script));
                command
            }
        };
        command.arg(count.to_string()).env("DATABASE_URL", self.database.url());
        Process::spawn(&mut command)
    }

    /// The owner's statement of this name.
    fn statement(&self, name: &str) -> String {
        let text = read(&self.example.join("state.sql"));
        let named = text.split("\n\n").find_map(|part| part.strip_prefix(&format!("-- {name}\n")));
        named.unwrap_or_else(|| panic!("state.sql has no {name:?}")).trim().to_owned()
    }

    /// What the owner's statement of this name counts.
    pub(super) async fn count(&self, name: &str) -> i64 {
        let client = self.database.client().await;
        client.query_one(&self.statement(name), &[]).await.unwrap().get(0)
    }

    /// How many rows the owner's statement finds, or writes to.
    pub(super) async fn rows(&self, name: &str) -> u64 {
        let client = self.database.client().await;
        client.execute(&self.statement(name), &[]).await.unwrap()
    }

    /// What the owner counts by status.
    pub(super) async fn by_status(&self) -> HashMap<String, i64> {
        let client = self.database.client().await;
        let rows = client.query(&self.statement("by status"), &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Fails in turn: every tenth request is answered with 503, every 97th with a reset connection after the
    /// work was done, and each of `refused` with 422, for good.
    pub(super) fn script_failures(&self, requests: usize, refused: &[usize]) {
        self.receiver.next((0..requests).map(|number| match number {
            number if refused.contains(&number) => Behaviour::Answer(422),
            number if number % 97 == 96 => Behaviour::ResetAfterWork,
            number if number % 10 == 9 => Behaviour::Answer(503),
            _ => Behaviour::Accept,
        }));
    }
}

/// Whatever the sink, these tests receive webhooks.
fn webhook(name: &str) -> String {
    let (_, channel) = name.split_once(':').unwrap();
    format!("webhook:{channel}")
}

fn table<'a>(parent: &'a mut Table, key: &str) -> &'a mut Table {
    let entry = parent.entry(key).or_insert_with(|| Value::Table(Table::new()));
    entry.as_table_mut().unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
