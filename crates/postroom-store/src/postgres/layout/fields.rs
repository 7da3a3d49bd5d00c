//! The columns of Postroom's own table, out of a row of another one.

use super::Foreign;
use crate::layout::{Dialect, integration};

/// A column, its expression over the row `m`, and its type.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) expression: String,
    pub(super) kind: &'static str,
}

/// Their order is that of Postroom's own table.
const NAMES: [(&str, &str); 27] = [
    ("id", ""),
    ("source_stream_id", "text"),
    ("source_event_id", "text"),
    ("integration_type", "varchar"),
    ("event_type", "text"),
    ("payload", "jsonb"),
    ("headers", "jsonb"),
    ("tenant_id", "text"),
    ("user_id", "text"),
    ("correlation_id", "text"),
    ("due_at", "timestamptz"),
    ("attempts", "int"),
    ("max_attempts", "int"),
    ("status", "varchar"),
    ("locked_at", "timestamptz"),
    ("locked_by", "varchar"),
    ("created_at", "timestamptz"),
    ("updated_at", "timestamptz"),
    ("sent_at", "timestamptz"),
    ("last_error", "text"),
    ("seq", "bigint"),
    ("copy", "int"),
    ("ordering_key", "text"),
    ("causation_id", "text"),
    ("source", "text"),
    ("schema_version", "int"),
    ("occurred_at", "timestamptz"),
];

/// What stands as the token of the last write where a row has no place for one: it is SENT.
const SOMEBODY: &str = "'00000000-0000-0000-0000-000000000000'::uuid";

impl Foreign {
    /// What the row itself says.
    pub(super) fn said(&self) -> Vec<Field> {
        let mut fields: Vec<Field> = NAMES
            .iter()
            .map(|(name, kind)| Field { name, expression: self.field(name), kind })
            .collect();
        fields[0].kind = self.key.id_type();
        fields.push(Field { name: "settled", expression: self.field("settled"), kind: "uuid" });
        fields
    }

    /// The same, with what the ledger alone knows about it.
    pub(super) fn shown(&self) -> Vec<Field> {
        let mut fields = self.said();
        for field in &mut fields {
            if let Some(expression) = self.known_to_ledger(field.name, &field.expression) {
                field.expression = expression;
            }
        }
        fields
    }

    /// An expression over the row `m` for a column of Postroom's own table.
    pub(super) fn field(&self, column: &str) -> String {
        let content = &self.layout.message;
        let state = &self.layout.state;
        let text = |value: &Option<String>| match value {
            Some(value) => format!("({value})::text"),
            None => "NULL::text".to_owned(),
        };
        match column {
            "id" => self.key.expression(),
            "source_event_id" => match &content.event_id {
                Some(value) => {
                    format!("coalesce(({value})::text, ({})::text)", self.key.expression())
                }
                None => format!("({})::text", self.key.expression()),
            },
            "source_stream_id" => match &content.stream {
                Some(value) => {
                    format!("coalesce(({value})::text, {})", self.field("source_event_id"))
                }
                None => self.field("source_event_id"),
            },
            "integration_type" => {
                let said = content.integration.as_deref();
                let layout = &self.layout;
                let to = integration(
                    said,
                    layout.to.as_ref(),
                    &layout.routes,
                    &content.event_type,
                    Dialect::Postgres,
                );
                // The ledger's columns hold no more. Nothing in a trigger may fail.
                format!("left(coalesce({to}, '(none)'), 120)::varchar")
            }
            "event_type" => format!("coalesce(({})::text, '')", content.event_type),
            "payload" => match self.body() {
                // Whatever a text says, the row is shown.
                Some(body) => format!("{}.json_of({body})", self.schema),
                None => format!("({})::jsonb", content.payload),
            },
            "headers" => match &content.headers {
                Some(value) => format!("({value})::jsonb"),
                None => "NULL::jsonb".to_owned(),
            },
            "tenant_id" => text(&content.tenant_id),
            "user_id" => text(&content.user_id),
            "correlation_id" => text(&content.correlation_id),
            "causation_id" => text(&content.causation_id),
            "source" => text(&content.source),
            "ordering_key" => text(&content.ordering_key),
            "schema_version" => count(content.schema_version.as_ref(), 1, 0),
            "occurred_at" => match &content.occurred_at {
                Some(value) => time(value),
                None => "NULL::timestamptz".to_owned(),
            },
            "created_at" => match &content.created_at {
                Some(value) => format!("coalesce({}, 'epoch'::timestamptz)", time(value)),
                None => "'epoch'::timestamptz".to_owned(),
            },
            "due_at" => match &state.due_at {
                Some(value) => format!(
                    "coalesce({}, {})",
                    time(value),
                    match &content.created_at {
                        Some(_) => self.field("created_at"),
                        None => "now()".to_owned(),
                    }
                ),
                // A row that says no time at all is due whenever it is looked at.
                None if content.created_at.is_none() => "now()".to_owned(),
                None => self.field("created_at"),
            },
            "attempts" => count(state.attempts.as_ref(), 0, 0),
            "max_attempts" => count(content.max_attempts.as_ref(), 10, 1),
            "status" => format!("coalesce(({})::text, '(none)')::varchar", state.status),
            "sent_at" => match &state.sent_at {
                Some(value) => time(value),
                None => "NULL::timestamptz".to_owned(),
            },
            "updated_at" => {
                format!("coalesce({}, {})", self.field("sent_at"), self.field("created_at"))
            }
            "last_error" => text(&state.last_error),
            "seq" => self.number(),
            "copy" => "0".to_owned(),
            "settled" => format!("CASE WHEN {} = 'SENT' THEN {SOMEBODY} END", self.field("status")),
            "stored" => self.stored().to_owned(),
            "locked_at" => "NULL::timestamptz".to_owned(),
            "locked_by" => "NULL::varchar".to_owned(),
            // Columns of the ledger's tables, which some statements call m too, have no field.
            other => format!("m.{other}"),
        }
    }

