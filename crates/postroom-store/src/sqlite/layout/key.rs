//! How the ledger names a row: by its key as text where that is one column, else by the texts of its columns, joined
//! by `/`. A uuid is named in lower case, however its row writes it.

use crate::layout::quoted;

/// A column of the key, as the catalogue has it.
#[derive(Clone, Debug)]
pub(super) struct KeyColumn {
    pub(super) name: String,
    /// Its declared type.
    pub(super) kind: String,
}

impl KeyColumn {
    pub(super) fn is_whole_number(&self) -> bool {
        self.kind.to_ascii_uppercase().contains("INT")
    }

    fn expression(&self) -> String {
        format!("m.{}", quoted(&self.name))
    }
}

/// The key of a table.
#[derive(Clone, Debug)]
pub(super) struct Key {
    columns: Vec<KeyColumn>,
    /// What else is part of the reference: it tells apart rows that had the same key one after the other.
    identity: Option<String>,
}

impl Key {
    pub(super) fn of(columns: &[KeyColumn], identity: Option<&str>) -> Self {
        Self { columns: columns.to_vec(), identity: identity.map(str::to_owned) }
    }

    /// The reference of the row `m`. No part of it is null: it stands in triggers that must not fail.
    pub(super) fn expression(&self) -> String {
        if let ([one], None) = (&*self.columns, &self.identity) {
            return match one.is_whole_number() {
                true => format!("coalesce(CAST({} AS TEXT), '')", one.expression()),
                false => canonical(&format!("CAST({} AS TEXT)", one.expression())),
            };
        }
        let columns = self.columns.iter().map(|column| match column.is_whole_number() {
            true => format!("coalesce(CAST({} AS TEXT), '')", column.expression()),
            false => escaped(&column.expression()),
        });
        let parts: Vec<_> = columns.chain(self.identity.as_deref().map(escaped)).collect();
        format!("({})", parts.join(" || '/' || "))
    }

    /// The columns that views of the table have for look-ups, by name.
    pub(super) fn view_columns(&self) -> Vec<(String, String)> {
        let columns = self.columns.iter().enumerate();
        columns.map(|(place, one)| (format!("key_{}", place + 1), one.expression())).collect()
    }

    /// What bounds a look-up of the row whose reference is `value`, by an index. `alias` is the view's.
    pub(super) fn bounds(&self, alias: &str, value: &str) -> String {
        let is_alone = self.columns.len() == 1 && self.identity.is_none();
        let bounds = self.columns.iter().enumerate().map(|(place, column)| {
            let name = format!("{alias}.key_{}", place + 1);
            if self.columns.len() == 1 && column.is_whole_number() {
                // Of a text that begins with a number, that number.
                format!(" AND {name} = CAST({value} AS INTEGER)")
            } else if is_alone {
                format!(" AND {name} IN ({value}, upper({value}))")
            } else {
                // The parts as a list: no part has a slash in it.
                let part = format!(
                    "replace(replace(json_extract('[' || replace(json_quote({value}), '/', '\",\"') || ']', \
                     '$[{place}]'), '%2F', '/'), '%25', '%')"
                );
                match column.is_whole_number() {
                    true => format!(" AND {name} = CAST({part} AS INTEGER)"),
                    false => format!(" AND {name} = {part}"),
                }
            }
        });
        bounds.collect()
    }
}

fn escaped(expression: &str) -> String {
    format!("coalesce(replace(replace(CAST({expression} AS TEXT), '%', '%25'), '/', '%2F'), '')")
}

/// A text, in lower case if it is a uuid.
fn canonical(text: &str) -> String {
    format!(
        "CASE WHEN {text} LIKE '________-____-____-____-____________' \
         AND length(replace({text}, '-', '')) = 32 \
         AND replace({text}, '-', '') NOT GLOB '*[^0-9A-Fa-f]*' THEN lower({text}) \
         ELSE coalesce({text}, '') END"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, kind: &str) -> KeyColumn {
        KeyColumn { name: name.to_owned(), kind: kind.to_owned() }
    }

    #[test]
    fn a_number_with_an_identity_is_found_by_the_number() {
        let key = Key::of(&[column("id", "INTEGER")], Some("m.at"));
        assert!(key.expression().starts_with("(coalesce(CAST(m.\"id\" AS TEXT), '') || '/' || "));
        assert_eq!(key.bounds("m", "?1"), " AND m.key_1 = CAST(?1 AS INTEGER)");
    }

    #[test]
    fn a_uuid_is_found_as_its_row_writes_it() {
        let key = Key::of(&[column("id", "uuid")], None);
        assert_eq!(
            key.bounds("m", "d.message_id"),
            " AND m.key_1 IN (d.message_id, upper(d.message_id))"
        );
    }

    #[test]
    fn several_columns_are_found_by_their_parts() {
        let key = Key::of(&[column("tenant", "varchar(20)"), column("no", "int")], None);
        let bounds = key.bounds("m", "x");
        assert!(
            bounds.contains(" AND m.key_1 = replace(")
                && bounds.contains(" AND m.key_2 = CAST(replace(")
        );
        assert_eq!(key.view_columns()[1], ("key_2".to_owned(), "m.\"no\"".to_owned()));
    }
}
