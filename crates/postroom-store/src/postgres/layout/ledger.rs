//! Making the ledger of a table that somebody else made.

use super::{Foreign, Table, failed};
use crate::MigrateOptions;
use crate::layout::{Assignments, Dialect, Layout, columns, fingerprint, for_row, parts, quoted};
use crate::postgres::connect::ask;
use crate::postgres::migrate::{DOING, MAKE_BOOKS, MIGRATIONS, Step, Work};
use crate::postgres::reconcile::MAKE as RECONCILE_MAKE;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::collections::BTreeSet;
use tokio_postgres::Client;

const READING: &str = include_str!("../../../migrations/postgres/layout/reading.sql");
const FEED: &str = include_str!("../../../migrations/postgres/layout/feed.sql");
const BESIDES: &str = include_str!("../../../migrations/postgres/layout/besides.sql");
const FOLLOW: &str = include_str!("../../../migrations/postgres/layout/follow.sql");
const GRANTS: &str = include_str!("../../../migrations/postgres/layout/grants.sql");
const REGRANT: &str = include_str!("../../../migrations/postgres/layout/regrant.sql");
const POLL: &str = include_str!("../../../migrations/postgres/layout/poll.sql");
const REMAKE: &str = include_str!("../../../migrations/postgres/layout/remake.sql");

/// Where a transaction goes on after a statement that was refused.
const LOOKED: &str = "postroom_looked";
const GO_BACK: &str = "ROLLBACK TO SAVEPOINT postroom_looked";

/// What the trigger that feeds reads of a fresh row.
const FED: [&str; 5] = ["id", "integration_type", "status", "due_at", "seq"];
/// What a message in Postroom's own outbox takes over from a row.
const COPIED: [&str; 11] = [
    "id",
    "status",
    "source_event_id",
    "source_stream_id",
    "event_type",
    "payload",
    "headers",
    "tenant_id",
    "correlation_id",
    "causation_id",
    "ordering_key",
];
/// What a change by hand may change.
const FOLLOWED: [&str; 4] = ["id", "integration_type", "status", "due_at"];

/// What is left to do for the ledger of a table, in order. All of it is looked at inside a transaction that is rolled
/// back: where there is no table, what comes after depends on it; and every expression of the layout is prepared with
/// the functions that it may call.
///
/// # Errors
/// When there is no such table and none may be made, or the layout does not fit it.
pub(crate) async fn plan(
    client: &Client,
    layout: &Layout,
    options: &MigrateOptions,
) -> StoreResult<Vec<Work>> {
    layout.check()?;
    client.batch_execute("BEGIN").await.map_err(failed)?;
    let planned = try_out(client, layout, options).await;
    client.batch_execute("ROLLBACK").await.map_err(failed)?;
    planned
}

async fn try_out(
    client: &Client,
    layout: &Layout,
    options: &MigrateOptions,
) -> StoreResult<Vec<Work>> {
    if let Some(table) = Table::find(client, &layout.table).await? {
        return of_table(client, layout, table, options).await;
    }
    let create = creation(layout, options)?;
    client.batch_execute(&create).await.map_err(failed)?;
    let table = Table::find(client, &layout.table).await?;
    let table = table.ok_or_else(|| layout.refused("its `create.sql` makes another table"))?;
    let mut works = vec![Work {
        number: None,
        name: format!("the table {}", layout.table),
        steps: vec![Step::transaction(create)],
    }];
    works.extend(of_table(client, layout, table, options).await?);
    Ok(works)
}

/// The statements that make the table.
fn creation(layout: &Layout, options: &MigrateOptions) -> StoreResult<String> {
    let sql = layout.creation(&options.services)?;
    Ok(match layout.table.split_once('.') {
        Some((schema, _)) => format!("CREATE SCHEMA IF NOT EXISTS {schema};\n{sql}"),
        None => sql,
    })
}

