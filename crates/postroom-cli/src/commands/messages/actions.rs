//! `postroom messages actions`: the record of what operators did.

use crate::args::Actions;
use crate::commands::outbox;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align, Table};
use postroom_core::ActionId;

pub(super) async fn run(args: &Actions, origin: &Origin<'_>) -> Result<(), Failure> {
    let store = outbox::open(&outbox::named(origin, args.json)?).await?;
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let actions = store.actions(args.before.map(ActionId), limit).await?;
    if args.json {
        return Ok(output::print_json(&actions)?);
    }
    if actions.is_empty() {
        return Ok(output::print("no actions\n")?);
    }
    let mut table = Table::new()
        .column("ID", Align::Right)
        .column("AT", Align::Left)
        .text("ACTOR", 8)
        .column("OPERATION", Align::Left)
        .column("MESSAGES", Align::Right)
        .text("TARGET", 12);
    for action in &actions {
        table.row(vec![
            action.id.to_string(),
            output::time(action.at),
            action.actor.clone(),
            action.operation.clone(),
            output::count(action.messages),
            action.target.clone(),
        ]);
    }
    output::print_table(&table)?;
    if let Some(last) = actions.last().filter(|_| actions.len() == limit) {
        output::print(&format!("older ones: --before {}\n", last.id))?;
    }
    Ok(())
}
