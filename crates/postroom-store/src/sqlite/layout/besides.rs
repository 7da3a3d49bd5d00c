//! What is written into Postroom's own outbox, for the destinations of a row besides its own integration.

use super::{Foreign, failed};
use crate::layout::{Dialect, Layout, for_row};
use crate::sqlite::migrate::has_table;
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use sqlx::SqliteConnection;

const BESIDES: &str = include_str!("../../../migrations/sqlite/layout/besides.sql");

/// What such a message takes over from its row.
const COPIED: [&str; 11] = [
    "id",
    "status",
    "source_event_id",
    "source_stream_id",
    "event_type",
    "payload",
    "headers",
    "tenant_id",
    "correlation_id",
    "causation_id",
    "ordering_key",
];

impl Foreign {
    /// The statement for the row that a trigger fires for. Nothing where rows have one destination.
    pub(super) fn besides_of_new(&self) -> String {
        self.besides().map_or_else(String::new, |row| written(self, &for_row(&row, "NEW")))
    }

    /// The statement for the rows that are open when the layout is applied.
    pub(super) fn besides_of_open(&self) -> Option<String> {
        let rows = format!("{} FROM {} AS m", self.besides()?, self.table.name);
        Some(written(self, &rows))
    }

    /// Of the row `m`, what such messages are made of.
    fn besides(&self) -> Option<String> {
        let besides = self.layout.besides(Dialect::Sqlite)?;
        let copied = COPIED.iter().map(|name| format!("{} AS {name}", self.said(name)));
        let columns: Vec<_> = copied.chain([format!("{besides} AS besides")]).collect();
        Some(format!("SELECT {}", columns.join(", ")))
    }
}

fn written(foreign: &Foreign, rows: &str) -> String {
    let table = foreign.layout.table.replace('\'', "''");
    BESIDES.replace("{of_table}", &format!("'{table}'")).replace("{rows}", rows)
}

/// Makes sure that there is an outbox to write to: a trigger that finds none would fail its producer.
///
/// # Errors
/// When there is none.
pub(in crate::sqlite) async fn expect_own_outbox(
    connection: &mut SqliteConnection,
    layout: &Layout,
) -> StoreResult<()> {
    if !layout.has_several_destinations()
        || has_table(connection, "outbox_schema_migration").await.map_err(failed)?
    {
        return Ok(());
    }
    Err(StoreError::plain(
        StoreErrorKind::Schema,
        format!(
            "{}: a row of several destinations needs Postroom's own outbox in the same file: migrate that first, \
             without a layout",
            layout.table
        ),
    ))
}
