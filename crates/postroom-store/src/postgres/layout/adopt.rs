//! What a proposal of a layout has to ask PostgreSQL.

use super::failed;
use crate::layout::{Clock, Column, Dialect, Rows, Table, quoted};
use postroom_core::{StoreError, StoreErrorKind, StoreResult};
use tokio_postgres::Client;

/// Proposes a layout for the table of this name, as the `[database]` section of a configuration.
///
/// # Errors
/// When there is no such table, or nothing in it can be a message's content.
pub(crate) async fn propose(client: &Client, name: &str) -> StoreResult<String> {
    let Some(table) = Table::find(client, name).await? else {
        return Err(StoreError::plain(
            StoreErrorKind::Refused,
            format!(
                "there is no table {name}: name it as in a statement, with its schema where that is not the first \
                 of the search path"
            ),
        ));
    };
    crate::layout::propose(&table, Dialect::Postgres, &mut Asked { client, table: &table }).await
}

/// A table that is asked.
struct Asked<'a> {
    client: &'a Client,
    table: &'a Table,
}

impl Rows for Asked<'_> {
    async fn are_json(&mut self, text: &str) -> StoreResult<bool> {
        let sql = format!(
            "SELECT count(({text})::jsonb) FROM (SELECT * FROM {} LIMIT 100) AS m",
            self.table.name
        );
        match self.client.query_one(&sql, &[]).await {
            Ok(_) => Ok(true),
            Err(error) if error.as_db_error().is_some() => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    async fn words(&mut self, column: &Column) -> StoreResult<Vec<String>> {
        let name = quoted(&column.name);
        let asked: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [&self.table.name, &column.name];
        let mut found: Vec<String> = Vec::new();
        let labels = "SELECT e.enumlabel::text FROM pg_attribute a JOIN pg_enum e ON e.enumtypid = a.atttypid \
                      WHERE a.attrelid = to_regclass($1) AND a.attname = $2 ORDER BY e.enumsortorder";
        for row in self.client.query(labels, &asked).await.map_err(failed)? {
            found.push(row.try_get(0).map_err(failed)?);
        }
        let checks = "SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c \
                      WHERE c.conrelid = to_regclass($1) AND c.contype = 'c' \
                        AND pg_get_constraintdef(c.oid) LIKE '%' || $2 || '%' \
                      UNION ALL SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d \
                      JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum \
                      WHERE d.adrelid = to_regclass($1) AND a.attname = $2";
        for row in self.client.query(checks, &asked).await.map_err(failed)? {
            let text: String = row.try_get(0).map_err(failed)?;
            found.extend(crate::layout::literals(&text));
        }
        let sample = format!(
            "SELECT DISTINCT {name}::text FROM (SELECT {name} FROM {} LIMIT 10000) AS m \
             WHERE {name} IS NOT NULL LIMIT 20",
            self.table.name
        );
        for row in self.client.query(&sample, &[]).await.map_err(failed)? {
            found.push(row.try_get(0).map_err(failed)?);
        }
        Ok(found)
    }

    async fn clock(&mut self, column: &Column) -> StoreResult<Option<Clock>> {
        Ok(match column.kind.as_str() {
            "timestamp with time zone" => Some(Clock::Own),
            "timestamp without time zone" => Some(Clock::WithoutZone),
            // Numbers count milliseconds.
            "bigint" | "numeric" => Some(Clock::Millis { is_guess: false }),
            _ => None,
        })
    }
}
