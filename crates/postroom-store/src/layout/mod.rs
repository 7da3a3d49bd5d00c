//! Layouts: how a store reads and writes a message table that Postroom did not make.
//!
//! A layout is data. It names the table and its key, says by SQL expressions over the row `m` what a message
//! is made of and what state it is in, and by lists of assignments how each outcome is written back. Statements
//! and triggers are made from it (`postgres/layout/`, `mysql/layout/`, `sqlite/layout/`). The built-in ones are the files under
//! `layouts/`, by dialect.

mod destination;
mod dialect;
mod expression;
mod made;
mod mismatches;
mod propose;
mod settings;
mod table;
mod unheld;

pub use destination::{Destination, Route};
pub(crate) use destination::{besides, integration};
pub use dialect::Dialect;
pub(crate) use expression::{backticked, columns, for_row, literals, moved, quoted};
pub(crate) use made::{fingerprint, parts};
pub(crate) use mismatches::{Mismatch, mismatches};
pub(crate) use propose::{Clock, Rows, propose};
pub(crate) use table::{Column, Table};
pub(crate) use unheld::{Part, unheld};

use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::Value;

/// Expressions by the column that they are for.
pub type Assignments = BTreeMap<String, String>;

/// The built-in layouts, by dialect and name.
const BUILT_IN: [(Dialect, &str, &str); 13] = [
    (Dialect::Mysql, "debezium", include_str!("../../layouts/mysql/debezium.toml")),
    (Dialect::Mysql, "events", include_str!("../../layouts/mysql/events.toml")),
    (Dialect::Mysql, "kata", include_str!("../../layouts/mysql/kata.toml")),
    (Dialect::Mysql, "metadata", include_str!("../../layouts/mysql/metadata.toml")),
    (Dialect::Postgres, "debezium", include_str!("../../layouts/postgres/debezium.toml")),
    (Dialect::Postgres, "events", include_str!("../../layouts/postgres/events.toml")),
    (Dialect::Postgres, "kata", include_str!("../../layouts/postgres/kata.toml")),
    (Dialect::Postgres, "metadata", include_str!("../../layouts/postgres/metadata.toml")),
    (Dialect::Postgres, "typeorm", include_str!("../../layouts/postgres/typeorm.toml")),
    (Dialect::Sqlite, "debezium", include_str!("../../layouts/sqlite/debezium.toml")),
    (Dialect::Sqlite, "events", include_str!("../../layouts/sqlite/events.toml")),
    (Dialect::Sqlite, "kata", include_str!("../../layouts/sqlite/kata.toml")),
    (Dialect::Sqlite, "metadata", include_str!("../../layouts/sqlite/metadata.toml")),
];

/// The layout of Postroom's own table, which needs no description.
pub const OWN: &str = "integration";
/// The layout that is named column by column in the configuration.
pub const CUSTOM: &str = "custom";

/// How a message table is read and written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Layout {
    /// The table, with its schema where that is not the first of the search path.
    pub table: String,
    /// The columns of its key.
    pub key: Vec<String>,
    /// What tells two rows apart that have had the same key; the time of creation where nothing is said. A key
    /// that is a uuid or text does not come again, and needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Where its rows go, where they do not say so themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Destination>,
    /// Where some of them go instead. The first that fits counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// What becomes of rows that are gone before they were delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vanished: Option<Vanished>,
    /// How the ledger learns of new rows.
    #[serde(skip_serializing_if = "Feed::is_triggers")]
    pub feed: Feed,
    /// Texts and lists that stand in braces in expressions.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
    /// What a message is made of.
    pub message: Content,
    /// What state it is in.
    pub state: State,
    /// How outcomes are written back.
    pub write: Write,
    /// What the view of the table's own name shows of rows that a relay holds.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    pub claimed: Assignments,
    /// How a message is enqueued.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    pub insert: Assignments,
    /// How the table is made where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<Create>,
}

/// How the ledger learns of new rows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Feed {
    /// By triggers on the table.
    #[default]
    Triggers,
    /// By looking, where the table's owner allows no trigger.
    Poll,
}

impl Feed {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_triggers(&self) -> bool {
        *self == Self::Triggers
    }
}

