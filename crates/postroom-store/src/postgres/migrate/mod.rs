//! Numbered migrations, applied once each, while producers and relays go on.

mod adopt;
mod fence;
mod lock;
mod plan;
mod run;
mod script;
mod shape;

pub(super) use super::connect::{Session, Target, ask};
use super::connection::Connection;
use super::diagnose::changing_indexes;
use super::error::store_error;
use super::layout;
use super::pooler;
use crate::Layout;
use crate::migrations::{MigrateOptions, Migrated, Migration, Planned};
pub(super) use fence::old_fences;
pub(super) use plan::{DOING, MAKE_BOOKS, Work};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
pub(super) use script::Step;
use tokio_postgres::Client;

/// Every migration, in order.
pub const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "outbox",
    sql: include_str!("../../../migrations/postgres/0001_outbox.sql"),
}];

/// Applies what is missing. Safe to run twice, from several processes at once, and again after
/// it was cut off anywhere.
///
/// # Errors
/// When the database cannot be reached or refuses, holds a table of that name that cannot be
/// adopted, or somebody holds a lock for too long.
pub async fn migrate(url: &str, options: &MigrateOptions) -> StoreResult<Migrated> {
    let client = connect(url).await?;
    // A limit for the role's daily work is none for an index on a large table, and its isolation
    // none for what runs beside producers.
    const SESSION: &str = "SET statement_timeout = 0; \
        SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED";
    client.batch_execute(SESSION).await.map_err(|e| store_error("migrating", e))?;
    lock::acquire(&client).await?;
    let mut migrated = Migrated::default();
    for work in plan::plan(&client, options).await? {
        let doing = work.title();
        for step in &work.steps {
            if step.alone {
                tracing::info!(doing, statement = first_line(&step.sql), "migrating");
            }
            run::run(&client, step, &doing, options).await?;
        }
        match work.number {
            Some(number) => migrated.applied.push(number),
            None => migrated.done.push(doing),
        }
    }
    if options.layout.is_none() {
        migrated.notes.extend(remarks(&client).await?);
    }
    Ok(migrated)
}

/// What [`migrate`] would run, and in which steps. Changes nothing.
///
/// # Errors
/// As [`migrate`].
pub async fn plan(url: &str, options: &MigrateOptions) -> StoreResult<Vec<Planned>> {
    let client = connect(url).await?;
    let works = plan::plan(&client, options).await?;
    let planned = works.into_iter().map(|work| {
        let steps: Vec<String> = work.steps.iter().map(|step| step.shown(options)).collect();
        Planned { number: work.number, name: work.name, sql: steps.join("\n\n") }
    });
    Ok(planned.collect())
}

async fn connect(url: &str) -> StoreResult<Session> {
    let target = Target::parse(url)?;
    // Session locks and settings go astray behind it.
    if pooler::is_between(&target).await? {
        return Err(StoreError::plain(
            StoreErrorKind::Refused,
            "a pooler in transaction mode stands between this program and PostgreSQL, and \
             migrations need a session of their own: connect directly, with --database, or with \
             direct_url in [database]",
        ));
    }
    target.session().await
}

fn first_line(sql: &str) -> &str {
    sql.lines().find(|line| !line.starts_with("--")).unwrap_or_default()
}

/// What the operator should know about the table as it stands.
async fn remarks(client: &Client) -> StoreResult<Vec<String>> {
    let mut remarks = Vec::new();
    for fence in old_fences(client).await? {
        remarks.push(format!(
            "the old fence {} stands: one event reaches one integration only. When no producer \
             says ON CONFLICT (source_stream_id, source_event_id) any more, run `postroom migrate \
             --replace-fence`",
            fence.name
        ));
    }
    for (index, columns) in changing_indexes(client).await? {
        remarks.push(format!(
            "the index {index} names what changes ({columns}), so every outcome must touch every \
             index: `DROP INDEX CONCURRENTLY core_outbox.{index}` unless it is needed"
        ));
    }
    Ok(remarks)
}

/// Turns the signal for new messages on or off in the database. Off, producers can use
/// PREPARE TRANSACTION, which NOTIFY forbids, and relays poll.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub async fn set_notify(url: &str, layout: Option<&Layout>, on: bool) -> StoreResult<()> {
    let client = Target::parse(url)?.session().await?;
    let verb = if on { "ENABLE" } else { "DISABLE" };
    let (table, trigger) = match layout {
        Some(layout) => (layout.table.as_str(), "postroom_wake"),
        None => ("core_outbox.integration_outbox", "outbox_wake"),
    };
    let step = Step::transaction(format!("ALTER TABLE {table} {verb} TRIGGER {trigger}"));
    run::run(&client, &step, "turning the wake trigger on or off", &MigrateOptions::default()).await
}

/// Whether there is a ledger for a layout.
///
/// # Errors
/// When the database cannot be reached.
pub(super) async fn has_ledger(url: &str, layout: &Layout) -> StoreResult<bool> {
    let client = connect(url).await?;
    let sql = format!("SELECT to_regclass('{}.layout') IS NOT NULL", layout.ledger_schema());
    ask(&client, "looking for a ledger", &sql).await
}

/// Removes the ledger of a layout, and with it the triggers on its table.
///
/// # Errors
/// When the database cannot be reached or refuses.
pub(super) async fn remove_ledger(url: &str, layout: &Layout) -> StoreResult<()> {
    let client = connect(url).await?;
    lock::acquire(&client).await?;
    if let Ok(foreign) = layout::Foreign::find(&client, layout).await {
        layout::expect_ledger_of(&client, &foreign).await?;
    }
    let step = Step::transaction(layout::remove(layout));
    run::run(&client, &step, "removing a ledger", &MigrateOptions::default()).await
}

/// Whether the schema is the one this program was built for.
pub(super) async fn check_version(client: &Connection) -> StoreResult<()> {
    const VERSION: &str = "SELECT coalesce(max(number), 0) FROM core_outbox.schema_migration";
    let version = client.put(VERSION);
    let asked = ask(client.client(), "reading the schema's version", &version);
    crate::migrations::check(client.answer(asked).await?, latest())?;
    match client.foreign() {
        Some(foreign) => client.answer(foreign.check_applied(client.client())).await,
        None => Ok(()),
    }
}

/// The schema version that this program was built for.
fn latest() -> i32 {
    crate::migrations::latest(MIGRATIONS)
}
