//! `[databases.NAME]`, and who names one of them.

use super::{S, read};
use crate::config::{Database, Origin};
use std::path::Path;

const TWO: &str = r#"
[databases.eu]
url = "postgres://app:${EU}@eu/shop"
pooler = "transaction"
direct_url = "postgres://app@eu-direct/shop"
notify = false

[databases.us]
url = "mariadb://app@us/shop"
[databases.us.retention]
sent = "1h"

[retention]
sent = "2d"
dedupe = "30d"
"#;

const EU: [(&str, &str); 1] = [("EU", "hunter2")];

fn names(databases: &[Database]) -> Vec<Option<&str>> {
    databases.iter().map(|database| database.name.as_deref()).collect()
}

/// What a tool works on with this file, `--database` and environment.
fn chosen(
    file: &Path,
    database: Option<&str>,
    variables: &[(&str, &str)],
) -> Result<Vec<Database>, String> {
    let environment = |name: &str| {
        variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    };
    let origin = Origin { file: Some(file), database, environment: &environment };
    origin.databases().map_err(|faults| faults.to_string())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn every_database_has_the_keys_of_one_and_a_retention_of_its_own() {
    let config = read(TWO, &EU).unwrap();
    assert_eq!(names(&config.databases), [Some("eu"), Some("us")]);
    let [eu, us] = &config.databases[..] else { panic!("two databases") };
    assert_eq!(eu.url, "postgres://app:hunter2@eu/shop");
    assert!(eu.transaction_pooler && !eu.notify && us.notify && !us.transaction_pooler);
    assert_eq!(eu.direct_url.as_deref(), Some("postgres://app@eu-direct/shop"));
    let [of_eu, of_us] = [eu, us].map(|database| config.settings(database).keep_sent);
    assert_eq!((of_eu, of_us), (S(2 * 24 * 3_600), S(3_600)));
    let day = S(24 * 3_600);
    assert_eq!([eu, us].map(|one| one.options().remember_events), [30 * day, 30 * day]);
}

#[test]
fn what_cannot_be_meant_is_a_fault_that_says_so() {
    for (text, said) in [
        (
            "[database]\nurl = \"sqlite://a\"\n[databases.b]\nurl = \"sqlite://b\"",
            "exclude each other",
        ),
        ("[databases]", "names no database"),
        ("[databases]\nurl = \"sqlite://a\"", "databases.url must be a table"),
        ("[databases.a]\npooler = \"session\"", "databases.a.url is missing"),
        ("[databases.a]\nurl = \"oracle://x\"", "databases.a.url is wrong"),
        ("[databases.a]\nurl = \"sqlite://a\"\nulr = 1", "databases.a.ulr is unknown"),
        (
            "[databases.a]\nurl = \"sqlite://a\"\n[databases.a.retention]\nsend = \"1d\"",
            "databases.a.retention.send is unknown",
        ),
        (
            "[databases.a]\nurl = \"sqlite://x\"\n[databases.b]\nurl = \"sqlite://x\"",
            "databases.b.url is that of databases.a too",
        ),
        ("[databases.\"a b\"]\nurl = \"sqlite://a\"", "must be letters, digits"),
        ("[databases.\"\"]\nurl = \"sqlite://a\"", "must be letters, digits"),
        ("[databases.\"-a\"]\nurl = \"sqlite://a\"", "must be letters, digits"),
        ("[databases.\"postgres:x\"]\nurl = \"sqlite://a\"", "must be letters, digits"),
        ("[database.retention]\nsent = \"1d\"", "database.retention is unknown"),
    ] {
        let faults = read(text, &[]).expect_err(text);
        assert!(faults.contains(said), "{text}: {faults}");
    }
    let long = format!("[databases.{}]\nurl = \"sqlite://a\"", "x".repeat(41));
    assert!(read(&long, &[]).is_err());
}

#[test]
fn what_only_some_databases_can_do_is_refused_with_their_name() {
    let background = "[databases.a]\nurl = \"postgres://a\"\n[databases.b]\nurl = \"sqlite://b\"\n\
                      [integrations.noop]\nrecord_sent = \"background\"";
    let faults = read(background, &[]).unwrap_err();
    assert!(faults.contains("databases.b is none"), "{faults}");
    let queued =
        "[databases.a]\nurl = \"postgres://a\"\n[integrations.noop]\ntransport = \"bullmq\"";
    let faults = read(queued, &[]).unwrap_err();
    assert!(
        faults.contains("integrations.\"noop\".transport") && faults.contains("prefix"),
        "{faults}"
    );
}

#[test]
fn the_command_line_picks_one_by_its_name_and_needs_the_secrets_of_no_other() {
    let file = file(TWO);
    let eu = chosen(file.path(), Some("eu"), &EU).unwrap();
    assert_eq!(names(&eu), [Some("eu")]);
    assert!(eu[0].transaction_pooler);
    assert_eq!(names(&chosen(file.path(), Some("us"), &[]).unwrap()), [Some("us")]);
    assert!(chosen(file.path(), None, &[]).unwrap_err().contains("EU"));
    let faults = chosen(file.path(), Some("asia"), &EU).unwrap_err();
    assert!(faults.contains("no [databases.asia]") && faults.contains("eu, us"), "{faults}");
    // A URL is a URL, as ever.
    let other = chosen(file.path(), Some("sqlite://x.db"), &[]).unwrap();
    assert_eq!((names(&other), other[0].url.as_str()), (vec![None], "sqlite://x.db"));
    assert_eq!(other[0].named_by.as_deref(), Some("--database"));
}

#[test]
fn the_environment_cannot_replace_several_outboxes_by_one() {
    let file = file(TWO);
    let with = |url: &'static str| [EU[0], ("DATABASE_URL", url)];
    let faults = chosen(file.path(), None, &with("sqlite://x.db")).unwrap_err();
    assert!(faults.contains("DATABASE_URL") && faults.contains("eu, us"), "{faults}");
    // One that is among them changes nothing, as where the file puts the variable in.
    let all = chosen(file.path(), None, &with("mariadb://app@us/shop")).unwrap();
    assert_eq!(names(&all), [Some("eu"), Some("us")]);
    // The command line comes before the environment.
    let one = chosen(file.path(), Some("us"), &with("sqlite://x.db")).unwrap();
    assert_eq!(names(&one), [Some("us")]);
}
