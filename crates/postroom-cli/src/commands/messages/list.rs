//! `postroom messages list`.

use crate::args::{GroupBy, List};
use crate::commands::each::each_open;
use crate::commands::outbox;
use crate::config::{Database, Origin};
use crate::failure::Failure;
use crate::output::{self, Align, Table};
use chrono::{DateTime, Utc};
use postroom_core::{Admin, ErrorGroup, Filter, Inspect, Record, Status, StoreResult};
use std::cmp::Reverse;

pub(super) async fn run(args: &List, origin: &Origin<'_>) -> Result<(), Failure> {
    let databases = outbox::all(origin, args.json)?;
    if args.before.is_some() && databases.len() > 1 {
        // Numbers are those of one outbox.
        return Err(outbox::which(&databases));
    }
    match args.group {
        None => list(args, &databases).await,
        Some(GroupBy::Error) => by_error(args, &databases).await,
    }
}

/// What was asked for, by one outbox's clock.
async fn filter(args: &List, store: &dyn Admin) -> StoreResult<Filter> {
    Ok(Filter {
        status: args.status,
        before: args.before,
        limit: limit(args),
        ..super::filter(&args.which, store).await?
    })
}

fn limit(args: &List) -> usize {
    usize::try_from(args.limit).unwrap_or(usize::MAX)
}

async fn list(args: &List, databases: &[Database]) -> Result<(), Failure> {
    let found = each_open(databases, async |store| {
        let records = store.list(&filter(args, &*store).await?).await?;
        Ok((records, store.now().await?))
    })
    .await?;
    let mut all: Vec<_> = found
        .each
        .iter()
        .flat_map(|one| one.found.0.iter().map(move |record| (one, record)))
        .collect();
    if found.are_several {
        // Of one outbox they come in its own order, which is nearly the same.
        all.sort_by_key(|(_, record)| Reverse(record.message.created_at));
        all.truncate(limit(args));
    }
    if args.json {
        let records: Vec<_> = all.iter().map(|(one, record)| one.named(record)).collect();
        output::print_json(&records)?;
        return found.end();
    }
    if all.is_empty() {
        if !found.each.is_empty() {
            output::print("no messages\n")?;
        }
        return found.end();
    }
    let mut table = columns(found.table());
    for (one, record) in &all {
        table.row(one.row(cells(record, one.found.1)));
    }
    output::print_table(&table)?;
    if let Some((_, last)) = all.last().filter(|_| all.len() == limit(args)) {
        let before = if found.are_several {
            "name one database by --database".to_owned()
        } else {
            format!("--before {}", last.message.seq)
        };
        output::print(&format!("older ones: {before}\n"))?;
    }
    found.end()
}

/// Adds what is shown of a message.
pub(super) fn columns(table: Table) -> Table {
    table
        .id("ID")
        .column("STATUS", Align::Left)
        .column("TRIED", Align::Right)
        .column("AGE", Align::Right)
        .text("INTEGRATION", 9)
        .text("TYPE", 6)
        .text("EVENT ID", 6)
        .long_text("ERROR", 12)
}

/// What is shown of a message.
pub(super) fn cells(record: &Record, now: DateTime<Utc>) -> Vec<String> {
    let message = &record.message;
    vec![
        message.id.to_string(),
        record.status.clone(),
        message.attempts.to_string(),
        output::age(message.created_at, now),
        message.integration.clone(),
        message.event_type.clone(),
        message.event_id.clone(),
        record.last_error.clone().unwrap_or_default(),
    ]
}

async fn by_error(args: &List, databases: &[Database]) -> Result<(), Failure> {
    let found = each_open(databases, async |store| {
        let groups = grouped(filter(args, &*store).await?, &*store).await?;
        Ok((groups, store.now().await?))
    })
    .await?;
    let mut all: Vec<_> = found
        .each
        .iter()
        .flat_map(|one| one.found.0.iter().map(move |group| (one, group)))
        .collect();
    all.sort_by_key(|(_, group)| Reverse(group.messages));
    all.truncate(limit(args));
    if args.json {
        let groups: Vec<_> = all.iter().map(|(one, group)| one.named(group)).collect();
        output::print_json(&groups)?;
        return found.end();
    }
    if all.is_empty() {
        if !found.each.is_empty() {
            output::print("no messages with an error\n")?;
        }
        return found.end();
    }
    let mut table = found
        .table()
        .column("MESSAGES", Align::Right)
        .column("OLDEST", Align::Right)
        .column("NEWEST", Align::Right)
        .id("EXAMPLE")
        .text("INTEGRATION", 12)
        .long_text("ERROR", 20);
    for (one, group) in &all {
        let now = one.found.1;
        table.row(one.row(vec![
            output::count(group.messages),
            output::age(group.oldest, now),
            output::age(group.newest, now),
            group.example.to_string(),
            group.integration.clone(),
            group.error.clone(),
        ]));
    }
    output::print_table(&table)?;
    found.end()
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
