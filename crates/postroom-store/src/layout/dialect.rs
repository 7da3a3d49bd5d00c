//! The kinds of SQL that layouts are written in.

use super::expression::{backticked, quoted};

/// A kind of SQL.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dialect {
    /// PostgreSQL's.
    Postgres,
    /// MariaDB's and MySQL's.
    Mysql,
    /// SQLite's.
    Sqlite,
}

impl Dialect {
    /// The dialect of the database at `url`; `None` where layouts are not for that kind.
    #[must_use]
    pub fn of(url: &str) -> Option<Self> {
        match url.split(':').next() {
            Some("postgres" | "postgresql") => Some(Self::Postgres),
            Some("mysql" | "mariadb") => Some(Self::Mysql),
            Some("sqlite") => Some(Self::Sqlite),
            _ => None,
        }
    }

    /// A name as SQL takes it, whatever it is.
    pub(crate) fn quoted(self, name: &str) -> String {
        match self {
            Self::Postgres | Self::Sqlite => quoted(name),
            Self::Mysql => backticked(name),
        }
    }

    /// A table's name in the catalogue's words, as a layout has it.
    pub(crate) fn plain_name(self, name: &str) -> String {
        match self {
            Self::Postgres => name.to_owned(),
            Self::Mysql => name.replace('`', ""),
            Self::Sqlite => name.trim_matches('"').replace("\"\"", "\""),
        }
    }

    /// An expression as text.
    pub(crate) fn text(self, expression: &str) -> String {
        match self {
            Self::Postgres => format!("{expression}::text"),
            Self::Mysql => format!("CONVERT({expression} USING utf8mb4)"),
            Self::Sqlite => format!("CAST({expression} AS TEXT)"),
        }
    }

    /// Whether a text begins with another.
    pub(crate) fn starts_with(self, text: &str, beginning: &str) -> String {
        match self {
            Self::Postgres => format!("starts_with({text}, {beginning})"),
            Self::Mysql => format!("LEFT({text}, CHAR_LENGTH({beginning})) = {beginning}"),
            Self::Sqlite => format!("substr({text}, 1, length({beginning})) = {beginning}"),
        }
    }

    /// A list of texts, each an expression.
    pub(crate) fn list(self, texts: &[String]) -> String {
        match self {
            Self::Postgres => format!("ARRAY[{}]::text[]", texts.join(", ")),
            Self::Mysql | Self::Sqlite => format!("json_array({})", texts.join(", ")),
        }
    }
}
