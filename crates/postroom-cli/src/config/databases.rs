//! Which outboxes: that of `[database]`, those of `[databases.NAME]`, or another that the command line
//! or the environment names.

use super::fault::{Fault, Place};
use super::model::{Database, Retention};
use super::reader::Section;
use super::{DATABASE_URL, Origin, sections};
use postroom_store::layout::Dialect;
use std::path::Path;
use std::time::Duration;

/// The longest name of a database: it stands in every line of lists, and in every metric.
const NAME_MAX: usize = 40;

/// The outboxes that a file names.
pub(super) struct Databases {
    /// One without a name, or all that have one.
    each: Vec<Database>,
    /// What holds for an outbox that the file does not name.
    unnamed: Database,
}

impl Databases {
    /// The names, where there are some.
    fn names(&self) -> Vec<&str> {
        self.each.iter().filter_map(|database| database.name.as_deref()).collect()
    }
}

/// Reads `[database]`, or all of `[databases]`: of these `only` one where that is there, since the
/// secrets of others may be missing. `named` is the URL that is used instead of the one in `[database]`.
pub(super) fn read(
    root: &Section<'_>,
    file: Option<&Path>,
    only: Option<&str>,
    named: Option<&str>,
) -> Databases {
    let retention = sections::retention(root.section("retention").as_ref(), Retention::default());
    let unnamed = Database::unnamed(retention);
    let Some(databases) = root.section("databases") else {
        let mut database =
            sections::database(root.section("database").as_ref(), retention, file, named);
        keep_rows(&mut database, root.section("retention").as_ref());
        return Databases { each: vec![database], unnamed };
    };
    if root.keys().any(|key| key == "database") {
        let problem = "[database] and [databases] exclude each other: the first names one outbox, the \
                       second several";
        let hint = "write [database] as one of them, such as [databases.main]".to_owned();
        root.fault_at(&["databases"], problem, Some(hint));
    }
    let mut sections = databases.sections();
    if sections.iter().any(|(name, _)| Some(name.as_str()) == only) {
        sections.retain(|(name, _)| Some(name.as_str()) == only);
    }
    if databases.keys().next().is_none() {
        let hint = "write [databases.NAME] with its url for each, or one [database]".to_owned();
        databases.fault("[databases] names no database", Some(hint));
    }
    let each: Vec<Database> =
        sections.iter().map(|(name, section)| one(name, section, retention, file)).collect();
    for (index, (name, section)) in sections.iter().enumerate() {
        let url = &each[index].url;
        let table =
            |database: &Database| database.layout.as_ref().map(|layout| layout.table.clone());
        let is_same = |other: &&Database| {
            other.url == *url && url != "memory:" && table(other) == table(&each[index])
        };
        let other = each[..index].iter().find(is_same);
        if let Some(other) = other.and_then(|other| other.name.as_deref()) {
            section.fault_at(&["url"], &format!("is that of databases.{other} too"), None);
        }
        if !is_name(name) {
            let problem = format!(
                "the name in [databases.{name:?}] must be letters, digits, `-` and `_`, from a letter \
                 or digit on, and of at most {NAME_MAX} characters"
            );
            section.fault(problem, None);
        }
    }
    Databases { each, unnamed }
}

fn one(name: &str, section: &Section<'_>, retention: Retention, file: Option<&Path>) -> Database {
    let retention = sections::retention(section.section("retention").as_ref(), retention);
    if !section.keys().any(|key| key == "url") {
        let hint = "for instance url = \"postgres://app@db/shop\"".to_owned();
        section.fault_at(&["url"], "is missing", Some(hint));
    }
    let mut database = sections::database(Some(section), retention, file, None);
    keep_rows(&mut database, section.section("retention").as_ref());
    Database { name: Some(name.to_owned()), ..database }
}

