//! The tools on an embedded outbox.

use crate::command::Folder;

#[test]
fn a_message_can_be_enqueued_listed_and_shown() {
    let folder = Folder::new();
    let id = folder.enqueue(
        "noop",
        &[
            "--stream",
            "order-7",
            "--event-id",
            "e-7",
            "--key",
            "k",
            "--tenant",
            "acme",
            "--user",
            "ann",
            "--correlation",
            "c-7",
            "--due-at",
            "2030-01-31T12:00:00+01:00",
            "--max-attempts",
            "3",
            "--headers",
            "{\"a\":\"b\"}",
        ],
    );
    let listed = folder.run(&["messages", "list"]).ok();
    assert!(listed.contains(&id) && listed.contains("PENDING"), "{listed}");

    let shown = folder.run(&["messages", "show", &id, "--json"]).json();
    for (key, value) in [
        ("id", id.as_str()),
        ("status", "PENDING"),
        ("integration", "noop"),
        ("event_type", "t"),
        ("stream_id", "order-7"),
        ("event_id", "e-7"),
        ("ordering_key", "k"),
        ("tenant_id", "acme"),
        ("user_id", "ann"),
        ("correlation_id", "c-7"),
        ("due_at", "2030-01-31T11:00:00Z"),
    ] {
        assert_eq!(shown[key], value, "{key}: {shown}");
    }
    assert_eq!((&shown["payload"]["n"], &shown["headers"]["a"]), (&1.into(), &"b".into()));
    assert_eq!(shown["max_attempts"], 3);

    let text = folder.run(&["messages", "show", &id]).ok();
    assert!(text.contains("due              2030-01-31T11:00:00.000Z"), "{text}");
    assert!(text.contains("\"n\": 1"), "{text}");
}

#[test]
fn the_same_event_twice_is_said_to_be_a_duplicate() {
    let folder = Folder::new();
    let id = folder.enqueue("noop", &["--event-id", "e-1"]);
    let args = ["enqueue", "--to", "noop", "--type", "t", "--payload", "2", "--event-id", "e-1"];
    let again = folder.run(&[&args[..], &["--json"]].concat()).json();
    assert_eq!((again["id"].as_str(), again["new"].as_bool()), (Some(id.as_str()), Some(false)));
    assert!(folder.run(&args).ok().contains("already enqueued"));
    let shown = folder.run(&["messages", "show", &id, "--json"]).json();
    assert_eq!(shown["payload"]["n"], 1, "its content stays as it was");
}

#[test]
fn lists_are_filtered_and_paged() {
    let folder = Folder::new();
    for to in ["noop", "stdout", "noop", "noop"] {
        folder.enqueue(to, &[]);
    }
    let list = |args: &[&str]| folder.run(&[&["messages", "list", "--json"], args].concat()).json();
    assert_eq!(list(&[]).as_array().unwrap().len(), 4);
    assert_eq!(list(&["--integration", "noop"]).as_array().unwrap().len(), 3);
    assert_eq!(list(&["--status", "sent"]).as_array().unwrap().len(), 0);
    let first = list(&["--limit", "3"]);
    let last = first[2]["seq"].to_string();
    let rest = list(&["--before", &last]);
    assert_eq!(rest.as_array().unwrap().len(), 1);
    assert!(rest[0]["seq"].as_i64() < first[2]["seq"].as_i64());
    let text = folder.run(&["messages", "list", "--limit", "3"]).ok();
    assert!(text.contains(&format!("--before {last}")), "{text}");
}

#[test]
fn stats_count_by_status_and_integration() {
    let folder = Folder::new();
    for to in ["noop", "noop", "kafka:x"] {
        folder.enqueue(to, &[]);
    }
    folder.run(&["run", "--once"]).ok();
    let stats = folder.run(&["stats", "--json"]).json();
    assert_eq!(stats["counts"]["SENT"], 2, "{stats}");
    assert_eq!(stats["counts"]["PENDING"], 1, "{stats}");
    assert_eq!(stats["integrations"][0]["integration"], "kafka:x", "{stats}");
    let text = folder.run(&["stats"]).ok();
    assert!(text.contains("kafka:x"), "{text}");
}

#[test]
fn looking_at_an_outbox_that_is_not_there_makes_none() {
    let folder = Folder::new();
    for args in [&["stats"][..], &["messages", "list"]] {
        let answer = folder.run(args);
        assert_eq!(answer.code, 1);
        assert!(answer.stderr.contains("postroom migrate"), "{}", answer.stderr);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_message_that_is_not_there_is_a_failure() {
    let folder = Folder::new();
    folder.run(&["migrate"]).ok();
    let answer = folder.run(&["messages", "show", "018f4e7e-0000-7000-8000-000000000000"]);
    assert_eq!(answer.code, 1);
    assert!(answer.stderr.contains("there is no message"), "{}", answer.stderr);
}

#[test]
fn migrations_are_applied_once_and_can_be_read_before() {
    let folder = Folder::new();
    let sql = folder.run(&["migrate", "--dry-run"]).ok();
    assert!(sql.contains("-- 0001") && sql.contains("integration_outbox"), "{sql}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a dry run makes nothing");
    assert!(folder.run(&["migrate"]).ok().contains("applied 0001"));
    assert!(folder.run(&["migrate"]).ok().contains("nothing to do"));
    let answer = folder.run(&["migrate", "--notify", "on"]);
    assert_eq!(answer.code, 1);
    assert!(answer.stderr.contains("only PostgreSQL"), "{}", answer.stderr);
}
