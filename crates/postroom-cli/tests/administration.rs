//! What operators do on the day it goes wrong, on PostgreSQL and on SQLite.

use crate::command::{Answer, Folder};
use postroom_testkit::{Behaviour, Postgres, Process, Receiver, Signal, TestDatabase, eventually};
use serde_json::Value;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// A folder with an outbox, and a relay's configuration for it.
struct Outbox {
    folder: Folder,
    receiver: Receiver,
    _database: Option<TestDatabase>,
}

impl Outbox {
    async fn postgres() -> Self {
        let database = Postgres::shared().await.database().await;
        let url = database.url().to_owned();
        Self::new(&url, Some(database))
    }

    async fn sqlite() -> Self {
        Self::new("sqlite://postroom.db", None)
    }

    fn new(url: &str, database: Option<TestDatabase>) -> Self {
        let (folder, receiver) = (Folder::new(), Receiver::start());
        folder.write(
            "postroom.toml",
            &format!(
                "[database]\nurl = \"{url}\"\n[integrations.noop]\n[integrations.\"webhook:a\"]\n\
                 url = \"{}\"\nallow_addresses = [\"127.0.0.0/8\"]\n\
                 retry = {{ base = \"1h\", max_attempts = 3 }}\n\
                 [server]\nlisten = \"127.0.0.1:0\"\n",
                receiver.url()
            ),
        );
        folder.run(&["migrate"]).ok();
        Self { folder, receiver, _database: database }
    }

    fn messages(&self, command: &str, more: &[&str]) -> Answer {
        self.folder.run(&[&["messages", command], more].concat())
    }

    fn show(&self, id: &str) -> Value {
        self.messages("show", &[id, "--json"]).json()
    }

    fn ids(&self, filter: &[&str]) -> Vec<String> {
        let listed = self.messages("list", &[filter, &["--json"]].concat()).json();
        let ids = listed.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap());
        ids.map(str::to_owned).collect()
    }

    /// Messages that the receiver has rejected.
    fn bury(&self, n: usize, more: &[&str]) -> Vec<String> {
        self.receiver.always(Behaviour::Answer(400));
        let ids = (0..n).map(|_| self.folder.enqueue("webhook:a", more)).collect();
        self.folder.run(&["run", "--once"]).ok();
        self.receiver.always(Behaviour::Accept);
        ids
    }
}

/// Makes a test of each on both databases.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() { super::$name(super::Outbox::postgres().await).await; })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() { super::$name(super::Outbox::sqlite().await).await; })*
        }
    };
}

on_both! {
    a_dead_message_is_found_read_and_redriven
    fault_43_of_redrives_at_once_from_several_processes_one_requeues
    many_are_redriven_by_filter_at_a_rate
    a_redrive_that_is_stopped_has_done_what_its_record_says
    a_sent_message_is_replayed
    what_a_dead_relay_holds_is_released
    what_waits_is_cancelled
    old_messages_are_pruned
    lists_are_filtered
    what_waits_is_watched
    relays_are_listed_while_they_live_and_after_they_died
}

