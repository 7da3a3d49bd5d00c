//! What exists is described: commands, options, keys, variables, metrics, columns.

use super::pages::Page;
use crate::command::Folder;
use postroom_testkit::{Postgres, Redis, eventually};
use std::io::{Read as _, Write as _};
use std::time::Duration;

#[test]
fn every_command_and_option_is_described() {
    let page = Page::read("docs/reference/cli.md").text;
    let common = section(&page, "## Every command takes");
    let folder = Folder::new();
    let mut seen = 0;
    let mut commands = subcommands(&folder, &[]);
    while let Some(command) = commands.pop() {
        let words: Vec<&str> = command.split(' ').collect();
        let below = subcommands(&folder, &words);
        if !below.is_empty() {
            commands.extend(below);
            continue;
        }
        let own = section(&page, &format!("## `postroom {command}"));
        let help = folder.run(&[&words[..], &["--help"]].concat()).ok();
        for option in help.split_whitespace().filter(|word| word.starts_with("--")) {
            let option = option.trim_end_matches(|c: char| !c.is_alphanumeric());
            let described = [&common, &own].iter().any(|text| text.contains(&format!("`{option}")));
            assert!(described, "postroom {command}: {option} is not described");
            seen += 1;
        }
    }
    assert!(seen > 40, "only {seen} options were found");
}

/// The commands below one, as its help lists them.
fn subcommands(folder: &Folder, above: &[&str]) -> Vec<String> {
    let help = folder.run(&[above, &["--help"]].concat()).ok();
    let Some((_, list)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let names = list.lines().take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(|name| [above, &[name]].concat().join(" ")).collect()
}

/// The part of a page under a heading that begins so.
fn section(page: &str, heading: &str) -> String {
    let (_, rest) = page.split_once(heading).unwrap_or_else(|| panic!("no heading {heading}"));
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

#[test]
fn every_key_and_sink_is_described() {
    let page = Page::read("docs/reference/configuration.md").text;
    let folder = Folder::new();
    // Unknown keys are answered with those there are.
    let mut faulty = "unheard_of = 1\n".to_owned();
    for section in [
        "database",
        "databases.x",
        "databases.x.retention",
        "relay",
        "relay.retry",
        "retention",
        "server",
        "redis",
        "tenants.x",
    ] {
        faulty.push_str(&format!("[{section}]\nunheard_of = 1\n"));
    }
    faulty.push_str("[integrations.unheard_of]\n");
    faulty.push_str("[integrations.queued]\ntransport = \"bullmq\"\nworkers = \"external\"\n");
    faulty.push_str("unheard_of = 1\n");
    let heavy: &[&str] = &[
        #[cfg(feature = "kafka")]
        "kafka",
        #[cfg(feature = "gcp")]
        "pubsub",
        #[cfg(feature = "aws")]
        "sns",
        #[cfg(feature = "aws")]
        "sqs",
    ];
    let light = [
        "email", "file", "mqtt", "nats", "noop", "postgres", "rabbitmq", "redis", "slack", "sms",
        "stdout", "webhook",
    ];
    for sink in light.iter().chain(heavy) {
        faulty.push_str(&format!("[integrations.{sink}]\nunheard_of = 1\n"));
    }
    folder.write("postroom.toml", &faulty);
    let answer = folder.run(&["check"]).stderr;
    let lists = answer
        .lines()
        .filter_map(|line| line.split_once("known here: ").or_else(|| line.split_once("one of: ")));
    let names: Vec<&str> = lists.flat_map(|(_, list)| list.split(", ")).collect();
    assert!(names.len() > 30, "{answer}");
    for name in names {
        let described = [format!("`{name}`"), format!("[{name}"), format!("[{name}.")];
        assert!(described.iter().any(|text| page.contains(text)), "{name} is not described");
    }
}

#[test]
fn every_key_of_a_layout_is_described() {
    let page = Page::read("docs/adopting.md").text;
    let folder = Folder::new();
    // Unknown keys are answered with those there are.
    let unheard_of =
        ["message", "state", "write"].map(|key| format!("{key} = {{ unheard_of = \"\" }}\n"));
    let faulty = format!("[database]\nlayout = \"custom\"\n{}", unheard_of.concat());
    folder.write("postroom.toml", &faulty);
    let answer = folder.run(&["check"]).stderr;
    let lists = answer.lines().filter_map(|line| line.split_once("expected one of "));
    let names: Vec<&str> = lists.flat_map(|(_, list)| list.split('`').skip(1).step_by(2)).collect();
    assert!(names.len() > 25, "{answer}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name} is not described");
    }
}

#[test]
fn every_environment_variable_is_described() {
    let page = Page::read("docs/reference/configuration.md").text;
    let source = Page::read("crates/postroom-cli/src/config/environment.rs").text;
    let is_name = |text: &&str| {
        text.contains('_') && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    let names: Vec<&str> = source.split('"').filter(is_name).collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "{name} is not described");
    }
}