/// Rows of a table that Postroom did not make stay, unless its own retention says otherwise.
fn keep_rows(database: &mut Database, retention: Option<&Section<'_>>) {
    let Some(layout) = &database.layout else { return };
    let knows_time = layout.state.sent_at.is_some() || layout.message.created_at.is_some();
    let says = |key: &str| retention.is_some_and(|section| section.keys().any(|one| one == key));
    if !says("sent") {
        database.retention.keep_sent = Retention::FOR_EVER;
    }
    if says("sent")
        && !knows_time
        && !database.retention.keep_sent.is_zero()
        && let Some(section) = retention
    {
        let hint = "name the column in state.sent_at of the layout".to_owned();
        section.fault_at(&["sent"], "needs to know when a row was delivered", Some(hint));
    }
    if says("dedupe")
        && let Some(section) = retention
    {
        let hint = "its own unique key keeps an event from coming again".to_owned();
        section.fault_at(&["dedupe"], "is for Postroom's own table", Some(hint));
    }
    database.retention.remember_events = Duration::ZERO;
}

/// Beside a table that somebody else made: Postroom's own outbox in the same database, where dead letters go to,
/// and the further destinations of its rows.
pub(super) fn with_own_outboxes(
    databases: Vec<Database>,
    dead_letter: Option<&str>,
    own_retention: Retention,
    faults: &mut Vec<Fault>,
) -> Vec<Database> {
    let mut all = Vec::new();
    let names: Vec<String> = databases.iter().filter_map(|one| one.name.clone()).collect();
    let own = databases.iter().filter(|one| one.layout.is_none());
    let mut with_own: Vec<String> = own.map(|one| one.url.clone()).collect();
    for database in databases {
        let Some(layout) = database.layout.clone() else {
            all.push(database);
            continue;
        };
        if dead_letter.is_none() && !layout.has_several_destinations() {
            all.push(database);
            continue;
        }
        let (own_table, elsewhere) = own_table(&database.url);
        if layout.table == own_table {
            faults.push(Fault {
                place: Place::Outside,
                problem: format!(
                    "dead letters, and further destinations of one row, go to {own_table}, which is the table \
                     of the layout itself"
                ),
                hint: Some(format!("leave relay.dead_letter out, or {elsewhere}")),
            });
        }
        let name = database.name.clone().unwrap_or_else(|| "main".to_owned());
        // One for all tables of a database, and none where the file names it.
        if !with_own.contains(&database.url) {
            with_own.push(database.url.clone());
            let own_name = format!("{name}{OWN_SUFFIX}");
            if names.contains(&own_name) {
                faults.push(Fault {
                    place: Place::Outside,
                    problem: format!(
                        "databases.{own_name} has the name of the outbox that goes with databases.{name}"
                    ),
                    hint: Some("give it another name".to_owned()),
                });
            }
            // First: what is migrated after it writes there.
            all.push(Database {
                name: Some(own_name),
                layout: None,
                retention: own_retention,
                ..database.clone()
            });
        }
        all.push(Database { name: Some(name), ..database });
    }
    all
}

/// What the name of such an outbox ends with.
const OWN_SUFFIX: &str = "-outbox";

/// Of these, the one that the command line names.
pub(super) fn picked(
    databases: Vec<Database>,
    named: Option<&str>,
    faults: &mut Vec<Fault>,
) -> Vec<Database> {
    let Some(named) = named else { return databases };
    if databases.iter().all(|one| one.name.is_none() && one.layout.is_none()) {
        return databases;
    }
    let names: Vec<String> = databases.iter().filter_map(|one| one.name.clone()).collect();
    let is_it = |one: &Database| one.name.as_deref() == Some(named);
    if databases.iter().any(is_it) {
        return databases.into_iter().filter(is_it).collect();
    }
    if databases.len() > 1 || names.is_empty() {
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        faults.push(Fault {
            place: Place::Outside,
            problem: format!("--database: there is no database {named}"),
            hint: Some(format!("those there are: {known}; or give a URL")),
        });
    }
    databases
}

