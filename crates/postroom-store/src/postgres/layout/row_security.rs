//! Row-level security that hides rows from those who deliver them.

use super::{Foreign, failed};
use postroom_core::{Finding, StoreResult};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

const ROW_SECURITY: &str = include_str!("../sql/row_security.sql");

impl Foreign {
    /// Roles from which policies hide rows, each with the statement that shows them.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub(super) async fn hidden_rows(&self, client: &Client) -> StoreResult<Vec<Finding>> {
        // What is read is locked too, as an UPDATE would.
        let mut commands = vec!["r", "w"];
        if self.layout.deletes_sent() {
            commands.push("d");
        }
        let view = format!("{}.integration_outbox", self.schema);
        let rows = client
            .query_typed(
                ROW_SECURITY,
                &[
                    (&self.table.name, Type::TEXT),
                    (&view, Type::TEXT),
                    (&commands, Type::TEXT_ARRAY),
                ],
            )
            .await
            .map_err(failed)?;
        rows.iter()
            .map(|row| {
                let (role, sees_some) = (row.try_get(0)?, row.try_get(1)?);
                Ok(self.hidden_from(role, sees_some))
            })
            .collect::<Result<_, _>>()
            .map_err(failed)
    }

    fn hidden_from(&self, role: &str, sees_some: bool) -> Finding {
        let table = &self.table.name;
        let remedy = format!(
            "`CREATE POLICY postroom_relay ON {table} TO {role} USING (true) WITH CHECK (true)`, or \
             `ALTER ROLE {role} BYPASSRLS`, which also passes restrictive policies"
        );
        if sees_some {
            return Finding::warning(
                format!(
                    "{table}: row-level security may hide some rows of it from the role {role}: those are not \
                     delivered, or delivered again and again"
                ),
                remedy,
            );
        }
        Finding::fault(
            format!(
                "{table}: row-level security hides every row of it from the role {role}: none is delivered, or \
                 each again and again"
            ),
            remedy,
        )
    }
}
