//! The store's statements, for a table that somebody else made.
//!
//! They are the same texts. What differs follows from what they say: the schema's name, the type of the key, and
//! the writes to the message table, whose assignments are read, understood and made again as the layout has them.
//! Everything that only reads goes to a view of the table in the columns of Postroom's own.

use super::Foreign;
use super::text::{
    behind_look_ups, end_of_block, is_name, split_at_commas, split_at_word, without_comments,
};
use crate::layout::Assignments;
use crate::postgres::growth::text_within;

/// Stands inside of what the layout says until everything else is put in.
const GUARD: &str = "\u{2}";
/// Stands for the message table until everything else is put in.
const TABLE: &str = "\u{1}";
const READ: &str = "core_outbox.integration_outbox";
const UPDATE: &str = "UPDATE core_outbox.integration_outbox m";
const DELETE: &str = "DELETE FROM core_outbox.integration_outbox m";

impl Foreign {
    /// A statement, or several, for this ledger.
    pub(crate) fn rendered(&self, sql: &str) -> String {
        let mut sql = self.marked_parts(sql);
        sql = sql.replace("/*id*/uuid", self.key.id_type());
        // The place of a row is no name for it where the table is partitioned.
        sql = self.writes(&sql.replace("m.ctid", "m.id").replace("o.ctid", "o.id"));
        for table in [
            "to_regclass('core_outbox.integration_outbox')",
            "'core_outbox.integration_outbox'::regclass",
        ] {
            sql = sql.replace(table, &format!("'{TABLE}'::regclass"));
        }
        for trigger in ["feed", "follow", "emptied", "wake"] {
            sql = sql.replace(&format!("outbox_{trigger}"), &format!("postroom_{trigger}"));
        }
        sql = whole_milliseconds(&stored_sizes(&sql));
        if self.body().is_some() {
            sql = bodies(&sql);
        }
        // A ledger's relays are idle or busy by themselves.
        for lock in [super::super::locks::BUSY_RELAY, super::super::locks::IDLE_RELAYS] {
            sql = sql.replace(&lock.to_string(), &self.lock(lock).to_string());
        }
        // What the layout says, and the table's name, may hold the other's.
        sql.replace("core_outbox", &self.schema).replace(TABLE, &self.table.name).replace(GUARD, "")
    }

    /// The writes to the message table.
    fn writes(&self, sql: &str) -> String {
        let mut out = String::with_capacity(sql.len());
        let mut rest = sql;
        loop {
            let update = rest.find(UPDATE).map(|at| (at, UPDATE));
            let delete = rest.find(DELETE).map(|at| (at, DELETE));
            let Some((at, head)) = update.into_iter().chain(delete).min() else { break };
            out.push_str(&self.reads(&rest[..at]));
            let block = &rest[at + head.len()..];
            let (block, after) = block.split_at(end_of_block(block));
            let block = without_comments(block);
            if head == UPDATE {
                out.push_str(&self.update(&block));
            } else {
                let (body, returning) = split_at_word(&block, "RETURNING");
                let body = self.written_look_ups(&body);
                out.push_str(&format!("DELETE FROM {TABLE} m{}", self.translated(&body)));
                out.push_str(&self.returning(returning.as_deref()));
            }
            rest = after;
        }
        out.push_str(&self.reads(rest));
        out
    }

    /// What reads messages: by the columns of their key too, where their id is made of several.
    fn reads(&self, sql: &str) -> String {
        let mut sql = sql.to_owned();
        for alias in ["m", "o"] {
            sql = behind_look_ups(&sql, &format!("{alias}.id = "), |value, is_list| {
                self.key.bounds(Some(alias), value, is_list)
            });
        }
        let shown = "core_outbox.messages WHERE id = ";
        sql = behind_look_ups(&sql, shown, |value, is_list| {
            self.key.bounds(Some("messages"), value, is_list)
        });
        let bare = format!("{READ} WHERE id = ");
        behind_look_ups(
            &sql.replace("integration_outbox\n    WHERE", "integration_outbox WHERE"),
            &bare,
            |value, is_list| self.key.bounds(Some("integration_outbox"), value, is_list),
        )
    }

    /// The same where the table itself is written to.
    fn written_look_ups(&self, sql: &str) -> String {
        behind_look_ups(sql, "m.id = ", |value, is_list| self.key.bounds(None, value, is_list))
    }

