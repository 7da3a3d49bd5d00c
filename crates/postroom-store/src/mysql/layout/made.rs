//! What is made from a layout: views, triggers and routines.

use super::fields::{CONTENT, STATE};
use super::key::id_of;
use super::{Foreign, MODE, for_row, quoted_text};
use crate::layout::{Assignments, backticked, columns, fingerprint, parts, unheld};
use crate::migrations::{TRIGGERS as TRIGGERS_OF_OWN, make_trigger};
use crate::mysql::MIGRATIONS;
use postroom_core::StoreResult;
use std::collections::BTreeSet;

const ROWS: &str = include_str!("../../../migrations/mysql/layout/rows.sql");
const READING: &str = include_str!("../../../migrations/mysql/layout/reading.sql");
const OWN: &str = include_str!("../../../migrations/mysql/layout/own.sql");
const TABLE: &str = include_str!("../../../migrations/mysql/layout/table.sql");
const BESIDES: &str = include_str!("../../../migrations/mysql/layout/besides.sql");
const BESIDES_OPEN: &str = include_str!("../../../migrations/mysql/layout/besides_open.sql");
const ENQUEUE: &str = include_str!("../../../migrations/mysql/layout/enqueue.sql");

/// The size of a message's content, as the trigger of Postroom's own table has it.
const CONTENT_SIZE: &str = "OCTET_LENGTH(NEW.payload) + COALESCE(OCTET_LENGTH(NEW.headers), 0)";

/// What a change by hand may change, and by which columns of the ledger it is followed.
const FOLLOWED: [&str; 4] = ["integration_type", "status", "due_at", "attempts"];

/// What is read of a row for its further destinations.
const BESIDES_READ: [&str; 12] = [
    "source_event_id",
    "source_stream_id",
    "name",
    "besides",
    "event_type",
    "payload",
    "headers",
    "tenant_id",
    "correlation_id",
    "causation_id",
    "ordering_key",
    "status",
];

/// What the triggers on the table are called behind its name.
const TRIGGERS: [&str; 3] = ["insert", "update", "delete"];

impl Foreign {
    /// The tables that do not depend on the layout's expressions.
    pub(super) fn ledger_tables(&self) -> String {
        let first = MIGRATIONS.first().map_or("", |migration| migration.sql);
        let every = parts(first).into_iter().filter(|(audience, _)| *audience == "every");
        let every: String = every.map(|(_, part)| part).collect();
        let [(_, feed), (_, follow)] = self.native_triggers();
        let rows = ROWS
            .replace("{table}", &self.layout.table)
            .replace("{keys}", &self.key.declared())
            .replace("{feed}", &feed)
            .replace("{follow}", &follow);
        format!("{}{every}\n{rows}", self.begin())
    }

