//! `postroom messages actions`: the record of what operators did.

use crate::args::Actions;
use crate::commands::each::each_open;
use crate::commands::outbox;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align};
use postroom_core::ActionId;
use std::cmp::Reverse;

pub(super) async fn run(args: &Actions, origin: &Origin<'_>) -> Result<(), Failure> {
    let databases = outbox::all(origin, args.json)?;
    if args.before.is_some() && databases.len() > 1 {
        // Numbers are those of one outbox.
        return Err(outbox::which(&databases));
    }
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let found = each_open(&databases, async |store| {
        Ok(store.actions(args.before.map(ActionId), limit).await?)
    })
    .await?;
    let mut actions: Vec<_> = found
        .each
        .iter()
        .flat_map(|one| one.found.iter().map(move |action| (one, action)))
        .collect();
    if found.are_several {
        actions.sort_by_key(|(_, action)| Reverse(action.at));
        actions.truncate(limit);
    }
    if args.json {
        let actions: Vec<_> = actions.iter().map(|(one, action)| one.named(action)).collect();
        output::print_json(&actions)?;
        return found.end();
    }
    if actions.is_empty() {
        if !found.each.is_empty() {
            output::print("no actions\n")?;
        }
        return found.end();
    }
    let mut table = found
        .table()
        .column("ID", Align::Right)
        .column("AT", Align::Left)
        .text("ACTOR", 8)
        .column("OPERATION", Align::Left)
        .column("MESSAGES", Align::Right)
        .text("TARGET", 12);
    for (one, action) in &actions {
        table.row(one.row(vec![
            action.id.to_string(),
            output::time(action.at),
            action.actor.clone(),
            action.operation.clone(),
            output::count(action.messages),
            action.target.clone(),
        ]));
    }
    output::print_table(&table)?;
    if let Some((_, last)) = actions.last().filter(|_| actions.len() == limit) {
        let before = if found.are_several {
            "name one database by --database".to_owned()
        } else {
            format!("--before {}", last.id)
        };
        output::print(&format!("older ones: {before}\n"))?;
    }
    found.end()
}
