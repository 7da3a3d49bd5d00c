//! Proposing a layout for a table as it stands, by the names and types of its columns and what its rows say.

use super::{Table, failed};
use crate::layout::{Dialect, Layout, quoted};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use std::collections::BTreeSet;
use tokio_postgres::Client;

/// Names that columns of one meaning have, without underscores and in lower case. The first that fits counts.
const PAYLOAD: &[&str] = &[
    "payload",
    "data",
    "body",
    "eventdata",
    "content",
    "message",
    "event",
    "value",
    "payloadjson",
    "messagebody",
    "eventpayload",
    "eventjson",
    "serializedevent",
];
const EVENT_TYPE: &[&str] = &[
    "eventtype",
    "type",
    "eventname",
    "messagetype",
    "recordtype",
    "name",
    "kind",
    "subject",
    "topic",
];
const EVENT_ID: &[&str] = &["eventid", "messageid", "eventuuid", "uuid"];
const STREAM: &[&str] = &[
    "aggregateid",
    "streamid",
    "stream",
    "entityid",
    "resourceid",
    "partitionkey",
    "messagekey",
    "recordkey",
    "key",
    "groupid",
    "segment",
];
const TOPIC: &[&str] =
    &["topic", "destination", "queue", "channel", "exchange", "routingkey", "subject"];
const AGGREGATE: &[&str] = &["aggregatetype", "aggregate", "entitytype", "streamtype"];
const HEADERS: &[&str] = &["headers", "metadata", "meta", "attributes"];
const TENANT: &[&str] = &["tenantid", "tenant"];
const CREATED: &[&str] = &[
    "createdat",
    "created",
    "insertedat",
    "occurredat",
    "timestamp",
    "createdon",
    "createddate",
    "creationtime",
    "createtime",
    "enqueuetime",
    "publicationdate",
    "added",
    "addedat",
    "createdonutc",
    "occurredon",
    "occurredonutc",
];
const SENT_AT: &[&str] = &[
    "deliveredat",
    "sentat",
    "publishedat",
    "processedat",
    "dispatchedat",
    "completedat",
    "publishedon",
    "processedon",
    "sent",
    "published",
    "processed",
    "delivered",
    "dispatched",
    "completed",
    "processeddate",
    "completiondate",
    "processedonutc",
    "publishedonutc",
    "sentonutc",
];
const DONE: &[&str] = &[
    "delivered",
    "sent",
    "published",
    "processed",
    "dispatched",
    "done",
    "completed",
    "issent",
    "isprocessed",
    "ispublished",
    "isdelivered",
    "isdone",
];
const STATUS: &[&str] = &[
    "status",
    "state",
    "eventstatus",
    "outboxstatus",
    "statusname",
    "messagestatus",
    "publishstatus",
    "deliverystatus",
];
const ATTEMPTS: &[&str] = &[
    "attempts",
    "retrycount",
    "retries",
    "attemptcount",
    "tries",
    "deliveryattempts",
    "retry",
    "failurecount",
    "errorscount",
    "errorcount",
    "trycount",
    "numberofattempts",
];
const DUE: &[&str] = &[
    "nextattemptat",
    "nextretryat",
    "availableat",
    "scheduledat",
    "dueat",
    "runat",
    "retryat",
    "sendafter",
    "nextattempttime",
    "nextretrytime",
    "nextattempt",
    "nextretry",
    "nextrun",
    "nextrunat",
    "processafter",
    "runafter",
    "notbefore",
    "visibleat",
    "scheduledfor",
];
const ERROR: &[&str] = &[
    "lasterror",
    "error",
    "errormessage",
    "failurereason",
    "lasterrormessage",
    "errormsg",
    "failuremessage",
    "exception",
    "exceptioninfo",
];

/// What values of a status column mean, in lower case.
const WAITS: &[&str] = &[
    "pending",
    "new",
    "ready",
    "created",
    "queued",
    "unsent",
    "unpublished",
    "open",
    "waiting",
    "started",
    "not_published",
    "notpublished",
    "scheduled",
    "todo",
    "init",
    "initial",
    "raw",
];
const HELD: &[&str] =
    &["processing", "sending", "in_progress", "inprogress", "claimed", "locked", "running"];
