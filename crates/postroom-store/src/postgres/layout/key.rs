//! How the ledger names a row: by its key as it is where that is one uuid or text, else by the text of its
//! columns, joined by `/`.

use crate::layout::quoted;

/// One column, or one expression that tells a reused key apart.
#[derive(Clone, Debug)]
struct Part {
    /// Over the row `m`.
    expression: String,
    /// Its type, as the catalogue names it.
    kind: String,
    /// Whether rows are looked up by it.
    is_column: bool,
}

/// The key of a table.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    parts: Vec<Part>,
    /// The type of the ledger's references.
    id_type: &'static str,
    /// Of a key that is one text: how it is compared, unless as usual.
    collation: Option<String>,
    is_derived: bool,
}

/// A column of the key, as the catalogue has it.
#[derive(Clone, Debug)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Unless it is the type's own.
    pub(crate) collation: Option<String>,
}

impl Key {
    /// `identity` tells apart rows that had the same key one after the other: an expression and its type.
    pub(crate) fn of(columns: &[KeyColumn], identity: Option<&(String, String)>) -> Self {
        let mut parts: Vec<Part> = columns
            .iter()
            .map(|column| Part {
                expression: format!("m.{}", quoted(&column.name)),
                kind: column.kind.clone(),
                is_column: true,
            })
            .collect();
        let direct = match columns {
            [one] if identity.is_none() => match one.kind.as_str() {
                "uuid" => Some(("uuid", None)),
                "text" | "character varying" => Some(("text", one.collation.clone())),
                _ => None,
            },
            _ => None,
        };
        if let Some((expression, kind)) = identity {
            let (expression, kind) = (expression.clone(), kind.clone());
            parts.push(Part { expression, kind, is_column: false });
        }
        let is_derived = direct.is_none();
        let (id_type, collation) = direct.unwrap_or(("text", None));
        Self { parts, id_type, collation, is_derived }
    }

    /// Whether a column of this type can be part of a key.
    pub(crate) fn can_be(kind: &str) -> bool {
        const KINDS: [&str; 11] = [
            "uuid",
            "text",
            "character varying",
            "character",
            "smallint",
            "integer",
            "bigint",
            "numeric",
            "date",
            "timestamp with time zone",
            "timestamp without time zone",
        ];
        KINDS.contains(&kind)
    }

    /// The type of the ledger's references.
    pub(crate) fn id_type(&self) -> &'static str {
        self.id_type
    }

    /// The same where a column is made, so that comparisons can use the index of the key.
    pub(crate) fn column_type(&self, is_list: bool) -> String {
        let list = if is_list { "[]" } else { "" };
        match &self.collation {
            None => format!("{}{list}", self.id_type),
            Some(collation) => format!("{}{list} COLLATE {collation}", self.id_type),
        }
    }

    /// The reference of the row `m`.
    pub(crate) fn expression(&self) -> String {
        if !self.is_derived {
            let part = &self.parts[0];
            return match part.kind.as_str() {
                "character varying" => format!("{}::text", part.expression),
                _ => part.expression.clone(),
            };
        }
        let parts: Vec<_> = self.parts.iter().map(Part::as_text).collect();
        parts.join(" || '/' || ")
    }

    /// The only column, where it is a whole number.
    pub(crate) fn number(&self) -> Option<&str> {
        let mut columns = self.parts.iter().filter(|part| part.is_column);
        match (columns.next(), columns.next()) {
            (Some(part), None) if part.is_whole_number() => Some(&part.expression),
            _ => None,
        }
    }

    /// The columns that the view of the table has for look-ups, by name.
    pub(crate) fn view_columns(&self) -> Vec<(String, &str)> {
        if !self.is_derived {
            return Vec::new();
        }
        let columns = self.parts.iter().enumerate().filter(|(_, part)| part.is_column);
        columns
            .map(|(place, part)| (format!("key_{}", place + 1), part.expression.as_str()))
            .collect()
    }

    /// What bounds a look-up of the rows whose reference is `value`, or is among them if that is a list. `alias`
    /// is the view's, or `None` for the table itself.
    pub(crate) fn bounds(&self, alias: Option<&str>, value: &str, is_list: bool) -> String {
        if !self.is_derived {
            return String::new();
        }
        let columns = self.parts.iter().enumerate().filter(|(_, part)| part.is_column);
        let bounds = columns.map(|(place, part)| {
            let column = match alias {
                Some(alias) => format!("{alias}.key_{}", place + 1),
                None => part.expression.clone(),
            };
            let is = if is_list {
                let read = part.read("named.id", place);
                format!("ANY (ARRAY(SELECT {read} FROM unnest({value}) AS named (id)))")
            } else {
                part.read(value, place)
            };
            format!(" AND {column} = {is}")
        });
        bounds.collect()
    }
}

