//! How rows are named: for people by their key as text, several columns joined by `/`; in the ledger by a uuid, which is
//! the key itself where that is one, and otherwise 128 bits of a SHA-256 of that text.

use super::for_row;
use crate::layout::backticked;
use postroom_core::MessageId;
use ring::digest::{SHA256, digest};
use uuid::Uuid;

/// A column of the key, as the catalogue has it.
#[derive(Clone, Debug)]
pub(super) struct KeyColumn {
    pub(super) name: String,
    /// Its type without a length.
    pub(super) kind: String,
    pub(super) length: Option<i32>,
    /// Its type in a CREATE TABLE.
    pub(super) declared: String,
}

impl KeyColumn {
    pub(super) fn is_whole_number(&self) -> bool {
        self.kind.to_ascii_lowercase().ends_with("int")
    }

    fn is_bytes(&self) -> bool {
        matches!(self.kind.to_ascii_lowercase().as_str(), "binary" | "varbinary")
    }

    /// Whether rows can be looked up by it.
    pub(super) fn can_be(&self) -> bool {
        let kind = self.kind.to_ascii_lowercase();
        !["blob", "text", "json", "geometry", "float", "double"].iter().any(|no| kind.ends_with(no))
    }

    /// Whether it is 16 bytes, or the type of uuids.
    fn is_uuid(&self) -> bool {
        (self.is_bytes() && self.length == Some(16)) || self.kind.eq_ignore_ascii_case("uuid")
    }

    /// It as text, over the row `m`.
    fn text(&self) -> String {
        let column = format!("m.{}", backticked(&self.name));
        match self.kind.to_ascii_lowercase().as_str() {
            _ if self.is_bytes() && self.length == Some(16) => {
                hyphenated(&format!("HEX({column})"))
            }
            _ if self.is_bytes() => format!("LOWER(HEX({column}))"),
            "timestamp" => format!("CAST(UNIX_TIMESTAMP({column}) AS CHAR)"),
            "char" | "varchar" | "enum" | "set" => format!("CONVERT({column} USING utf8mb4)"),
            _ => format!("CAST({column} AS CHAR)"),
        }
    }
}

/// The key of a table.
#[derive(Clone, Debug)]
pub(super) struct Key {
    columns: Vec<KeyColumn>,
    /// What else is part of a row's name: it tells apart rows that had the same key one after the other.
    identity: Option<String>,
}

const UUID: &str = "'^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$'";

impl Key {
    pub(super) fn of(columns: Vec<KeyColumn>, identity: Option<String>) -> Self {
        Self { columns, identity }
    }

    fn alone(&self) -> Option<&KeyColumn> {
        match (&*self.columns, &self.identity) {
            ([one], None) => Some(one),
            _ => None,
        }
    }

    /// The name of the row `m`. A uuid is in lower case, however its row writes it. No part of it is null.
    pub(super) fn name(&self) -> String {
        match self.alone() {
            Some(one) if one.is_uuid() => format!("LOWER({})", one.text()),
            Some(one) if one.is_whole_number() => one.text(),
            Some(one) => {
                let text = one.text();
                format!("IF({text} REGEXP {UUID}, LOWER({text}), {text})")
            }
            None => {
                let columns = self.columns.iter().map(|column| match column.is_whole_number() {
                    true => column.text(),
                    false => escaped(&column.text()),
                });
                let parts: Vec<_> = columns.chain(self.identity.as_deref().map(escaped)).collect();
                format!("CONCAT_WS('/', {})", parts.join(", "))
            }
        }
    }

    /// What the ledger names the row `m` by.
    pub(super) fn id(&self) -> String {
        match self.alone() {
            Some(one) if one.is_uuid() => in_ascii(&self.name()),
            Some(one) if !one.is_whole_number() => id_of(&one.text()),
            _ => in_ascii(&hashed(&self.name())),
        }
    }

    /// Its columns.
    pub(super) fn columns(&self) -> impl Iterator<Item = &String> {
        self.columns.iter().map(|column| &column.name)
    }

    /// Whether it is a number that nothing tells from the same number of another row.
    pub(super) fn may_come_again(&self) -> bool {
        self.identity.is_none() && self.columns.iter().all(KeyColumn::is_whole_number)
    }

    /// The columns of the ledger's own table that hold the key, by name.
    pub(super) fn names(&self) -> Vec<String> {
        (1..=self.columns.len()).map(|place| format!("key_{place}")).collect()
    }

    /// Their declarations.
    pub(super) fn declared(&self) -> String {
        let declare = |(name, column): (String, &KeyColumn)| {
            format!(
                "    {name} {} NOT NULL\n        COMMENT 'The column {} of its key.',",
                column.declared,
                column.name.replace('\'', "''")
            )
        };
        let all = self.names().into_iter().zip(&self.columns);
        all.map(declare).collect::<Vec<_>>().join("\n")
    }

    /// The key of a row, such as `NEW`.
    pub(super) fn of_row(&self, row: &str) -> String {
        let columns =
            self.columns.iter().map(|column| format!("{row}.{}", backticked(&column.name)));
        columns.collect::<Vec<_>>().join(", ")
    }