async fn of_table(
    client: &Client,
    layout: &Layout,
    table: Table,
    options: &MigrateOptions,
) -> StoreResult<Vec<Work>> {
    client.batch_execute(&format!("SAVEPOINT {LOOKED}")).await.map_err(failed)?;
    let foreign = Foreign::of(client, layout, table).await?;
    // A body that does not fit is refused with its place below.
    client.batch_execute(GO_BACK).await.map_err(failed)?;
    let faults = foreign.mismatches();
    if !faults.is_empty() {
        let faults: Vec<_> = faults.into_iter().map(|(problem, _)| problem).collect();
        return Err(layout.refused(&faults.join("; ")));
    }
    let made = foreign.made()?;
    let fingerprint = fingerprint(&made);
    let schema = &foreign.schema;
    let mut works = Vec::new();
    let has_ledger = format!("SELECT to_regclass('{schema}.layout') IS NOT NULL");
    let has_ledger: bool = ask(client, DOING, &has_ledger).await?;
    if has_ledger {
        // A column that was dropped takes the views with it.
        let sql = format!(
            "SELECT to_regclass('{schema}.messages') IS NOT NULL \
             AND EXISTS (SELECT FROM {schema}.layout WHERE fingerprint = '{fingerprint}')"
        );
        expect_ledger_of(client, &foreign).await?;
        if ask(client, DOING, &sql).await? && foreign.has_all_triggers() {
            return Ok(works);
        }
    } else {
        let steps = vec![Step::transaction(foreign.ledger())];
        works.push(Work { number: Some(1), name: format!("ledger of {}", layout.table), steps });
    }
    foreign.refuse_misfits(client, has_ledger).await?;
    let mut sql = REMAKE.replace("{schema}", schema).replace("{table}", &foreign.table.name);
    sql.push_str(&made);
    sql.push_str(&REGRANT.replace("{schema}", schema));
    sql.push_str(&format!(
        "\nINSERT INTO {schema}.layout (message_table, fingerprint, definition) \
         VALUES ('{table}', '{fingerprint}', $layout${}$layout$)\n\
         ON CONFLICT (single) DO UPDATE SET fingerprint = excluded.fingerprint, \
         definition = excluded.definition, applied_at = now();\n",
        layout.to_toml(),
        table = foreign.table.name.replace('\'', "''"),
    ));
    let mut steps = vec![Step::transaction(sql)];
    steps.extend(foreign.adoption(options).into_iter().map(Step::transaction));
    works.push(Work { number: None, name: format!("the layout of {}", layout.table), steps });
    Ok(works)
}

/// Makes sure that the ledger in this schema is that of this table: names of two tables may come to one schema.
///
/// # Errors
/// When it is another's.
pub(crate) async fn expect_ledger_of(client: &Client, foreign: &Foreign) -> StoreResult<()> {
    let schema = &foreign.schema;
    let sql = format!("SELECT message_table FROM {schema}.layout");
    let rows = client.query_typed(&sql, &[]).await.map_err(failed)?;
    let Some(row) = rows.first() else { return Ok(()) };
    let other: String = row.try_get(0).map_err(failed)?;
    if other == foreign.table.name {
        return Ok(());
    }
    Err(foreign.layout.refused(&format!(
            "its ledger would stand in the schema {schema}, where that of {other} is: rename one of the tables, or \
             remove the other ledger with `postroom adopt {other} --remove`"
    )))
}

/// The statement that removes a ledger. The table stays as it is.
pub(crate) fn remove(layout: &Layout) -> String {
    let schema = layout.ledger_schema();
    format!("DROP SCHEMA IF EXISTS {schema} CASCADE;\n")
}

/// The statements that give producers and relays the rights they need, and no more.
pub(crate) fn grants(layout: &Layout) -> String {
    let columns: BTreeSet<String> = layout
        .assignments()
        .into_iter()
        .filter(|(key, _)| *key != "claimed")
        .flat_map(|(_, set)| set.keys().map(|column| quoted(column)))
        .collect();
    let usage = match layout.table.rsplit_once('.') {
        Some((schema, _)) => {
            format!("GRANT USAGE ON SCHEMA {schema} TO postroom_relay, postroom_producer;\n")
        }
        None => String::new(),
    };
    let mut rights = vec!["SELECT".to_owned()];
    if !columns.is_empty() {
        let columns: Vec<_> = columns.into_iter().collect();
        rights.push(format!("UPDATE ({})", columns.join(", ")));
    }
    if layout.deletes_sent() {
        rights.push("DELETE".to_owned());
    }
    GRANTS
        .replace(
            "{written}",
            &format!("{usage}GRANT {} ON {{table}} TO postroom_relay;", rights.join(", ")),
        )
        .replace("{schema}", &layout.ledger_schema())
        .replace("{table}", &layout.table)
}