    /// An UPDATE, after its head: as the layout writes this outcome, or a SELECT of the same rows where the
    /// ledger alone has it.
    fn update(&self, block: &str) -> String {
        let (_, set) = split_at_word(block, "SET");
        let set = set.unwrap_or_default();
        let (set_and_from, condition) = split_at_word(&set, "WHERE");
        let (set, from) = split_at_word(&set_and_from, "FROM");
        let condition = condition.unwrap_or_default();
        let (condition, returning) = split_at_word(&condition, "RETURNING");
        let mut condition = self.translated(&self.written_look_ups(&condition));
        let native: Vec<(String, String)> = split_at_commas(&set)
            .iter()
            .filter_map(|one| one.split_once('='))
            .map(|(column, value)| (column.trim().to_owned(), self.translated(value.trim())))
            .collect();
        // The column is left out, but a parameter has a type only where it is used.
        let token =
            native.iter().find(|(column, value)| column == "settled" && value.starts_with('$'));
        if let Some((_, token)) = token {
            condition = format!("{}\n      AND {token}::uuid IS NOT NULL ", condition.trim_end());
        }
        let returning = self.returning(returning.as_deref());
        let from = from.map(|from| from.trim().to_owned());
        let written = self.assignments(&native);
        if written.is_empty() {
            let columns = returning.trim_start().strip_prefix("RETURNING").unwrap_or("1");
            let from = from.map(|from| format!(", {from}")).unwrap_or_default();
            return format!("SELECT {columns} FROM {TABLE} m{from} WHERE{condition}");
        }
        let from = from.map(|from| format!("\n    FROM {from}")).unwrap_or_default();
        format!("UPDATE {TABLE} m\n    SET {written}{from}\n    WHERE{condition}{returning}")
    }

    /// What the layout writes where Postroom's own table would get this.
    fn assignments(&self, native: &[(String, String)]) -> String {
        let of = |column: &str| {
            native.iter().find(|(name, _)| name == column).map(|(_, value)| value.clone())
        };
        let write = &self.layout.write;
        let values = Values {
            at: of("sent_at").unwrap_or_else(|| "now()".to_owned()),
            due: of("due_at").unwrap_or_else(|| self.field("due_at")),
            attempts: of("attempts").unwrap_or_else(|| self.field("attempts")),
            error: of("last_error").unwrap_or_else(|| self.field("last_error")),
            rescues: of("rescues").unwrap_or_else(|| self.rescues()),
        };
        let none = Assignments::new();
        let is_count = |column: &String| {
            write.failed.get(column).is_some_and(|value| value.contains("$attempts"))
        };
        let opened_again: Assignments = if write.failed.keys().any(is_count) {
            let kept = write.reopened.iter().filter(|(column, _)| !is_count(column));
            kept.map(|(column, value)| (column.clone(), value.clone())).collect()
        } else {
            none.clone()
        };
        let (main, when) = match of("status").as_deref() {
            Some("'SENT'") => (self.layout.sent().unwrap_or(&none), None),
            Some("'DEAD'") => (&write.dead, None),
            // From the beginning; or only for its next job, when what has failed stays counted.
            Some("'PENDING'") if of("attempts").is_some() => (&write.reopened, None),
            Some("'PENDING'") => (&opened_again, None),
            Some("'FAILED'") => (&write.failed, None),
            Some(case) => {
                let condition =
                    case.strip_prefix("CASE WHEN ").and_then(|rest| rest.split_once(" THEN "));
                (&write.failed, condition.map(|(condition, _)| (condition.to_owned(), &write.dead)))
            }
            None if of("due_at").is_some() => (&write.postponed, None),
            None => (&none, None),
        };
        let mut columns: Vec<&String> = main.keys().collect();
        if let Some((_, other)) = &when {
            columns.extend(other.keys().filter(|column| !main.contains_key(*column)));
        }
        let assigned = columns.into_iter().map(|column| {
            let name = crate::layout::quoted(column);
            let found = self.table.column(column);
            // An error is as long as its column allows.
            let length = found.and_then(|column| column.length);
            let or_same = |set: &Assignments| match (set.get(column), length) {
                (None, _) => format!("m.{name}"),
                (Some(value), Some(length)) if value.contains("$error") => {
                    format!("left(({})::text, {length})", values.put(value))
                }
                (Some(value), _) => values.put(value),
            };
            // Two texts are no enum yet.
            let kind = found.map_or("text", |column| column.kind.as_str());
            match &when {
                None => format!("{name} = {}", or_same(main)),
                Some((condition, other)) => format!(
                    "{name} = CASE WHEN {condition} THEN ({})::{kind} ELSE ({})::{kind} END",
                    or_same(other),
                    or_same(main)
                ),
            }
        });
        guarded(&assigned.collect::<Vec<_>>().join(",\n        "))
    }

