//! Where a layout and its table do not fit together, as far as the catalogue shows.

use super::{Dialect, Layout, Table, columns};

/// A mismatch, and what mends it.
pub(crate) type Mismatch = (String, String);

/// Everything that the catalogue alone shows.
pub(crate) fn mismatches(layout: &Layout, table: &Table, dialect: Dialect) -> Vec<Mismatch> {
    let mut found = Vec::new();
    for (key, expression) in layout.expressions() {
        for column in
            columns(expression).into_iter().filter(|column| table.column(column).is_none())
        {
            found.push((
                format!("{} has no column {column}, which {key} in its layout names", table.name),
                format!(
                    "name another column in {key}, or `ALTER TABLE {} ADD COLUMN {column} …`",
                    table.name
                ),
            ));
        }
    }
    for (key, set) in layout.assignments() {
        for column in set.keys().filter(|column| table.column(column).is_none()) {
            found.push((
                format!("{} has no column {column}, which {key} in its layout writes", table.name),
                format!(
                    "name another column in {key}, or `ALTER TABLE {} ADD COLUMN {column} …`",
                    table.name
                ),
            ));
        }
    }
    let same = |columns: &Vec<String>| {
        columns.len() == layout.key.len()
            && columns.iter().all(|column| layout.key.contains(column))
    };
    let is_unique = same(&table.primary_key) || table.unique.iter().any(same);
    if !is_unique && layout.key.iter().all(|column| table.column(column).is_some()) {
        let key = layout.key.join(", ");
        let make = match dialect {
            Dialect::Postgres => "CREATE UNIQUE INDEX CONCURRENTLY ON",
            Dialect::Mysql | Dialect::Sqlite => "CREATE UNIQUE INDEX message_key ON",
        };
        found.push((
            format!(
                "{} has no unique index on its key ({key}): no row could be found by it",
                table.name
            ),
            format!("`{make} {} ({key})`, or name the primary key in `key`", table.name),
        ));
    }
    for column in layout.key.iter().filter_map(|column| table.column(column)) {
        // A key that is none allows NULL on SQLite, whatever it says.
        if dialect != Dialect::Sqlite && !column.is_required {
            let remedy = match dialect {
                Dialect::Mysql => {
                    format!("`ALTER TABLE {} MODIFY {} … NOT NULL`", table.name, column.name)
                }
                Dialect::Postgres | Dialect::Sqlite => {
                    format!(
                        "`ALTER TABLE {} ALTER COLUMN {} SET NOT NULL`",
                        table.name, column.name
                    )
                }
            };
            found.push((
                format!(
                    "{} allows NULL in {}, which is part of the key in its layout",
                    table.name, column.name
                ),
                remedy,
            ));
        }
    }
    for column in &table.columns {
        let is_given = layout.insert.is_empty()
            || layout.insert.contains_key(&column.name)
            || column.has_default
            || !column.is_required;
        if !is_given {
            found.push((
                format!(
                    "{} requires the column {}, which `insert` in its layout does not give",
                    table.name, column.name
                ),
                format!(
                    "add insert.{}, or remove `insert` if nobody enqueues through Postroom",
                    column.name
                ),
            ));
        }
    }
    found
}
