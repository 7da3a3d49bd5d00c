//! Proposing a layout for a table as it stands, by the names and types of its columns and what its rows say.
//!
//! The same for every kind of database. What differs is in `dialect.rs`, and what has to be asked of one is [`Rows`].

mod dialect;
mod lines;
mod names;
mod state;

pub(crate) use dialect::Clock;

use super::{CUSTOM, Column, Dialect, Layout, Table};
use lines::{column, entry, toml_text};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::collections::BTreeSet;

/// What a table has to be asked, beside what the catalogue says of it.
pub(crate) trait Rows {
    /// Whether some of its rows all have JSON in `text`, an expression over the row `m`.
    async fn are_json(&mut self, text: &str) -> StoreResult<bool>;

    /// The words that a column has or may have: by constraints, by its default, and in some rows.
    async fn words(&mut self, column: &Column) -> StoreResult<Vec<String>>;

    /// How a column holds times; `None` if it holds something else.
    async fn clock(&mut self, column: &Column) -> StoreResult<Option<Clock>>;
}

/// Proposes a layout for `table`, as the `[database]` section of a configuration.
///
/// # Errors
/// When nothing in the table can be a message's content or its key, or the database cannot be asked.
pub(crate) async fn propose(
    table: &Table,
    dialect: Dialect,
    rows: &mut impl Rows,
) -> StoreResult<String> {
    let name = dialect.plain_name(&table.name);
    let mut lines = vec![
        format!(
            "# Proposed for {name} by `postroom adopt`. Read it, correct it, and compare it with"
        ),
        "# `postroom check`. Postroom adds triggers to the table and nothing else, and deletes no row of it".to_owned(),
        "# unless `sent = \"delete\"` or a retention of this database says so.".to_owned(),
        "[database]".to_owned(),
        "url = \"${DATABASE_URL}\"".to_owned(),
    ];
    match built_in(table, dialect) {
        Some(layout) => known(&name, layout, dialect, &mut lines),
        None => Unknown { table, name, dialect, rows }.describe(&mut lines).await?,
    }
    Ok(lines.join("\n") + "\n")
}

/// The built-in layout all of whose columns the table has.
fn built_in(table: &Table, dialect: Dialect) -> Option<&'static str> {
    let fits = |name: &&str| {
        let Some(layout) = Layout::built_in(name, dialect) else { return false };
        let expressions = layout.expressions();
        let named = expressions.iter().flat_map(|(_, text)| super::columns(text));
        let written = layout.assignments().into_iter().flat_map(|(_, set)| set.keys().cloned());
        let mut columns: BTreeSet<String> = named.chain(written).collect();
        columns.extend(layout.key.clone());
        columns.len() > 2 && columns.iter().all(|column| table.column(column).is_some())
    };
    Layout::names(dialect).into_iter().find(|name| *name != CUSTOM && fits(name))
}

fn known(table: &str, name: &str, dialect: Dialect, lines: &mut Vec<String>) {
    let layout = Layout::built_in(name, dialect).unwrap_or_default();
    lines.push(entry("layout", name));
    lines.push(entry("table", table));
    if let (None, None) = (&layout.to, &layout.message.integration) {
        lines.push("# Where its rows go: one integration, a template such as \"kafka:{column}\", or [[database.routes]].".to_owned());
        lines.push("to = \"kafka:events\"".to_owned());
    }
    if layout.deletes_sent() {
        lines.push(String::new());
        lines.push("# This layout deletes rows after their delivery. To keep them, name a column that marks them:".to_owned());
        lines.push("# write = { sent = { delivered_at = \"$at\" } }".to_owned());
    }
}

/// A table that no built-in layout fits.
struct Unknown<'a, R> {
    table: &'a Table,
    /// As a layout names it.
    name: String,
    dialect: Dialect,
    rows: &'a mut R,
}

/// A column with times in it.
#[derive(Clone, Copy)]
struct Timed<'a> {
    name: &'a str,
    clock: Clock,
    dialect: Dialect,
}

impl Timed<'_> {
    fn read(&self) -> String {
        self.dialect.time(self.clock, &column(self.dialect, self.name))
    }

    /// What writes a time into it: `at` or `due`.
    fn written(&self, time: &str) -> String {
        self.dialect.written_time(self.clock, time)
    }

    /// The line for it, after a word of warning where its rows did not say what they count.
    fn lines(&self, key: &str) -> Vec<String> {
        let guess = format!(
            "# No row says whether {} counts seconds or milliseconds: milliseconds is a guess.",
            self.name
        );
        let guess = (self.clock == Clock::Millis { is_guess: true }).then_some(guess);
        guess.into_iter().chain([entry(key, &self.read())]).collect()
    }
}

