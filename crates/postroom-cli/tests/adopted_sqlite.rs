//! A table that somebody else made in a SQLite file, from the first look to the way back. Its producer is a program in
//! another language, with a SQLite of its own.

use crate::command::Folder;
use crate::faults_outbox::webhook;
use postroom_testkit::{Behaviour, Receiver};
use std::process::Command;

const CONFIGURATION: &str = r#"
[database]
url = "sqlite://shop.db"
layout = "events"
to = "file:runs"
[integrations."file:runs"]
path = "runs.jsonl"
"#;

const TABLE: &str = "CREATE TABLE outbox_events (event_id TEXT PRIMARY KEY, run_id TEXT NOT NULL,
    event_type TEXT NOT NULL, idempotency_key TEXT UNIQUE NOT NULL, payload TEXT NOT NULL,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP, delivered_at TEXT)";

/// Runs a statement as the owner does; what it answers.
fn by_owner(folder: &Folder, sql: &str) -> String {
    let script = "import sqlite3, sys\n\
                  with sqlite3.connect('shop.db') as db:\n    \
                      print([list(row) for row in db.execute(sys.argv[1])])";
    let output =
        Command::new("python3").args(["-c", script, sql]).current_dir(folder.path()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn insert(folder: &Folder, n: u32) {
    by_owner(
        folder,
        &format!(
            "INSERT INTO outbox_events (event_id, run_id, event_type, idempotency_key, payload)
             VALUES ('run-{n}', 'r', 'run.started', 'k{n}', '{{\"n\": {n}}}')"
        ),
    );
}

#[test]
fn a_table_in_a_sqlite_file_is_adopted_delivered_and_left() {
    let folder = Folder::new();
    folder.write("postroom.toml", CONFIGURATION);
    by_owner(&folder, TABLE);
    insert(&folder, 1);
    let planned = folder.run(&["migrate", "--dry-run"]).ok();
    let trigger = "CREATE TRIGGER postroom_outbox_events_feed AFTER INSERT ON \"outbox_events\"";
    assert!(planned.contains(trigger), "{planned}");
    let migrated = folder.run(&["migrate"]).ok();
    assert!(migrated.contains("done: the layout of outbox_events"), "{migrated}");
    insert(&folder, 2);
    let checked = folder.run(&["check"]).ok();
    assert!(checked.contains("Postroom deletes no row"), "{checked}");
    let listed = folder.run(&["messages", "list", "--json"]).ok();
    assert!(listed.contains("run-1") && listed.contains("run-2"), "{listed}");

    folder.run(&["run", "--once"]).ok();
    let open = by_owner(&folder, "SELECT count(*) FROM outbox_events WHERE delivered_at IS NULL");
    assert_eq!(open, "[[0]]");
    let runs = std::fs::read_to_string(folder.path().join("runs.jsonl")).unwrap();
    assert_eq!(runs.lines().count(), 2, "{runs}");

    let removed = folder.run(&["adopt", "outbox_events", "--remove"]).ok();
    assert!(removed.contains("removed the ledger"), "{removed}");
    insert(&folder, 3);
    let left = by_owner(&folder, "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'");
    assert_eq!(left, "[['outbox_events']]", "as it was");
}

/// The lines of a file of deliveries.
fn lines(folder: &Folder, file: &str) -> usize {
    std::fs::read_to_string(folder.path().join(file)).unwrap_or_default().lines().count()
}

/// Both stand in Postroom's own outbox in the same file, which `migrate` makes and `run` serves.
#[test]
fn further_destinations_and_dead_letters_are_delivered_out_of_the_same_file() {
    let (folder, receiver) = (Folder::new(), Receiver::start());
    receiver.next([Behaviour::Answer(400), Behaviour::Answer(400)]);
    let configuration = CONFIGURATION
        .replace("to = \"file:runs\"", "to = [\"webhook:a\", \"file:audit\"]")
        .replace("file:runs", "file:audit")
        .replace("runs.jsonl", "audit.jsonl");
    folder.write(
        "postroom.toml",
        &format!(
            "{configuration}{}[integrations.\"file:dead\"]\npath = \"dead.jsonl\"\n\
             [relay]\ndead_letter = \"file:dead\"\n",
            webhook(&receiver, "")
        ),
    );
    by_owner(&folder, TABLE);
    insert(&folder, 1);
    let planned = folder.run(&["migrate", "--dry-run"]).ok();
    assert!(planned.starts_with("-- database main-outbox"), "{planned}");
    let migrated = folder.run(&["migrate"]).ok();
    assert!(migrated.contains("main-outbox: applied 0001 outbox"), "{migrated}");
    insert(&folder, 2);
    let again = folder.run(&["migrate"]).ok();
    assert!(again.contains("main: nothing to do"), "{again}");

    folder.run(&["run", "--once"]).ok();
    // What the first pass wrote into the other outbox may have come too late for it.
    folder.run(&["run", "--once"]).ok();
    assert_eq!(lines(&folder, "audit.jsonl"), 2, "the other destination of each row");
    let dead =
        folder.run(&["messages", "list", "--status", "dead", "--json", "--database", "main"]);
    assert_eq!(dead.ok().matches("run.started").count(), 2);
    assert_eq!(lines(&folder, "dead.jsonl"), 2, "each death is announced");

    let removed = folder.run(&["adopt", "outbox_events", "--remove"]).ok();
    assert!(removed.contains("removed the ledger"), "{removed}");
    let left = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'postroom_%'";
    assert_eq!(by_owner(&folder, left), "[[0]]");
    assert_eq!(by_owner(&folder, "SELECT count(*) FROM outbox_messages"), "[[4]]", "it stays");
}

#[test]
fn a_table_of_the_own_outboxs_name_leaves_no_room_for_it() {
    let folder = Folder::new();
    let configuration = CONFIGURATION.replace("to =", "table = \"integration_outbox\"\nto =");
    let dead_letter = format!("{configuration}\n[relay]\ndead_letter = \"file:runs\"\n");
    folder.write("postroom.toml", &dead_letter);
    let refused = folder.run(&["check"]);
    assert!(refused.stderr.contains("is the table of the layout itself"), "{refused:?}");
    assert!(refused.stderr.contains("rename that table"), "{refused:?}");
}

#[test]
fn two_tables_in_one_file_are_two_databases() {
    let folder = Folder::new();
    let database = |name: &str, table: &str, to: &str| {
        format!(
            "[databases.{name}]\nurl = \"sqlite://shop.db\"\nlayout = \"events\"\ntable = \"{table}\"\n\
             to = \"file:{to}\"\n[integrations.\"file:{to}\"]\npath = \"{to}.jsonl\"\n"
        )
    };
    let (runs, jobs) =
        (database("runs", "outbox_events", "runs"), database("jobs", "jobs", "jobs"));
    folder.write("postroom.toml", &format!("{runs}{jobs}"));
    by_owner(&folder, TABLE);
    by_owner(&folder, &TABLE.replace("outbox_events", "jobs"));
    folder.run(&["migrate"]).ok();
    insert(&folder, 1);
    let copied = "INSERT INTO jobs SELECT 'job' || event_id, run_id, event_type, idempotency_key, payload, created_at,
                  NULL FROM outbox_events";
    by_owner(&folder, copied);
    folder.run(&["run", "--once"]).ok();
    let delivered = |file| std::fs::read_to_string(folder.path().join(file)).unwrap();
    assert!(
        delivered("runs.jsonl").contains("run-1") && !delivered("runs.jsonl").contains("jobrun")
    );
    assert!(delivered("jobs.jsonl").contains("jobrun-1"));
}

#[test]
fn a_layout_that_is_not_for_sqlite_is_named() {
    let folder = Folder::new();
    folder.write("postroom.toml", &CONFIGURATION.replace("\"events\"", "\"typeorm\""));
    let refused = folder.run(&["check"]);
    assert!(
        refused.stderr.contains("custom, debezium, events, integration, kata, metadata"),
        "{refused:?}"
    );
}
