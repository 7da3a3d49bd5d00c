//! Doing the same in several outboxes: one that fails keeps no other from being asked.

use super::outbox;
use crate::config::Database;
use crate::failure::Failure;
use crate::output::{self, Align, Table};
use anyhow::anyhow;
use postroom_core::Store;
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

/// The column that names a database.
const COLUMN: &str = "DATABASE";

/// What each outbox answered, and which of them failed. Of a single one nobody needs the name.
pub(super) struct Answers<T> {
    pub(super) are_several: bool,
    pub(super) each: Vec<Answer<T>>,
    failed: Vec<(String, Failure)>,
}

/// What one outbox answered.
pub(super) struct Answer<T> {
    /// Its name, where there are several.
    pub(super) name: Option<String>,
    pub(super) found: T,
}

/// An object that begins with a database's name, where there is one.
#[derive(Serialize)]
pub(super) struct Named<'a, V> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) database: Option<&'a str>,
    #[serde(flatten)]
    pub(super) object: V,
}

/// Does `work` in each of these, one after the other.
///
/// # Errors
/// As `work`, where there is one. What fails in one of several is told by [`Answers::end`].
pub(super) async fn each<T>(
    databases: &[Database],
    mut work: impl AsyncFnMut(&Database) -> Result<T, Failure>,
) -> Result<Answers<T>, Failure> {
    let are_several = databases.len() > 1;
    let mut answers = Answers { are_several, each: Vec::new(), failed: Vec::new() };
    for database in databases {
        let name = database.name.clone().filter(|_| are_several);
        match (work(database).await, name) {
            (Ok(found), name) => answers.each.push(Answer { name, found }),
            (Err(failure), Some(name)) => answers.failed.push((name, failure)),
            (Err(failure), None) => return Err(failure),
        }
    }
    Ok(answers)
}

/// The same with each outbox open.
///
/// # Errors
/// As [`each`].
pub(super) async fn each_open<T>(
    databases: &[Database],
    mut work: impl AsyncFnMut(Arc<dyn Store>) -> Result<T, Failure>,
) -> Result<Answers<T>, Failure> {
    each(databases, async |database| work(outbox::open(database).await?).await).await
}

impl<T> Answers<T> {
    /// A table that begins with the name, where there are several.
    pub(super) fn table(&self) -> Table {
        table(self.are_several)
    }

    /// Prints as JSON what one outbox answered, or that of each in an array.
    pub(super) fn print_objects<V: Serialize>(
        &self,
        object: impl Fn(&T) -> V,
    ) -> Result<(), Failure> {
        let mut objects = self.each.iter().map(|answer| answer.named(object(&answer.found)));
        if self.are_several {
            return Ok(output::print_json(&json!({ "databases": objects.collect::<Vec<_>>() }))?);
        }
        Ok(output::print_json(&objects.next())?)
    }

    /// What failed, by the names of the outboxes.
    pub(super) fn failed(&self) -> Option<String> {
        let told = self.failed.iter().map(|(name, failure)| format!("{name}: {failure}"));
        let told: Vec<String> = told.collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Fails where an outbox did.
    pub(super) fn end(self) -> Result<(), Failure> {
        self.failed().map_or(Ok(()), |failed| Err(Failure::Failed(anyhow!(failed))))
    }
}

impl<T> Answer<T> {
    /// A row that begins with the name, where there are several.
    pub(super) fn row(&self, cells: Vec<String>) -> Vec<String> {
        row(self.name.as_deref(), cells)
    }

    /// An object that begins with the name, where there are several.
    pub(super) fn named<V>(&self, object: V) -> Named<'_, V> {
        Named { database: self.name.as_deref(), object }
    }
}

/// A table that begins with the name of a database, where there are several.
pub(super) fn table(are_several: bool) -> Table {
    let table = Table::new();
    if are_several { table.column(COLUMN, Align::Left) } else { table }
}

/// A row that begins with a database's name, where there is one.
pub(super) fn row(name: Option<&str>, cells: Vec<String>) -> Vec<String> {
    name.map(str::to_owned).into_iter().chain(cells).collect()
}
