//! Every TOML fence is a configuration that a relay accepts.

use super::pages::pages;
use crate::command::Folder;
use postroom_testkit::skip;

#[test]
fn configurations_are_accepted_by_a_relay() {
    let mut seen = 0;
    for page in pages() {
        for fence in page.fences().iter().filter(|fence| fence.language() == "toml") {
            let folder = Folder::new();
            folder.write("page.toml", &fence.text);
            // One pass over an empty outbox: everything is validated and built, and nothing is
            // connected to. A layout's table is not there: it is asked for where nobody answers.
            let has_layout = fence.text.lines().any(|line| {
                line.strip_prefix("layout = ")
                    .is_some_and(|name| !name.starts_with("\"integration\""))
            });
            let args: &[&str] = match has_layout {
                true => {
                    &["check", "--config", "page.toml", "--database", "postgres://127.0.0.1:1/x"]
                }
                false => &["run", "--once", "--config", "page.toml", "--database", "sqlite://x.db"],
            };
            let mut command = folder.command(args);
            for name in variables(&fence.text) {
                let value = match name {
                    "DATABASE_URL" => "postgres://app@localhost/shop",
                    _ if name.ends_with("_SECRET") => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                    _ if name.ends_with("_URL") => "https://service.example/x",
                    _ => "x",
                };
                command.env(name, value);
            }
            let output = command.output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            if cfg!(not(feature = "full")) && errors.contains("this build was made without it") {
                let reason = "its sink was left out of this build: test with --features full";
                skip(&format!("docs: {}", page.place(fence)), reason);
                continue;
            }
            // 2 would be a fault of the configuration.
            let expected = i32::from(has_layout);
            assert_eq!(output.status.code(), Some(expected), "{}: {errors}", page.place(fence));
            seen += 1;
        }
    }
    assert!(seen > 3, "only {seen} configurations were found");
}

/// The names in `${NAME}`.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    text.split("${").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}
