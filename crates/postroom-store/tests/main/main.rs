//! The stores against the contract that they share, and what each has of its own.

mod adopt;
mod altered;
mod bulk;
mod diagnose;
mod enqueue_function;
mod grants;
mod mariadb;
mod mariadb_conflicts;
mod mariadb_migrations;
mod mariadb_rows;
mod mariadb_tls;
mod memory;
mod migrate;
mod migrations;
mod old_table;
mod pooler;
mod postgres;
mod repository;
mod restore;
mod signals;
mod silence;
mod sqlite;
mod sqlite_file;
mod times;
mod tls;
