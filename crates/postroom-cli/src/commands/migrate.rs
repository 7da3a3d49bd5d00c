//! `postroom migrate`: makes or upgrades the tables.

use super::outbox;
use crate::args::{Migrate, Switch};
use crate::config::Origin;
use crate::failure::Failure;
use crate::output;
use serde_json::json;
use std::fmt::Write as _;

pub(super) async fn run(args: &Migrate, origin: &Origin<'_>) -> Result<(), Failure> {
    let url = origin.database()?.url;
    let known = postroom_store::migrations(&url)?;
    if args.dry_run {
        if args.json {
            let known: Vec<_> = known
                .iter()
                .map(|step| {
                    let (number, name, sql) = (step.number, step.name, step.sql);
                    json!({ "number": number, "name": name, "before": step.before, "sql": sql })
                })
                .collect();
            return Ok(output::print_json(&json!({ "migrations": known }))?);
        }
        let mut text = String::new();
        for step in known {
            let _ = writeln!(text, "-- {:04} {}", step.number, step.name);
            for statement in step.before {
                let _ = writeln!(text, "{statement};");
            }
            let _ = writeln!(text, "{}\n", step.sql.trim());
        }
        return Ok(output::print(&text)?);
    }

    let applied = postroom_store::migrate(&url).await?;
    if let Some(switch) = args.notify {
        postroom_store::set_notify(&url, switch == Switch::On).await?;
    }
    if args.json {
        let version = known.last().map_or(0, |step| step.number);
        return Ok(output::print_json(&json!({ "applied": applied, "version": version }))?);
    }
    let mut text = String::new();
    for step in known.iter().filter(|step| applied.contains(&step.number)) {
        let _ = writeln!(text, "applied {:04} {}", step.number, step.name);
    }
    if applied.is_empty() {
        let _ = writeln!(text, "nothing to do: {} is up to date", outbox::shown(&url));
    }
    match args.notify {
        Some(Switch::On) => text.push_str("new messages signal an idle relay\n"),
        Some(Switch::Off) => text.push_str("new messages signal nobody; relays poll\n"),
        None => {}
    }
    Ok(output::print(&text)?)
}
