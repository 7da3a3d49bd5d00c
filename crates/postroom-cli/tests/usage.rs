//! The command line itself.

use crate::command::Folder;

#[test]
fn help_names_every_command() {
    let help = Folder::new().run(&["--help"]).ok();
    for command in [
        "demo",
        "run",
        "migrate",
        "enqueue",
        "messages",
        "stats",
        "check",
        "reconcile",
        "completions",
    ] {
        assert!(help.contains(command), "{command}: {help}");
    }
}

#[test]
fn help_has_examples_and_groups_what_every_command_takes() {
    let folder = Folder::new();
    let top = folder.run(&["--help"]).ok();
    assert!(top.contains("\nGlobal options:\n"), "{top}");
    for command in [
        &["enqueue"][..],
        &["run"],
        &["migrate"],
        &["check"],
        &["messages", "list"],
        &["messages", "show"],
        &["messages", "redrive"],
        &["messages", "tail"],
        &["messages", "watch"],
    ] {
        let help = folder.run(&[command, &["--help"]].concat()).ok();
        let (own, global) = help.split_once("\nGlobal options:\n").unwrap();
        assert!(!own.contains("--database") && global.contains("--database"), "{help}");
        let (_, examples) = help.split_once("\nExamples:\n").unwrap();
        assert!(examples.contains(&format!("postroom {}", command.join(" "))), "{help}");
    }
}

#[test]
fn usage_faults_exit_with_2_and_say_what_was_expected() {
    let folder = Folder::new();
    let message = ["enqueue", "--to", "noop", "--type", "t", "--payload", "1"];
    for (args, part) in [
        (vec!["frobnicate"], "unrecognized subcommand"),
        (vec!["run", "--limit", "5"], "--once"),
        (vec!["messages", "list", "--status", "LOST"], "PENDING, CLAIMED, SENT, FAILED, DEAD"),
        (vec!["messages", "show", ""], "expected a message's id"),
        (vec!["messages", "list", "--group", "colour"], "[possible values: error]"),
        (vec!["messages", "tail", "--status", "pending"], "expected SENT, FAILED or DEAD"),
        (
            vec!["enqueue", "--to", "noop", "--type", "t", "--payload", "@missing.json"],
            "--payload: cannot read missing.json",
        ),
        (vec!["demo", "--messages", "0"], "0 is not in"),
        (vec!["stats", "--database", "oracle://db/shop"], "expected postgres://…, mysql://…"),
        ([&message[..], &["--due-at", "tomorrow"]].concat(), "RFC 3339"),
        ([&message[..], &["--max-attempts", "0"]].concat(), "max_attempts is 0"),
        ([&message[..], &["--headers", "[1]"]].concat(), "headers must be a JSON object"),
        ([&message[..], &["--tenant", ""]].concat(), "tenant_id is empty"),
        (vec!["enqueue", "--to", "noop", "--type", "t", "--payload", "{oops"], "payload"),
    ] {
        let answer = folder.run(&args);
        assert_eq!(answer.code, 2, "{args:?}: {answer:?}");
        assert!(answer.stderr.contains(part), "{args:?}: {}", answer.stderr);
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "a fault leaves nothing behind");
}

#[test]
fn completions_are_printed_for_every_shell() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(folder.run(&["completions", shell]).ok().contains("postroom"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let folder = Folder::new();
    let mut command = folder.command(&["completions", "bash"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn errors_are_json_for_those_who_asked_for_json() {
    let folder = Folder::new();
    let nobody = "00000000-0000-7000-8000-000000000000";
    let error = |args: &[&str], code: i32| {
        let answer = folder.run(&[args, &["--json"]].concat());
        assert_eq!((answer.code, answer.stdout.as_str()), (code, ""), "{args:?}: {answer:?}");
        let error: serde_json::Value = serde_json::from_str(&answer.stderr)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", answer.stderr));
        let kind = if code == 2 { "usage" } else { "failed" };
        assert_eq!(error["kind"], kind, "{args:?}: {error}");
        error["error"].as_str().unwrap().to_owned()
    };
    assert!(error(&["stats"], 1).contains("postroom migrate"));
    folder.run(&["migrate"]).ok();
    assert!(error(&["messages", "show", nobody], 1).contains("there is no message"));
    assert!(error(&["messages", "redrive", nobody], 1).contains("there is no message"));
    assert!(error(&["messages", "show", "nope"], 1).contains("there is no message nope"));
    assert!(error(&["messages", "redrive"], 2).contains("--all"));
    assert!(error(&["frobnicate"], 2).contains("unrecognized subcommand"));
    let enqueue = ["enqueue", "--to", "noop", "--type", "t", "--payload", "{oops"];
    assert!(error(&enqueue, 2).contains("payload"));
    assert!(error(&["check", "--config", "missing.toml"], 2).contains("missing.toml"));
    assert!(error(&["migrate", "--database", "mongodb://x"], 2).contains("unknown scheme"));
    assert!(folder.run(&["messages", "--help", "--json"]).ok().contains("Usage"));
}