const DELIVERED: &[&str] = &[
    "sent",
    "published",
    "done",
    "processed",
    "delivered",
    "success",
    "succeeded",
    "completed",
    "complete",
    "dispatched",
    "finished",
];
const GIVEN_UP: &[&str] =
    &["dead", "failed", "error", "dead_letter", "deadletter", "failure", "abandoned", "discarded"];

/// Proposes a layout for `table`, as the `[database]` section of a configuration.
///
/// # Errors
/// When there is no such table, or nothing in it can be a message's content.
pub(crate) async fn propose(client: &Client, name: &str) -> StoreResult<String> {
    let Some(table) = Table::find(client, name).await? else {
        return Err(refused(format!(
            "there is no table {name}: name it as in a statement, with its schema where that is not the first \
             of the search path"
        )));
    };
    let mut lines = vec![
        format!(
            "# Proposed for {} by `postroom adopt`. Read it, correct it, and compare it with",
            table.name
        ),
        "# `postroom check`. Postroom adds triggers to the table and nothing else, and deletes no row of it".to_owned(),
        "# unless `sent = \"delete\"` or a retention of this database says so.".to_owned(),
        "[database]".to_owned(),
        "url = \"${DATABASE_URL}\"".to_owned(),
    ];
    match built_in(&table) {
        Some(layout) => known(&table, layout, &mut lines),
        None => Unknown { client, table: &table }.describe(&mut lines).await?,
    }
    Ok(lines.join("\n") + "\n")
}

/// The built-in layout all of whose columns the table has.
fn built_in(table: &Table) -> Option<&'static str> {
    let fits = |name: &&str| {
        let Some(layout) = Layout::built_in(name, Dialect::Postgres) else { return false };
        let expressions = layout.expressions();
        let named = expressions.iter().flat_map(|(_, text)| crate::layout::columns(text));
        let written = layout.assignments().into_iter().flat_map(|(_, set)| set.keys().cloned());
        let mut columns: BTreeSet<String> = named.chain(written).collect();
        columns.extend(layout.key.clone());
        columns.len() > 2 && columns.iter().all(|column| table.column(column).is_some())
    };
    Layout::names(Dialect::Postgres)
        .into_iter()
        .find(|name| *name != crate::layout::CUSTOM && fits(name))
}

fn known(table: &Table, name: &str, lines: &mut Vec<String>) {
    let layout = Layout::built_in(name, Dialect::Postgres).unwrap_or_default();
    lines.push(format!("layout = {}", toml_text(name)));
    lines.push(format!("table = {}", toml_text(&table.name)));
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
struct Unknown<'a> {
    client: &'a Client,
    table: &'a Table,
}

