//! Configuration files, found, read and refused.

use crate::command::Folder;

#[test]
fn all_faults_are_reported_together_and_exit_with_2() {
    let folder = Folder::new();
    folder.write("postroom.toml", "[relay]\nbatch_siz = 1\n\n[integrations.\"telegraph:x\"]\n");
    for command in ["run", "check"] {
        let answer = folder.run(&[command]);
        assert_eq!(answer.code, 2, "{answer:?}");
        assert!(answer.stderr.contains("the configuration has 2 faults:"), "{}", answer.stderr);
        assert!(answer.stderr.contains("postroom.toml:2:1: relay.batch_siz is unknown"));
        assert!(answer.stderr.contains("hint: did you mean `batch_size`?"));
        assert!(answer.stderr.contains("postroom.toml:4:15: there is no sink `telegraph`"));
    }
}

/// In the default build; with all features there is nothing that was left out.
#[cfg(not(feature = "kafka"))]
#[test]
fn check_says_how_to_get_a_sink_that_was_left_out_of_the_build() {
    let folder = Folder::new();
    folder.write("postroom.toml", "[integrations.\"kafka:x\"]\nbrokers = \"a:9092\"\n");
    let answer = folder.run(&["check"]);
    assert_eq!(answer.code, 2, "{answer:?}");
    assert!(answer.stderr.contains("postroom.toml:1:15: there is no sink `kafka`"), "{answer:?}");
    assert!(answer.stderr.contains("made without it: build Postroom with `--features kafka`"));
}

#[test]
fn a_bad_variable_is_named() {
    let folder = Folder::new();
    let output = folder.command(&["check"]).env("OUTBOX_MAX_ATTEMPTS", "many").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("OUTBOX_MAX_ATTEMPTS"));
}

#[test]
fn a_file_that_is_not_there_is_a_fault() {
    let answer = Folder::new().run(&["check", "--config", "missing.toml"]);
    assert_eq!(answer.code, 2);
    assert!(answer.stderr.contains("cannot read missing.toml"), "{}", answer.stderr);
}

#[test]
fn check_probes_everything_and_names_what_is_wrong() {
    let folder = Folder::new();
    folder.enqueue("kafka:payments", &[]);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    folder.write(
        "postroom.toml",
        &format!(
            "[relay]\ndead_letter = \"kafka:dead\"\n[integrations.noop]\n\
             [integrations.\"webhook:a\"]\nurl = \"http://{nobody}/hook?key=s3cret\"\n\
             allow_addresses = [\"127.0.0.0/8\"]\n\
             [integrations.\"file:b\"]\npath = \"missing/b.jsonl\"\n"
        ),
    );
    let answer = folder.run(&["check", "--json"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(!answer.stdout.contains("s3cret"));
    let report: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    let result = |what: &str| {
        let checks = report["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["what"] == what);
        check.unwrap_or_else(|| panic!("{what}: {report}"))["result"].as_str().unwrap().to_owned()
    };
    assert_eq!(result("configuration"), "ok");
    assert_eq!(result("database"), "ok");
    assert_eq!(result("noop"), "ok");
    assert_eq!(result("webhook:a"), "fault");
    assert_eq!(result("file:b"), "fault");
    assert_eq!(result("kafka:payments"), "warning");
    assert_eq!(result("dead_letter"), "warning");
}

#[test]
fn check_fails_at_once_when_the_database_is_down() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://app:hunter2@{nobody}/shop");
    let answer = Folder::new().run(&["check", "--database", &url]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.stdout.contains("FAULT") && answer.stdout.contains("refused"), "{answer:?}");
    assert!(!answer.stdout.contains("hunter2"), "{answer:?}");
}

#[test]
fn check_without_anything_is_content() {
    let folder = Folder::new();
    let text = folder.run(&["check"]).ok();
    assert!(text.contains("not there yet"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a check makes nothing");
}