/// Postroom's own table in the database at `url`, and how another table makes room for it.
fn own_table(url: &str) -> (&'static str, &'static str) {
    match Dialect::of(url) {
        Some(Dialect::Mysql | Dialect::Sqlite) => ("integration_outbox", "rename that table"),
        Some(Dialect::Postgres) | None => {
            ("core_outbox.integration_outbox", "move that table to another schema")
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    name.len() <= NAME_MAX
        && name.bytes().all(is_plain)
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

impl Origin<'_> {
    /// The database that `--database` may name in the file: anything that is no URL.
    pub(super) fn name(&self) -> Option<&str> {
        self.database.filter(|named| !named.contains(':'))
    }

    /// The URL that the command line or the environment names, where the file has one database.
    pub(super) fn named_url(&self) -> Option<String> {
        let variable = (self.environment)(DATABASE_URL).map(|url| url.trim().to_owned());
        let named = self.database.map(str::to_owned).or(variable);
        named.filter(|url| url.contains(':'))
    }

    /// The outboxes that count: the command line's, the environment's, the file's, or the default.
    pub(super) fn choose(&self, databases: Databases, faults: &mut Vec<Fault>) -> Vec<Database> {
        let variable = (self.environment)(DATABASE_URL);
        let variable = variable.map(|url| url.trim().to_owned()).filter(|url| !url.is_empty());
        let names = databases.names();
        if names.is_empty() {
            let Databases { mut each, .. } = databases;
            for database in &mut each {
                // One of the two that a table and its own outbox make is picked later.
                let is_picked_later = database.layout.is_some() && self.name().is_some();
                if !is_picked_later {
                    self.name_database(database, variable.as_deref(), faults);
                }
            }
            return each;
        }
        if let Some(named) = self.database {
            let base = named.strip_suffix(OWN_SUFFIX).unwrap_or(named);
            let is_meant = |one: &&Database| {
                one.url == named
                    || one.name.as_deref().is_some_and(|name| name == named || name == base)
            };
            if let Some(database) = databases.each.iter().find(is_meant) {
                return vec![database.clone()];
            }
            if self.name().is_some() {
                faults.push(Fault {
                    place: Place::Outside,
                    problem: format!("--database: there is no [databases.{named}]"),
                    hint: Some(format!("those there are: {}; or give a URL", names.join(", "))),
                });
            }
            let mut database = databases.unnamed;
            self.name_database(&mut database, None, faults);
            return vec![database];
        }
        // Whichever of the two was meant, a relay that took the other would deliver from the wrong
        // outboxes.
        if let Some(url) = variable
            && databases.each.iter().all(|database| database.url != url)
        {
            faults.push(Fault {
                place: Place::Outside,
                problem: format!(
                    "the environment variable {DATABASE_URL} names another outbox than [databases]"
                ),
                hint: Some(format!(
                    "`unset {DATABASE_URL}`, or say by --database which is meant: {}, or a URL",
                    names.join(", ")
                )),
            });
        }
        databases.each
    }

    /// Puts the outbox in place that the command line names, or the environment.
    fn name_database(
        &self,
        database: &mut Database,
        variable: Option<&str>,
        faults: &mut Vec<Fault>,
    ) {
        let (url, named_by) = match (self.database, variable) {
            (Some(url), _) => (url, "--database"),
            (None, Some(url)) => (url, DATABASE_URL),
            (None, None) => return,
        };
        let named_by = Some(named_by.to_owned());
        // A file that names the same one, such as by ${DATABASE_URL}, says more about it.
        if database.url == url && database.named_by.is_some() {
            database.named_by = named_by;
            return;
        }
        if let Err(error) = postroom_store::migrations(url) {
            faults.push(Fault {
                place: Place::Outside,
                problem: match self.database {
                    Some(_) => format!("--database: {error}"),
                    None => format!("the environment variable {DATABASE_URL}: {error}"),
                },
                hint: self.database.is_none().then(|| {
                    format!("correct it, `unset {DATABASE_URL}`, or name the outbox by --database")
                }),
            });
        }
        // The file's pooler and its way round it belong to the file's database.
        *database = Database {
            url: url.to_owned(),
            named_by,
            direct_url: None,
            transaction_pooler: false,
            ..database.clone()
        };
    }
}
