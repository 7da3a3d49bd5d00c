//! Preparing every expression of a layout, each by itself, so that whoever wrote it learns which one is wrong.

use super::statement::Values;
use super::{Foreign, enqueue, failed};
use crate::layout::{Dialect, Mismatch, besides, quoted};
use postroom_core::StoreResult;
use tokio_postgres::Client;
use tokio_postgres::error::DbError;

/// Classes of errors that say something about the statement, and nothing about the moment: data, syntax and names,
/// features, and what cannot be cast.
const OF_THE_STATEMENT: [&str; 4] = ["22", "42", "0A", "2B"];

/// An expression, by the key of the configuration that holds it, and a statement that has it where its value goes.
struct Trial {
    key: String,
    sql: String,
}

impl Foreign {
    /// The expressions that the database refuses. Runs nothing: statements are prepared. `after_refusal` is run after
    /// each that is refused, since a transaction takes no more statements then.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub(super) async fn misfits(
        &self,
        client: &Client,
        after_refusal: &str,
    ) -> StoreResult<Vec<Mismatch>> {
        let mut found = Vec::new();
        for Trial { key, sql } in self.trials() {
            let Err(error) = client.prepare(&sql).await else { continue };
            let Some(refused) = error.as_db_error().filter(|error| is_of_the_statement(error))
            else {
                return Err(failed(error));
            };
            let hint = refused
                .hint()
                .map(|hint| format!(" ({})", hint.trim_end_matches('.')))
                .unwrap_or_default();
            let problem =
                format!("{}: `{key}` does not fit: {}{hint}", self.table.name, refused.message());
            let remedy = format!("correct `{key}` in the layout, then run `postroom migrate`");
            found.push((problem, remedy));
            client.batch_execute(after_refusal).await.map_err(failed)?;
        }
        Ok(found)
    }

    fn trials(&self) -> Vec<Trial> {
        let table = &self.table.name;
        // In a condition: what is no value of one row, such as an aggregate, is refused there.
        let value = |key: &str, sql: &str| Trial {
            key: key.to_owned(),
            sql: format!("SELECT FROM {table} m WHERE ({sql}) IS NOT NULL"),
        };
        let condition = |key: &str, sql: &str| Trial {
            key: key.to_owned(),
            sql: format!("SELECT FROM {table} m WHERE {sql}"),
        };
        let layout = &self.layout;
        let mut trials = Vec::new();
        for (key, expression) in layout.expressions() {
            match key.as_str() {
                "state.open" | "state.taken" => trials.push(condition(&key, expression)),
                "identity" => trials.push(value(&key, &format!("({expression})::text"))),
                "message.stored" => {
                    trials.push(value(&key, &format!("pg_column_size({expression})")));
                }
                // As its field has it, with the type that it must come to.
                _ => {
                    let name = key.split_once('.').map_or("", |(_, name)| name);
                    let is_read = key.starts_with("message.") || key.starts_with("state.");
                    if is_read && name != "integration" {
                        let name = if name == "stream" { "source_stream_id" } else { name };
                        let name = if name == "event_id" { "source_event_id" } else { name };
                        trials.push(value(&key, &self.field(name)));
                    }
                }
            }
        }
        let said = if layout.message.integration.is_some() { "message.integration" } else { "to" };
        trials.push(value(said, &self.field("integration_type")));
        let (to, routes) = (layout.to.as_ref(), &layout.routes);
        if let Some(others) = besides(to, routes, &layout.message.event_type, Dialect::Postgres) {
            trials.push(value("to", &format!("({others})::text[]")));
        }
        let trial = Values::trial();
        for (key, set) in layout.assignments() {
            trials.extend(set.iter().map(|(column, sql)| {
                let name = quoted(column);
                let full = format!("{key}.{column}");
                if key == "claimed" {
                    let sql = sql.replace("$rescues", "0");
                    return value(&full, &format!("CASE WHEN true THEN {sql} ELSE m.{name} END"));
                }
                let sql = format!("UPDATE {table} m SET {name} = {}", trial.put(sql));
                Trial { key: full, sql }
            }));
        }
        trials.extend(layout.insert.iter().map(|(column, sql)| {
            let (name, sql) = (quoted(column), enqueue::with_nulls(sql));
            let sql = format!("INSERT INTO {table} AS m ({name}) VALUES ({sql})");
            Trial { key: format!("insert.{column}"), sql }
        }));
        trials
    }
}

fn is_of_the_statement(error: &DbError) -> bool {
    OF_THE_STATEMENT.iter().any(|class| error.code().code().starts_with(class))
}
