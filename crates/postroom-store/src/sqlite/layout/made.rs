//! The views and triggers that come from a layout.

use super::Foreign;
use super::fields::{NAMES, ms};
use crate::layout::{Assignments, columns, for_row, parts, quoted, unheld};
use crate::sqlite::MIGRATIONS;
use postroom_core::StoreResult;
use std::collections::BTreeSet;

const FEED: &str = include_str!("../../../migrations/sqlite/layout/feed.sql");
const FOLLOW: &str = include_str!("../../../migrations/sqlite/layout/follow.sql");
const HELD: &str = include_str!("../../../migrations/sqlite/layout/held.sql");
const WRITE: &str = include_str!("../../../migrations/sqlite/layout/write.sql");
const LEDGER_WRITE: &str = include_str!("../../../migrations/sqlite/layout/ledger_write.sql");
const ENQUEUE: &str = include_str!("../../../migrations/sqlite/layout/enqueue.sql");

/// What a change by hand may change.
const FOLLOWED: [&str; 4] = ["id", "integration_type", "status", "due_at"];

/// The views, in the order in which they can be dropped, by such names.
pub(super) const VIEWS: [&str; 4] =
    ["outbox_claimed", "outbox_messages", "outbox_in_flight", "integration_outbox"];
/// The triggers on the table, by the names that they have in Postroom's own outbox.
pub(super) const TRIGGERS: [&str; 2] = ["outbox_feed", "outbox_follow"];

impl Foreign {
    /// The tables that do not depend on the layout's expressions.
    pub(super) fn ledger(&self) -> String {
        let first = MIGRATIONS.first().map_or("", |migration| migration.sql);
        let every = parts(first).into_iter().filter(|(audience, _)| *audience == "every");
        every.map(|(_, part)| self.rendered(part)).collect::<Vec<_>>().join("\n")
    }

    /// The views and triggers, after what was there of them.
    ///
    /// # Errors
    /// When an expression names a column that the table does not have.
    pub(super) fn made(&self) -> StoreResult<String> {
        let mut sql = String::new();
        for view in VIEWS {
            sql.push_str(&self.names.put(&format!("DROP VIEW IF EXISTS {view};\n")));
        }
        for trigger in TRIGGERS {
            sql.push_str(&self.names.put(&format!("DROP TRIGGER IF EXISTS {trigger};\n")));
        }
        sql.push_str(&self.views());
        sql.push_str(&self.writes());
        if !self.layout.insert.is_empty() {
            sql.push_str(&self.enqueue());
        }
        let feed = self.names.put(FEED);
        sql.push_str(&self.of_rows(&feed).replace("{besides}", &self.besides_of_new()));
        sql.push_str(&self.follow()?);
        Ok(sql)
    }

    fn views(&self) -> String {
        let fields = NAMES.iter().map(|name| format!("{} AS {name}", self.shown(name)));
        let keys = self.key.view_columns().into_iter();
        let fields: Vec<_> = fields
            .chain([format!("({}) AS stored", self.stored())])
            .chain(keys.map(|(name, expression)| format!("{expression} AS {name}")))
            .collect();
        let mut sql = format!(
            "-- The rows of {0} in the columns of Postroom's own table.\n\
             CREATE VIEW {2} AS\nSELECT {1}\nFROM {0} AS m;\n",
            self.table.name,
            fields.join(",\n       "),
            self.names.put("integration_outbox")
        );
        let first = MIGRATIONS.first().map_or("", |migration| migration.sql);
        for (_, part) in parts(first).into_iter().filter(|(audience, _)| *audience == "made") {
            sql.push_str(&self.rendered(part));
            sql.push('\n');
        }
        if !self.layout.claimed.is_empty() {
            sql.push_str(&self.claimed_view());
        }
        sql
    }

