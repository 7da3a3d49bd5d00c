//! Several outboxes in one configuration: the commands on all of them, and on one.

use crate::command::Folder;
use crate::faults_outbox::page;
use postroom_testkit::eventually;
use serde_json::Value;
use std::time::Duration;

/// Two outboxes in files, and one that is not there.
const TWO: &str = "[databases.eu]\nurl = \"sqlite://eu.db\"\n\
                   [databases.us]\nurl = \"sqlite://us.db\"\n\
                   [integrations.noop]\n[server]\nlisten = \"127.0.0.1:0\"\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("postroom.toml", TWO);
    let made = folder.run(&["migrate"]);
    assert!(made.stderr.contains("outbox eu: sqlite://eu.db (postroom.toml)"), "{made:?}");
    let text = made.ok();
    assert!(text.contains("eu: applied 0001") && text.contains("us: applied 0001"), "{text}");
    folder
}

fn enqueue(folder: &Folder, database: &str, more: &[&str]) -> String {
    folder.enqueue("noop", &[&["--database", database], more].concat())
}

/// The names that the elements of an array have.
fn databases(array: &Value) -> Vec<&str> {
    let of = |one: &'_ Value| one["database"].as_str().map(str::len).is_some();
    let array = array.as_array().unwrap();
    assert!(array.iter().all(of), "{array:?}");
    array.iter().map(|one| one["database"].as_str().unwrap()).collect()
}

#[test]
fn what_only_looks_works_on_all_databases_and_names_them() {
    let folder = folder();
    let eu = enqueue(&folder, "eu", &[]);
    let us = enqueue(&folder, "us", &["--event-id", "e-us"]);
    enqueue(&folder, "us", &[]);

    let stats = folder.run(&["stats", "--json"]).json();
    assert_eq!(databases(&stats["databases"]), ["eu", "us"]);
    let pending = |n: usize| stats["databases"][n]["counts"]["PENDING"].as_u64();
    assert_eq!([pending(0), pending(1)], [Some(1), Some(2)]);
    let text = folder.run(&["stats"]).ok();
    assert!(text.starts_with("DATABASE  STATUS "), "{text}");

    let listed = folder.run(&["messages", "list", "--json"]).json();
    assert_eq!(databases(&listed), ["us", "us", "eu"], "newest first");
    let listed = folder.run(&["messages", "list", "--limit", "2"]).ok();
    assert!(!listed.contains(&eu) && listed.contains("name one database"), "{listed}");
    for (id, database) in [(eu.as_str(), "eu"), (us.as_str(), "us"), ("e-us", "us")] {
        let shown = folder.run(&["messages", "show", id, "--json"]).json();
        assert_eq!(shown["database"], database, "{shown}");
    }
    let shown = folder.run(&["messages", "show", &eu]).ok();
    assert!(shown.starts_with("database         eu\n"), "{shown}");

    let check = folder.run(&["check", "--json"]).json();
    let of = |name: &str| {
        let checks = check["checks"].as_array().unwrap().iter();
        checks.filter(|one| one["database"] == name && one["what"] == "database").count()
    };
    assert_eq!((of("eu"), of("us"), &check["ok"]), (1, 1, &true.into()));
    let mended = folder.run(&["reconcile", "--json"]).json();
    assert_eq!(databases(&mended["databases"]), ["eu", "us"]);
    let actions = folder.run(&["messages", "actions", "--json"]).json();
    assert_eq!(databases(&actions).len(), 2);
    let watched = folder.run(&["messages", "watch", "--count", "1", "--json"]).json();
    assert_eq!(databases(&watched["databases"]), ["eu", "us"]);
    assert_eq!(folder.run(&["relays"]).ok(), "no relay runs, and none has ended within a day\n");
}

