//! Layouts: the contract over every table that somebody else may have made, on PostgreSQL, MariaDB, MySQL and SQLite.

mod counted;
mod enqueued;
mod mysql;
mod mysql_tables;
mod mysql_trials;
mod owners;
mod postgres;
mod refused;
mod refusing;
mod row_security;
mod sqlite;
mod sqlite_files;
mod sqlite_tables;
mod tables;
mod trials;

/// The contract over one table on PostgreSQL, and on SQLite where that has one like it.
macro_rules! layout {
    ($name:ident) => {
        mod $name {
            async fn start() -> super::postgres::Table {
                super::postgres::Table::start(super::tables::$name()).await
            }

            postroom_testkit::layout_contract_tests!(start);
        }
    };
    ($name:ident, sqlite) => {
        mod $name {
            async fn start() -> super::postgres::Table {
                super::postgres::Table::start(super::tables::$name()).await
            }

            postroom_testkit::layout_contract_tests!(start);

            mod on_sqlite {
                async fn start() -> super::super::sqlite::Table {
                    super::super::sqlite::Table::start(super::super::sqlite_tables::$name()).await
                }

                postroom_testkit::layout_contract_tests!(start);
            }
        }
    };
}

layout!(events, sqlite);
layout!(events_polled);
layout!(kata, sqlite);
layout!(metadata, sqlite);
layout!(metadata_nested, sqlite);
layout!(debezium, sqlite);
layout!(debezium_marked, sqlite);
layout!(typeorm);
layout!(numbered, sqlite);
layout!(composite, sqlite);

/// The contract over the tables of MariaDB and MySQL, on one of the two.
macro_rules! layouts_on {
    ($place:ident, $server:ident: $($name:ident)*) => {
        mod $place {
            $(mod $name {
                use crate::layouts::{mysql, mysql_tables};

                async fn start() -> mysql::Table {
                    mysql::Table::start(mysql_tables::$name(), mysql::Server::$server).await
                }

                postroom_testkit::layout_contract_tests!(start);
            })*
        }
    };
}

layouts_on!(on_mariadb, MariaDb: events kata metadata metadata_nested debezium debezium_marked numbered composite
            binary_uuid);
layouts_on!(on_mysql, MySql: metadata_nested numbered);
// By `cargo xtask test --databases all`.
layouts_on!(on_mysql_too, MySql: events kata metadata debezium debezium_marked composite binary_uuid);