    /// The table as its owner knows it, with what relays hold.
    fn claimed_view(&self) -> String {
        let columns = self.table.columns.iter().map(|column| {
            let name = quoted(&column.name);
            match self.layout.claimed.get(&column.name) {
                Some(value) => format!(
                    "CASE WHEN held.id IS NOT NULL THEN {value} ELSE m.{name} END AS {name}"
                ),
                None => format!("m.{name}"),
            }
        });
        format!(
            "-- The rows of {0}, with what relays hold.\nCREATE VIEW {3} AS\nSELECT {1}\nFROM {0} AS m\n\
             LEFT JOIN {4} AS held ON held.seq = m.{2} AND held.status = 'CLAIMED';\n",
            self.table.name,
            columns.collect::<Vec<_>>().join(", "),
            self.rowid,
            self.names.put("outbox_claimed"),
            self.names.put("outbox_messages")
        )
    }

    /// What the view's own triggers do.
    fn writes(&self) -> String {
        let write = &self.layout.write;
        let ledger = if self.keeps_failures {
            String::new()
        } else {
            self.names.put(LEDGER_WRITE).replace("{due_ms}", &ms("NEW.due_at"))
        };
        let sent = match self.layout.sent() {
            Some(set) => self.update(set),
            None => format!("DELETE FROM {} WHERE {} = OLD.seq;", self.table.name, self.rowid),
        };
        let both = |set: &Assignments| {
            let update = if set.is_empty() { String::new() } else { self.update(set) };
            let both = [update, ledger.clone()];
            let both: Vec<_> =
                both.iter().map(|one| one.trim()).filter(|one| !one.is_empty()).collect();
            // A trigger must do something.
            if both.is_empty() { "SELECT 1;".to_owned() } else { both.join("\n    ") }
        };
        self.names
            .put(WRITE)
            .replace("{sent}", &sent)
            .replace("{failed}", &both(&write.failed))
            .replace("{dead}", &both(&write.dead))
            .replace("{reopened}", &both(&write.reopened))
            .replace("{postponed}", &both(&write.postponed))
            .replace("{table}", &self.table.name)
            .replace("{rowid}", self.rowid)
    }

    /// An UPDATE of the row that the view's trigger fires for.
    fn update(&self, set: &Assignments) -> String {
        let set = self.assigned(set, &self.table.name, |name| match name {
            "attempts" => "NEW.attempts".to_owned(),
            "error" => "NEW.last_error".to_owned(),
            "due" => "NEW.due_at".to_owned(),
            _ => "coalesce(NEW.sent_at, NEW.updated_at)".to_owned(),
        });
        format!("UPDATE {} SET {set} WHERE {} = OLD.seq;", self.table.name, self.rowid)
    }

    /// Assignments, with what is to be written put in; `row` is the row's name in the statement.
    fn assigned(&self, set: &Assignments, row: &str, value: impl Fn(&str) -> String) -> String {
        let put = |expression: &String| {
            let mut sql = for_row(expression, "\u{1}").replace('\u{1}', row);
            // The longest first: none is the beginning of another.
            for name in ["attempts", "error", "due", "at"] {
                sql = sql.replace(&format!("${name}_ms"), &ms(&value(name)));
                sql = sql.replace(&format!("${name}"), &value(name));
            }
            sql
        };
        let set = set.iter().map(|(column, value)| format!("{} = {}", quoted(column), put(value)));
        set.collect::<Vec<_>>().join(", ")
    }