async fn a_dead_message_is_found_read_and_redriven(outbox: Outbox) {
    let ids = outbox.bury(1, &[]);
    assert_eq!(outbox.ids(&["--status", "dead"]), ids);
    let shown = outbox.show(&ids[0]);
    let attempts = shown["failed_attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), &attempts[0]["outcome"]), (1, &"reject".into()), "{shown}");
    assert!(attempts[0]["took_ms"].is_u64() && attempts[0]["at"].is_string(), "{shown}");
    assert!(attempts[0]["error"].as_str().unwrap().contains("400"), "{shown}");
    let text = outbox.messages("show", &[&ids[0]]).ok();
    assert!(text.contains("FAILED AT") && text.contains("reject"), "{text}");

    let answer = outbox.messages("redrive", &[&ids[0], "--actor", "ann"]).ok();
    assert!(answer.contains(&format!("redriven {}", ids[0])), "{answer}");
    assert_eq!(outbox.show(&ids[0])["attempts"], 0);
    let again = outbox.messages("redrive", &[&ids[0]]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains("is PENDING, and only DEAD messages"), "{again:?}");
    outbox.folder.run(&["run", "--once"]).ok();
    assert_eq!(outbox.show(&ids[0])["status"], "SENT");
    assert_eq!(outbox.receiver.count(), 2);

    let actions = outbox.messages("actions", &["--json"]).json();
    let told = |n: usize, key: &str| actions[n][key].clone();
    assert_eq!((told(0, "messages"), told(1, "messages")), (0.into(), 1.into()), "{actions}");
    assert_eq!((told(1, "actor"), told(1, "operation")), ("ann".into(), "redrive".into()));
    assert_eq!(told(1, "target"), ids[0].as_str());
    let default = told(0, "actor");
    assert!(default.as_str().unwrap().contains('@'), "{default}");
    let text = outbox.messages("actions", &["--limit", "1"]).ok();
    assert!(text.contains("OPERATION") && text.contains("older ones: --before 2"), "{text}");
    assert!(outbox.messages("actions", &["--before", "2"]).ok().contains("ann"));
}

async fn fault_43_of_redrives_at_once_from_several_processes_one_requeues(outbox: Outbox) {
    let ids = outbox.bury(1, &[]);
    let args = ["messages", "redrive", &ids[0]];
    let mut racing: Vec<Process> = (0..4).map(|_| outbox.folder.start(&args)).collect();
    let mut done = 0;
    for process in &mut racing {
        if process.wait(SOON).await.success() {
            done += 1;
        } else {
            assert!(process.stderr().contains("nothing was changed"), "{}", process.stderr());
        }
    }
    assert_eq!(done, 1);
    let actions = outbox.messages("actions", &["--json"]).json();
    let counts = actions.as_array().unwrap().iter().map(|one| one["messages"].as_u64().unwrap());
    assert_eq!((counts.clone().count(), counts.sum::<u64>()), (4, 1), "{actions}");
    outbox.folder.run(&["run", "--once"]).ok();
    assert_eq!(outbox.receiver.count(), 2, "rejected once, and delivered once");
}

async fn many_are_redriven_by_filter_at_a_rate(outbox: Outbox) {
    outbox.bury(3, &["--tenant", "acme"]);
    outbox.bury(2, &[]);
    let all = outbox.messages("redrive", &[]);
    assert_eq!(all.code, 2, "{all:?}");
    assert!(all.stderr.contains("--all"), "{all:?}");
    let acme = ["--tenant", "acme", "--integration", "webhook:a"];
    let dry = outbox.messages("redrive", &[&acme[..], &["--dry-run"]].concat()).ok();
    assert_eq!(dry, "would redrive 3 DEAD messages; nothing was changed\n");
    let dry = outbox.messages("redrive", &["--all", "--dry-run", "--json"]).json();
    assert_eq!((&dry["messages"], &dry["dry_run"]), (&5.into(), &true.into()));
    assert_eq!(outbox.messages("actions", &[]).ok(), "no actions\n");

    let answer = outbox.messages("redrive", &[&acme[..], &["--rate", "1000"]].concat()).ok();
    assert_eq!(answer, "3 messages redriven, on record as action 1\n");
    let rest = outbox.messages("redrive", &["--all", "--json"]).json();
    assert_eq!((&rest["action"], &rest["messages"]), (&2.into(), &2.into()), "{rest}");
    assert_eq!(rest["stopped"], false);
    assert_eq!(outbox.ids(&["--status", "pending"]).len(), 5);
    for args in [["--rate", "0"], ["--actor", " "]] {
        assert_eq!(outbox.messages("redrive", &[&["--all"], &args[..]].concat()).code, 2);
    }
}

async fn a_redrive_that_is_stopped_has_done_what_its_record_says(outbox: Outbox) {
    outbox.bury(4, &[]);
    let args = ["messages", "redrive", "--all", "--rate", "1", "--json"];
    let mut redrive = outbox.folder.start(&args);
    eventually("the first message", SOON, async || {
        (outbox.ids(&["--status", "pending"]).len() == 1).then_some(())
    })
    .await;
    redrive.signal(Signal::SIGINT);
    assert_eq!(redrive.wait(SOON).await.code(), Some(1));
    let done: Value = serde_json::from_str(&redrive.stdout()).unwrap();
    assert_eq!(done["stopped"], true, "{done}");
    let redriven = outbox.ids(&["--status", "pending"]).len() as u64;
    assert_eq!(done["messages"], redriven);
    assert!(redriven < 4, "it should have been stopped");
    assert_eq!(outbox.messages("actions", &["--json"]).json()[0]["messages"], redriven);
}

async fn a_sent_message_is_replayed(outbox: Outbox) {
    let id = outbox.folder.enqueue("webhook:a", &["--event-id", "e-1"]);
    outbox.folder.run(&["run", "--once"]).ok();
    let answer = outbox.messages("replay", &[&id, "--json"]).json();
    let again = outbox.show(answer["made"][0].as_str().unwrap());
    assert_eq!((&again["event_id"], &again["copy"]), (&"e-1".into(), &1.into()), "{again}");
    assert_eq!(again["headers"]["postroom-replay-of"], id.as_str(), "{again}");
    let text = outbox.messages("replay", &[&id, "--fresh-id"]).ok();
    let fresh = outbox.show(text.trim().rsplit(' ').next().unwrap());
    assert_ne!(fresh["event_id"], "e-1");
    outbox.folder.run(&["run", "--once"]).ok();
    let headers = outbox.receiver.requests();
    let replays = headers.iter().filter_map(|one| one.header("postroom-replay-of"));
    assert_eq!(replays.collect::<Vec<_>>(), [id.as_str(), id.as_str()]);
    let bulk = outbox.messages("replay", &["--event-id", "e-1", "--dry-run", "--json"]).json();
    assert_eq!(bulk["messages"], 2, "the first one, and its replay");
}

async fn what_a_dead_relay_holds_is_released(outbox: Outbox) {
    outbox.receiver.always(Behaviour::HoldResponse);
    let id = outbox.folder.enqueue("webhook:a", &[]);
    let mut relay = outbox.folder.start(&["run"]);
    outbox.receiver.wait_for(1, SOON).await;
    relay.kill9();
    assert_eq!(outbox.ids(&["--status", "claimed"]), [id.as_str()]);
    outbox.receiver.always(Behaviour::Accept);
    let cancelled = outbox.messages("cancel", &[&id]);
    assert!(cancelled.stderr.contains("is CLAIMED, and only PENDING or FAILED"), "{cancelled:?}");
    outbox.messages("release", &[&id]).ok();
    outbox.folder.run(&["run", "--once"]).ok();
    assert_eq!(outbox.show(&id)["status"], "SENT", "without waiting for the claim's end");
}

async fn what_waits_is_cancelled(outbox: Outbox) {
    let one = outbox.folder.enqueue("webhook:a", &[]);
    outbox.folder.enqueue("webhook:a", &[]);
    let other = outbox.folder.enqueue("noop", &[]);
    let answer = outbox.messages("cancel", &["--integration", "webhook:a"]).ok();
    assert!(answer.starts_with("2 messages cancelled"), "{answer}");
    let shown = outbox.show(&one);
    assert_eq!((&shown["status"], &shown["last_error"]), (&"DEAD".into(), &"cancelled".into()));
    assert_eq!(outbox.show(&other)["status"], "PENDING");
    assert!(outbox.messages("cancel", &[&other]).ok().contains("it is DEAD now"));
}

async fn old_messages_are_pruned(outbox: Outbox) {
    outbox.bury(2, &[]);
    let sent = outbox.folder.enqueue("noop", &[]);
    outbox.folder.run(&["run", "--once"]).ok();
    let old = ["--older-than", "1ms"];
    assert_eq!(outbox.messages("prune", &["--older-than", "soon"]).code, 2);
    let open = outbox.messages("prune", &[&old[..], &["--status", "pending"]].concat());
    assert_eq!(open.code, 2, "{open:?}");
    let kept = outbox.messages("prune", &["--older-than", "1h", "--json"]).json();
    assert_eq!(kept["messages"], 0);
    let dry = outbox.messages("prune", &[&old[..], &["--status", "dead", "--dry-run"]].concat());
    assert_eq!(dry.ok(), "would prune 2 DEAD messages; nothing was changed\n");
    assert!(outbox.messages("prune", &old).ok().starts_with("1 message pruned"));
    assert_eq!(outbox.messages("show", &[&sent]).code, 1);
    assert_eq!(outbox.ids(&[]).len(), 2);
    outbox.messages("prune", &[&old[..], &["--status", "DEAD"]].concat()).ok();
    assert!(outbox.ids(&[]).is_empty());
    let first = &outbox.messages("actions", &["--json"]).json()[0];
    assert_eq!((&first["operation"], &first["messages"]), (&"prune".into(), &2.into()), "{first}");
}

async fn lists_are_filtered(outbox: Outbox) {
    let args = ["--tenant", "acme", "--correlation", "req-7", "--event-id", "e-7"];
    let wanted = outbox.folder.enqueue("webhook:a", &args);
    outbox.folder.enqueue("noop", &["--tenant", "other"]);
    for filter in [
        &["--tenant", "acme"][..],
        &["--correlation", "req-7"],
        &["--event-id", "e-7"],
        &["--integration", "webhook:a", "--type", "t"],
        &["--status", "pending", "--tenant", "acme", "--since", "1h"],
    ] {
        assert_eq!(outbox.ids(filter), [wanted.as_str()], "{filter:?}");
    }
    assert_eq!(outbox.ids(&["--since", "1h"]).len(), 2);
    assert_eq!(outbox.ids(&["--until", "2020-01-01T00:00:00Z"]).len(), 0);
    assert_eq!(outbox.ids(&["--type", "t' OR '1' = '1"]).len(), 0);
    let answer = outbox.messages("list", &["--since", "yesterday"]);
    assert_eq!(answer.code, 2);
    assert!(answer.stderr.contains("such as 2h"), "{answer:?}");
}

async fn relays_are_listed_while_they_live_and_after_they_died(outbox: Outbox) {
    let none = outbox.folder.run(&["relays"]).ok();
    assert_eq!(none, "no relay runs, and none has ended within a day\n");
    assert_eq!(outbox.folder.run(&["relays", "--json"]).json(), serde_json::json!([]));
    let listed = async || {
        eventually("a relay", SOON, async || {
            let mut relays = outbox.folder.run(&["relays", "--json"]).json();
            relays.as_array_mut()?.pop()
        })
        .await
    };
    // One that stops is gone at once.
    let mut relay = Process::spawn(&mut outbox.folder.command(&["run"]));
    let first = listed().await;
    assert_eq!((&first["alive"], &first["lanes"]), (&true.into(), &2.into()), "{first}");
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    let shown = outbox.folder.run(&["relays"]).ok();
    assert!(shown.contains("expires in") && shown.contains(first["name"].as_str().unwrap()));
    relay.signal(Signal::SIGTERM);
    assert!(relay.wait(SOON).await.success());
    assert_eq!(outbox.folder.run(&["relays"]).ok(), none);
    // One that is killed is not.
    let mut relay = Process::spawn(&mut outbox.folder.command(&["run"]));
    let second = listed().await;
    assert_ne!(second["id"], first["id"]);
    relay.kill9();
    assert_eq!(listed().await["id"], second["id"]);
}

async fn what_waits_is_watched(outbox: Outbox) {
    let quick = ["--interval", "10ms", "--count", "2"];
    assert!(outbox.messages("watch", &quick).ok().contains("nothing is waiting"));
    outbox.bury(1, &[]);
    outbox.folder.enqueue("kafka:x", &[]);
    let text = outbox.messages("watch", &quick).ok();
    assert!(text.contains("WAITING FOR") && text.contains("0/s"), "{text}");
    assert!(!text.contains('\x1b'), "plain where nobody looks: {text:?}");
    let lines = outbox.messages("watch", &[&quick[..], &["--json"]].concat()).ok();
    let looks: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(looks.len(), 2);
    let lanes = &looks[1]["integrations"];
    assert_eq!((&lanes[0]["integration"], &lanes[0]["pending"]), (&"kafka:x".into(), &1.into()));
    assert_eq!((&lanes[1]["integration"], &lanes[1]["dead"]), (&"webhook:a".into(), &1.into()));
    assert_eq!(lanes[0]["change_per_second"], 0.0, "{lanes}");

    let mut watch = outbox.folder.start(&["messages", "watch"]);
    watch.wait_for_line("kafka:x", SOON).await;
    watch.signal(Signal::SIGINT);
    assert!(watch.wait(SOON).await.success());
}