    /// The triggers that Postroom's own table has too, by name.
    pub(super) fn native_triggers(&self) -> [(&'static str, String); 2] {
        TRIGGERS_OF_OWN.map(|name| {
            let native = make_trigger(MIGRATIONS, name, "$$");
            (name, native.replace(CONTENT_SIZE, "LEAST(NEW.bytes, 4294967295)"))
        })
    }

    /// Enters the ledger, which is made where there is none.
    fn begin(&self) -> String {
        let ledger = backticked(&self.ledger);
        format!("CREATE DATABASE IF NOT EXISTS {ledger};\nUSE {ledger};\n\n")
    }

    /// What makes the ledger say what the table's key is by now.
    pub(super) fn alter_key(&self) -> String {
        let columns = self.key.declared();
        let columns: Vec<_> = columns.trim_end_matches(',').split(",\n").collect();
        let modify = columns.iter().map(|column| format!("MODIFY {}", column.trim()));
        format!("ALTER TABLE integration_outbox {};\n", modify.collect::<Vec<_>>().join(", "))
    }

    /// The names of the triggers on the table. Of a long name a part and a hash have to do.
    pub(super) fn triggers(&self) -> [String; 3] {
        const LONGEST: usize = 40;
        let mut short: String = self.name.chars().take(LONGEST).collect();
        if self.name.chars().count() > LONGEST {
            short.truncate(short.char_indices().nth(31).map_or(short.len(), |(at, _)| at));
            short.push_str(&fingerprint(&self.name)[..8]);
        }
        TRIGGERS.map(|what| format!("{short}_postroom_{what}"))
    }

    /// The same as a statement names them.
    pub(super) fn trigger_places(&self) -> [String; 3] {
        self.triggers().map(|name| format!("{}.{}", backticked(&self.database), backticked(&name)))
    }

    /// What is made from the layout in the ledger, after what was there of it, and of the triggers on the table.
    ///
    /// # Errors
    /// When an expression names a column that the table does not have.
    pub(super) fn made(&self) -> StoreResult<String> {
        let mut sql = format!("USE {};\n{MODE};\n\n", backticked(&self.ledger));
        // First: producers must not meet a trigger whose functions are being made again. What comes meanwhile is
        // looked for at the end.
        for trigger in self.unmade() {
            sql.push_str(&format!("{trigger};\n"));
        }
        sql.push('\n');
        sql.push_str(READING);
        sql.push_str(&self.views());
        if !self.layout.insert.is_empty() {
            sql.push_str(&self.enqueue());
        }
        Ok(sql)
    }

    /// Names all that is made from the layout.
    ///
    /// # Errors
    /// As [`made`](Self::made).
    pub(super) fn fingerprint(&self) -> StoreResult<String> {
        let made = [self.made()?, self.writes(""), self.on_table()?, self.key.declared()];
        Ok(fingerprint(&made.concat()))
    }

    /// The rows with what the ledger knows of them.
    fn joined(&self) -> String {
        // Where statistics say that the table is small, the server would read all of it for each batch. An index of
        // another name may be renamed by its owner, which must not break the view.
        let is_primary = self.table.primary_key.iter().eq(self.key.columns());
        format!(
            "FROM integration_outbox AS n FORCE INDEX (PRIMARY, outbox_id, outbox_created)\n\
             STRAIGHT_JOIN {} AS m{} ON {}",
            self.table.name,
            if is_primary { " FORCE INDEX (PRIMARY)" } else { "" },
            self.key.same_as("n")
        )
    }

    fn views(&self) -> String {
        let state = STATE.iter().map(|name| format!("n.{name}"));
        let content = CONTENT.iter().map(|name| format!("{} AS {name}", self.shown(name)));
        let fields: Vec<_> =
            ["n.seq".to_owned(), "n.id".to_owned(), format!("{} AS name", self.key.name())]
                .into_iter()
                .chain(state)
                .chain(content)
                .chain(["0 AS copy".to_owned(), "n.settled".to_owned()])
                .collect();
        let mut sql = format!(
            "\n-- The rows of {} in the columns of Postroom's own table.\n\
             CREATE OR REPLACE VIEW outbox_row AS\nSELECT {}\n{};\n\n",
            self.layout.table,
            fields.join(",\n       "),
            self.joined()
        );
        let first = MIGRATIONS.first().map_or("", |migration| migration.sql);
        for (_, part) in parts(first).into_iter().filter(|(audience, _)| *audience == "made") {
            let part = part
                .replace(
                    "SELECT m.id, m.source_stream_id",
                    "SELECT m.name AS id, m.source_stream_id",
                )
                .replace(
                    "m.schema_version, m.occurred_at\n",
                    "m.schema_version, m.occurred_at,\n       m.id AS ledger_id\n",
                )
                .replace("FROM integration_outbox AS m", "FROM outbox_row AS m");
            sql.push_str(&part);
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
            let name = backticked(&column.name);
            match self.layout.claimed.get(&column.name) {
                Some(value) => {
                    format!(
                        "CASE WHEN held.seq IS NOT NULL THEN {value} ELSE m.{name} END AS {name}"
                    )
                }
                None => format!("m.{name}"),
            }
        });
        format!(
            "-- The rows of {}, with what relays hold.\nCREATE OR REPLACE VIEW outbox_claimed AS\nSELECT {}\n\
             FROM {} AS m\nLEFT JOIN integration_outbox AS n ON n.id = {}\n\
             LEFT JOIN outbox_messages AS held ON held.seq = n.seq AND held.status = 'CLAIMED';\n",
            self.layout.table,
            columns.collect::<Vec<_>>().join(", "),
            self.table.name,
            self.key.id(),
        )
    }