    fn enqueue(&self) -> String {
        // The longest first: none is the beginning of another.
        const VALUES: [(&str, &str); 16] = [
            ("$schema_version", "coalesce(NEW.schema_version, 1)"),
            ("$correlation_id", "NEW.correlation_id"),
            ("$occurred_at", "NEW.occurred_at"),
            ("$ordering_key", "NEW.ordering_key"),
            ("$causation_id", "NEW.causation_id"),
            ("$max_attempts", "coalesce(NEW.max_attempts, 10)"),
            ("$integration", "NEW.integration_type"),
            ("$event_type", "NEW.event_type"),
            ("$tenant_id", "NEW.tenant_id"),
            ("$event_id", "NEW.source_event_id"),
            ("$payload", "NEW.payload"),
            ("$headers", "NEW.headers"),
            ("$user_id", "NEW.user_id"),
            ("$source", "NEW.source"),
            ("$stream", "coalesce(NEW.source_stream_id, NEW.source_event_id)"),
            ("$due", "coalesce(NEW.due_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))"),
        ];
        const NOW: &str = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
        let insert = &self.layout.insert;
        let names: Vec<_> = insert.keys().map(|column| quoted(column)).collect();
        let values: Vec<_> = insert
            .values()
            .map(|value| {
                let value = value.replace("$due_ms", &ms("coalesce(NEW.due_at, 'now')"));
                let value = value.replace("$at_ms", &ms("'now'")).replace("$at", NOW);
                VALUES.iter().fold(value, |sql, (name, value)| sql.replace(name, value))
            })
            .collect();
        let lost = unheld(insert).map(|part| (part.name, part.on_sqlite));
        let lost = [("copy", "NEW.copy <> 0")].into_iter().chain(lost);
        let lost = lost.map(|(name, given)| {
            format!(
                "SELECT RAISE(ABORT, 'message refused: a row has no place for `{name}`: leave it out, or name a \
                 column for `${name}` in `insert` of the layout') WHERE {given};"
            )
        });
        let lost: Vec<_> = lost.collect();
        self.names
            .put(ENQUEUE)
            .replace("{lost}", &lost.join("\n    "))
            .replace("{columns}", &names.join(", "))
            .replace("{values}", &values.join(", "))
            .replace("{table}", &self.table.name)
    }

    fn follow(&self) -> StoreResult<String> {
        let watched: BTreeSet<String> =
            FOLLOWED.iter().flat_map(|name| columns(&self.said(name))).collect();
        if let Some(missing) = watched.iter().find(|name| self.table.column(name).is_none()) {
            return Err(
                self.refused(&format!("it has no column {missing}, which its layout names"))
            );
        }
        let names: Vec<_> = watched.iter().map(|column| quoted(column)).collect();
        let changed: Vec<_> =
            names.iter().map(|name| format!("OLD.{name} IS NOT NEW.{name}")).collect();
        let sql = self
            .names
            .put(&FOLLOW.replace("{held}", HELD.trim()))
            .replace("{watched}", &names.join(", "))
            .replace("{changed}", &changed.join(" OR "));
        Ok(self.of_rows(&sql))
    }

    /// A trigger on the table, with what its rows say put in.
    fn of_rows(&self, sql: &str) -> String {
        let mut sql = sql.replace("{table}", &self.table.name);
        for (mark, row) in [("new", "NEW"), ("old", "OLD")] {
            for name in ["id", "seq", "integration_type", "status", "due_at"] {
                let said = format!("({})", for_row(&self.said(name), row));
                sql = sql.replace(&format!("{{{mark}.{name}}}"), &said);
            }
            let due_ms = ms(&for_row(&self.said("due_at"), row));
            sql = sql.replace(&format!("{{{mark}.due_ms}}"), &due_ms);
            let state = format!(
                "CASE ({}) WHEN 'PENDING' THEN 'w' WHEN 'FAILED' THEN 'f' WHEN 'DEAD' THEN 'd' END",
                for_row(&self.said("status"), row)
            );
            sql = sql.replace(&format!("{{{mark}.state}}"), &state);
        }
        sql
    }

    /// What is done to rows that another dispatcher has taken, when the layout is applied: they are due after a while.
    pub(super) fn adopt_taken(&self, grace_seconds: f64) -> Option<String> {
        let taken = self.layout.state.taken.as_ref()?;
        let due = format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+{grace_seconds} seconds')");
        let set =
            self.assigned(&self.layout.write.postponed, &self.table.name, |name| match name {
                "due" => due.clone(),
                "at" => "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')".to_owned(),
                _ => "NULL".to_owned(),
            });
        let taken = for_row(taken, "\u{1}").replace('\u{1}', &self.table.name);
        (!set.is_empty()).then(|| format!("UPDATE {} SET {set} WHERE {taken};\n", self.table.name))
    }
}
