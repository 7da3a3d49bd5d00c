//! Migrations by database, embedded in the program.

use crate::open::{Location, locate};
use crate::{mysql, postgres, sqlite};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};

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
    match locate(url)? {
        Location::Postgres => postgres::migrate(url).await,
        Location::MySql => mysql::migrate(url).await,
        Location::Sqlite(path) => sqlite::migrate(&path).await,
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
        Location::MySql | Location::Sqlite(_) | Location::Memory => Err(StoreError::plain(
            StoreErrorKind::Refused,
            "only PostgreSQL has a signal for new messages; here the relay polls",
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
