//! What a proposal says in the words of one kind of database: what its types can hold, and how its expressions read
//! and write that.

use crate::layout::Dialect;

/// How a column holds times.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Clock {
    /// As the database has them, with their zone.
    Own,
    /// Without a zone: taken for UTC. On SQLite, MariaDB and MySQL a text such as `2026-11-19 20:17:00`.
    WithoutZone,
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Millis {
        /// Whether no row said so.
        is_guess: bool,
    },
}

/// The format of times on SQLite.
const ISO: &str = "'%Y-%m-%dT%H:%M:%fZ'";

impl Dialect {
    /// Whether the ledger can name rows by a column of this type.
    pub(super) fn can_be_key(self, kind: &str) -> bool {
        match self {
            Self::Postgres => true,
            Self::Mysql => {
                !["blob", "text", "json", "float", "double"].iter().any(|no| kind.ends_with(no))
            }
            Self::Sqlite => !self.is_bytes(kind),
        }
    }

    /// What helps a table without a key.
    pub(super) fn key_remedy(self, table: &str) -> String {
        match self {
            Self::Postgres => format!(
                "`ALTER TABLE {table} ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY` leaves its \
                 producers as they are"
            ),
            Self::Mysql => format!(
                "`ALTER TABLE {table} ADD COLUMN id BIGINT AUTO_INCREMENT PRIMARY KEY` leaves producers that name \
                 their columns as they are"
            ),
            Self::Sqlite => format!(
                "`CREATE UNIQUE INDEX message_key ON {table} (…)` over texts or numbers that tell its rows apart \
                 leaves its producers as they are"
            ),
        }
    }

    /// Whether a type holds JSON and nothing else.
    pub(super) fn is_json(self, kind: &str) -> bool {
        match self {
            Self::Postgres => matches!(kind, "jsonb" | "json"),
            Self::Mysql => kind == "json",
            Self::Sqlite => has(kind, &["JSON"]),
        }
    }

    /// Whether a type may hold the JSON object that headers are.
    pub(super) fn may_be_headers(self, kind: &str) -> bool {
        match self {
            Self::Postgres => self.is_json(kind),
            Self::Mysql => self.is_json(kind) || kind.ends_with("text"),
            Self::Sqlite => self.is_json(kind) || self.is_text(kind),
        }
    }

    /// Whether a type is for texts.
    pub(super) fn is_text(self, kind: &str) -> bool {
        match self {
            Self::Postgres => matches!(kind, "text" | "character varying"),
            // JSON is a long text on MariaDB.
            Self::Mysql => kind.ends_with("char") || kind.ends_with("text") || kind == "enum",
            Self::Sqlite => kind.is_empty() || has(kind, &["CHAR", "CLOB", "TEXT", "STRING"]),
        }
    }

    /// Whether a type is for bytes.
    pub(super) fn is_bytes(self, kind: &str) -> bool {
        match self {
            Self::Postgres => kind == "bytea",
            Self::Mysql => kind.ends_with("blob") || kind.ends_with("binary"),
            Self::Sqlite => has(kind, &["BLOB", "BINARY"]),
        }
    }

    /// Whether a type is for counts.
    pub(super) fn is_count(self, kind: &str) -> bool {
        match self {
            Self::Postgres => matches!(kind, "integer" | "bigint" | "smallint"),
            Self::Mysql => kind.ends_with("int"),
            Self::Sqlite => has(kind, &["INT"]),
        }
    }

    /// Whether a type is for yes and no.
    pub(super) fn is_flag(self, kind: &str) -> bool {
        match self {
            Self::Postgres => kind == "boolean",
            Self::Mysql => matches!(kind, "tinyint" | "smallint" | "bit"),
            // There 1 is true.
            Self::Sqlite => has(kind, &["BOOL", "INT"]),
        }
    }

    /// Whether a type may hold a status in words.
    pub(super) fn may_be_status(self, kind: &str) -> bool {
        match self {
            // Enumerations have types of their own.
            Self::Postgres => {
                !self.is_flag(kind)
                    && !matches!(
                        kind,
                        "timestamp with time zone"
                            | "timestamp without time zone"
                            | "bigint"
                            | "numeric"
                    )
            }
            Self::Mysql => self.is_text(kind),
            Self::Sqlite => self.is_text(kind),
        }
    }

