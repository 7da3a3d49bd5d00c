//! The outbox on PostgreSQL, SQLite and in memory: migrations, claims and completions.