impl<'a, R: Rows> Unknown<'a, R> {
    async fn describe(&mut self, lines: &mut Vec<String>) -> StoreResult<()> {
        let (dialect, table) = (self.dialect, self.table);
        let key = self.key()?;
        let holds_content =
            |kind: &str| dialect.is_json(kind) || dialect.is_text(kind) || dialect.is_bytes(kind);
        let payload = self.named(names::PAYLOAD, holds_content).or_else(|| {
            let mut columns = table.columns.iter();
            columns.find(|column| dialect.is_json(&column.kind)).map(|column| column.name.as_str())
        });
        let Some(payload) = payload else {
            return Err(refused(format!(
                "no column of {} looks like a message's body: write a layout by hand, see docs/adopting.md",
                self.name
            )));
        };
        let key_list: Vec<_> = key.iter().map(|column| toml_text(column)).collect();
        lines.push("layout = \"custom\"".to_owned());
        lines.push(entry("table", &self.name));
        lines.push(format!("key = [{}]", key_list.join(", ")));
        lines.extend(self.destination());
        lines.push(String::new());
        lines.push("[database.message]".to_owned());
        let any = |_: &str| true;
        let event_type = self.named(names::EVENT_TYPE, any).filter(|name| *name != payload);
        match event_type {
            Some(name) => lines.push(entry("event_type", &column(self.dialect, name))),
            None => lines.push(entry("event_type", "'event'")),
        }
        let body = self.body(payload).await?;
        lines.push(entry("payload", &body));
        for (meaning, names) in
            [("event_id", names::EVENT_ID), ("stream", names::STREAM), ("tenant_id", names::TENANT)]
        {
            let found = self.named(names, any).filter(|name| key != [(*name).to_owned()]);
            lines.extend(found.map(|name| entry(meaning, &column(self.dialect, name))));
        }
        for (meaning, name) in
            [("correlation_id", "correlationid"), ("causation_id", "causationid")]
        {
            lines.extend(
                self.named(&[name], any).map(|name| entry(meaning, &column(self.dialect, name))),
            );
        }
        if let Some(name) = self.named(names::HEADERS, |kind| dialect.may_be_headers(kind)) {
            lines.push(entry("headers", &column(self.dialect, name)));
        }
        if let Some(created) = self.timed(names::CREATED).await? {
            lines.extend(created.lines("created_at"));
        }
        lines.push(String::new());
        self.state(lines).await
    }

    /// The columns by which a row is found.
    fn key(&self) -> StoreResult<Vec<String>> {
        let is_fit = |columns: &&Vec<String>| {
            let mut kinds = columns.iter().filter_map(|name| self.table.column(name));
            !columns.is_empty() && kinds.all(|column| self.dialect.can_be_key(&column.kind))
        };
        let found = [&self.table.primary_key].into_iter().chain(&self.table.unique).find(is_fit);
        found.cloned().ok_or_else(|| {
            refused(format!(
                "{} has neither a primary key nor a unique index that a row could be found by: it must be found \
                 again to record its delivery. {}",
                self.name,
                self.dialect.key_remedy(&self.name)
            ))
        })
    }

    /// A column that has one of these names, in their order.
    fn named(&self, names: &[&str], is_fit: impl Fn(&str) -> bool) -> Option<&'a str> {
        let mut columns = self.columns_named(names);
        columns.find(|column| is_fit(&column.kind)).map(|column| column.name.as_str())
    }

    /// A column with times in it, by such names.
    async fn timed(&mut self, names: &[&str]) -> StoreResult<Option<Timed<'a>>> {
        let columns: Vec<_> = self.columns_named(names).collect();
        for column in columns {
            if let Some(clock) = self.rows.clock(column).await? {
                return Ok(Some(Timed { name: &column.name, clock, dialect: self.dialect }));
            }
        }
        Ok(None)
    }

    fn columns_named(&self, names: &[&str]) -> impl Iterator<Item = &'a Column> {
        let table = self.table;
        let plain = |name: &str| name.replace('_', "").to_lowercase();
        names.iter().filter_map(move |wanted| {
            table.columns.iter().find(|column| plain(&column.name) == *wanted)
        })
    }

    fn destination(&self) -> Vec<String> {
        let text = |kind: &str| self.dialect.is_text(kind);
        let by = self.named(names::TOPIC, text).or_else(|| self.named(names::AGGREGATE, text));
        let to =
            by.map_or_else(|| "kafka:events".to_owned(), |column| format!("kafka:{{{column}}}"));
        vec![
            "# Where its rows go: the sink before the colon, and what it calls its destination."
                .to_owned(),
            entry("to", &to),
        ]
    }

    /// The body: as it is, or as a JSON text where its rows hold something else.
    async fn body(&mut self, name: &str) -> StoreResult<String> {
        let kind = self.table.column(name).map_or("", |column| column.kind.as_str());
        let column = column(self.dialect, name);
        let is_json = match self.dialect.text_of_body(kind, &column) {
            Some(text) => self.rows.are_json(&text).await?,
            None => true,
        };
        Ok(self.dialect.body(kind, column, is_json))
    }
}

fn refused(problem: String) -> StoreError {
    StoreError::plain(StoreErrorKind::Refused, problem)
}