    /// The triggers of the ledger's own table that write to the row, named after a version.
    pub(super) fn writes(&self, version: &str) -> String {
        let write = &self.layout.write;
        // A layout that deletes what was delivered has it deleted in the ledger first.
        let sent = self.layout.sent().map_or_else(nothing, |set| self.update(set));
        OWN.replace("{version}", version)
            .replace("{sent}", &sent)
            .replace("{failed}", &self.update(&write.failed))
            .replace("{dead}", &self.update(&write.dead))
            .replace("{reopened}", &self.update(&write.reopened))
            .replace("{postponed}", &self.update(&write.postponed))
            .replace("{strict}", &strict())
            .replace("{mode}", MODE)
            .replace("{same_as_old}", &self.key.same_as("OLD"))
            .replace("{table}", &self.table.name)
    }

    /// An UPDATE of the row that a trigger of the ledger fires for.
    fn update(&self, set: &Assignments) -> String {
        if set.is_empty() {
            return nothing();
        }
        let fitting: Assignments =
            set.iter().map(|(column, value)| (column.clone(), self.cut(column, value))).collect();
        let set = assigned(&fitting, |name| match name {
            "attempts" => "NEW.attempts",
            "error" => "NEW.last_error",
            "due" => "NEW.due_at",
            _ => "COALESCE(NEW.sent_at, NEW.updated_at)",
        });
        format!("UPDATE {} AS m SET {set} WHERE {};", self.table.name, self.key.same_as("NEW"))
    }

    /// A value that has the error in it, no longer than its column: what does not fit would be refused.
    fn cut(&self, column: &str, value: &str) -> String {
        let found = self.table.column(column).filter(|_| value.contains("$error"));
        match found.and_then(|column| Some((column.length?, column.kind.to_ascii_lowercase()))) {
            Some((length, kind)) if kind.ends_with("char") => format!("LEFT({value}, {length})"),
            // Of these the length is in bytes.
            Some((length, kind)) if kind.ends_with("text") => {
                format!("LEFT({value}, {})", length / 4)
            }
            Some(_) | None => value.to_owned(),
        }
    }

    fn enqueue(&self) -> String {
        // The longest first: none is the beginning of another.
        const VALUES: [(&str, &str); 16] = [
            ("$schema_version", "p_schema_version"),
            ("$correlation_id", "p_correlation"),
            ("$occurred_at", "p_occurred_at"),
            ("$ordering_key", "p_ordering_key"),
            ("$causation_id", "p_causation"),
            ("$max_attempts", "p_max_attempts"),
            ("$integration", "p_integration"),
            ("$event_type", "p_event_type"),
            ("$tenant_id", "p_tenant"),
            ("$event_id", "event"),
            ("$payload", "p_payload"),
            ("$headers", "p_headers"),
            ("$user_id", "p_user_id"),
            ("$source", "p_source"),
            ("$stream", "p_stream"),
            ("$due", "p_due_at"),
        ];
        let insert = &self.layout.insert;
        let names: Vec<_> = insert.keys().map(|column| backticked(column)).collect();
        let values: Vec<_> = insert
            .values()
            .map(|value| {
                let value = value.replace("$due_ms", &ms("p_due_at")).replace("$at_ms", &ms("at"));
                let value =
                    VALUES.iter().fold(value, |sql, (name, value)| sql.replace(name, value));
                value.replace("$at", "at")
            })
            .collect();
        let variables: Vec<_> =
            self.key.names().iter().map(|name| format!("@postroom_{name}")).collect();
        let same_key: Vec<_> = (self.key.columns().zip(&variables))
            .map(|(column, value)| format!("{} = {value}", backticked(column)))
            .collect();
        let same_event = match &self.layout.message.event_id {
            // Found by an index.
            None => format!("m.id = {}", id_of("event")),
            Some(_) => "m.source_event_id = event".to_owned(),
        };
        let lost = unheld(insert).map(|part| {
            format!(
                "IF {} THEN\n        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'message refused: a row has no place for \
                 `{1}`: leave it out, or name a column for `${1}` in `insert`';\n    END IF;",
                part.on_mysql, part.name
            )
        });
        ENQUEUE
            .replace("{lost}", &lost.collect::<Vec<_>>().join("\n    "))
            .replace("{columns}", &names.join(", "))
            .replace("{values}", &values.join(", "))
            .replace("{same_event}", &same_event)
            .replace("{key_names}", &self.key.names().join(", "))
            .replace("{key_variables}", &variables.join(", "))
            .replace("{same_key}", &same_key.join(" AND "))
            .replace("{table}", &self.table.name)
            .replace("{mode}", MODE)
            .replace("{strict}", &strict())
    }