impl Unknown<'_> {
    async fn describe(&self, lines: &mut Vec<String>) -> StoreResult<()> {
        let table = self.table;
        let key = if table.primary_key.is_empty() {
            table.unique.first().cloned().unwrap_or_default()
        } else {
            table.primary_key.clone()
        };
        if key.is_empty() {
            return Err(refused(format!(
                "{} has neither a primary key nor a unique index: a row must be found again to record its \
                 delivery. `ALTER TABLE {} ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY` \
                 leaves its producers as they are",
                table.name, table.name
            )));
        }
        let is_json = |kind: &str| matches!(kind, "jsonb" | "json");
        let holds_content =
            |kind: &str| is_json(kind) || matches!(kind, "text" | "character varying" | "bytea");
        let payload = self.named(PAYLOAD, holds_content).or_else(|| {
            table
                .columns
                .iter()
                .find(|column| is_json(&column.kind))
                .map(|column| column.name.as_str())
        });
        let Some(payload) = payload else {
            return Err(refused(format!(
                "no column of {} looks like a message's body: write a layout by hand, see docs/adopting.md",
                table.name
            )));
        };
        let key_list: Vec<_> = key.iter().map(|column| toml_text(column)).collect();
        lines.push("layout = \"custom\"".to_owned());
        lines.push(format!("table = {}", toml_text(&table.name)));
        lines.push(format!("key = [{}]", key_list.join(", ")));
        lines.extend(self.destination());
        lines.push(String::new());
        lines.push("[database.message]".to_owned());
        let any = |_: &str| true;
        let event_type = self.named(EVENT_TYPE, any).filter(|name| *name != payload);
        match event_type {
            Some(name) => lines.push(entry("event_type", &column(name))),
            None => lines.push(entry("event_type", "'event'")),
        }
        lines.push(entry("payload", &self.body(payload).await?));
        for (meaning, names) in [("event_id", EVENT_ID), ("stream", STREAM), ("tenant_id", TENANT)]
        {
            let found = self.named(names, any).filter(|name| key != [(*name).to_owned()]);
            lines.extend(found.map(|name| entry(meaning, &column(name))));
        }
        for (meaning, name) in
            [("correlation_id", "correlationid"), ("causation_id", "causationid")]
        {
            lines.extend(self.named(&[name], any).map(|name| entry(meaning, &column(name))));
        }
        if let Some(name) = self.named(HEADERS, is_json) {
            lines.push(entry("headers", &column(name)));
        }
        if let Some(name) = self.named(CREATED, is_time) {
            lines.push(entry("created_at", &self.time(name)));
        }
        lines.push(String::new());
        self.state(lines).await
    }

    /// A column that has one of these names, in their order.
    fn named(&self, names: &[&str], is_fit: impl Fn(&str) -> bool) -> Option<&str> {
        let plain = |name: &str| name.replace('_', "").to_lowercase();
        names.iter().find_map(|wanted| {
            let column = self.table.columns.iter().find(|column| plain(&column.name) == *wanted);
            column.filter(|column| is_fit(&column.kind)).map(|column| column.name.as_str())
        })
    }

    fn kind(&self, name: &str) -> &str {
        self.table.column(name).map_or("", |column| column.kind.as_str())
    }

    fn destination(&self) -> Vec<String> {
        let text = |kind: &str| matches!(kind, "text" | "character varying");
        let by = self.named(TOPIC, text).or_else(|| self.named(AGGREGATE, text));
        let to =
            by.map_or_else(|| "kafka:events".to_owned(), |column| format!("kafka:{{{column}}}"));
        vec![
            "# Where its rows go: the sink before the colon, and what it calls its destination."
                .to_owned(),
            format!("to = {}", toml_text(&to)),
        ]
    }

    /// The body: as it is, or as a JSON text where its rows hold something else.
    async fn body(&self, name: &str) -> StoreResult<String> {
        let text = match self.kind(name) {
            "jsonb" | "json" => return Ok(column(name)),
            "bytea" => format!("convert_from({}, 'UTF8')", column(name)),
            _ => column(name),
        };
        let sql = format!(
            "SELECT count(({text})::jsonb) FROM (SELECT * FROM {} LIMIT 100) AS m",
            self.table.name
        );
        match self.client.query_one(&sql, &[]).await {
            Ok(_) => Ok(column(name)),
            Err(error) if error.as_db_error().is_some() && self.kind(name) == "bytea" => {
                Ok(format!("to_jsonb(encode({}, 'base64'))", column(name)))
            }
            Err(error) if error.as_db_error().is_some() => Ok(format!("to_jsonb({text})")),
            Err(error) => Err(failed(error)),
        }
    }

    /// A time as PostgreSQL has it: numbers count milliseconds.
    fn time(&self, name: &str) -> String {
        match self.kind(name) {
            "bigint" | "numeric" => format!("{{schema}}.time_of_millis({}::bigint)", column(name)),
            "timestamp without time zone" => format!("{} AT TIME ZONE 'UTC'", column(name)),
            _ => column(name),
        }
    }

    /// What writes a time into such a column.
    fn written_time(&self, name: &str, time: &str) -> String {
        match self.kind(name) {
            "bigint" | "numeric" => format!("(extract(epoch FROM {time}) * 1000)::bigint"),
            "timestamp without time zone" => format!("{time} AT TIME ZONE 'UTC'"),
            _ => time.to_owned(),
        }
    }

    async fn state(&self, lines: &mut Vec<String>) -> StoreResult<()> {
        let is_boolean = |kind: &str| kind == "boolean";
        let is_nullable = |name: &&str| {
            self.table.column(name).is_some_and(|column| !column.is_required && !column.has_default)
        };
        if let Some(status) = self.named(STATUS, |kind| !is_time(kind) && !is_boolean(kind))
            && let Some(words) = self.words(status).await?
        {
            self.by_status(status, &words, lines);
            return Ok(());
        }
        if let Some(name) = self.named(SENT_AT, is_time).filter(is_nullable) {
            let is_null = format!("{} IS NULL", column(name));
            lines.push("[database.state]".to_owned());
            lines.push(entry(
                "status",
                &format!("CASE WHEN {is_null} THEN 'PENDING' ELSE 'SENT' END"),
            ));
            lines.push(entry("open", &is_null));
            lines.push(entry("sent_at", &self.time(name)));
            lines.push(String::new());
            lines.push("# Failures stand in the ledger alone.".to_owned());
            lines.push("[database.write]".to_owned());
            lines.push(set("sent", &[(name, self.written_time(name, "$at"))]));
            lines.push(set("reopened", &[(name, "NULL".to_owned())]));
            return Ok(());
        }
        if let Some(name) = self.named(DONE, is_boolean) {
            let done = column(name);
            lines.push("[database.state]".to_owned());
            lines
                .push(entry("status", &format!("CASE WHEN {done} THEN 'SENT' ELSE 'PENDING' END")));
            lines.push(entry("open", &format!("{done} IS NOT TRUE")));
            lines.push(String::new());
            lines.push("# Failures stand in the ledger alone.".to_owned());
            lines.push("[database.write]".to_owned());
            lines.push(set("sent", &[(name, "true".to_owned())]));
            lines.push(set("reopened", &[(name, "false".to_owned())]));
            return Ok(());
        }
        lines.extend(
            [
                "[database.state]",
                "status = \"'PENDING'\"",
                "",
                "# No column says that a row was delivered. Either name one that marks it, which you add to the",
                "# table yourself, or have delivered rows DELETED. Nothing runs before you have chosen.",
                "[database.write]",
                "# sent = { delivered_at = \"$at\" }",
                "# sent = \"delete\"",
            ]
            .map(str::to_owned),
        );
        Ok(())
    }

    /// The values that a status column has or may have, if they tell what they mean.
    async fn words(&self, status: &str) -> StoreResult<Option<Words>> {
        let name = quoted(status);
        let mut found: Vec<String> = Vec::new();
        let labels = "SELECT e.enumlabel::text FROM pg_attribute a JOIN pg_enum e ON e.enumtypid = a.atttypid \
                      WHERE a.attrelid = to_regclass($1) AND a.attname = $2 ORDER BY e.enumsortorder";
        for row in self.client.query(labels, &[&self.table.name, &status]).await.map_err(failed)? {
            found.push(row.try_get(0).map_err(failed)?);
        }
        let checks = "SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c \
                      WHERE c.conrelid = to_regclass($1) AND c.contype = 'c' \
                        AND pg_get_constraintdef(c.oid) LIKE '%' || $2 || '%' \
                      UNION ALL SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d \
                      JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum \
                      WHERE d.adrelid = to_regclass($1) AND a.attname = $2";
        for row in self.client.query(checks, &[&self.table.name, &status]).await.map_err(failed)? {
            let text: String = row.try_get(0).map_err(failed)?;
            found.extend(text.split('\'').skip(1).step_by(2).map(str::to_owned));
        }
        let sample = format!(
            "SELECT DISTINCT {name}::text FROM (SELECT {name} FROM {} LIMIT 10000) AS m \
             WHERE {name} IS NOT NULL LIMIT 20",
            self.table.name
        );
        for row in self.client.query(&sample, &[]).await.map_err(failed)? {
            found.push(row.try_get(0).map_err(failed)?);
        }
        let of = |known: &[&str]| {
            known
                .iter()
                .find_map(|word| found.iter().find(|value| value.to_lowercase() == *word))
                .cloned()
        };
        let sent = of(DELIVERED);
        Ok(of(WAITS).map(|waits| Words { sent, waits, held: of(HELD), dead: of(GIVEN_UP) }))
    }

    fn by_status(&self, status: &str, words: &Words, lines: &mut Vec<String>) {
        let text = |value: &str| format!("'{}'", value.replace('\'', "''"));
        let name = column(status);
        let sent = words.sent.as_deref().unwrap_or("SENT");
        let attempts =
            self.named(ATTEMPTS, |kind| matches!(kind, "integer" | "bigint" | "smallint"));
        let due = self.named(DUE, is_time);
        let error = self.named(ERROR, |kind| matches!(kind, "text" | "character varying"));
        let sent_at = self.named(SENT_AT, is_time);
        let waits = text(&words.waits);
        lines.push("[database.state]".to_owned());
        if words.sent.is_none() {
            lines.push(format!(
                "# No row says what a delivered one is called: {} is a guess.",
                text(sent)
            ));
        }
        let is_retried = match attempts {
            Some(attempts) if due.is_some() => {
                format!("CASE WHEN {} > 0 THEN 'FAILED' ELSE 'PENDING' END", column(attempts))
            }
            _ => "'PENDING'".to_owned(),
        };
        let mut cases = format!("WHEN {waits} THEN {is_retried} WHEN {} THEN 'SENT'", text(sent));
        if let Some(dead) = &words.dead {
            cases.push_str(&format!(" WHEN {} THEN 'DEAD'", text(dead)));
        }
        lines.push(entry("status", &format!("CASE {name}::text {cases} ELSE {name}::text END")));
        lines.push(entry("open", &format!("{name} = {waits}")));
        if let Some(held) = &words.held {
            lines.push(
                "# What an older dispatcher was sending when the table was adopted.".to_owned(),
            );
            lines.push(entry("taken", &format!("{name} = {}", text(held))));
        }
        let writes_failures = words.dead.is_some() && attempts.is_some() && due.is_some();
        if let (true, Some(attempts), Some(due)) = (writes_failures, attempts, due) {
            lines.push(entry("attempts", &column(attempts)));
            lines.push(entry("due_at", &self.time(due)));
            lines.extend(error.map(|error| entry("last_error", &column(error))));
        }
        lines.extend(sent_at.map(|name| entry("sent_at", &self.time(name))));
        lines.push(String::new());
        let is = |value: &str| (status, text(value));
        let mut sent = vec![is(sent)];
        sent.extend(sent_at.map(|name| (name, self.written_time(name, "$at"))));
        let Some((attempts, due)) = attempts.zip(due).filter(|_| writes_failures) else {
            lines.push("# Failures stand in the ledger alone.".to_owned());
            lines.push("[database.write]".to_owned());
            lines.push(set("sent", &sent));
            lines.push(set("reopened", &[is(&words.waits)]));
            return;
        };
        let count = (attempts, "$attempts".to_owned());
        let again = (due, self.written_time(due, "$due"));
        let why: Vec<_> = error.map(|name| (name, "$error".to_owned())).into_iter().collect();
        let dead = words.dead.as_deref().unwrap_or_default();
        lines.push("[database.write]".to_owned());
        lines.push(set("sent", &sent));
        let failed = [vec![is(&words.waits), count.clone(), again.clone()], why.clone()].concat();
        lines.push(set("failed", &failed));
        lines.push(set("dead", &[vec![is(dead), count], why].concat()));
        lines.push(set("reopened", &[is(&words.waits), (attempts, "0".to_owned()), again.clone()]));
        let postponed = match words.held {
            Some(_) => vec![is(&words.waits), again],
            None => vec![again],
        };
        lines.push(set("postponed", &postponed));
    }
}

/// What values of a status column mean.
struct Words {
    waits: String,
    sent: Option<String>,
    held: Option<String>,
    dead: Option<String>,
}

fn is_time(kind: &str) -> bool {
    matches!(
        kind,
        "timestamp with time zone" | "timestamp without time zone" | "bigint" | "numeric"
    )
}

fn column(name: &str) -> String {
    let is_plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain { format!("m.{name}") } else { format!("m.{}", quoted(name)) }
}

fn entry(key: &str, value: &str) -> String {
    format!("{key} = {}", toml_text(value))
}

fn set(key: &str, columns: &[(&str, String)]) -> String {
    let pairs: Vec<_> = columns
        .iter()
        .map(|(name, value)| {
            let is_bare = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let name = if is_bare { (*name).to_owned() } else { toml_text(name) };
            format!("{name} = {}", toml_text(value))
        })
        .collect();
    format!("{key} = {{ {} }}", pairs.join(", "))
}

fn toml_text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn refused(problem: String) -> StoreError {
    StoreError::plain(StoreErrorKind::Refused, problem)
}