impl Part {
    fn is_whole_number(&self) -> bool {
        ["smallint", "integer", "bigint"].contains(&self.kind.as_str())
    }

    fn as_text(&self) -> String {
        let Self { expression, kind, .. } = self;
        match kind.as_str() {
            _ if self.is_whole_number() => format!("{expression}::text"),
            "uuid" => format!("{expression}::text"),
            // Times as text depend on the session.
            "timestamp with time zone" | "timestamp without time zone" => format!(
                "coalesce((extract(epoch FROM least(greatest({expression}, '0001-01-01'), '9999-12-31')) \
                 * 1000000)::bigint::text, '')"
            ),
            "date" => format!(
                "(least(greatest({expression}, '0001-01-01'), '9999-12-31') - date '1970-01-01')::text"
            ),
            _ => format!(
                "coalesce(replace(replace(({expression})::text, '%', '%25'), '/', '%2F'), '')"
            ),
        }
    }

    /// The column's value out of a reference. What is none of this table finds no row.
    fn read(&self, id: &str, place: usize) -> String {
        let text = format!("split_part({id}, '/', {})", place + 1);
        match self.kind.as_str() {
            // Of 19 digits some numbers are too large, and some are what snowflakes look like.
            _ if self.is_whole_number() => format!(
                "(CASE WHEN {text} ~ '^-?[0-9]{{1,18}}$' THEN {text}::bigint \
                 WHEN {text} ~ '^-?[0-9]{{19}}$' THEN CASE WHEN {text}::numeric BETWEEN \
                 -9223372036854775808 AND 9223372036854775807 THEN {text}::bigint END END)"
            ),
            "uuid" => format!(
                "(CASE WHEN {text} ~ '^[0-9a-fA-F]{{8}}(-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}$' \
                 THEN {text}::uuid END)"
            ),
            "timestamp with time zone" => {
                format!(
                    "to_timestamp((CASE WHEN {text} ~ '^-?[0-9]{{1,18}}$' THEN {text} END)::numeric / 1000000)"
                )
            }
            "timestamp without time zone" => format!(
                "(to_timestamp((CASE WHEN {text} ~ '^-?[0-9]{{1,18}}$' THEN {text} END)::numeric / 1000000) \
                 AT TIME ZONE 'UTC')"
            ),
            "date" => format!(
                "(date '1970-01-01' + (CASE WHEN {text} ~ '^-?[0-9]{{1,7}}$' THEN {text} END)::int)"
            ),
            "numeric" => format!(
                "(CASE WHEN {text} ~ '^-?[0-9]{{1,100}}([.][0-9]{{1,100}})?$' THEN {text} END)::numeric"
            ),
            "character" => {
                format!("replace(replace({text}, '%2F', '/'), '%25', '%')::bpchar")
            }
            _ => format!("replace(replace({text}, '%2F', '/'), '%25', '%')"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: &str) -> KeyColumn {
        KeyColumn { name: name.to_owned(), kind: kind.to_owned(), collation: None }
    }

    #[test]
    fn one_uuid_or_text_stands_for_itself() {
        let key = Key::of(&[column("id", "uuid")], None);
        assert_eq!((key.id_type(), key.expression().as_str()), ("uuid", "m.\"id\""));
        assert_eq!(key.bounds(Some("m"), "$1", true), "");
        let key = Key::of(&[column("id", "character varying")], None);
        assert_eq!((key.id_type(), key.expression().as_str()), ("text", "m.\"id\"::text"));
    }

    #[test]
    fn anything_else_is_joined_and_looked_up_by_its_columns() {
        let key = Key::of(&[column("shop", "integer"), column("no", "bigint")], None);
        assert_eq!(key.expression(), "m.\"shop\"::text || '/' || m.\"no\"::text");
        let bounds = key.bounds(Some("o"), "$2", true);
        assert!(
            bounds.contains(
                " AND o.key_1 = ANY (ARRAY(SELECT (CASE WHEN split_part(named.id, '/', 1)"
            )
        );
        assert!(bounds.contains(" AND o.key_2 = ANY"));
        assert_eq!(key.number(), None);
    }

    #[test]
    fn an_identity_is_part_of_the_reference_and_of_no_look_up() {
        let key = Key::of(
            &[column("id", "bigint")],
            Some(&("m.at".to_owned(), "timestamp with time zone".to_owned())),
        );
        assert_eq!(
            key.expression(),
            "m.\"id\"::text || '/' || coalesce((extract(epoch FROM least(greatest(m.at, '0001-01-01'), \
             '9999-12-31')) * 1000000)::bigint::text, '')"
        );
        assert_eq!(key.view_columns().len(), 1);
        assert_eq!(key.number(), Some("m.\"id\""));
    }
}