    /// The triggers on the table.
    pub(super) fn on_table(&self) -> StoreResult<String> {
        let watched: BTreeSet<String> = FOLLOWED
            .iter()
            .chain(["id"].iter())
            .flat_map(|name| columns(&self.said(name)))
            .collect();
        if let Some(missing) = watched.iter().find(|name| self.table.column(name).is_none()) {
            return Err(
                self.refused(&format!("it has no column {missing}, which its layout names"))
            );
        }
        let differs = |old: &str, new: &str| format!("NOT ({old} <=> {new})");
        let changed = watched.iter().map(|name| {
            let name = backticked(name);
            differs(&format!("OLD.{name}"), &format!("NEW.{name}"))
        });
        let changed = changed.collect::<Vec<_>>().join(" OR ");
        let is_changed =
            |name: &str| differs(&self.said_of(name, "OLD"), &self.said_of(name, "NEW"));
        let says_otherwise: Vec<_> = FOLLOWED.iter().map(|name| is_changed(name)).collect();
        // Rows that keep failures say by themselves what state they are in now.
        let new_state = match self.layout.keeps_failures() {
            true => says_otherwise[1..].join(" OR "),
            false => is_changed("status"),
        };
        let followed = [
            format!("status = IF({new_state}, {}, status)", self.said_of("status", "NEW")),
            format!("attempts = IF({new_state}, {}, attempts)", self.said_of("attempts", "NEW")),
            format!(
                "last_error = IF({new_state}, {}, last_error)",
                self.said_of("last_error", "NEW")
            ),
            format!("sent_at = IF({new_state}, {}, sent_at)", self.said_of("sent_at", "NEW")),
            format!(
                "due_at = IF({} OR {}, {}, due_at)",
                is_changed("due_at"),
                is_changed("status"),
                self.said_of("due_at", "NEW")
            ),
            format!("integration_type = {}", self.said_of("integration_type", "NEW")),
            format!("is_replay = IF({new_state}, FALSE, is_replay)"),
            format!("bytes = {}", self.said_of("bytes", "NEW")),
            self.key
                .names()
                .iter()
                .zip(self.key.of_row("NEW").split(", "))
                .map(|(name, value)| format!("{name} = {value}"))
                .collect::<Vec<_>>()
                .join(", "),
        ];
        let [insert, update, delete] = self.trigger_places();
        let besides = match self.layout.has_several_destinations() {
            true => self.put(BESIDES),
            false => String::new(),
        };
        let sql = TABLE
            .replace("{trigger_insert}", &insert)
            .replace("{trigger_update}", &update)
            .replace("{trigger_delete}", &delete)
            .replace("{besides}", besides.trim())
            .replace("{followed}", &followed.join(",\n            "))
            .replace("{says_otherwise}", &says_otherwise.join(" OR "))
            .replace("{changed}", &changed)
            .replace("{key_names}", &self.key.names().join(", "))
            .replace("{new_keys}", &self.key.of_row("NEW"))
            .replace("{ledger}", &backticked(&self.ledger))
            .replace("{table}", &self.table.name);
        Ok(self.of_rows(&sql))
    }

