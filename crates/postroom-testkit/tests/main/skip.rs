//! Skips are recorded where the test command looks for them.

use std::process::Command;

/// Set for the child that does the skipping: a process of its own, since other tests run beside
/// this one and share its environment.
const CHILD: &str = "POSTROOM_TESTKIT_SKIPPING";

#[test]
fn a_skip_is_a_line_with_its_name_and_reason() {
    if std::env::var_os(CHILD).is_some() {
        postroom_testkit::skip("tests::first", "no such\nservice");
        postroom_testkit::skip("tests::second", "no licence");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("skips");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "skip::a_skip_is_a_line_with_its_name_and_reason"])
        .env(CHILD, "1")
        .env("POSTROOM_SKIPS", &file)
        .output()
        .unwrap()
        .status;
    assert!(status.success());
    let recorded = std::fs::read_to_string(&file).unwrap();
    assert_eq!(recorded, "tests::first\tno such service\ntests::second\tno licence\n");
}