impl Foreign {
    /// Refuses a layout of which the database cannot prepare every expression. Runs inside of a transaction that is
    /// rolled back.
    ///
    /// # Errors
    /// When it does not fit, each expression by the key that holds it.
    async fn refuse_misfits(&self, client: &Client, has_ledger: bool) -> StoreResult<()> {
        let schema = if has_ledger { "" } else { "CREATE SCHEMA {schema};\n" };
        let reading =
            format!("{schema}{READING}SAVEPOINT {LOOKED};").replace("{schema}", &self.schema);
        client.batch_execute(&reading).await.map_err(failed)?;
        let misfits = self.misfits(client, GO_BACK).await?;
        if misfits.is_empty() {
            return Ok(());
        }
        let problems: Vec<_> = misfits.into_iter().map(|(problem, _)| problem).collect();
        let text = format!(
            "{}. Correct what is named in the layout and run `postroom migrate` again: nothing was changed",
            problems.join("; ")
        );
        Err(StoreError::plain(StoreErrorKind::Refused, text))
    }

    /// The tables and functions that do not depend on the layout's expressions.
    fn ledger(&self) -> String {
        let mut sql = String::new();
        let first = MIGRATIONS.first().map_or("", |migration| migration.sql);
        for (audience, part) in parts(first) {
            if audience == "every" {
                sql.push_str(part);
            }
        }
        // A parameter has no collation.
        let sql = sql.replace("(message /*id*/uuid)", &format!("(message {})", self.key.id_type()));
        let sql = sql.replace("/*id*/uuid[]", &self.key.column_type(true));
        let sql = sql.replace("/*id*/uuid", &self.key.column_type(false));
        let books = format!(
            "{MAKE_BOOKS}\n\nCREATE TABLE core_outbox.layout (
    single      boolean     PRIMARY KEY DEFAULT true CHECK (single),
    message_table text      NOT NULL,
    fingerprint text        NOT NULL,
    definition  text        NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE core_outbox.layout IS 'How the table is read and written, as it was migrated.';
COMMENT ON COLUMN core_outbox.layout.single IS 'There is one row.';
COMMENT ON COLUMN core_outbox.layout.message_table IS 'Whose ledger this is.';
COMMENT ON COLUMN core_outbox.layout.fingerprint IS 'Of the triggers and views made from it.';
COMMENT ON COLUMN core_outbox.layout.definition IS 'The layout as TOML.';
COMMENT ON COLUMN core_outbox.layout.applied_at IS 'When it was applied.';
INSERT INTO core_outbox.schema_migration (number, name) VALUES (1, 'outbox');
"
        );
        self.rendered(&format!("{sql}\n{books}"))
    }

    /// The functions, views and triggers that come from the layout's expressions.
    ///
    /// # Errors
    /// When an expression names a column that the table does not have.
    pub(super) fn made(&self) -> StoreResult<String> {
        let mut sql = READING.replace("{schema}", &self.schema);
        for field in self.said() {
            if FED.contains(&field.name) || COPIED.contains(&field.name) {
                sql.push_str(&self.function(field.name, &field.expression, field.kind)?);
            }
        }
        let bytes = format!("coalesce(pg_catalog.pg_column_size({}), 0)", self.stored());
        sql.push_str(&self.function("bytes", &bytes, "int")?);
        let besides = crate::layout::besides(
            self.layout.to.as_ref(),
            &self.layout.routes,
            &self.layout.message.event_type,
            Dialect::Postgres,
        );
        if let Some(besides) = &besides {
            sql.push_str(&self.function("besides", besides, "text[]")?);
        }
        sql.push_str(&self.views());
        if self.layout.has_triggers() {
            sql.push_str(&self.feed(besides.as_deref()));
            sql.push_str(&self.follow()?);
        } else {
            sql.push_str(&self.poll());
        }
        if !self.layout.insert.is_empty() {
            sql.push_str(&self.enqueue());
        }
        Ok(sql)
    }

    /// What writes the messages for further destinations of these rows.
    fn besides(&self, rows: &str) -> String {
        let table = format!("'{}'", self.table.name.replace('\'', "''"));
        BESIDES.trim_end().replace("{whole}", rows).replace("{of_table}", &table)
    }

