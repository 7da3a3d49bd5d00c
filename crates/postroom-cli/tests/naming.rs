//! Finding messages as people name them, and seeing what matters of many.

use crate::command::Folder;
use postroom_testkit::{Behaviour, Receiver};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// A folder with a webhook that answers 503 and allows three attempts.
fn failing() -> (Folder, Receiver) {
    let folder = Folder::new();
    let receiver = Receiver::start();
    receiver.always(Behaviour::Answer(503));
    folder.write(
        "postroom.toml",
        &format!(
            "[integrations.noop]\n[integrations.\"webhook:a\"]\nurl = \"{}\"\n\
             allow_addresses = [\"127.0.0.0/8\"]\nretry = {{ base = \"1h\", max_attempts = 3 }}\n",
            receiver.url()
        ),
    );
    (folder, receiver)
}

#[test]
fn a_message_is_named_by_the_beginning_of_its_id_or_by_its_event_id() {
    let folder = Folder::new();
    let id = folder.enqueue("noop", &["--event-id", "order-7-placed"]);
    let bare: String = id.chars().filter(|c| *c != '-').collect();
    for name in [&id, &id[..14], &id.to_uppercase(), &bare[..20], "order-7-placed"] {
        let shown = folder.run(&["messages", "show", name, "--json"]).json();
        assert_eq!(shown["id"], id.as_str(), "{name}");
    }
    let cancelled = folder.run(&["messages", "cancel", "order-7-placed"]).ok();
    assert!(cancelled.contains(&id), "{cancelled}");
    let redriven = folder.run(&["messages", "redrive", &id[..20]]).ok();
    assert!(redriven.contains(&id), "{redriven}");
    let answer = folder.run(&["messages", "show", "order-8-placed"]);
    assert_eq!(answer.code, 1);
    assert!(answer.stderr.contains("there is no message order-8-placed"), "{answer:?}");
}

#[test]
fn a_name_of_several_messages_lists_them_and_changes_nothing() {
    let folder = Folder::new();
    let ids = ["noop", "stdout"].map(|to| folder.enqueue(to, &["--event-id", "e-1"]));
    // Ids begin with the time: all of them alike.
    for name in ["e-1", &ids[0][..1]] {
        for command in ["show", "cancel"] {
            let answer = folder.run(&["messages", command, name]);
            assert_eq!(answer.code, 1, "{answer:?}");
            assert!(answer.stderr.contains("is not one message but several"), "{answer:?}");
            assert!(ids.iter().all(|id| answer.stderr.contains(id.as_str())), "{answer:?}");
        }
    }
    let pending = folder.run(&["messages", "list", "--status", "pending", "--json"]).json();
    assert_eq!(pending.as_array().unwrap().len(), 2);
    folder.run(&["messages", "cancel", "--event-id", "e-1"]).ok();
}

#[test]
fn a_list_shows_event_age_and_error_of_each() {
    let (folder, _receiver) = failing();
    let id = folder.enqueue("webhook:a", &["--event-id", "order-7-placed", "--stream", "order-7"]);
    folder.enqueue("noop", &["--stream", "order-8"]);
    folder.run(&["run", "--once"]).ok();
    let list = |args: &[&str]| folder.run(&[&["messages", "list"], args].concat()).ok();
    let text = list(&[]);
    let titles: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    let wanted = ["ID", "STATUS", "TRIED", "AGE", "INTEGRATION", "TYPE", "EVENT", "ID", "ERROR"];
    assert_eq!(titles, wanted);
    let line = text.lines().find(|line| line.contains(&id)).unwrap();
    for part in ["FAILED", "order-7-placed", "webhook:a", "answered 503"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(line.contains(" ms ") || line.contains(" s "), "an age: {line}");
    for (filter, count) in [
        (&["--stream", "order-7"][..], 1),
        (&["--stream", "order-9"], 0),
        (&["--error", "ANSWERED 503"], 1),
        (&["--error", "timed out"], 0),
        (&["--error", "503", "--status", "failed"], 1),
    ] {
        let found = folder.run(&[&["messages", "list", "--json"], filter].concat()).json();
        assert_eq!(found.as_array().unwrap().len(), count, "{filter:?}");
    }
    let answer = folder.run(&["messages", "cancel", "--error", "answered 503", "--dry-run"]).ok();
    assert!(answer.contains("would cancel 1 PENDING or FAILED message"), "{answer}");
}

/// What a command prints in a terminal of this width.
fn in_a_terminal(folder: &Folder, columns: usize, variable: (&str, &str), args: &str) -> String {
    let program = env!("CARGO_BIN_EXE_postroom");
    let script = format!("stty rows 40 cols {columns}; {program} {args} 2>/dev/null");
    let mut command = Command::new("script");
    command.args(["-qec", &script, "/dev/null"]).current_dir(folder.path());
    command.env_clear().env("PATH", "/usr/bin:/bin").env(variable.0, variable.1);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().replace('\r', "")
}

#[test]
fn a_terminal_gets_colour_and_every_column_cut_to_its_width() {
    let (folder, _receiver) = failing();
    folder.enqueue("webhook:a", &[]);
    folder.enqueue("noop", &[]);
    folder.run(&["run", "--once"]).ok();
    assert!(!folder.run(&["messages", "list"]).ok().contains('\x1b'), "not into a pipe");
    let terminal = ("TERM", "xterm");
    for columns in [80, 120] {
        let text = in_a_terminal(&folder, columns, terminal, "messages list");
        assert!(text.contains("\x1b[33mFAILED\x1b[0m"), "{text}");
        assert!(text.contains("\x1b[32mSENT\x1b[0m"), "{text}");
        let plain = in_a_terminal(&folder, columns, ("NO_COLOR", "1"), "messages list");
        assert!(!plain.contains('\x1b'), "{plain}");
        let titles = plain.lines().next().unwrap();
        for title in ["ID", "STATUS", "TRIED", "AGE", "INTEGR", "TYPE", "EVENT", "ERROR"] {
            assert!(titles.contains(title), "{columns}: {titles}");
        }
        let widest = plain.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= columns, "{widest} of {columns}\n{plain}");
        assert!(plain.contains('…'), "{plain}");
    }
}

