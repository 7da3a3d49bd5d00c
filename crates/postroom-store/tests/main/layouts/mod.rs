//! Layouts: the contract over every table that somebody else may have made, on PostgreSQL.

mod enqueued;
mod owners;
mod postgres;
mod tables;

use postgres::Table;

/// The contract over one table.
macro_rules! layout {
    ($name:ident) => {
        mod $name {
            async fn start() -> super::Table {
                super::Table::start(super::tables::$name()).await
            }

            postroom_testkit::layout_contract_tests!(start);
        }
    };
}

layout!(events);
layout!(events_polled);
layout!(kata);
layout!(metadata);
layout!(metadata_nested);
layout!(debezium);
layout!(debezium_marked);
layout!(typeorm);
layout!(numbered);
layout!(composite);
