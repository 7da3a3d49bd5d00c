//! Every advisory lock of the outbox: one number each, all in this file.
//!
//! The trigger functions in `migrations/postgres/` name two of them in SQL; a test compares. A new
//! lock gets the next number here.

use super::connect::ask;
use super::error::{is_lock_timeout, store_error};
use postroom_core::{StoreError, StoreErrorKind};
use std::time::Duration;
use tokio_postgres::{Client, Error};

/// Held by the process that migrates.
pub const MIGRATION: i64 = 7_305_804_401;
/// Held by one relay while it is busy: then producers send no NOTIFY.
pub const BUSY_RELAY: i64 = 7_305_804_402;
/// Shared by all relays that are idle and wait for NOTIFY.
pub const IDLE_RELAYS: i64 = 7_305_804_403;
/// Held by the transaction that replays messages, so that two replays of one event get two copies.
pub const REPLAY: i64 = 7_305_804_404;

/// How long a statement waits for a table that somebody has locked, where its transaction says
/// nothing else: to be prepared it needs the table too. A settlement may wait so twice, and is to
/// answer within the shortest deadline of a relay's calls, 6 seconds.
pub(super) const TABLE_WAIT: Duration = Duration::from_secs(2);

/// The error of a statement that waited for a lock as long as it may. `holder` says who may hold it.
pub(super) fn operation_error(doing: &str, holder: &str, error: Error) -> StoreError {
    if !is_lock_timeout(&error) {
        return store_error(doing, error);
    }
    StoreError::new(
        StoreErrorKind::Conflict,
        format!(
            "{doing}: another session holds a lock that this needs, and did not release it in time: \
             {holder}. Wait for it to finish, then run this again. `SELECT pid, state, xact_start, \
             query FROM pg_stat_activity WHERE state <> 'idle' ORDER BY xact_start` shows who is \
             at work"
        ),
        error,
    )
}

/// Which session holds a lock, for a message; as much as the role may see.
pub(super) async fn holder(client: &Client, lock: i64) -> String {
    let sql = format!(
        "SELECT coalesce((SELECT format('process %s of PostgreSQL, %s from %s', a.pid, \
             coalesce(nullif(a.application_name, ''), 'an unnamed program'), \
             coalesce(host(a.client_addr), 'this machine')) \
         FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.granted \
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
           AND (l.classid::bigint << 32) | l.objid::bigint = {lock} LIMIT 1), 'nobody any more')"
    );
    ask(client, "looking for the holder of a lock", &sql)
        .await
        .unwrap_or_else(|_| "another process".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::MIGRATIONS;
    use std::collections::BTreeSet;

    const ALL: [i64; 4] = [MIGRATION, BUSY_RELAY, IDLE_RELAYS, REPLAY];

    #[test]
    fn no_two_locks_have_the_same_number() {
        assert_eq!(BTreeSet::from(ALL).len(), ALL.len());
    }

    #[test]
    fn migrations_name_only_locks_of_this_file() {
        let mut named = BTreeSet::new();
        for migration in MIGRATIONS {
            for (_, after) in migration
                .sql
                .match_indices("advisory_")
                .map(|(at, word)| migration.sql.split_at(at + word.len()))
            {
                let Some((_, number)) = after.split_once('(') else { continue };
                let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
                named.insert(digits.parse::<i64>().unwrap());
            }
        }
        assert_eq!(named, BTreeSet::from([BUSY_RELAY, IDLE_RELAYS]), "what `wake_relay` asks for");
    }

    #[test]
    fn the_trigger_asks_for_the_locks_that_relays_hold() {
        let wakes = |part: &str| MIGRATIONS.iter().any(|one| one.sql.contains(part));
        assert!(wakes(&format!("pg_try_advisory_lock({IDLE_RELAYS})")), "nobody is idle");
        assert!(wakes(&format!("pg_try_advisory_lock_shared({BUSY_RELAY})")), "nobody is busy");
    }
}