#[test]
fn errors_are_counted_by_group() {
    let (folder, receiver) = failing();
    for _ in 0..3 {
        folder.enqueue("webhook:a", &[]);
    }
    folder.run(&["run", "--once"]).ok();
    receiver.always(Behaviour::Answer(400));
    folder.enqueue("webhook:a", &[]);
    folder.run(&["run", "--once"]).ok();
    let groups = folder.run(&["messages", "list", "--group", "error", "--json"]).json();
    assert_eq!(groups[0]["messages"], 3, "{groups}");
    assert!(groups[0]["error"].as_str().unwrap().contains("answered 503"), "{groups}");
    assert_eq!(groups[1]["messages"], 1, "{groups}");
    let text = folder.run(&["messages", "list", "--group", "error"]).ok();
    assert!(text.starts_with("MESSAGES") && text.contains("answered 400"), "{text}");
    let dead = ["messages", "list", "--group", "error", "--status", "dead"];
    assert!(!folder.run(&dead).ok().contains("answered 503"));
    let none = [&dead[..], &["--integration", "noop"]].concat();
    assert_eq!(folder.run(&none).ok(), "no messages with an error\n");
}

#[test]
fn show_names_the_maximum_that_applies() {
    let (folder, _receiver) = failing();
    let id = folder.enqueue("webhook:a", &["--max-attempts", "7"]);
    let other = folder.enqueue("noop", &["--max-attempts", "7"]);
    folder.run(&["run", "--once"]).ok();
    let show =
        |id: &str, more: &[&str]| folder.run(&[&["messages", "show", id], more].concat()).ok();
    assert!(show(&id, &[]).contains("failed attempts  1 of 3 (postroom.toml)"));
    assert!(show(&other, &[]).contains("failed attempts  0 of 7\n"));
    let shown: serde_json::Value = serde_json::from_str(&show(&id, &["--json"])).unwrap();
    assert_eq!(shown["attempts_allowed"]["attempts"], 3, "{shown}");
    assert_eq!(shown["max_attempts"], 7, "{shown}");

    folder.write(
        "postroom.toml",
        // A secret that is not here is no reason not to say what is known.
        "[relay]\nretry = { max_attempts = \"forever\" }\n[integrations.\"webhook:a\"]\n\
         url = \"${SECRET_URL}\"\n",
    );
    assert!(show(&id, &[]).contains("1, and any number is allowed (postroom.toml)"));
    let output =
        folder.command(&["messages", "show", &id]).env("OUTBOX_MAX_ATTEMPTS", "5").output();
    assert!(String::from_utf8(output.unwrap().stdout).unwrap().contains("1 of 5 (postroom.toml)"));
}

#[test]
fn a_payload_comes_from_a_file_or_from_standard_input() {
    let folder = Folder::new();
    folder.run(&["migrate"]).ok();
    let file = folder.write("order.json", "{\"from\": \"a file\"}\n");
    let args = ["enqueue", "--to", "noop", "--type", "t", "--json", "--payload"];
    let from = |answer: serde_json::Value| {
        let id = answer["id"].as_str().unwrap().to_owned();
        folder.run(&["messages", "show", &id, "--json"]).json()["payload"]["from"].clone()
    };
    let argument = format!("@{}", file.display());
    assert_eq!(from(folder.run(&[&args[..], &[&argument]].concat()).json()), "a file");

    let mut command = folder.command(&[&args[..], &["-"]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"from\": \"a pipe\"}\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(from(serde_json::from_slice(&output.stdout).unwrap()), "a pipe");

    folder.write("large.json", &format!("\"{}\"", "x".repeat(300 * 1024)));
    let answer = folder.run(&[&args[..], &["@large.json"]].concat());
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.stderr.contains("payload"), "{answer:?}");
}

#[test]
fn an_integration_that_no_configuration_knows_is_warned_of() {
    let folder = Folder::new();
    folder.run(&["migrate"]).ok();
    let enqueue =
        |to: &str| folder.run(&["enqueue", "--to", to, "--type", "t", "--payload", "1"]).stderr;
    let warning = "no integration webhook:partnerX is known";
    let said = enqueue("webhook:partnerX");
    assert!(said.contains(warning) && said.contains("there is no configuration here"), "{said}");
    assert!(!enqueue("noop").contains("no integration"));
    folder.write("postroom.toml", "[integrations.\"webhook:partnerX\"]\nurl = \"${SECRET}\"\n");
    assert!(!enqueue("webhook:partnerX").contains("no integration"));
    assert!(enqueue("noop").contains("postroom.toml does not have it"));
}
