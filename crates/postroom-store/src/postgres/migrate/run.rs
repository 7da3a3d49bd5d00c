//! Carrying steps out, with patience for those who hold locks.

use super::script::Step;
use crate::MigrateOptions;
use crate::postgres::error::store_error;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::time::Duration;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Client, Error};

/// How long an index built or dropped CONCURRENTLY may wait for transactions that are older than
/// itself. Nobody waits behind it meanwhile.
const CONCURRENT_WAIT: Duration = Duration::from_secs(600);

/// The pause after a try, so that those who queued behind it get on; it grows up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_LONGEST: Duration = Duration::from_secs(5);

const INDEX_STATE: &str = "
    SELECT i.indisvalid
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = to_regnamespace('core_outbox') AND c.relname = $1";

impl Step {
    /// The step as it is run, for those who want to read it first.
    pub(super) fn shown(&self, options: &MigrateOptions) -> String {
        let wait = self.lock_timeout(options).as_millis();
        if self.alone {
            format!("SET lock_timeout = '{wait}ms';\n{}", self.sql)
        } else {
            format!("BEGIN;\nSET LOCAL lock_timeout = '{wait}ms';\n{}\nCOMMIT;", self.sql)
        }
    }

    fn lock_timeout(&self, options: &MigrateOptions) -> Duration {
        if self.is_concurrent() { CONCURRENT_WAIT } else { options.lock_timeout }
    }

    fn is_concurrent(&self) -> bool {
        self.words().any(|word| word == "CONCURRENTLY")
    }

    /// The index that this step builds beside producers.
    fn index(&self) -> Option<&str> {
        let mut words = self.words();
        let builds = words.next() == Some("CREATE") && self.is_concurrent();
        let mut name = words
            .skip_while(|word| *word != "CONCURRENTLY")
            .skip(1)
            .skip_while(|word| ["IF", "NOT", "EXISTS"].contains(word));
        if builds { name.next() } else { None }
    }

    /// The words of the statement, without comments.
    fn words(&self) -> impl Iterator<Item = &str> {
        let lines = self.sql.lines().filter(|line| !line.trim_start().starts_with("--"));
        lines.flat_map(str::split_whitespace)
    }
}

/// Runs a step until it is done. A try that does not get its lock in time is taken back and
/// repeated, so that producers never queue behind it for long. Tries count anew after one that has
/// moved on.
///
/// # Errors
/// When the database refuses, or the lock cannot be had.
pub(super) async fn run(
    client: &Client,
    step: &Step,
    doing: &str,
    options: &MigrateOptions,
) -> StoreResult<()> {
    let (mut tried, mut pause) = (0, PAUSE_FIRST);
    loop {
        let error = match attempt(client, step, options).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if !is_lost_to_another(&error) {
            return Err(store_error(doing, error));
        }
        if has_moved_on(&error) {
            (tried, pause) = (0, PAUSE_FIRST);
        }
        tried += 1;
        if tried >= options.tries {
            return Err(gave_up(doing, step, options, error));
        }
        tracing::info!(doing, tried, "some transaction is in the way; trying again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_LONGEST);
    }
}

async fn attempt(client: &Client, step: &Step, options: &MigrateOptions) -> Result<(), Error> {
    let wait = step.lock_timeout(options).as_millis();
    if !step.alone {
        client.batch_execute(&format!("BEGIN; SET LOCAL lock_timeout = '{wait}ms'")).await?;
        let done = client.batch_execute(&step.sql).await;
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = client.batch_execute(end).await;
        return done.and(ended);
    }
    client.batch_execute(&format!("SET lock_timeout = '{wait}ms'")).await?;
    let Some(index) = step.index() else { return client.batch_execute(&step.sql).await };
    match is_valid(client, index).await? {
        Some(true) => return Ok(()),
        // Somebody was cut off while building it: it costs every write, and serves no read.
        Some(false) => drop_index(client, index).await?,
        None => {}
    }
    let built = client.batch_execute(&step.sql).await;
    if built.is_err() && !client.is_closed() {
        // What is left of it would be in the producers' way until the next run.
        drop_index(client, index).await?;
    }
    built
}

async fn is_valid(client: &Client, index: &str) -> Result<Option<bool>, Error> {
    let row = client.query_opt(INDEX_STATE, &[&index]).await?;
    row.map(|row| row.try_get(0)).transpose()
}

async fn drop_index(client: &Client, index: &str) -> Result<(), Error> {
    client.batch_execute(&format!("DROP INDEX CONCURRENTLY IF EXISTS core_outbox.{index}")).await
}

fn is_lost_to_another(error: &Error) -> bool {
    error.code().is_some_and(|code| {
        [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
    })
}

/// Whether a step that commits as it goes has done so before it failed, and says so.
fn has_moved_on(error: &Error) -> bool {
    error.as_db_error().and_then(DbError::detail) == Some("moved on")
}

fn gave_up(doing: &str, step: &Step, options: &MigrateOptions, error: Error) -> StoreError {
    let statement: Vec<&str> = step.words().take(8).collect();
    let wait = step.lock_timeout(options);
    StoreError::new(
        StoreErrorKind::Conflict,
        format!(
            "{doing}: `{} …` could not get its lock in {} tries of {wait:?} each: some transaction \
             has been open for too long. Find it with `SELECT pid, state, xact_start, query FROM \
             pg_stat_activity ORDER BY xact_start`, end it, and run `postroom migrate` again: it \
             goes on from here",
            statement.join(" "),
            options.tries,
        ),
        error,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_that_a_step_builds_is_known() {
        let index = |sql: &str| Step::alone(sql).index().map(str::to_owned);
        assert_eq!(index("CREATE INDEX CONCURRENTLY a ON b (c)").as_deref(), Some("a"));
        let unique = "-- why\nCREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS a ON b (c)";
        assert_eq!(index(unique).as_deref(), Some("a"));
        assert_eq!(index("DROP INDEX CONCURRENTLY a"), None);
        assert_eq!(index("DO $$ BEGIN END $$"), None);
    }
}
