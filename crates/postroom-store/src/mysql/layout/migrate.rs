//! Making the ledger of a table that somebody else made, and removing it.

use super::{Foreign, catalogue, failed, quoted_text};
use crate::MigrateOptions;
use crate::layout::{Layout, backticked};
use crate::migrations::Planned;
use crate::mysql::execute;
use crate::mysql::migrate::has_table_in;
use crate::mysql::session::Session;
use crate::mysql::version::locking;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::{AssertSqlSafe, Error, Row as _};

const GRANTS: &str = include_str!("../../../migrations/mysql/layout/grants.sql");

/// What was migrated: the table, and the fingerprint of what was made for it.
struct Applied {
    table: String,
    fingerprint: String,
}

async fn find_applied(connection: &mut Session, ledger: &str) -> Result<Option<Applied>, Error> {
    if !has_table_in(connection, ledger, "outbox_layout").await? {
        return Ok(None);
    }
    let sql = format!("SELECT table_name, fingerprint FROM {}.outbox_layout", backticked(ledger));
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_optional(connection).await?;
    row.map(|row| Ok(Applied { table: row.try_get(0)?, fingerprint: row.try_get(1)? })).transpose()
}

/// Whether the ledger is the one that this layout makes.
///
/// # Errors
/// When another layout was migrated, or none.
pub(in crate::mysql) async fn check_applied(
    connection: &mut Session,
    foreign: &Foreign,
) -> StoreResult<()> {
    let made = foreign.fingerprint()?;
    let applied = find_applied(connection, &foreign.ledger).await.map_err(failed)?;
    let is_it =
        |applied: &Applied| applied.fingerprint == made && applied.table == foreign.table.name;
    if applied.as_ref().is_some_and(is_it) {
        return Ok(());
    }
    Err(StoreError::plain(
        StoreErrorKind::Schema,
        format!(
            "the layout of {} or its table has changed since it was migrated: run `postroom migrate`",
            foreign.layout.table
        ),
    ))
}

/// What is left to do for the ledger of a table, in order. Changes nothing. Of a table that is still to be made only
/// that is known.
///
/// # Errors
/// When there is no such table and none may be made, or the layout does not fit it.
pub(in crate::mysql) async fn plan(
    connection: &mut Session,
    layout: &Layout,
    database: &str,
    options: &MigrateOptions,
) -> StoreResult<Vec<Planned>> {
    layout.check()?;
    let found = catalogue::find(connection, &layout.table, database).await.map_err(failed)?;
    let Some(found) = found else {
        let (at, _) = catalogue::place(&layout.table, database);
        let sql = layout.creation(&options.services)?;
        let sql = format!("USE {};\n{sql}", backticked(&at));
        return Ok(vec![Planned {
            number: None,
            name: format!("the table {}", layout.table),
            sql,
        }]);
    };
    let foreign = Foreign::of(layout, found, database)?;
    let faults: Vec<_> = foreign.mismatches().into_iter().map(|(problem, _)| problem).collect();
    if !faults.is_empty() {
        return Err(layout.refused(&faults.join("; ")));
    }
    let misfits = foreign.misfits(connection).await.map_err(failed)?;
    if !misfits.is_empty() {
        return Err(layout.refused(&misfits.join("; ")));
    }
    if layout.has_several_destinations()
        && !has_table_in(connection, &foreign.database, "integration_outbox")
            .await
            .map_err(failed)?
    {
        return Err(layout.refused(
            "some of its rows go to several integrations, and what goes to the others is written to Postroom's own \
             outbox beside it, which is not there yet: make that first, by `postroom migrate` with the same \
             configuration",
        ));
    }
    let mut works = Vec::new();
    let mut is_new = false;
    let made = foreign.made()?;
    let fingerprint = foreign.fingerprint()?;
    match find_applied(connection, &foreign.ledger).await.map_err(failed)? {
        Some(applied) if applied.table != foreign.table.name => {
            return Err(layout.refused(&format!(
                "its ledger would be the database {}, which is the ledger of {}: `postroom adopt --remove` with \
                 the configuration of that table removes it",
                foreign.ledger, applied.table
            )));
        }
        Some(applied) if applied.fingerprint == fingerprint => {
            if foreign.missing_triggers(connection).await.map_err(failed)?.is_empty() {
                return Ok(Vec::new());
            }
        }
        Some(_) => {}
        None => {
            is_new = true;
            let sql = foreign.ledger_tables();
            works.push(Planned {
                number: Some(1),
                name: format!("ledger of {}", layout.table),
                sql,
            });
        }
    }
    let taken = foreign.adopt_taken(options.claimed_grace.as_secs_f64()).unwrap_or_default();
    let sql = format!(
        "USE {0};\n\n-- Relays of the layout before see that it is being replaced.\n\
         UPDATE outbox_layout SET fingerprint = '';\n\n{made}\n{1}\n{taken}{2}\n{3}\n\
         REPLACE INTO outbox_layout (single, table_name, fingerprint, definition, applied_at)\n\
         VALUES (1, {4}, {5}, {6}, UTC_TIMESTAMP(6));\n",
        backticked(&foreign.ledger),
        own_triggers(connection, &foreign, &fingerprint[..8], is_new).await.map_err(failed)?,
        // Last: where something before fails, producers are as they were. What is open by then is looked for next.
        foreign.on_table()?,
        foreign.besides_of_open(),
        quoted_text(&foreign.table.name),
        quoted_text(&fingerprint),
        quoted_text(&layout.to_toml()),
    );
    works.push(Planned { number: None, name: format!("the layout of {}", layout.table), sql });
    Ok(works)
}

