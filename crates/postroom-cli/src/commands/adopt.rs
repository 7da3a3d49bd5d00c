//! `postroom adopt`: proposes how to read a table that is there already, and goes back.

use super::outbox;
use crate::args::Adopt;
use crate::config::{Database, Origin};
use crate::failure::Failure;
use crate::output;
use postroom_store::layout::Dialect;

pub(super) async fn run(args: &Adopt, origin: &Origin<'_>) -> Result<(), Failure> {
    if args.remove {
        return remove(args, origin).await;
    }
    let database = outbox::named(origin, false)?;
    let proposed = postroom_store::propose_layout(database.session_url(), &args.table).await;
    let proposed = proposed.map_err(|error| outbox::failed(error, &database.url))?;
    Ok(output::print(&proposed)?)
}

/// Removes the ledger of a configured layout. The table and its rows stay.
async fn remove(args: &Adopt, origin: &Origin<'_>) -> Result<(), Failure> {
    let databases = origin.databases()?;
    let is_it = |database: &&Database| {
        database.layout.as_ref().is_some_and(|layout| layout.table == args.table)
    };
    let found = databases.iter().find(is_it).and_then(|one| Some((one, one.layout.as_ref()?)));
    let Some((database, layout)) = found else {
        return Err(Failure::Usage(format!(
            "no database of the configuration has a layout for the table {}: its ledger is found by that layout",
            args.table
        )));
    };
    outbox::announce(database, false);
    let removed = postroom_store::remove_ledger(database.session_url(), layout).await;
    removed.map_err(|error| outbox::failed(error, &database.url))?;
    let what = match Dialect::of(&database.url) {
        // There the ledger is a schema of its own.
        Some(Dialect::Postgres) => format!("schema {}", layout.ledger_schema()),
        Some(Dialect::Mysql | Dialect::Sqlite) | None => "ledger".to_owned(),
    };
    Ok(output::print(&format!(
        "removed the {what} and its triggers on {}; the table's rows are as they were\n",
        layout.table
    ))?)
}
