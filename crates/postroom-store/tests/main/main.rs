//! The stores against the contract that they share, and what each has of its own.

mod mariadb;
mod memory;
mod postgres;
mod repository;
mod restore;
mod sqlite;
mod sqlite_file;
mod times;