/// What a message is made of: expressions over the row `m`. What is not named is null, or as said here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Content {
    /// The destination; what [`to`](Layout::to) says otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integration: Option<String>,
    /// What happened.
    pub event_type: String,
    /// What receivers know repeats by; the key otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The aggregate; the event id otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The body, as jsonb or what can be cast to it.
    pub payload: String,
    /// The column that holds it, for its size; the body itself otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<String>,
    /// A JSON object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    /// The tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Who caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Ties it to a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// What caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    /// Where it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// What belongs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<String>,
    /// The version of the body's schema; 1 otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<String>,
    /// When it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occurred_at: Option<String>,
    /// When it was enqueued. Lists go by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    /// How many attempts may fail; 10 otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<String>,
}

/// What state a message is in: expressions over the row `m`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// PENDING, FAILED (to be tried again), SENT, DEAD, or anything else, which is reported and left alone.
    pub status: String,
    /// A condition that holds for every row whose status is PENDING or FAILED, in the words of an index that the
    /// table has. A poll and a reconciliation look for open rows by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<String>,
    /// When it is due; when it was enqueued otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<String>,
    /// Failed attempts, where the row counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<String>,
    /// Why the last one failed, where the row says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it was delivered, where the row says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<String>,
    /// Which rows an older dispatcher is delivering: they are due a while after the table is adopted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<String>,
}

/// How outcomes are written back. In the expressions, `$at`, `$due`, `$attempts` and `$error` stand for what is to
/// be written, and `m` for the row. On PostgreSQL `$rescues` is how many claims were lost since the last outcome and
/// are not counted in the row. On SQLite `$at_ms` and `$due_ms` are the times in milliseconds since 1970. Where there
/// is no way to write a failure, it stands in the ledger alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Write {
    /// Delivered.
    pub sent: Sent,
    /// Failed, and due again.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    pub failed: Assignments,
    /// Dead.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    pub dead: Assignments,
    /// To be delivered again, from the beginning.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    pub reopened: Assignments,
    /// Due at another time, and else as it was.
    #[serde(skip_serializing_if = "Assignments::is_empty")]
    pub postponed: Assignments,
}

/// What becomes of a row that was delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Sent {
    /// It is written to.
    Set(Assignments),
    /// The word `delete`: it is deleted.
    Word(String),
}

impl Default for Sent {
    fn default() -> Self {
        Self::Set(Assignments::new())
    }
}

/// What becomes of rows that are gone before they were delivered.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vanished {
    /// The first one pauses its lane.
    Pause,
    /// They are counted.
    Ignore,
}

/// How the table is made where there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Create {
    /// The service that `ENABLED_MIGRATION_SERVICES` must contain, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_migrating: Option<String>,
    /// The statements, with `{table}` for the table.
    pub sql: String,
}

