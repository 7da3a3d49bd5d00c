//! What is left to do on a database.

use super::script::{Step, steps};
use super::{MIGRATIONS, adopt, fence, latest};
use crate::MigrateOptions;
use crate::migrations::Migration;
use crate::postgres::connect::ask;
use crate::postgres::error::store_error;
use crate::postgres::layout;
use postroom_core::StoreResult;
use std::collections::HashSet;
use tokio_postgres::Client;

const MAKE_SCHEMA: &str = "CREATE SCHEMA core_outbox;\n\n";
pub(in crate::postgres) const MAKE_BOOKS: &str = "\
CREATE TABLE core_outbox.schema_migration (
    number     int         PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE core_outbox.schema_migration IS 'The migrations applied.';
COMMENT ON COLUMN core_outbox.schema_migration.number IS 'Counts the migrations, from 1.';
COMMENT ON COLUMN core_outbox.schema_migration.name IS 'What it brings.';
COMMENT ON COLUMN core_outbox.schema_migration.applied_at IS 'When it was applied.';";

const HAS_SCHEMA: &str = "SELECT to_regnamespace('core_outbox') IS NOT NULL";
const HAS_BOOKS: &str = "SELECT to_regclass('core_outbox.schema_migration') IS NOT NULL";
const HAS_TABLE: &str = "SELECT to_regclass('core_outbox.integration_outbox') IS NOT NULL";
const APPLIED: &str = "SELECT number FROM core_outbox.schema_migration";

pub(in crate::postgres) const DOING: &str = "looking at what was migrated";

/// A piece of work, and the steps that are left of it.
pub(in crate::postgres) struct Work {
    /// The migration that it brings, if it is one.
    pub(in crate::postgres) number: Option<u32>,
    pub(in crate::postgres) name: String,
    pub(in crate::postgres) steps: Vec<Step>,
}

impl Work {
    pub(super) fn title(&self) -> String {
        match self.number {
            Some(number) => format!("migration {number:04}_{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// Everything that is left to do, in order. Changes nothing.
///
/// # Errors
/// When the database cannot be read, or holds a table that cannot be adopted.
pub(super) async fn plan(client: &Client, options: &MigrateOptions) -> StoreResult<Vec<Work>> {
    let Some(layout) = &options.layout else { return own(client, options).await };
    layout::plan(client, layout, options).await
}

/// What is left to do for Postroom's own table.
async fn own(client: &Client, options: &MigrateOptions) -> StoreResult<Vec<Work>> {
    let mut works = Vec::new();
    let applied = if ask(client, DOING, HAS_BOOKS).await? {
        applied(client).await?
    } else {
        let has_schema: bool = ask(client, DOING, HAS_SCHEMA).await?;
        let schema = if has_schema { "" } else { MAKE_SCHEMA };
        let steps = vec![Step::transaction(format!("{schema}{MAKE_BOOKS}"))];
        works.push(Work { number: None, name: "the record of migrations".to_owned(), steps });
        HashSet::new()
    };
    for migration in MIGRATIONS.iter().filter(|one| !applied.contains(&one.number)) {
        let adopts = migration.number == 1 && ask(client, DOING, HAS_TABLE).await?;
        let mut steps = if adopts {
            adopt::plan(client, options.claimed_grace).await?
        } else {
            steps(migration.sql)
        };
        note(&mut steps, migration);
        let name = migration.name.to_owned();
        works.push(Work { number: Some(migration.number), name, steps });
    }
    if options.replace_fence {
        works.extend(fence::replace(client).await?);
    }
    Ok(works)
}

async fn applied(client: &Client) -> StoreResult<HashSet<u32>> {
    let rows = client.query(APPLIED, &[]).await.map_err(|e| store_error(DOING, e))?;
    let numbers = rows.iter().map(|row| row.try_get::<_, i32>(0)).collect::<Result<Vec<_>, _>>();
    let numbers = numbers.map_err(|e| store_error(DOING, e))?;
    if let Some(newer) = numbers.iter().find(|number| **number > latest()) {
        crate::migrations::check(*newer, latest())?;
    }
    Ok(numbers.into_iter().filter_map(|number| u32::try_from(number).ok()).collect())
}

/// Records a migration with the last of its steps: in the same transaction, if that is one.
fn note(steps: &mut Vec<Step>, migration: &Migration) {
    let sql = format!(
        "INSERT INTO core_outbox.schema_migration (number, name) VALUES ({}, '{}');",
        migration.number, migration.name
    );
    match steps.last_mut() {
        Some(last) if !last.alone => {
            last.sql.push_str("\n\n");
            last.sql.push_str(&sql);
        }
        _ => steps.push(Step::transaction(sql)),
    }
}