    /// Where messages for further destinations go.
    fn put(&self, sql: &str) -> String {
        sql.replace("{database}", &backticked(&self.database))
            .replace("{of_table}", &quoted_text(&self.layout.table))
    }

    /// What goes to further destinations of the rows that are open when the layout is applied.
    pub(super) fn besides_of_open(&self) -> String {
        let places =
            (0..self.layout.most_besides()).map(|place| format!("SELECT {place} AS place"));
        let places: Vec<_> = places.collect();
        if places.is_empty() {
            return String::new();
        }
        let whole = BESIDES_READ.map(|name| format!("{} AS {name}", self.said(name))).join(", ");
        let open = self.layout.state.open.as_ref();
        let open = open.map_or_else(String::new, |open| format!(" WHERE {open}"));
        let whole = format!("SELECT {whole} FROM {} AS m{open}", self.table.name);
        self.put(BESIDES_OPEN)
            .replace("{whole}", &whole)
            .replace("{places}", &places.join(" UNION ALL "))
    }

    /// A trigger on the table, with what its rows say put in.
    fn of_rows(&self, sql: &str) -> String {
        let mut sql = sql.to_owned();
        for (mark, row) in [("new", "NEW"), ("old", "OLD")] {
            for name in STATE.iter().chain(&CONTENT).chain(&["id", "name", "besides"]) {
                let place = format!("{{{mark}.{name}}}");
                if sql.contains(&place) {
                    sql = sql.replace(&place, &self.said_of(name, row));
                }
            }
        }
        sql
    }

    /// What is done to rows that another dispatcher has taken, when the layout is applied: they are due after a while.
    pub(super) fn adopt_taken(&self, grace_seconds: f64) -> Option<String> {
        let taken = self.layout.state.taken.as_ref()?;
        let due = format!(
            "UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND",
            (grace_seconds * 1_000_000.0) as i64
        );
        let set = assigned(&self.layout.write.postponed, |name| match name {
            "due" => &due,
            "at" => "UTC_TIMESTAMP(6)",
            _ => "NULL",
        });
        (!set.is_empty())
            .then(|| format!("UPDATE {} AS m SET {set} WHERE {taken};\n", self.table.name))
    }

    /// Removes what stands in the table's own database.
    pub(super) fn unmade(&self) -> Vec<String> {
        self.trigger_places().iter().map(|name| format!("DROP TRIGGER IF EXISTS {name}")).collect()
    }
}

/// The part of a script that enters a ledger, and the rest.
pub(in crate::mysql) fn entering(script: &str) -> Option<(&str, &str)> {
    script.starts_with("CREATE DATABASE").then(|| script.split_once("\n\n")).flatten()
}

/// The same kind of SQL, where what does not fit is refused.
fn strict() -> String {
    MODE.replace("'PIPES", "'STRICT_ALL_TABLES,PIPES")
}

/// A statement that does nothing: a branch must have one.
fn nothing() -> String {
    "DO 0;".to_owned()
}

/// Assignments to the row `m`, with what is to be written put in.
pub(super) fn assigned<'a>(set: &Assignments, value: impl Fn(&str) -> &'a str) -> String {
    let put = |expression: &String| {
        let mut sql = for_row(expression, "m");
        // The longest first: none is the beginning of another.
        for name in ["attempts", "error", "due", "at"] {
            sql = sql.replace(&format!("${name}_ms"), &ms(value(name)));
            sql = sql.replace(&format!("${name}"), value(name));
        }
        sql
    };
    let set =
        set.iter().map(|(column, value)| format!("m.{} = {}", backticked(column), put(value)));
    set.collect::<Vec<_>>().join(", ")
}

/// A time as milliseconds since 1970.
fn ms(time: &str) -> String {
    format!("(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {time}) DIV 1000)")
}
