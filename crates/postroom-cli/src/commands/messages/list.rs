//! `postroom messages list`.

use crate::args::{GroupBy, List};
use crate::commands::outbox;
use crate::config::Origin;
use crate::failure::Failure;
use crate::output::{self, Align, Table};
use chrono::{DateTime, Utc};
use postroom_core::{Admin, ErrorGroup, Filter, Inspect, Record, Status, Store, StoreResult};
use std::cmp::Reverse;

pub(super) async fn run(args: &List, origin: &Origin<'_>) -> Result<(), Failure> {
    let store = outbox::open(&outbox::named(origin, args.json)?).await?;
    let filter = Filter {
        status: args.status,
        before: args.before,
        limit: usize::try_from(args.limit).unwrap_or(usize::MAX),
        ..super::filter(&args.which, &*store).await?
    };
    match args.group {
        None => list(args, &filter, &*store).await,
        Some(GroupBy::Error) => by_error(args, filter, &*store).await,
    }
}

async fn list(args: &List, filter: &Filter, store: &dyn Admin) -> Result<(), Failure> {
    let records = store.list(filter).await?;
    if args.json {
        return Ok(output::print_json(&records)?);
    }
    if records.is_empty() {
        return Ok(output::print("no messages\n")?);
    }
    output::print_table(&table(&records, store.now().await?))?;
    if let Some(last) = records.last().filter(|_| records.len() == filter.limit) {
        output::print(&format!("older ones: --before {}\n", last.message.seq))?;
    }
    Ok(())
}

/// Messages, a line each.
pub(super) fn table(records: &[Record], now: DateTime<Utc>) -> Table {
    let mut table = Table::new()
        .id("ID")
        .column("STATUS", Align::Left)
        .column("TRIED", Align::Right)
        .column("AGE", Align::Right)
        .text("INTEGRATION", 9)
        .text("TYPE", 6)
        .text("EVENT ID", 6)
        .long_text("ERROR", 12);
    for record in records {
        let message = &record.message;
        table.row(vec![
            message.id.to_string(),
            record.status.clone(),
            message.attempts.to_string(),
            output::age(message.created_at, now),
            message.integration.clone(),
            message.event_type.clone(),
            message.event_id.clone(),
            record.last_error.clone().unwrap_or_default(),
        ]);
    }
    table
}

async fn by_error(args: &List, filter: Filter, store: &dyn Store) -> Result<(), Failure> {
    let groups = grouped(filter, store).await?;
    if args.json {
        return Ok(output::print_json(&groups)?);
    }
    if groups.is_empty() {
        return Ok(output::print("no messages with an error\n")?);
    }
    let now = store.now().await?;
    let mut table = Table::new()
        .column("MESSAGES", Align::Right)
        .column("OLDEST", Align::Right)
        .column("NEWEST", Align::Right)
        .id("EXAMPLE")
        .text("INTEGRATION", 12)
        .long_text("ERROR", 20);
    for group in &groups {
        table.row(vec![
            output::count(group.messages),
            output::age(group.oldest, now),
            output::age(group.newest, now),
            group.example.to_string(),
            group.integration.clone(),
            group.error.clone(),
        ]);
    }
    Ok(output::print_table(&table)?)
}

/// What has failed and is not delivered yet, unless a status says otherwise.
async fn grouped(filter: Filter, store: &dyn Inspect) -> StoreResult<Vec<ErrorGroup>> {
    if filter.status.is_some() {
        return store.errors(&filter).await;
    }
    let mut groups: Vec<ErrorGroup> = Vec::new();
    for status in [Status::Failed, Status::Dead] {
        let filter = Filter { status: Some(status), ..filter.clone() };
        for found in store.errors(&filter).await? {
            let same = |one: &&mut ErrorGroup| {
                (&one.integration, &one.error) == (&found.integration, &found.error)
            };
            match groups.iter_mut().find(same) {
                Some(group) => {
                    group.messages += found.messages;
                    group.oldest = group.oldest.min(found.oldest);
                    group.newest = group.newest.max(found.newest);
                }
                None => groups.push(found),
            }
        }
    }
    groups.sort_by_key(|group| Reverse(group.messages));
    groups.truncate(filter.limit);
    Ok(groups)
}
