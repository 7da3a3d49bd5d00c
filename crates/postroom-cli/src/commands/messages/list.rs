//! `postroom messages list`.

use crate::args::List;
use crate::commands::outbox;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align, Table};
use postroom_core::Filter;

pub(super) async fn run(args: &List, origin: &Origin<'_>) -> Result<(), Failure> {
    let store = outbox::open(&origin.database()?).await?;
    let filter = Filter {
        status: args.status,
        before: args.before,
        limit: usize::try_from(args.limit).unwrap_or(usize::MAX),
        ..super::filter(&args.which, &*store).await?
    };
    let records = store.list(&filter).await?;
    if args.json {
        return Ok(output::print_json(&records)?);
    }
    if records.is_empty() {
        return Ok(output::print("no messages\n")?);
    }
    let mut table = Table::new()
        .column("ID", Align::Left)
        .column("STATUS", Align::Left)
        .dispensable("TRIED", Align::Right, 2)
        .dispensable("INTEGRATION", Align::Left, 1)
        .dispensable("TYPE", Align::Left, 3)
        .dispensable("DUE", Align::Left, 4);
    for record in &records {
        let message = &record.message;
        table.row(vec![
            message.id.to_string(),
            record.status.clone(),
            message.attempts.to_string(),
            message.integration.clone(),
            message.event_type.clone(),
            output::time(message.due_at),
        ]);
    }
    output::print_table(&table)?;
    if let Some(last) = records.last().filter(|_| records.len() == filter.limit) {
        output::print(&format!("older ones: --before {}\n", last.message.seq))?;
    }
    Ok(())
}
