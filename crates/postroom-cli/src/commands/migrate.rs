//! `postroom migrate`: makes or upgrades the tables.

use super::outbox;
use crate::args::{Migrate, Switch};
use crate::config::Origin;
use crate::failure::Failure;
use crate::output;
use postroom_store::{MigrateOptions, Migrated, Planned};
use serde_json::json;
use std::fmt::Write as _;

pub(super) async fn run(args: &Migrate, origin: &Origin<'_>) -> Result<(), Failure> {
    let database = origin.database()?;
    let url = database.session_url();
    if args.print_grants {
        return Ok(output::print(postroom_store::grants(url)?)?);
    }
    outbox::announce(&database, args.json);
    let mut options =
        MigrateOptions { replace_fence: args.replace_fence, ..MigrateOptions::default() };
    if let Some(grace) = args.claimed_grace {
        options.claimed_grace = grace;
    }
    if args.dry_run {
        let planned = postroom_store::plan(url, &options).await;
        return print_plan(&planned.map_err(|error| outbox::failed(error, url))?, args.json);
    }
    let migrated = postroom_store::migrate_with(url, &options).await;
    let Migrated { applied, done, notes } = migrated.map_err(|error| outbox::failed(error, url))?;
    if let Some(switch) = args.notify {
        postroom_store::set_notify(url, switch == Switch::On).await?;
    }
    let known = postroom_store::migrations(url)?;
    if args.json {
        let version = known.last().map_or(0, |step| step.number);
        let migrated =
            json!({ "applied": applied, "version": version, "done": done, "notes": notes });
        return Ok(output::print_json(&migrated)?);
    }
    let mut text = String::new();
    for step in known.iter().filter(|step| applied.contains(&step.number)) {
        let _ = writeln!(text, "applied {:04} {}", step.number, step.name);
    }
    for work in &done {
        let _ = writeln!(text, "done: {work}");
    }
    if applied.is_empty() && done.is_empty() {
        let _ = writeln!(text, "nothing to do: {} is up to date", outbox::shown(url));
    }
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    match args.notify {
        Some(Switch::On) => text.push_str("new messages signal an idle relay\n"),
        Some(Switch::Off) => text.push_str("new messages signal nobody; relays poll\n"),
        None => {}
    }
    Ok(output::print(&text)?)
}

fn print_plan(planned: &[Planned], json: bool) -> Result<(), Failure> {
    if json {
        let planned: Vec<_> = planned
            .iter()
            .map(|work| json!({"number": work.number, "name": work.name, "sql": work.sql}))
            .collect();
        return Ok(output::print_json(&json!({ "migrations": planned }))?);
    }
    let mut text = String::new();
    for work in planned {
        let number = work.number.map_or(String::new(), |number| format!("{number:04} "));
        let _ = writeln!(text, "-- {number}{}\n{}\n", work.name, work.sql);
    }
    Ok(output::print(&text)?)
}