impl Layout {
    /// The names of all layouts that this dialect has.
    #[must_use]
    pub fn names(dialect: Dialect) -> Vec<&'static str> {
        let of_dialect = BUILT_IN.iter().filter(|(known, ..)| *known == dialect);
        let mut names: Vec<_> = of_dialect.map(|(_, name, _)| *name).collect();
        names.extend([CUSTOM, OWN]);
        names.sort_unstable();
        names
    }

    /// The built-in layout of this name; `custom` is one in which nothing is said yet.
    #[must_use]
    pub fn built_in(name: &str, dialect: Dialect) -> Option<Self> {
        if name == CUSTOM {
            return Some(Self::default());
        }
        let is_it = |(of, known, _): &&(Dialect, &str, &str)| *of == dialect && *known == name;
        let (.., text) = BUILT_IN.iter().find(is_it)?;
        // A test reads them all.
        toml::from_str(text).ok()
    }

    /// Reads a layout from TOML.
    ///
    /// # Errors
    /// When it is no layout.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// The layout as TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        // Every value of a layout is text, a list or a table of these: there is nothing that TOML cannot say.
        toml::to_string(self).unwrap_or_default()
    }

    /// Every expression over the row `m`, by the key of the configuration that holds it.
    pub(crate) fn expressions(&self) -> Vec<(String, &str)> {
        let (message, state) = (&self.message, &self.state);
        let optional = [
            ("identity", &self.identity),
            ("message.integration", &message.integration),
            ("message.event_id", &message.event_id),
            ("message.stream", &message.stream),
            ("message.stored", &message.stored),
            ("message.headers", &message.headers),
            ("message.tenant_id", &message.tenant_id),
            ("message.user_id", &message.user_id),
            ("message.correlation_id", &message.correlation_id),
            ("message.causation_id", &message.causation_id),
            ("message.source", &message.source),
            ("message.ordering_key", &message.ordering_key),
            ("message.schema_version", &message.schema_version),
            ("message.occurred_at", &message.occurred_at),
            ("message.created_at", &message.created_at),
            ("message.max_attempts", &message.max_attempts),
            ("state.open", &state.open),
            ("state.due_at", &state.due_at),
            ("state.attempts", &state.attempts),
            ("state.last_error", &state.last_error),
            ("state.sent_at", &state.sent_at),
            ("state.taken", &state.taken),
        ];
        let mut all = vec![
            ("message.event_type".to_owned(), message.event_type.as_str()),
            ("message.payload".to_owned(), message.payload.as_str()),
            ("state.status".to_owned(), state.status.as_str()),
        ];
        all.extend(
            optional.iter().filter_map(|(key, value)| {
                value.as_deref().map(|value| ((*key).to_owned(), value))
            }),
        );
        for (key, set) in self.assignments() {
            all.extend(
                set.iter().map(|(column, value)| (format!("{key}.{column}"), value.as_str())),
            );
        }
        all
    }

    /// Every list of assignments to the table, by its key in the configuration.
    pub(crate) fn assignments(&self) -> Vec<(&'static str, &Assignments)> {
        let write = &self.write;
        let mut all = vec![
            ("write.failed", &write.failed),
            ("write.dead", &write.dead),
            ("write.reopened", &write.reopened),
            ("write.postponed", &write.postponed),
            ("claimed", &self.claimed),
        ];
        if let Sent::Set(set) = &write.sent {
            all.push(("write.sent", set));
        }
        all
    }

    /// Whether some of its rows go to several integrations: those besides the first become messages in Postroom's
    /// own outbox.
    #[must_use]
    pub fn has_several_destinations(&self) -> bool {
        self.besides(Dialect::Postgres).is_some()
    }

    /// The expression for the integrations of a row besides its own, if any row has some.
    pub(crate) fn besides(&self, dialect: Dialect) -> Option<String> {
        besides(self.to.as_ref(), &self.routes, &self.message.event_type, dialect)
    }

    /// The most integrations of a row besides its own.
    pub(crate) fn most_besides(&self) -> usize {
        let all = self.to.iter().chain(self.routes.iter().map(|route| &route.to));
        all.map(|to| to.others().len()).max().unwrap_or(0)
    }

    /// Whether triggers feed the ledger.
    #[must_use]
    pub fn has_triggers(&self) -> bool {
        self.feed == Feed::Triggers
    }

    /// Whether rows leave the table when they were delivered.
    #[must_use]
    pub fn deletes_sent(&self) -> bool {
        matches!(&self.write.sent, Sent::Word(_))
    }

    /// Whether rows say themselves how often they failed, and why; otherwise the ledger does.
    #[must_use]
    pub fn keeps_failures(&self) -> bool {
        !self.write.failed.is_empty()
    }

    /// Whether a row that was delivered can be delivered again.
    #[must_use]
    pub fn can_replay(&self) -> bool {
        !self.write.reopened.is_empty() && !self.deletes_sent()
    }

    /// What SENT writes.
    pub(crate) fn sent(&self) -> Option<&Assignments> {
        match &self.write.sent {
            Sent::Set(assignments) => Some(assignments),
            Sent::Word(_) => None,
        }
    }

    /// The schema in which the ledger stands.
    #[must_use]
    pub fn ledger_schema(&self) -> String {
        postroom_core::ledger_schema(&self.table)
    }

    /// The database in which the ledger stands on MariaDB and MySQL, where the table is in `database` unless its
    /// name says otherwise.
    #[must_use]
    pub fn ledger_database(&self, database: &str) -> String {
        postroom_core::ledger_database(&self.table, database)
    }

    /// The layout with its settings put in, for the ledger in `schema`.
    pub(crate) fn resolved(&self, schema: &str, dialect: Dialect) -> StoreResult<Self> {
        settings::resolve(self, schema, dialect)
    }

    /// A fault of this layout, in words for whoever wrote it.
    pub(crate) fn refused(&self, problem: &str) -> StoreError {
        StoreError::plain(StoreErrorKind::Refused, format!("{}: {problem}", self.table))
    }

    /// The statements that make the table, where there is none.
    ///
    /// # Errors
    /// When the layout has none, or they are for a service that is not among these.
    pub(crate) fn creation(&self, services: &[String]) -> StoreResult<String> {
        let Some(create) = self.create.as_ref().filter(|create| !create.sql.is_empty()) else {
            return Err(
                self.refused("there is no such table, and its layout does not say how to make one")
            );
        };
        if let Some(service) = &create.when_migrating
            && !services.contains(service)
        {
            return Err(self.refused(&format!(
                "there is no such table. To have it made, add {service} to the comma-separated list in \
                 ENABLED_MIGRATION_SERVICES"
            )));
        }
        Ok(create.sql.replace("{table}", &self.table))
    }

    /// The table, where messages can be enqueued in it.
    ///
    /// # Errors
    /// When the layout does not say how.
    pub(crate) fn enqueued_table(&self) -> StoreResult<&str> {
        if self.insert.is_empty() {
            return Err(StoreError::plain(
                StoreErrorKind::Refused,
                format!(
                    "nothing can be enqueued in {}: its layout has no `insert`, which says how a message becomes \
                     a row",
                    self.table
                ),
            ));
        }
        Ok(&self.table)
    }

    /// Refuses a replay that the layout has no words for.
    ///
    /// # Errors
    /// When rows cannot be opened again, or would have to get another event id.
    pub(crate) fn refuse_replay(&self, fresh_ids: bool) -> StoreResult<()> {
        let problem = if !self.can_replay() {
            "cannot be replayed: its layout has no `write.reopened`, or deletes what was delivered"
        } else if fresh_ids {
            "cannot be replayed under fresh event ids: a replay opens the row again, and its id stays"
        } else {
            return Ok(());
        };
        let text = format!("rows of {} {problem}", self.table);
        Err(StoreError::plain(StoreErrorKind::Refused, text))
    }

    /// Checks what can be known without a database.
    ///
    /// # Errors
    /// The first fault, in words for whoever wrote the layout.
    pub fn check(&self) -> StoreResult<()> {
        let fault = |text: &str| {
            Err(StoreError::plain(
                StoreErrorKind::Refused,
                format!("the layout of {}: {text}", self.table),
            ))
        };
        if self.table.is_empty() {
            return Err(StoreError::plain(
                StoreErrorKind::Refused,
                "the layout names no table: set `table`",
            ));
        }
        if self.key.is_empty() {
            return fault("it names no key: set `key` to the columns of the primary key");
        }
        for (value, key) in [
            (&self.message.payload, "message.payload"),
            (&self.message.event_type, "message.event_type"),
            (&self.state.status, "state.status"),
        ] {
            if value.is_empty() {
                return fault(&format!("`{key}` is missing: give an expression over the row `m`"));
            }
        }
        if self.state.taken.is_some() && self.write.postponed.is_empty() {
            return fault(
                "with `state.taken` it also needs `write.postponed`: what an older dispatcher holds is due again \
                 after a while",
            );
        }
        if !self.has_triggers() && self.has_several_destinations() {
            return fault(
                "with feed = \"poll\" a row goes to one integration: what goes to others is written by a trigger, \
                 in the producer's transaction",
            );
        }
        let all = self.to.iter().chain(self.routes.iter().map(|route| &route.to));
        if let Some(fault_of) = all.flat_map(Destination::faults).next() {
            return fault(&fault_of);
        }
        if self.message.integration.is_none() && self.to.is_none() {
            return fault(
                "nothing says where its rows go: set `to`, such as to = \"kafka:orders\" or \
                 to = \"kafka:{column}\"",
            );
        }
        match &self.write.sent {
            Sent::Word(word) if word != "delete" => {
                return fault("`write.sent` is a table of columns, or \"delete\"");
            }
            Sent::Set(set) if set.is_empty() => {
                return fault(
                    "`write.sent` is missing: without it a delivered row would look open for ever. \
                     Name the columns it sets, or say \"delete\"",
                );
            }
            _ => {}
        }
        let write = &self.write;
        if self.keeps_failures()
            && (write.dead.is_empty()
                || write.postponed.is_empty()
                || write.reopened.is_empty()
                || self.state.attempts.is_none()
                || self.state.due_at.is_none())
        {
            return fault(
                "with `write.failed` it also needs `write.dead`, `write.reopened`, `write.postponed`, \
                 `state.attempts` and `state.due_at`: what is written must be read again",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_layout_is_one() {
        for (dialect, name, text) in BUILT_IN {
            let mut layout = Layout::from_toml(text)
                .unwrap_or_else(|error| panic!("{name} on {dialect:?}: {error}"));
            layout.to = Some(Destination::One("noop".to_owned()));
            layout.check().unwrap();
            let again = Layout::from_toml(&toml::to_string(&layout).unwrap()).unwrap();
            assert_eq!(again, layout, "{name}");
        }
    }
}
