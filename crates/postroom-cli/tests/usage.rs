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
fn usage_faults_exit_with_2_and_say_what_was_expected() {
    let folder = Folder::new();
    let message = ["enqueue", "--to", "noop", "--type", "t", "--payload", "1"];
    for (args, part) in [
        (vec!["frobnicate"], "unrecognized subcommand"),
        (vec!["run", "--limit", "5"], "--once"),
        (vec!["messages", "list", "--status", "LOST"], "PENDING, CLAIMED, SENT, FAILED, DEAD"),
        (vec!["messages", "show", "7"], "invalid value '7'"),
        (vec!["demo", "--messages", "0"], "0 is not in"),
        (vec!["stats", "--database", "mysql://db/shop"], "expected postgres://"),
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
