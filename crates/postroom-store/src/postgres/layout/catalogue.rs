//! What the catalogue says about a table.

use super::failed;
use crate::layout::{Column, Table};
use postroom_core::StoreResult;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

const FIND: &str = "
    SELECT c.oid, format('%I.%I', n.nspname, c.relname), c.relkind = 'p'
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p')";

const COLUMNS: &str = "
    SELECT a.attname::text, format_type(a.atttypid, NULL),
           CASE WHEN a.attcollation NOT IN (0, t.typcollation)
                THEN (SELECT format('%I.%I', n.nspname, l.collname) FROM pg_collation l
                      JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = a.attcollation) END,
           a.attnotnull, a.atthasdef OR a.attidentity <> '',
           CASE WHEN a.atttypid IN ('varchar'::regtype, 'bpchar'::regtype) AND a.atttypmod > 4
                THEN a.atttypmod - 4 END
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum";

const INDEXES: &str = "
    SELECT i.indisprimary, i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL,
           ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
                 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
                 WHERE k.place <= i.indnkeyatts ORDER BY k.place),
           i.indpred IS NOT NULL
    FROM pg_index i WHERE i.indrelid = $1 AND i.indisvalid";

const TRIGGERS: &str = "
    SELECT tgname::text FROM pg_trigger
    WHERE tgrelid = $1 AND NOT tgisinternal AND tgenabled IN ('O', 'A')";

impl Table {
    /// The table of this name, written as in a statement.
    pub(crate) async fn find(client: &Client, name: &str) -> StoreResult<Option<Self>> {
        // Without names: behind a pooler the next session would not know them.
        let found = client.query_typed(FIND, &[(&name, Type::TEXT)]).await.map_err(failed)?;
        let Some(row) = found.first() else {
            return Ok(None);
        };
        let oid: u32 = row.try_get(0).map_err(failed)?;
        let mut table = Self {
            name: row.try_get(1).map_err(failed)?,
            columns: Vec::new(),
            primary_key: Vec::new(),
            unique: Vec::new(),
            indexed: Vec::new(),
            has_partial_index: false,
            is_partitioned: row.try_get(2).map_err(failed)?,
            ignores_case: false,
            triggers: Vec::new(),
        };
        for row in client.query_typed(COLUMNS, &[(&oid, Type::OID)]).await.map_err(failed)? {
            table.columns.push(Column {
                name: row.try_get(0).map_err(failed)?,
                kind: row.try_get(1).map_err(failed)?,
                collation: row.try_get(2).map_err(failed)?,
                is_required: row.try_get(3).map_err(failed)?,
                has_default: row.try_get(4).map_err(failed)?,
                length: row.try_get(5).map_err(failed)?,
            });
        }
        for row in client.query_typed(INDEXES, &[(&oid, Type::OID)]).await.map_err(failed)? {
            let columns: Vec<String> = row.try_get(2).map_err(failed)?;
            table.indexed.extend(columns.first().cloned());
            table.has_partial_index |= row.try_get::<_, bool>(3).map_err(failed)?;
            if row.try_get(0).map_err(failed)? {
                table.primary_key = columns;
            } else if row.try_get(1).map_err(failed)? {
                table.unique.push(columns);
            }
        }
        for row in client.query_typed(TRIGGERS, &[(&oid, Type::OID)]).await.map_err(failed)? {
            table.triggers.push(row.try_get(0).map_err(failed)?);
        }
        Ok(Some(table))
    }
}