    pub(in crate::postgres) fn poll(&self) -> String {
        let fields: Vec<_> = self
            .said()
            .into_iter()
            .filter(|field| FED.contains(&field.name))
            .map(|field| format!("({})::{} AS {}", field.expression, field.kind, field.name))
            .chain([format!("coalesce(pg_column_size({}), 0) AS bytes", self.stored())])
            .collect();
        let open = match &self.layout.state.open {
            Some(open) => format!("({open})"),
            None => format!("{}.is_waiting({})", self.schema, self.field("status")),
        };
        POLL.replace("{fields}", &fields.join(", "))
            .replace("{open}", &open)
            .replace("{keeps_failures}", &self.keeps_failures.to_string())
            .replace("{schema}", &self.schema)
            .replace("{table}", &self.table.name)
    }

    /// The expression for where a row goes besides its own integration, if any row does.
    fn further_destinations(&self) -> Option<String> {
        let layout = &self.layout;
        let event_type = &layout.message.event_type;
        crate::layout::besides(layout.to.as_ref(), &layout.routes, event_type, Dialect::Postgres)
    }

    /// Makes a function of an expression: bound to its operators here and now, whatever search path its caller has.
    fn function(&self, name: &str, expression: &str, kind: &str) -> StoreResult<String> {
        let arguments = columns(expression).into_iter().map(|column| {
            let found = self.table.column(&column).ok_or_else(|| {
                self.layout.refused(&format!("it has no column {column}, which its layout names"))
            })?;
            Ok(format!("{} {}", quoted(&column), found.kind))
        });
        let arguments = arguments.collect::<StoreResult<Vec<_>>>()?.join(", ");
        Ok(format!(
            "CREATE FUNCTION {}.row_{name}({arguments}) RETURNS {kind}\nLANGUAGE sql\nRETURN ({})::{kind};\n",
            self.schema,
            for_row(expression, "")
        ))
    }

    /// A call of such a function for the row `row`.
    fn call(&self, name: &str, expression: &str, row: &str) -> String {
        let arguments: Vec<_> =
            columns(expression).iter().map(|column| format!("{row}.{}", quoted(column))).collect();
        format!("{}.row_{name}({})", self.schema, arguments.join(", "))
    }

    /// Such calls, by their names.
    fn calls(&self, names: &[&str], row: &str) -> String {
        let calls: Vec<_> = names
            .iter()
            .map(|name| format!("{} AS {name}", self.call(name, &self.field(name), row)))
            .collect();
        calls.join(", ")
    }

    fn feed(&self, besides: Option<&str>) -> String {
        let bytes = self.call("bytes", self.stored(), "m");
        let fresh = format!("SELECT {}, {bytes} AS bytes FROM fresh m", self.calls(&FED, "m"));
        let besides = besides.map_or_else(String::new, |besides| {
            let whole = format!(
                "SELECT {}, {} AS besides FROM fresh m",
                self.calls(&COPIED, "m"),
                self.call("besides", besides, "m")
            );
            self.besides(&whole)
        });
        FEED.replace("{besides}", &besides)
            .replace("{fresh}", &fresh)
            .replace("{schema}", &self.schema)
            .replace("{table}", &self.table.name)
    }

    fn follow(&self) -> StoreResult<String> {
        let watched: BTreeSet<String> =
            FOLLOWED.iter().flat_map(|name| columns(&self.field(name))).collect();
        if let Some(missing) = watched.iter().find(|name| self.table.column(name).is_none()) {
            return Err(self
                .layout
                .refused(&format!("it has no column {missing}, which its layout names")));
        }
        let names: Vec<_> = watched.iter().map(|column| quoted(column)).collect();
        let changed: Vec<_> =
            names.iter().map(|name| format!("OLD.{name} IS DISTINCT FROM NEW.{name}")).collect();
        // Failures that the row cannot tell end when it is opened again.
        let reopened = if self.keeps_failures {
            ""
        } else {
            ", attempts = CASE WHEN was.status IS DISTINCT FROM has.status THEN 0 ELSE attempts END"
        };
        Ok(FOLLOW
            .replace("{old}", &self.calls(&FOLLOWED, "OLD"))
            .replace("{new}", &self.calls(&FOLLOWED, "NEW"))
            .replace("{reopened}", reopened)
            .replace("{watched}", &names.join(", "))
            .replace("{changed}", &changed.join(" OR "))
            .replace("{schema}", &self.schema)
            .replace("{table}", &self.table.name))
    }

