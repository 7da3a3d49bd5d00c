//! Migrations by database, embedded in the program.

use crate::layout::Layout;
use crate::open::{Location, locate, refuse_layout};
use crate::{mysql, postgres, sqlite};
use postroom_core::{Finding, StoreError, StoreErrorKind, StoreResult};
use std::sync::Arc;
use std::time::Duration;

/// One numbered step of the schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its number, from 1 without gaps.
    pub number: u32,
    /// What it brings.
    pub name: &'static str,
    /// The SQL.
    pub sql: &'static str,
}

/// How to migrate. What concerns no layout is for PostgreSQL alone.
#[derive(Clone, Debug)]
pub struct MigrateOptions {
    /// When a message that an older dispatcher had claimed is due: its worker may still finish it.
    pub claimed_grace: Duration,
    /// Whether to drop the unique index on stream and event of an adopted table. Producers that
    /// name it in ON CONFLICT fail from then on.
    pub replace_fence: bool,
    /// How long one try waits for a lock: producers may have to wait behind it for so long.
    pub lock_timeout: Duration,
    /// How often it is tried.
    pub tries: u32,
    /// The layout of the message table, unless that is Postroom's own: then its ledger is made.
    pub layout: Option<Arc<Layout>>,
    /// The services whose tables may be made: `ENABLED_MIGRATION_SERVICES`.
    pub services: Vec<String>,
}

impl Default for MigrateOptions {
    fn default() -> Self {
        Self {
            claimed_grace: Duration::from_secs(300),
            replace_fence: false,
            lock_timeout: Duration::from_secs(2),
            tries: 20,
            layout: None,
            services: Vec::new(),
        }
    }
}

/// What a migration did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Migrated {
    /// The numbers applied.
    pub applied: Vec<u32>,
    /// What else was done.
    pub done: Vec<String>,
    /// What the operator should know.
    pub notes: Vec<String>,
}

impl Migrated {
    /// Adds a piece of work that was done.
    pub(crate) fn add(&mut self, work: &Planned) {
        match work.number {
            Some(number) => self.applied.push(number),
            None => self.done.push(work.name.clone()),
        }
    }
}

/// A piece of work that a migration would do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Planned {
    /// The migration it belongs to, if it is one.
    pub number: Option<u32>,
    /// What it brings.
    pub name: String,
    /// The statements, as they would be run.
    pub sql: String,
}