    /// That the row `m` is the one that `n` knows, which may also be `NEW` or `OLD`.
    pub(super) fn same_as(&self, n: &str) -> String {
        let columns = self.names().into_iter().zip(&self.columns);
        let mut same: Vec<_> = columns
            .map(|(name, column)| format!("m.{} = {n}.{name}", backticked(&column.name)))
            .collect();
        // Texts that are alike by their collation are two messages.
        let has_texts =
            self.columns.iter().any(|column| !column.is_whole_number() && !column.is_uuid());
        if self.identity.is_some() || has_texts {
            same.push(format!("{n}.id = {}", for_row(&self.id(), "m")));
        }
        same.join(" AND ")
    }

    /// A condition on the row `m` that holds for those whose name begins with a text, by an index where there is
    /// one; the values to bind.
    pub(super) fn begins_with(&self, text: &str) -> Option<(String, Vec<String>)> {
        let first = self.columns.first()?;
        let column = format!("m.{}", backticked(&first.name));
        let part = text.split('/').next().unwrap_or(text).replace("%2F", "/").replace("%25", "%");
        if first.is_whole_number() {
            let is_number = !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
            return is_number.then(|| (format!("{column} = CAST(? AS UNSIGNED)"), vec![part]));
        }
        if first.is_bytes() {
            let digits: String = part.chars().filter(|c| *c != '-').collect();
            let are_digits =
                digits.len() <= 32 && digits.bytes().all(|one| one.is_ascii_hexdigit());
            let range = format!("{column} BETWEEN UNHEX(?) AND UNHEX(?)");
            let values = vec![format!("{digits:0<32}"), format!("{digits:f<32}")];
            return are_digits.then_some((range, values));
        }
        let is_whole = text.contains('/');
        if is_whole {
            return Some((format!("{column} = ?"), vec![part]));
        }
        let pattern = part.replace('|', "||").replace('%', "|%").replace('_', "|_");
        Some((format!("{column} LIKE ? ESCAPE '|'"), vec![format!("{pattern}%")]))
    }
}

/// What the ledger of a table names a message by. The same as [`Key::id`].
pub(in crate::mysql) fn ledger_id(id: &MessageId) -> Uuid {
    match id {
        MessageId::Uuid(uuid) => *uuid,
        MessageId::Text(text) => match Uuid::parse_str(text) {
            // As the ledger's own expression takes it: hyphenated, in any case.
            Ok(uuid) if text.len() == 36 => uuid,
            Ok(_) | Err(_) => {
                let hash = digest(&SHA256, text.as_bytes());
                let mut half = [0; 16];
                half.copy_from_slice(&hash.as_ref()[..16]);
                Uuid::from_bytes(half)
            }
        },
    }
}

/// What the ledger names a row by whose key is this text.
pub(super) fn id_of(text: &str) -> String {
    in_ascii(&format!("IF({text} REGEXP {UUID}, LOWER({text}), {})", hashed(text)))
}

/// As the ledger's columns have it: others are not compared with them.
fn in_ascii(text: &str) -> String {
    format!("CONVERT({text} USING ascii)")
}

fn hashed(text: &str) -> String {
    hyphenated(&format!("LEFT(SHA2({text}, 256), 32)"))
}

/// 32 digits as a uuid.
fn hyphenated(digits: &str) -> String {
    format!(
        "INSERT(INSERT(INSERT(INSERT({digits}, 21, 0, '-'), 17, 0, '-'), 13, 0, '-'), 9, 0, '-')"
    )
}

fn escaped(text: &str) -> String {
    format!("COALESCE(REPLACE(REPLACE({text}, '%', '%25'), '/', '%2F'), '')")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_hash_that_the_database_gives_it() {
        // SELECT LEFT(SHA2('abc', 256), 32)
        let hashed = ledger_id(&MessageId::trusted("abc"));
        assert_eq!(hashed.to_string(), "ba7816bf-8f01-cfea-4141-40de5dae2223");
        let uuid = "ABCDEF00-0000-4000-8000-000000000001";
        assert_eq!(ledger_id(&MessageId::trusted(uuid)).to_string(), uuid.to_lowercase());
        let simple = uuid.replace('-', "");
        assert_ne!(
            ledger_id(&MessageId::trusted(&simple)).simple().to_string(),
            simple.to_lowercase()
        );
    }

    #[test]
    fn a_name_is_found_by_its_first_column() {
        let column = |kind: &str| KeyColumn {
            name: "id".to_owned(),
            kind: kind.to_owned(),
            length: Some(26),
            declared: String::new(),
        };
        let number = Key::of(vec![column("bigint")], Some("m.at".to_owned()));
        assert_eq!(
            number.begins_with("42/2026"),
            Some(("m.`id` = CAST(? AS UNSIGNED)".into(), vec!["42".into()]))
        );
        assert_eq!(number.begins_with("x"), None);
        let text = Key::of(vec![column("char")], None);
        assert_eq!(
            text.begins_with("01_"),
            Some(("m.`id` LIKE ? ESCAPE '|'".into(), vec!["01|_%".into()]))
        );
    }
}
