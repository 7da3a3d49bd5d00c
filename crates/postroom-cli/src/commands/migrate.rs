//! `postroom migrate`: makes or upgrades the tables.

use super::each::each;
use super::outbox;
use crate::args::{Migrate, Switch};
use crate::config::{Database, Origin, Retention};
use crate::failure::Failure;
use crate::output;
use postroom_store::{MigrateOptions, Migrated, Migration, Planned};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The environment variable that lists the services whose tables may be made.
const SERVICES: &str = "ENABLED_MIGRATION_SERVICES";

pub(super) async fn run(args: &Migrate, origin: &Origin<'_>) -> Result<(), Failure> {
    if args.print_grants {
        let databases = origin.databases()?;
        let grants = databases.iter().map(|database| {
            let layout = database.layout.as_deref();
            let mut grants = postroom_store::grants(database.session_url(), layout)?;
            if let Some(layout) = layout
                && database.retention.keep_sent != Retention::FOR_EVER
            {
                let table = &layout.table;
                let _ = write!(
                    grants,
                    "\n-- For the retention of this table.\nGRANT DELETE ON {table} TO postroom_relay;\n"
                );
            }
            Ok::<_, Failure>(grants)
        });
        // One text for all of a kind.
        let grants = grants.collect::<Result<BTreeSet<_>, _>>()?;
        return Ok(output::print(&grants.into_iter().collect::<Vec<_>>().join("\n"))?);
    }
    let databases = outbox::all(origin, args.json)?;
    let mut options =
        MigrateOptions { replace_fence: args.replace_fence, ..MigrateOptions::default() };
    if let Some(grace) = args.claimed_grace {
        options.claimed_grace = grace;
    }
    let services = (origin.environment)(SERVICES).unwrap_or_default();
    let services = services.split(',').map(str::trim).filter(|name| !name.is_empty());
    options.services = services.map(str::to_owned).collect();
    if args.dry_run {
        let planned = each(&databases, async |database| {
            let url = database.session_url();
            let planned = postroom_store::plan(url, &database.migrating(&options)).await;
            planned.map_err(|error| outbox::failed(error, url))
        })
        .await?;
        if args.json {
            planned.print_objects(|planned| plan_as_json(planned))?;
        } else {
            for one in &planned.each {
                let name = one.name.as_ref().map(|name| format!("-- database {name}\n\n"));
                output::print(&(name.unwrap_or_default() + &plan(&one.found)))?;
            }
        }
        return planned.end();
    }
    let migrated =
        each(&databases, async |database| migrate(args, &options, database).await).await?;
    if args.json {
        migrated.print_objects(Changed::as_json)?;
    } else {
        for one in &migrated.each {
            let name = one.name.as_ref().map(|name| format!("{name}: "));
            output::print(&one.found.describe(args, &name.unwrap_or_default()))?;
        }
    }
    migrated.end()
}

/// What a migration did to one outbox.
struct Changed {
    /// What it is called in a text.
    shown: String,
    migrated: Migrated,
    known: &'static [Migration],
}

async fn migrate(
    args: &Migrate,
    options: &MigrateOptions,
    database: &Database,
) -> Result<Changed, Failure> {
    let url = database.session_url();
    let migrated = postroom_store::migrate_with(url, &database.migrating(options)).await;
    let migrated = migrated.map_err(|error| outbox::failed(error, url))?;
    if let Some(switch) = args.notify {
        postroom_store::set_notify(url, database.layout.as_deref(), switch == Switch::On).await?;
    }
    let known = postroom_store::migrations(url)?;
    Ok(Changed { shown: outbox::shown(url), migrated, known })
}

impl Changed {
    fn as_json(&self) -> Value {
        let Migrated { applied, done, notes } = &self.migrated;
        let version = self.known.last().map_or(0, |step| step.number);
        json!({ "applied": applied, "version": version, "done": done, "notes": notes })
    }

    /// What was done, with the database's name before each line.
    fn describe(&self, args: &Migrate, name: &str) -> String {
        let Self { shown, migrated, known } = self;
        let mut text = String::new();
        for step in known.iter().filter(|step| migrated.applied.contains(&step.number)) {
            let _ = writeln!(text, "{name}applied {:04} {}", step.number, step.name);
        }
        for work in &migrated.done {
            let _ = writeln!(text, "{name}done: {work}");
        }
        if migrated.applied.is_empty() && migrated.done.is_empty() {
            let _ = writeln!(text, "{name}nothing to do: {shown} is up to date");
        }
        for note in &migrated.notes {
            let _ = writeln!(text, "{name}{note}");
        }
        match args.notify {
            Some(Switch::On) => {
                let _ = writeln!(text, "{name}new messages signal an idle relay");
            }
            Some(Switch::Off) => {
                let _ = writeln!(text, "{name}new messages signal nobody; relays poll");
            }
            None => {}
        }
        text
    }
}

fn plan_as_json(planned: &[Planned]) -> Value {
    let planned: Vec<_> = planned
        .iter()
        .map(|work| json!({"number": work.number, "name": work.name, "sql": work.sql}))
        .collect();
    json!({ "migrations": planned })
}

fn plan(planned: &[Planned]) -> String {
    let mut text = String::new();
    for work in planned {
        let number = work.number.map_or(String::new(), |number| format!("{number:04} "));
        let _ = writeln!(text, "-- {number}{}\n{}\n", work.name, work.sql);
    }
    text
}