#[tokio::test]
async fn every_metric_and_health_field_is_described() {
    const SOON: Duration = Duration::from_secs(60);
    let page = Page::read("docs/reference/metrics.md").text;
    let folder = Folder::new();
    let redis = Redis::shared().await.address();
    let config = format!(
        "[integrations.noop]\n[server]\nlisten = \"127.0.0.1:0\"\n[redis]\nurl = \"redis://{redis}\"\n\
         [integrations.\"noop:described\"]\ntransport = \"bullmq\"\n"
    );
    folder.write("postroom.toml", &config);
    // A metric is shown once it has a value: something was sent, and something waits.
    folder.enqueue("noop", &[]);
    folder.enqueue("noop:described", &[]);
    folder.enqueue("nobody", &[]);
    let relay = folder.start(&["run"]);
    let line = relay.wait_for_line("serving /healthz", SOON).await;
    let address = line.rsplit("address=").next().unwrap().trim().to_owned();
    let health = eventually("readiness", SOON, async || {
        get(&address, "/readyz").filter(|answer| answer.starts_with("HTTP/1.1 200"))
    })
    .await;
    let health: serde_json::Value =
        serde_json::from_str(health.split_once("\r\n\r\n").unwrap().1).unwrap();
    for key in health.as_object().unwrap().keys().filter(|key| *key != "lanes") {
        assert!(page.contains(&format!("| `{key}` |")), "{key} is not described");
    }
    for key in health["lanes"][0].as_object().unwrap().keys().filter(|key| *key != "integration") {
        assert!(page.contains(&format!("| `lanes[].{key}` |")), "lanes[].{key} is not described");
    }

    let described = page.lines().filter(|line| line.starts_with("| `outbox_")).count();
    let types = eventually("as many metrics as are described", SOON, async || {
        Some(metrics(&get(&address, "/metrics")?)).filter(|types| types.len() >= described)
    })
    .await;
    for (name, kind) in &types {
        assert!(page.contains(&format!("| `{name}` | {kind} |")), "{name} is not described");
    }
}

/// Every metric's name, as its values carry it, and its type.
fn metrics(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

/// One GET over a plain socket; `None` when nobody answers.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_table_column_and_argument_is_described() {
    const NAMES: &str = "
        SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'core_outbox'
        UNION ALL
        SELECT column_name::text FROM information_schema.columns
        WHERE table_schema = 'core_outbox' AND table_name IN ('integration_outbox', 'messages')
        UNION ALL
        SELECT unnest(proargnames) FROM pg_proc
        WHERE pronamespace = 'core_outbox'::regnamespace AND proname = 'enqueue'";
    let page = Page::read("docs/reference/sql.md").text;
    let database = Postgres::shared().await.database().await;
    Folder::new().run(&["migrate", "--database", database.url()]).ok();
    let rows = database.client().await.query(NAMES, &[]).await.unwrap();
    assert!(rows.len() > 60, "only {} names were found", rows.len());
    for row in rows {
        let name: String = row.get(0);
        let described =
            page.contains(&format!("`{name}`")) || page.contains(&format!("`core_outbox.{name}`"));
        assert!(described, "{name} is not described");
    }
}