#[test]
fn what_changes_messages_needs_a_name_unless_an_id_makes_it_clear() {
    let folder = folder();
    let id = enqueue(&folder, "us", &["--event-id", "e-1"]);
    enqueue(&folder, "eu", &["--event-id", "e-1"]);
    for args in [
        &["enqueue", "--to", "noop", "--type", "t", "--payload", "1"][..],
        &["messages", "cancel", "--all"],
        &["messages", "prune", "--older-than", "1d"],
        &["messages", "list", "--before", "7"],
        &["messages", "actions", "--before", "7"],
    ] {
        let answer = folder.run(args);
        assert_eq!(answer.code, 2, "{args:?}: {answer:?}");
        assert!(answer.stderr.contains("name one by --database: eu, us"), "{}", answer.stderr);
    }
    let both = folder.run(&["messages", "cancel", "e-1"]);
    assert_eq!(both.code, 1, "{both:?}");
    assert!(both.stderr.contains("its database by --database"), "{}", both.stderr);
    assert!(both.stderr.contains("DATABASE  ID"), "{}", both.stderr);
    let one = folder.run(&["messages", "cancel", "e-1", "--database", "eu"]).ok();
    assert!(one.starts_with("cancelled "), "of one nobody needs the name: {one}");
    let other = folder.run(&["messages", "cancel", &id]).ok();
    assert!(other.starts_with(&format!("us: cancelled {id}")), "{other}");
    let redriven = folder.run(&["messages", "redrive", &id, "--json"]).json();
    assert_eq!(redriven["database"], "us");
    let many = folder.run(&["messages", "redrive", "--all", "--database", "eu"]).ok();
    assert!(many.starts_with("1 message redriven"), "{many}");
    let unknown = folder.run(&["stats", "--database", "asia"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("those there are: eu, us"), "{unknown:?}");
}

#[test]
fn a_database_that_cannot_be_used_keeps_no_other_from_answering() {
    let folder = folder();
    folder.write(
        "postroom.toml",
        &TWO.replace(
            "[integrations.noop]",
            "[databases.gone]\nurl = \"sqlite://no/gone.db\"\n[integrations.noop]",
        ),
    );
    let id = enqueue(&folder, "us", &["--event-id", "e-1"]);
    for args in [
        &["stats"][..],
        &["relays"],
        &["reconcile"],
        &["migrate"],
        &["messages", "list"],
        &["messages", "actions"],
    ] {
        let answer = folder.run(args);
        assert_eq!(answer.code, 1, "{args:?}: {answer:?}");
        assert!(answer.stderr.contains("postroom: gone: "), "{args:?}: {}", answer.stderr);
        assert!(!answer.stdout.is_empty() || args == ["relays"], "{args:?}: {answer:?}");
    }
    let check = folder.run(&["check"]);
    assert_eq!(check.code, 1);
    assert!(check.stdout.contains("gone      FAULT"), "{}", check.stdout);
    // The whole id tells which message is meant, and an event id does not.
    let unsure = folder.run(&["messages", "cancel", "e-1"]);
    assert!(unsure.code == 1 && unsure.stderr.contains("cannot be asked"), "{unsure:?}");
    folder.run(&["messages", "cancel", &id]).ok();
    folder.run(&["messages", "show", "e-1"]).ok();
}

#[tokio::test]
async fn a_relay_names_its_databases_in_its_log_its_health_and_its_metrics() {
    const SOON: Duration = Duration::from_secs(60);
    let folder = folder();
    folder.write(
        "postroom.toml",
        &TWO.replace(
            "[integrations.noop]",
            "[databases.gone]\nurl = \"sqlite://no/gone.db\"\n[integrations.noop]",
        ),
    );
    enqueue(&folder, "us", &[]);
    let relay = folder.start(&["run"]);
    let health = eventually("the two that are there to be ready", SOON, async || {
        let page = page(&relay, "/readyz").await?;
        let health: Value = serde_json::from_str(page.split_once("\r\n\r\n")?.1).ok()?;
        let ready = health["databases"].as_array()?.iter().filter(|one| one["ready"] == true);
        (ready.count() == 2).then_some(health)
    })
    .await;
    assert!(health["database"].as_str().unwrap().starts_with("gone: "), "{health}");
    // They are described where those of a single database are.
    let described = include_str!("../../../docs/reference/metrics.md");
    for key in health["databases"][0].as_object().unwrap().keys() {
        assert!(described.contains(&format!("| `databases[].{key}` |")), "{key} is not described");
    }
    eventually("the metrics of the one that had a message", SOON, async || {
        let page = page(&relay, "/metrics").await?;
        let sent = "outbox_sent_total{database=\"us\",integration=\"noop\"} 1";
        page.contains(sent).then_some(())
    })
    .await;
    let line = relay.wait_for_line("the outbox cannot be opened", SOON).await;
    assert!(line.contains("database=\"gone\""), "{line}");
}

#[test]
fn one_pass_serves_all_databases_or_the_one_that_is_named() {
    let folder = folder();
    enqueue(&folder, "eu", &[]);
    enqueue(&folder, "us", &[]);
    enqueue(&folder, "us", &[]);
    let one = folder.run(&["run", "--once", "--database", "eu", "--json"]).json();
    assert_eq!((&one["sent"], &one["databases"]), (&1.into(), &Value::Null));
    let both = folder.run(&["run", "--once", "--limit", "1", "--json"]).json();
    assert_eq!(databases(&both["databases"]), ["eu", "us"]);
    assert_eq!(both["databases"][1]["sent"], 1, "the limit is each database's");
    let all = folder.run(&["run", "--once"]);
    assert_eq!(all.code, 0, "{all:?}");
    assert!(all.stderr.contains("eu: 0 taken: 0 sent"), "{}", all.stderr);
    assert!(all.stderr.contains("us: 1 taken: 1 sent"), "{}", all.stderr);
}