    fn views(&self) -> String {
        let schema = &self.schema;
        let fields: Vec<_> = self
            .shown()
            .into_iter()
            .map(|field| format!("({})::{} AS {}", field.expression, field.kind, field.name))
            .chain([format!("({}) AS stored", self.stored())])
            .chain(self.body().map(|body| format!("{body} AS body")))
            .chain(
                self.key
                    .view_columns()
                    .into_iter()
                    .map(|(name, expression)| format!("{expression} AS {name}")),
            )
            .collect();
        let mut sql = format!(
            "CREATE VIEW {schema}.integration_outbox AS\nSELECT {}\nFROM {} m;\n\
             COMMENT ON VIEW {schema}.integration_outbox IS 'The rows of {} in the columns of Postroom''s own \
             table.';\n",
            fields.join(",\n       "),
            self.table.name,
            self.table.name
        );
        let first = MIGRATIONS.first().map_or("", |migration| migration.sql);
        for (_, part) in parts(first).into_iter().filter(|(audience, _)| *audience == "made") {
            // What is looked up by its key there too.
            let keys = self.key.view_columns().into_iter().map(|(name, _)| format!(", m.{name}"));
            let last = "m.schema_version, m.occurred_at";
            let part = part.replace(last, &format!("{last}{}", keys.collect::<String>()));
            sql.push_str(&self.rendered(&part));
        }
        if !self.layout.claimed.is_empty() {
            sql.push_str(&self.claimed_view(&self.layout.claimed));
        }
        sql
    }

    /// The table as its owner knows it, with what relays hold.
    fn claimed_view(&self, claimed: &Assignments) -> String {
        let schema = &self.schema;
        let columns: Vec<_> = self
            .table
            .columns
            .iter()
            .map(|column| {
                let name = quoted(&column.name);
                match claimed.get(&column.name) {
                    Some(value) => {
                        let value = value.replace("$rescues", &self.rescues());
                        format!("CASE WHEN held.is THEN {value} ELSE m.{name} END AS {name}")
                    }
                    None => format!("m.{name}"),
                }
            })
            .collect();
        format!(
            "CREATE VIEW {schema}.claimed AS\nSELECT {columns}\nFROM {table} m\n\
             CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM {schema}.messages held \
             WHERE held.id = {id} AND held.status = 'CLAIMED') AS is) AS held;\n\
             COMMENT ON VIEW {schema}.claimed IS 'The rows of {table}, with what relays hold.';\n",
            columns = columns.join(", "),
            table = self.table.name,
            id = self.key.expression()
        )
    }

    /// What is done once when a layout is applied: rows that another dispatcher has taken are due after a while,
    /// and what is open gets its place in the ledger.
    fn adoption(&self, options: &MigrateOptions) -> Vec<String> {
        let mut steps = Vec::new();
        if let Some(taken) = &self.layout.state.taken {
            let due =
                format!("(now() + make_interval(secs => {}))", options.claimed_grace.as_secs_f64());
            let set: Vec<_> = self
                .layout
                .write
                .postponed
                .iter()
                .map(|(column, value)| {
                    format!("{} = {}", quoted(column), value.replace("$due", &due))
                })
                .collect();
            steps.push(format!(
                "UPDATE {} m SET {} WHERE {taken};",
                self.table.name,
                set.join(", ")
            ));
        }
        if self.layout.has_triggers()
            && let Some(besides) = self.further_destinations()
        {
            let rows = format!(
                "SELECT {}, {} AS besides FROM {} m",
                self.calls(&COPIED, "m"),
                self.call("besides", &besides, "m"),
                self.table.name
            );
            // Where that outbox is made later, nothing has been promised to anybody yet.
            steps.push(format!(
                "DO $besides$ BEGIN IF to_regclass('core_outbox.integration_outbox') IS NOT NULL THEN\n    \
                 {}\nEND IF; END $besides$;",
                self.besides(&rows)
            ));
        }
        steps.push(format!("{};", self.rendered(RECONCILE_MAKE)));
        steps
    }
}
