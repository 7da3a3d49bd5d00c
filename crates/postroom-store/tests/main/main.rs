//! The stores against the contract that they share, and what each has of its own.

mod adopt;
mod altered;
mod bulk;
mod enqueue_function;
mod grants;
mod memory;
mod migrate;
mod migrations;
mod old_table;
mod pooler;
mod postgres;
mod repository;
mod restore;
mod sqlite;
mod sqlite_file;
mod times;
mod tls;