    /// The body as the text that it is in the table, where it is one.
    pub(super) fn body(&self) -> Option<String> {
        self.has_texts.then(|| format!("({})::text", self.layout.message.payload))
    }

    /// The column that holds the body.
    pub(super) fn stored(&self) -> &str {
        self.layout.message.stored.as_deref().unwrap_or(&self.layout.message.payload)
    }

    /// What lists go by: the key where it is a number; otherwise the milliseconds of the row's creation, and a hash
    /// of its key behind them.
    fn number(&self) -> String {
        if let Some(number) = self.key.number() {
            return format!("{number}::bigint");
        }
        let id = self.key.expression();
        match &self.layout.message.created_at {
            None => format!("(hashtextextended(({id})::text, 0) & 4611686018427387903)"),
            Some(_) => format!(
                "((least(greatest((date_part('epoch', {}) * 1000)::bigint - 1577836800000, 0), \
                 2199023255551) << 22) | (hashtext(({id})::text) & 4194303))",
                self.field("created_at")
            ),
        }
    }

    /// How many claims of the row `m` were lost since its last outcome, and are not counted in it. The loss of a message
    /// that was alone is written at once, as an attempt. A statement that ends the delivery still sees it as it was.
    pub(super) fn rescues(&self) -> String {
        let (schema, id) = (&self.schema, self.key.expression());
        format!(
            "coalesce((SELECT CASE WHEN d.rescues > 0 THEN greatest(d.rescues - (\
             SELECT count(*) FROM {schema}.attempt a WHERE a.message_id = d.message_id AND a.outcome = 'lost' \
             AND NOT EXISTS (SELECT FROM {schema}.attempt b WHERE b.message_id = a.message_id \
             AND b.number > a.number AND b.outcome <> 'lost')), 0)::int ELSE 0 END \
             FROM {schema}.delivery d WHERE d.message_id = {id}), 0)"
        )
    }

    /// A column as the ledger knows it better than the row, if it does. By subqueries: rows of an outer join
    /// cannot be locked.
    fn known_to_ledger(&self, column: &str, said: &str) -> Option<String> {
        let of_delivery = |what: &str| {
            format!(
                "(SELECT {what} FROM {}.delivery d WHERE d.message_id = {})",
                self.schema,
                self.key.expression()
            )
        };
        if column == "headers" && self.layout.can_replay() {
            return Some(format!(
                "CASE WHEN {} THEN coalesce({said}, '{{}}'::jsonb) \
                 || jsonb_build_object('{}', ({})::text) ELSE {said} END",
                of_delivery("d.is_replay"),
                postroom_core::REPLAY_HEADER,
                self.key.expression()
            ));
        }
        if self.keeps_failures {
            return None;
        }
        Some(match column {
            "status" => format!(
                "CASE {said} WHEN 'PENDING' THEN coalesce({}, 'PENDING') ELSE {said} END::varchar",
                of_delivery(
                    "CASE d.state WHEN 'd' THEN 'DEAD' WHEN 'f' THEN 'FAILED' ELSE 'PENDING' END"
                )
            ),
            "due_at" => format!("coalesce({}, {said})", of_delivery("d.due_at")),
            "attempts" => format!("coalesce({}, {said})", of_delivery("d.attempts")),
            "last_error" => format!("coalesce({}, {said})", of_delivery("d.last_error")),
            _ => return None,
        })
    }
}

/// A count that cannot be negative, whatever the row says.
fn count(value: Option<&String>, otherwise: i32, least: i32) -> String {
    match value {
        Some(value) => {
            format!(
                "least(greatest(coalesce(({value})::bigint, {otherwise}), {least}), 2147483647)::int"
            )
        }
        None => otherwise.to_string(),
    }
}

/// A time that every client can hold.
fn time(value: &str) -> String {
    format!("least(greatest(({value})::timestamptz, '0001-01-01Z'), '9999-12-31Z')")
}