/// The triggers of the ledger's own table, as far as they are missing; then those of other versions go.
async fn own_triggers(
    connection: &mut Session,
    foreign: &Foreign,
    version: &str,
    is_new: bool,
) -> Result<String, Error> {
    let rows = sqlx::query_scalar(
        "SELECT CONVERT(TRIGGER_NAME USING utf8mb4) FROM information_schema.TRIGGERS \
         WHERE EVENT_OBJECT_SCHEMA = ? AND EVENT_OBJECT_TABLE = 'integration_outbox'",
    );
    let there: Vec<String> = rows.bind(&foreign.ledger).fetch_all(connection).await?;
    let mut sql = String::new();
    // What nobody has made yet is made with the tables.
    for (name, statement) in foreign.native_triggers() {
        if !is_new && !there.iter().any(|one| one == name) {
            sql.push_str(&format!("DELIMITER $$\n\n{statement}\n\nDELIMITER ;\n"));
        }
    }
    let names = ["outbox_write_", "outbox_leave_"].map(|name| format!("{name}{version}"));
    if !names.iter().all(|name| there.contains(name)) {
        sql.push_str(&foreign.writes(version));
    }
    let is_older = |name: &&String| {
        let is_ours = name.starts_with("outbox_write_") || name.starts_with("outbox_leave_");
        is_ours && !names.contains(name)
    };
    for name in there.iter().filter(is_older) {
        sql.push_str(&format!("DROP TRIGGER IF EXISTS {};\n", backticked(name)));
    }
    sql.push_str(&foreign.alter_key());
    Ok(sql)
}

/// Makes a ledger know what came or changed while its triggers were made again.
///
/// # Errors
/// When the database refuses.
pub(in crate::mysql) async fn catch_up(
    connection: &mut Session,
    layout: &Layout,
    database: &str,
) -> StoreResult<()> {
    let foreign = Foreign::find(connection, layout, database).await?;
    let enter = |name: &str| format!("USE {}", backticked(name));
    execute(connection, enter(&foreign.ledger)).await.map_err(failed)?;
    let version: String =
        sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut *connection).await.map_err(failed)?;
    let locking = locking(&version).map_err(|error| failed(Error::Configuration(error.into())))?;
    foreign.sync(connection, locking.clause(), true).await.map_err(failed)?;
    execute(connection, enter(database)).await.map_err(failed)?;
    Ok(())
}

/// Removes a ledger, and the triggers. The table and its rows stay.
///
/// # Errors
/// When the database refuses.
pub(in crate::mysql) async fn remove(
    connection: &mut Session,
    layout: &Layout,
    database: &str,
) -> StoreResult<()> {
    let ledger = layout.ledger_database(database);
    let Some(applied) = find_applied(connection, &ledger).await.map_err(failed)? else {
        return Ok(());
    };
    // Before the ledger: producers must not meet triggers that lead nowhere. There may be no table any more.
    let found = catalogue::find(connection, &layout.table, database).await.map_err(failed)?;
    if let Some(found) = found {
        let foreign = Foreign::of(layout, found, database)?;
        if applied.table != foreign.table.name {
            return Err(layout.refused(&format!("the ledger {ledger} is of {}", applied.table)));
        }
        for sql in foreign.unmade() {
            execute(connection, sql).await.map_err(failed)?;
        }
    }
    let sql = format!("DROP DATABASE IF EXISTS {}", backticked(&ledger));
    execute(connection, sql).await.map_err(failed)?;
    Ok(())
}

/// The statements that make a role for producers and one for relays.
pub(in crate::mysql) fn grants(layout: &Layout, database: &str) -> String {
    let enqueues = match layout.insert.is_empty() {
        true => "",
        false => "GRANT EXECUTE ON PROCEDURE {ledger}.enqueue TO postroom_producer;\n",
    };
    GRANTS
        .replace("{enqueues}\n", enqueues)
        .replace("{ledger}", &backticked(&layout.ledger_database(database)))
        .replace("{table}", &layout.table)
}
