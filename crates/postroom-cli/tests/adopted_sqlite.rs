//! A table that somebody else made in a SQLite file, from the first look to the way back. Its producer is a program in
//! another language, with a SQLite of its own.

use crate::command::Folder;
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
    let left = by_owner(
        &folder,
        "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'",
    );
    assert_eq!(left, "[['outbox_events']]", "as it was");
}

#[test]
fn what_needs_another_outbox_in_the_file_is_a_fault_of_the_configuration() {
    let folder = Folder::new();
    let dead_letter = format!("{CONFIGURATION}\n[relay]\ndead_letter = \"file:runs\"\n");
    folder.write("postroom.toml", &dead_letter);
    let refused = folder.run(&["check"]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("in one SQLite file"), "{refused:?}");
    let several = CONFIGURATION.replace("\"file:runs\"\n[i", "[\"file:runs\", \"noop\"]\n[i");
    folder.write("postroom.toml", &several);
    let refused = folder.run(&["check"]);
    assert!(refused.stderr.contains("in one SQLite file"), "{refused:?}");
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