    /// Without what only Postroom's own outbox has, and with what only such a ledger has.
    fn marked_parts(&self, sql: &str) -> String {
        let mut out = String::with_capacity(sql.len());
        let mut rest = sql;
        while let Some(at) = rest.find("/*") {
            let (before, mark) = rest.split_at(at);
            out.push_str(before);
            if let Some(ours) = mark.strip_prefix("/*ours:*/") {
                rest = ours.split_once("/*:ours*/").map_or("", |(_, after)| after);
                continue;
            }
            let marks = [
                ("/*foreign:", true),
                ("/*ledger:", !self.keeps_failures),
                ("/*text:", self.key.id_type() == "text"),
            ];
            let marked = marks
                .iter()
                .find_map(|(name, is_taken)| Some((mark.strip_prefix(name)?, is_taken)));
            let Some((inner, is_taken)) = marked else {
                out.push_str("/*");
                rest = &mark[2..];
                continue;
            };
            let (text, after) = inner.split_once("*/").unwrap_or((inner, ""));
            if *is_taken {
                out.push_str(text);
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }

    fn returning(&self, returning: Option<&str>) -> String {
        let Some(returning) = returning else { return String::new() };
        let columns = split_at_commas(returning);
        let columns = columns.iter().map(|column| {
            let column = column.trim();
            match column.strip_prefix("m.") {
                Some(name) if is_name(name) => format!("{} AS {name}", self.translated(column)),
                _ => self.translated(column),
            }
        });
        format!("\n    RETURNING {}", columns.collect::<Vec<_>>().join(", "))
    }

    /// Expressions of the layout for the columns of `m`.
    fn translated(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = ' ';
        while let Some(c) = rest.chars().next() {
            let begins = !(before.is_alphanumeric() || before == '_' || before == '.');
            if begins && let Some(column) = rest.strip_prefix("m.") {
                let end = column.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                let (name, after) = column.split_at(end.unwrap_or(column.len()));
                out.push_str(&guarded(&self.field(name)));
                rest = after;
                before = ' ';
                continue;
            }
            out.push(c);
            before = c;
            rest = &rest[c.len_utf8()..];
        }
        out
    }
}

/// What an outcome writes.
pub(super) struct Values {
    at: String,
    due: String,
    attempts: String,
    error: String,
    rescues: String,
}

impl Values {
    /// Some outcome, for a statement that is prepared and not run.
    pub(super) fn trial() -> Self {
        let text = str::to_owned;
        let (now, zero) = (text("now()"), text("0"));
        Self { at: now.clone(), due: now, attempts: zero.clone(), error: text("''"), rescues: zero }
    }

    /// An expression of the layout, with what it writes.
    pub(super) fn put(&self, expression: &str) -> String {
        // The longest first: none is the beginning of another.
        expression
            .replace("$attempts", &format!("({})", self.attempts))
            .replace("$rescues", &format!("({})", self.rescues))
            .replace("$error", &format!("({})::text", self.error))
            .replace("$due", &format!("({})::timestamptz", self.due))
            .replace("$at", &format!("({})::timestamptz", self.at))
    }
}

/// What the layout says, so that nothing of it is taken for one of Postroom's own names.
fn guarded(text: &str) -> String {
    text.replace("outbox", &format!("out{GUARD}box"))
}

/// Bodies that are texts in the table are read as they are, byte for byte.
fn bodies(sql: &str) -> String {
    let within = |alias: &str, limit: &str| {
        format!("CASE WHEN octet_length({alias}.body) <= {limit} THEN {alias}.body END")
    };
    sql.replace(text_within!("o.payload", "$1::int", "NULL"), &within("o", "$1::int"))
        .replace(text_within!("m.payload", "$1::int", "NULL"), &within("m", "$1::int"))
        .replace(text_within!("m.payload", "$2::int", "NULL"), &within("m", "$2::int"))
        .replace("o.payload::text", "o.body")
        .replace("m.payload::text", "m.body")
}

/// Due times as every layout can write them and read them again: the ledger and the row must agree.
fn whole_milliseconds(sql: &str) -> String {
    let mut sql = sql.replace("due_at = now()", "due_at = date_trunc('milliseconds', now())");
    for delay in ["v.delay", "put_off.delay"] {
        let due = format!("now() + make_interval(secs => {delay})");
        sql = sql.replace(&due, &format!("date_trunc('milliseconds', {due})"));
    }
    sql
}

/// The size of what is stored, and not of what is made of it.
fn stored_sizes(sql: &str) -> String {
    let mut sql = sql.to_owned();
    for prefix in ["m.", ""] {
        sql = sql.replace(
            &format!("core_outbox.content_bytes({prefix}payload, {prefix}headers)"),
            &format!("coalesce(pg_catalog.pg_column_size({prefix}stored), 0)"),
        );
    }
    sql.replace("pg_column_compression(m.payload)", "pg_column_compression(m.stored)")
        .replace("pg_column_size(m.payload #> '{}')", "pg_column_size(m.stored)")
}
