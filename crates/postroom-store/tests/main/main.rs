//! The stores against the contract that they share, and what each has of its own.

mod mariadb;
mod mariadb_conflicts;
mod mariadb_migrations;
mod mariadb_rows;
mod mariadb_tls;
mod memory;
mod postgres;
mod repository;
mod restore;
mod sqlite;
mod sqlite_file;
mod times;