impl Planned {
    /// What it is called where something goes wrong with it.
    pub(crate) fn title(&self) -> String {
        match self.number {
            Some(number) => format!("migration {number:04}_{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// The migrations for the kind of database at `url`; nothing is connected to.
///
/// # Errors
/// When the URL names no database Postroom knows.
pub fn migrations(url: &str) -> StoreResult<&'static [Migration]> {
    Ok(match locate(url)? {
        Location::Postgres => postgres::MIGRATIONS,
        Location::MySql => mysql::MIGRATIONS,
        Location::Sqlite(_) => sqlite::MIGRATIONS,
        Location::Memory => &[],
    })
}

/// Applies what is missing and returns its numbers. Safe twice, and from several processes at
/// once.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub async fn migrate(url: &str) -> StoreResult<Vec<u32>> {
    Ok(migrate_with(url, &MigrateOptions::default()).await?.applied)
}

/// The same, as `options` say.
///
/// # Errors
/// As for [`migrate`].
pub async fn migrate_with(url: &str, options: &MigrateOptions) -> StoreResult<Migrated> {
    let location = locate(url)?;
    refuse_layout(&location, options.layout.as_deref())?;
    match location {
        Location::Postgres => postgres::migrate(url, options).await,
        Location::MySql => mysql::migrate(url, options).await,
        Location::Sqlite(path) => sqlite::migrate(&path, options).await,
        Location::Memory => Ok(Migrated::default()),
    }
}

/// What [`migrate_with`] would do. Changes nothing, and makes no file.
///
/// # Errors
/// As for [`migrate`].
pub async fn plan(url: &str, options: &MigrateOptions) -> StoreResult<Vec<Planned>> {
    let location = locate(url)?;
    refuse_layout(&location, options.layout.as_deref())?;
    match location {
        Location::Postgres => postgres::plan(url, options).await,
        Location::MySql => mysql::plan(url, options).await,
        Location::Sqlite(path) => sqlite::plan(&path, options).await,
        Location::Memory => Ok(Vec::new()),
    }
}

/// Turns the signal for new messages on or off in the database.
///
/// # Errors
/// When the database has no such signal, cannot be reached or refuses.
pub async fn set_notify(url: &str, layout: Option<&Layout>, on: bool) -> StoreResult<()> {
    match locate(url)? {
        Location::Postgres => postgres::set_notify(url, layout, on).await,
        Location::MySql | Location::Sqlite(_) | Location::Memory => Err(StoreError::plain(
            StoreErrorKind::Refused,
            "only PostgreSQL has a signal for new messages; here the relay polls",
        )),
    }
}

/// Proposes a layout for a table that somebody else made, as the `[database]` section of a configuration.
///
/// # Errors
/// When the database cannot be reached, there is no such table, nothing in it can be a message, or it is of a kind
/// that layouts are not for.
pub async fn propose_layout(url: &str, table: &str) -> StoreResult<String> {
    match locate(url)? {
        Location::Postgres => postgres::propose_layout(url, table).await,
        Location::Sqlite(path) => sqlite::propose_layout(&path, table).await,
        Location::MySql => mysql::propose_layout(url, table).await,
        Location::Memory => Err(StoreError::plain(
            StoreErrorKind::Refused,
            "a layout is proposed for tables of a database: in memory there is Postroom's own table alone",
        )),
    }
}

/// Removes the ledger that a layout's migration has made, and the triggers. The table's rows stay as they are.
///
/// # Errors
/// When the database cannot be reached or refuses, or is of a kind that layouts are not for.
pub async fn remove_ledger(url: &str, layout: &Layout) -> StoreResult<()> {
    match locate(url)? {
        Location::Postgres => postgres::remove_ledger(url, layout).await,
        Location::Sqlite(path) => sqlite::remove_ledger(&path, layout).await,
        Location::MySql => mysql::remove_ledger(url, layout).await,
        location @ Location::Memory => refuse_layout(&location, Some(layout)),
    }
}

/// The statements that give producers and relays the rights they need, and no more.
///
/// # Errors
/// When the database at `url` knows no rights.
pub fn grants(url: &str, layout: Option<&Layout>) -> StoreResult<String> {
    let location = locate(url)?;
    refuse_layout(&location, layout)?;
    match location {
        Location::Postgres => match layout {
            Some(layout) => Ok(postgres::layout::grants(layout)),
            None => Ok(postgres::GRANTS.to_owned()),
        },
        Location::MySql => match layout {
            Some(layout) => mysql::layout_grants(url, layout),
            None => Ok(mysql::GRANTS.to_owned()),
        },
        Location::Sqlite(_) | Location::Memory => Err(StoreError::plain(
            StoreErrorKind::Refused,
            "there are no rights to grant here: whoever may open the file may do everything",
        )),
    }
}

/// The triggers that keep deliveries in step, by the names they have everywhere.
pub(crate) const TRIGGERS: [&str; 2] = ["outbox_feed", "outbox_follow"];

/// What became of a migration, by the database's own record.
pub(crate) struct Noted {
    pub(crate) number: u32,
    /// Where DDL commits by itself, a migration can have been cut off.
    pub(crate) finished: bool,
}

/// What is left to do where tables of someone else are not adopted.
///
/// # Errors
/// When `has_table` although nothing was noted, or the schema is newer than this program.
pub(crate) fn left(
    known: &[Migration],
    noted: &[Noted],
    has_table: bool,
) -> StoreResult<Vec<Planned>> {
    if has_table && noted.is_empty() {
        return Err(StoreError::plain(
            StoreErrorKind::Refused,
            "integration_outbox exists already and was not made by Postroom; this version cannot \
             adopt it. Nothing was changed. Rename the table, or use another database",
        ));
    }
    let newest = noted.iter().map(|note| note.number).max().unwrap_or(0);
    if version(newest) > latest(known) {
        check(version(newest), latest(known))?;
    }
    let is_finished = |number| noted.iter().any(|note| note.number == number && note.finished);
    let missing = known.iter().filter(|migration| !is_finished(migration.number));
    let planned = missing.map(|migration| Planned {
        number: Some(migration.number),
        name: migration.name.to_owned(),
        sql: migration.sql.trim().to_owned(),
    });
    Ok(planned.collect())
}

/// The statement that makes a trigger, as the newest migration with one has it: up to `end`.
pub(crate) fn make_trigger(known: &'static [Migration], name: &str, end: &str) -> &'static str {
    let begin = format!("CREATE TRIGGER {name} ");
    let found = known.iter().rev().find_map(|migration| {
        let statement = &migration.sql[migration.sql.find(&begin)?..];
        statement.split_inclusive(end).next()
    });
    found.unwrap_or_default()
}

/// Whether a trigger is made by what is planned already.
pub(crate) fn makes_trigger(planned: &[Planned], name: &str) -> bool {
    let begin = format!("CREATE TRIGGER {name} ");
    planned.iter().any(|work| work.sql.contains(&begin))
}

/// A trigger that is not there.
pub(crate) fn trigger_is_missing(name: &str) -> Finding {
    Finding::fault(
        format!("the trigger {name} is missing: new messages or changes are not noticed"),
        "run `postroom migrate`, then `postroom reconcile`",
    )
}

/// The schema version that migrations lead to.
pub(crate) fn latest(known: &[Migration]) -> i32 {
    version(known.last().map_or(0, |migration| migration.number))
}

fn version(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Compares the schema found with the one this program was built for.
pub(crate) fn check(found: i32, latest: i32) -> StoreResult<()> {
    let problem = match found.cmp(&latest) {
        std::cmp::Ordering::Equal => return Ok(()),
        std::cmp::Ordering::Less => "older than this program: run `postroom migrate`",
        std::cmp::Ordering::Greater => "newer than this program: upgrade Postroom",
    };
    Err(StoreError::plain(
        StoreErrorKind::Schema,
        format!("the outbox has schema version {found}, {problem} (needed: {latest})"),
    ))
}