    /// A body as text, where rows have to be asked whether that is JSON.
    pub(super) fn text_of_body(self, kind: &str, column: &str) -> Option<String> {
        match self {
            Self::Postgres if self.is_json(kind) => None,
            Self::Postgres if self.is_bytes(kind) => {
                Some(format!("convert_from({column}, 'UTF8')"))
            }
            Self::Postgres => Some(column.to_owned()),
            // What is no JSON is delivered as a JSON text anyway.
            Self::Mysql | Self::Sqlite => None,
        }
    }

    /// A body as JSON.
    pub(super) fn body(self, kind: &str, column: String, is_json: bool) -> String {
        match self {
            Self::Postgres if is_json => column,
            Self::Postgres if self.is_bytes(kind) => {
                format!("to_jsonb(encode({column}, 'base64'))")
            }
            Self::Postgres => format!("to_jsonb({column})"),
            Self::Mysql if self.is_bytes(kind) => format!("CONVERT({column} USING utf8mb4)"),
            Self::Mysql => column,
            Self::Sqlite if self.is_bytes(kind) => format!("CAST({column} AS TEXT)"),
            Self::Sqlite => column,
        }
    }

    /// What reads a time.
    pub(super) fn time(self, clock: Clock, column: &str) -> String {
        match (self, clock) {
            (Self::Postgres, Clock::Millis { .. }) => {
                format!("{{schema}}.time_of_millis({column}::bigint)")
            }
            (Self::Postgres, Clock::Seconds) => format!("to_timestamp({column})"),
            (Self::Postgres, Clock::WithoutZone) => format!("{column} AT TIME ZONE 'UTC'"),
            (Self::Mysql, Clock::Millis { .. }) => {
                format!("TIMESTAMP '1970-01-01 00:00:00' + INTERVAL ({column} * 0.001) SECOND")
            }
            (Self::Mysql, Clock::Seconds) => {
                format!("TIMESTAMP '1970-01-01 00:00:00' + INTERVAL {column} SECOND")
            }
            // A text.
            (Self::Mysql, Clock::WithoutZone) => format!("{{schema}}.time_or_null({column})"),
            (Self::Sqlite, Clock::Millis { .. }) => {
                format!("strftime({ISO}, {column} / 1000.0, 'unixepoch')")
            }
            (Self::Sqlite, Clock::Seconds) => format!("strftime({ISO}, {column}, 'unixepoch')"),
            (Self::Postgres | Self::Mysql, Clock::Own)
            | (Self::Sqlite, Clock::Own | Clock::WithoutZone) => column.to_owned(),
        }
    }

    /// What writes a time, which is `at` or `due`.
    pub(super) fn written_time(self, clock: Clock, time: &str) -> String {
        match (self, clock) {
            (Self::Postgres, Clock::Millis { .. }) => {
                format!("(extract(epoch FROM ${time}) * 1000)::bigint")
            }
            (Self::Postgres, Clock::Seconds) => format!("extract(epoch FROM ${time})"),
            (Self::Postgres, Clock::WithoutZone) => format!("${time} AT TIME ZONE 'UTC'"),
            (Self::Mysql, Clock::WithoutZone) => format!("{{schema}}.text_of_time(${time})"),
            (Self::Mysql | Self::Sqlite, Clock::Millis { .. }) => format!("${time}_ms"),
            (Self::Mysql, Clock::Seconds) => format!("${time}_ms DIV 1000"),
            (Self::Sqlite, Clock::Seconds) => format!("${time}_ms / 1000"),
            // Programs compare such texts with each other.
            (Self::Sqlite, Clock::WithoutZone) => {
                format!("strftime('%Y-%m-%d %H:%M:%f', ${time})")
            }
            (Self::Postgres | Self::Mysql | Self::Sqlite, Clock::Own) => format!("${time}"),
        }
    }
}

/// Whether a declared type of SQLite has one of these in it, which is how SQLite itself goes by it.
fn has(kind: &str, parts: &[&str]) -> bool {
    let kind = kind.to_ascii_uppercase();
    parts.iter().any(|part| kind.contains(part))
}
