//! Migrations by database, embedded in the program.

use crate::open::{Location, locate};
use crate::{postgres, sqlite};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
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

/// How to migrate. All of it concerns PostgreSQL alone.
#[derive(Clone, Copy, Debug)]
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
}

impl Default for MigrateOptions {
    fn default() -> Self {
        Self {
            claimed_grace: Duration::from_secs(300),
            replace_fence: false,
            lock_timeout: Duration::from_secs(2),
            tries: 20,
        }
    }
}

/// What a migration did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Migrated {
    /// The numbers applied.
    pub applied: Vec<u32>,
    /// What the operator should know.
    pub notes: Vec<String>,
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

/// The migrations for the kind of database at `url`; nothing is connected to.
///
/// # Errors
/// When the URL names no database Postroom knows.
pub fn migrations(url: &str) -> StoreResult<&'static [Migration]> {
    Ok(match locate(url)? {
        Location::Postgres => postgres::MIGRATIONS,
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
    match locate(url)? {
        Location::Postgres => postgres::migrate(url, options).await,
        Location::Sqlite(path) => {
            let applied = sqlite::migrate(&path).await?;
            Ok(Migrated { applied, ..Migrated::default() })
        }
        Location::Memory => Ok(Migrated::default()),
    }
}

/// What [`migrate_with`] would do. Changes nothing, and makes no file.
///
/// # Errors
/// As for [`migrate`].
pub async fn plan(url: &str, options: &MigrateOptions) -> StoreResult<Vec<Planned>> {
    match locate(url)? {
        Location::Postgres => postgres::plan(url, options).await,
        Location::Sqlite(path) => sqlite::plan(&path).await,
        Location::Memory => Ok(Vec::new()),
    }
}

/// Turns the signal for new messages on or off in the database.
///
/// # Errors
/// When the database has no such signal, cannot be reached or refuses.
pub async fn set_notify(url: &str, on: bool) -> StoreResult<()> {
    match locate(url)? {
        Location::Postgres => postgres::set_notify(url, on).await,
        Location::Sqlite(_) | Location::Memory => Err(StoreError::plain(
            StoreErrorKind::Refused,
            "only PostgreSQL has a signal for new messages; here the relay polls",
        )),
    }
}

/// The statements that give producers and relays the rights they need, and no more.
///
/// # Errors
/// When the database at `url` knows no rights.
pub fn grants(url: &str) -> StoreResult<String> {
    match locate(url)? {
        Location::Postgres => Ok(postgres::grants()),
        Location::Sqlite(_) | Location::Memory => Err(StoreError::plain(
            StoreErrorKind::Refused,
            "there are no rights to grant here: whoever may open the file may do everything",
        )),
    }
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
