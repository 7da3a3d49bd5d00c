//! The stores against the contract that they share, and what each has of its own.

mod altered;
mod bulk;
mod memory;
mod migrations;
mod postgres;
mod repository;
mod restore;
mod sqlite;
mod sqlite_file;
mod times;
