//! Which outbox a command works on, and that it says so.

use crate::command::Folder;
use postroom_testkit::{Postgres, Process};
use std::path::Path;
use std::time::Duration;

/// Runs a command with `DATABASE_URL`; its output and its standard error.
fn run(folder: &Folder, url: &str, args: &[&str]) -> (bool, String, String) {
    let output = folder.command(args).env("DATABASE_URL", url).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn exists(folder: &Folder, file: &str) -> bool {
    Path::new(folder.path()).join(file).exists()
}

#[test]
fn the_command_line_comes_before_the_environment_and_that_before_the_file() {
    let folder = Folder::new();
    let (ok, _, stderr) = run(&folder, "sqlite://variable.db", &["migrate"]);
    assert!(ok && stderr.contains("outbox: sqlite://variable.db (DATABASE_URL)"), "{stderr}");
    assert!(exists(&folder, "variable.db") && !exists(&folder, "postroom.db"));

    folder.write("postroom.toml", "[database]\nurl = \"sqlite://file.db\"\n[integrations.noop]\n");
    let (ok, _, stderr) = run(&folder, "sqlite://variable.db", &["stats"]);
    assert!(ok && stderr.contains("outbox: sqlite://variable.db (DATABASE_URL)"), "{stderr}");
    let both = ["migrate", "--database", "sqlite://option.db"];
    let (ok, _, stderr) = run(&folder, "sqlite://variable.db", &both);
    assert!(ok && stderr.contains("outbox: sqlite://option.db (--database)"), "{stderr}");
    assert!(exists(&folder, "option.db"));

    let answer = folder.run(&["migrate"]);
    assert!(answer.stderr.contains("outbox: sqlite://file.db (postroom.toml)"), "{answer:?}");
    assert!(exists(&folder, "file.db"));
    // Set to nothing is not set.
    let (ok, _, stderr) = run(&folder, " ", &["check"]);
    assert!(ok && stderr.contains("outbox: sqlite://file.db (postroom.toml)"), "{stderr}");
}

#[test]
fn a_variable_that_names_no_database_is_a_fault_that_names_it() {
    let folder = Folder::new();
    let output = folder.command(&["stats"]).env("DATABASE_URL", "mongodb://u:hunter2@x").output();
    let output = output.unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("DATABASE_URL") && stderr.contains("unset DATABASE_URL"), "{stderr}");
    assert!(!stderr.contains("hunter2"), "{stderr}");
}

#[test]
fn every_command_says_which_outbox_it_works_on_and_json_is_left_alone() {
    let folder = Folder::new();
    folder.run(&["migrate"]).ok();
    let id = folder.enqueue("noop", &[]);
    for args in [
        &["migrate"][..],
        &["stats"],
        &["check"],
        &["reconcile"],
        &["run", "--once"],
        &["enqueue", "--to", "noop", "--type", "t", "--payload", "1"],
        &["messages", "list"],
        &["messages", "show", &id],
        &["messages", "redrive", "--all"],
        &["messages", "replay", &id],
        &["messages", "release", "--all"],
        &["messages", "cancel", "--all"],
        &["messages", "prune", "--older-than", "1d"],
        &["messages", "actions"],
        &["messages", "watch", "--count", "1"],
    ] {
        let answer = folder.run(args);
        assert_eq!(answer.code, 0, "{args:?}: {answer:?}");
        let line = "outbox: sqlite://postroom.db (default)";
        assert!(answer.stderr.lines().any(|said| said == line), "{args:?}: {}", answer.stderr);
        assert!(!answer.stdout.contains("outbox:"), "{args:?}");
        let answer = folder.run(&[args, &["--json"]].concat());
        assert!(!answer.stderr.contains("outbox:"), "{args:?}: {}", answer.stderr);
    }
    let demo = folder.run(&["demo", "--messages", "5"]);
    assert!(demo.stderr.contains("outbox: a temporary SQLite file"), "{}", demo.stderr);
}

#[test]
fn a_password_is_not_said() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = Folder::new();
    let url = format!("postgres://app:hunter2@{nobody}/shop");
    let (ok, _, stderr) = run(&folder, &url, &["stats"]);
    assert!(!ok && stderr.contains(&format!("outbox: postgres://{nobody}/shop")), "{stderr}");
    assert!(!stderr.contains("hunter2") && !stderr.contains("app"), "{stderr}");
}

#[tokio::test]
async fn the_relay_says_it_in_its_log() {
    let folder = Folder::new();
    folder.write("postroom.toml", "[server]\nlisten = \"127.0.0.1:0\"\n[integrations.noop]\n");
    let mut command = folder.command(&["run"]);
    let relay = Process::spawn(command.env("DATABASE_URL", "sqlite://variable.db"));
    let line = relay.wait_for_line("the relay runs", Duration::from_secs(60)).await;
    assert!(line.contains("sqlite://variable.db") && line.contains("DATABASE_URL"), "{line}");
}

#[test]
fn only_run_demo_and_migrate_make_an_outbox() {
    let folder = Folder::new();
    for args in [
        &["stats"][..],
        &["reconcile"],
        &["enqueue", "--to", "noop", "--type", "t", "--payload", "1"],
        &["messages", "list"],
        &["messages", "tail"],
        &["messages", "watch"],
        &["messages", "prune", "--older-than", "1d"],
        &["work"],
    ] {
        let answer = folder.run(args);
        assert_eq!(answer.code, 1, "{args:?}: {answer:?}");
        let said = "there is no outbox at sqlite://postroom.db: make one with `postroom migrate`";
        assert!(answer.stderr.contains(said), "{args:?}: {}", answer.stderr);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    folder.run(&["run", "--once"]).ok();
    assert!(exists(&folder, "postroom.db"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_tool_makes_tables_on_a_server() {
    let database = Postgres::shared().await.database().await;
    let folder = Folder::new();
    for args in [
        &["stats"][..],
        &["enqueue", "--to", "noop", "--type", "t", "--payload", "1"],
        &["messages", "list"],
    ] {
        let answer = folder.run(&[args, &["--database", database.url()]].concat());
        assert_eq!(answer.code, 1, "{args:?}: {answer:?}");
        assert!(answer.stderr.contains("run `postroom migrate`"), "{args:?}: {}", answer.stderr);
    }
    let client = database.client().await;
    let row = client.query_one("SELECT to_regnamespace('core_outbox') IS NULL", &[]).await.unwrap();
    assert!(row.get::<_, bool>(0));
}
