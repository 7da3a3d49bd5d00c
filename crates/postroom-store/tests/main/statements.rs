//! `STATEMENTS.md` lists the statements that not every dialect has.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../STATEMENTS.md");
const DIALECTS: [&str; 3] = ["postgres", "mysql", "sqlite"];

/// Which dialects have the statements under a heading.
fn dialects_of(heading: &str) -> BTreeSet<&'static str> {
    let have: &[&str] = match heading {
        "PostgreSQL alone" => &["postgres"],
        "MariaDB and MySQL alone" => &["mysql"],
        "SQLite alone" => &["sqlite"],
        "Not on SQLite" => &["postgres", "mysql"],
        "Not on MariaDB and MySQL" => &["postgres", "sqlite"],
        "Not on PostgreSQL" => &["mysql", "sqlite"],
        other => panic!("unknown heading: {other}"),
    };
    DIALECTS.into_iter().filter(|dialect| have.contains(dialect)).collect()
}

#[test]
fn statements_that_not_every_dialect_has_are_listed_with_their_reason() {
    let mut there: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for dialect in DIALECTS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(dialect).join("sql");
        for file in fs::read_dir(folder).expect("a folder of statements") {
            let name = file.expect("a file").file_name().into_string().expect("a name");
            there.entry(name).or_default().insert(dialect);
        }
    }
    there.retain(|_, dialects| dialects.len() < DIALECTS.len());

    let mut listed = BTreeMap::new();
    for section in PAGE.split("\n## ").skip(1) {
        let (heading, reasons) = section.split_once('\n').expect("reasons below a heading");
        for name in reasons.split('`').filter(|part| part.ends_with(".sql")) {
            let before = listed.insert(name.to_owned(), dialects_of(heading));
            assert_eq!(before, None, "{name} is listed twice");
        }
    }
    assert_eq!(listed, there);
}
