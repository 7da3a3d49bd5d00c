//! `$ postroom …` in console fences is run, page by page, and prints what the page shows.
//!
//! Ids, times and spans differ from run to run, so they match whatever stands in their place; an
//! id that a page has shown stands for the real one in the commands that follow. `…` on a line
//! of its own leaves lines out, at the end of one the rest of it. `sql here` is run in between, on the
//! page's own database.

use super::pages::{Fence, Page, pages};
use super::sql::statements;
use crate::command::Folder;
use postroom_testkit::{Postgres, TestDatabase};
use std::collections::HashMap;
use std::path::Path;
use tokio_postgres::SimpleQueryMessage;

#[tokio::test(flavor = "multi_thread")]
async fn commands_print_what_the_page_shows() {
    let mut seen = 0;
    for page in pages() {
        let mut session = Session::default();
        for fence in page.fences() {
            if fence.language() == "toml" && fence.text.starts_with("# postroom.toml\n") {
                session.folder.write("postroom.toml", &fence.text);
            }
            if fence.language() == "sql" && fence.has_tag("here") {
                session.query(&page.place(&fence), &fence.text).await;
            }
            for step in steps(&fence) {
                session.run(&page.place(&fence), &step).await;
                seen += 1;
            }
        }
    }
    assert!(seen > 10, "only {seen} commands were found");
}

#[test]
fn the_readme_shows_what_the_demo_prints() {
    let page = Page::read("README.md");
    let fences = page.fences();
    let demo = fences.iter().find(|fence| fence.text.starts_with("$ cargo run -- demo"));
    let printed = Folder::new().run(&["demo", "--messages", "20"]).ok();
    let name = |line: &str| line.split("  ").next().unwrap_or_default().to_owned();
    let printed: Vec<String> = printed.lines().map(name).collect();
    let shown = demo.expect("the README shows the demo").text.lines();
    let shown: Vec<String> = shown.skip_while(|line| *line != "…").skip(1).map(name).collect();
    assert_eq!(shown, printed);
}

/// A command, and the lines that a page shows under it.
struct Step {
    command: String,
    shown: Vec<String>,
}

fn steps(fence: &Fence) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    if fence.language() != "console" {
        return steps;
    }
    let mut continues = false;
    for line in fence.text.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => {
                steps.push(Step { command: command.to_owned(), shown: Vec::new() });
                continues = command.ends_with('\\');
            }
            (None, Some(step)) if continues => {
                step.command.push('\n');
                step.command.push_str(line);
                continues = line.ends_with('\\');
            }
            (None, Some(step)) => step.shown.push(line.to_owned()),
            (None, None) => panic!("a console fence begins with a command, not with {line:?}"),
        }
    }
    // Others set the scene for readers.
    steps.retain(|step| step.command.starts_with("postroom "));
    steps
}

/// One page's folder, database and ids.
struct Session {
    folder: Folder,
    database: Option<TestDatabase>,
    /// From the id on the page to the real one.
    ids: HashMap<String, String>,
}

impl Default for Session {
    fn default() -> Self {
        Self { folder: Folder::new(), database: None, ids: HashMap::new() }
    }
}

impl Session {
    async fn run(&mut self, place: &str, step: &Step) {
        let mut text = step.command.clone();
        for (shown, real) in &self.ids {
            text = text.replace(shown, real);
        }
        let mut shell = std::process::Command::new("sh");
        let programs = Path::new(env!("CARGO_BIN_EXE_postroom")).parent().unwrap();
        shell.args(["-ec", &text]).current_dir(self.folder.path()).env_clear();
        shell.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        let configuration = self.folder.path().join("postroom.toml");
        let configuration = std::fs::read_to_string(configuration).unwrap_or_default();
        if text.contains("$DATABASE_URL") || configuration.contains("${DATABASE_URL}") {
            shell.env("DATABASE_URL", self.database().await.url());
        }
        let output = shell.output().unwrap();
        let mut printed = String::from_utf8(output.stdout).unwrap();
        printed.push_str(std::str::from_utf8(&output.stderr).unwrap());
        assert_eq!(output.status.code(), Some(0), "{place}: {text}\n{printed}");
        self.compare(step, &printed).unwrap_or_else(|line| {
            panic!("{place}: {text}\nprints no line like\n  {line}\nbut\n{printed}")
        });
    }

    async fn database(&mut self) -> &TestDatabase {
        if self.database.is_none() {
            self.database = Some(Postgres::shared().await.database().await);
        }
        self.database.as_ref().unwrap()
    }

    /// Runs statements. Those that ask for rows must find some.
    async fn query(&mut self, place: &str, text: &str) {
        let client = self.database().await.client().await;
        for statement in statements(text) {
            let answers = client.simple_query(&statement).await;
            let answers = answers.unwrap_or_else(|error| panic!("{place}: {error}\n{statement}"));
            let finds = answers.iter().any(|answer| matches!(answer, SimpleQueryMessage::Row(_)));
            assert!(finds || !statement.starts_with("SELECT"), "{place}: no row for\n{statement}");
        }
    }

    /// Finds every line shown among those printed, in order. The error is one that is not there.
    fn compare(&mut self, step: &Step, printed: &str) -> Result<(), String> {
        let mut printed = printed.lines();
        for shown in step.shown.iter().filter(|line| !line.is_empty() && *line != "…") {
            let (pattern, ids) = pattern(shown);
            let found = printed.find_map(|line| {
                let (line, real) = self::pattern(line);
                let matches = match pattern.strip_suffix('…') {
                    Some(start) => line.starts_with(start),
                    None => line == pattern,
                };
                matches.then_some(real)
            });
            self.ids.extend(ids.into_iter().zip(found.ok_or_else(|| shown.clone())?));
        }
        Ok(())
    }
}

/// A line with single spaces and signs for what differs from run to run, and the ids in it.
fn pattern(line: &str) -> (String, Vec<String>) {
    let mut ids = Vec::new();
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        if matches!(word, "ms" | "s" | "min") && !words.is_empty() {
            words.pop();
            words.push("<span>".to_owned());
            continue;
        }
        let mut signs = String::new();
        let mut rest = word;
        while let Some(first) = rest.chars().next() {
            if let Some(id) = rest.get(..36).filter(|text| is_id(text)) {
                ids.push(id.to_owned());
                signs.push_str("<id>");
                rest = &rest[36..];
            } else if let Some(time) = time(rest) {
                signs.push_str("<time>");
                rest = &rest[time..];
            } else {
                signs.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        words.push(signs);
    }
    (words.join(" "), ids)
}

fn is_id(text: &str) -> bool {
    text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
        && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// The length of the time at the beginning of `text`, such as `2026-11-16T00:05:55.530Z`.
fn time(text: &str) -> Option<usize> {
    let end = text.find('Z')? + 1;
    let digits = |range: std::ops::Range<usize>| {
        text.get(range).is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_time = end >= 20 && digits(0..4) && text.get(4..5) == Some("-") && digits(11..13);
    is_time.then_some(end)
}
