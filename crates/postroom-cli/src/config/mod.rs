//! The configuration: one TOML file, then the environment, then the command line.
//!
//! Nothing here does I/O but reading that file. Every fault is found before any is reported.

mod environment;
mod fault;
mod integrations;
mod interpolate;
mod known;
mod model;
mod queued;
mod reader;
mod sections;
#[cfg(test)]
mod tests;
pub(crate) mod units;

pub(crate) use fault::Faults;
pub(crate) use known::KnownIntegrations;
pub(crate) use model::{Config, Database, Integration, Listen, Queued, QueuedWorkers};

use environment::Overrides;
use fault::{Fault, Place};
use reader::{Document, Section};
use std::path::{Path, PathBuf};

/// The most messages a batch may have.
const BATCH_SIZE_MAX: u64 = 10_000;

/// The most attempts that a column of the outbox can count.
const ATTEMPTS_MAX: u64 = i32::MAX as u64;

/// The file that is used when it is there and no other was named.
const DEFAULT_FILE: &str = "postroom.toml";

/// The outbox that is used when none was named.
const DEFAULT_DATABASE: &str = "sqlite://postroom.db";

/// The environment variable that names the outbox.
const DATABASE_URL: &str = "DATABASE_URL";

/// Where a configuration comes from.
pub(crate) struct Origin<'a> {
    /// `--config`.
    pub(crate) file: Option<&'a Path>,
    /// `--database`, which overrides the environment, which overrides the file.
    pub(crate) database: Option<&'a str>,
    /// The environment.
    pub(crate) environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Origin<'_> {
    /// The whole configuration, checked.
    ///
    /// # Errors
    /// Every fault there is.
    pub(crate) fn config(&self) -> Result<Config, Faults> {
        let file = self.find();
        let text = self.read(file.as_deref())?;
        let shown = file.as_deref().map(|file| file.display().to_string());
        let document = Document::new(&text, self.environment);
        let mut outside = Vec::new();
        let overrides = Overrides::read(self.environment, &mut outside);
        let table = document.parse();
        let config = {
            let root = Section::root(&document, &table);
            root.expect_only(&[
                "database",
                "relay",
                "integrations",
                "retention",
                "server",
                "redis",
                "tenants",
            ]);
            let mut database = sections::database(&root, file.as_deref());
            self.name_database(&mut database, &mut outside);
            let relay = sections::relay(&root, &overrides);
            let (mut integrations, queued) = integrations::read(&root, &relay, &overrides);
            if file.is_none() {
                integrations = integrations::built_in(&relay, &overrides);
            }
            Config {
                database,
                relay: relay.settings,
                integrations,
                queued,
                redis: queued::redis(&root, &overrides),
                tenants: queued::tenants(&root),
                listen: sections::listen(&root),
                file,
            }
        };
        if !postroom_store::has_background_recording(&config.database.url) {
            let later = config.integrations.iter().filter(|one| one.is_recorded_later);
            outside.extend(later.map(|one| Fault {
                place: Place::Outside,
                problem: format!(
                    "integrations.\"{}\".record_sent = \"background\" is for an outbox on PostgreSQL",
                    one.name
                ),
                hint: Some("remove it: elsewhere SENT is recorded at once".to_owned()),
            }));
        }
        let mut faults = document.into_faults();
        faults.append(&mut outside);
        if faults.is_empty() { Ok(config) } else { Err(Faults { file: shown, faults }) }
    }

    /// The outbox alone, for tools that only look at it: they need no secrets of sinks.
    ///
    /// # Errors
    /// Every fault of the `[database]` section, and of the file's syntax.
    pub(crate) fn database(&self) -> Result<Database, Faults> {
        // A URL on the command line says all there is to know.
        let file = if self.database.is_some() { None } else { self.find() };
        let text = self.read(file.as_deref())?;
        let document = Document::new(&text, self.environment);
        let table = document.parse();
        let mut outside = Vec::new();
        let root = Section::root(&document, &table);
        let mut database = sections::database(&root, file.as_deref());
        self.name_database(&mut database, &mut outside);
        let mut faults = document.into_faults();
        faults.append(&mut outside);
        if faults.is_empty() {
            return Ok(database);
        }
        Err(Faults { file: file.map(|file| file.display().to_string()), faults })
    }

    fn find(&self) -> Option<PathBuf> {
        match self.file {
            Some(file) => Some(file.to_owned()),
            None => Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()),
        }
    }

    fn read(&self, file: Option<&Path>) -> Result<String, Faults> {
        let Some(file) = file else { return Ok(String::new()) };
        std::fs::read_to_string(file).map_err(|error| {
            let problem = format!("cannot read {}: {error}", file.display());
            Faults::outside(problem, Some("--config names the file".to_owned()))
        })
    }

    /// The outbox that counts: the command line's, the environment's, the file's, or the default.
    fn name_database(&self, database: &mut Database, faults: &mut Vec<Fault>) {
        let variable = (self.environment)(DATABASE_URL);
        let variable = variable.map(|url| url.trim().to_owned()).filter(|url| !url.is_empty());
        let (url, named_by) = match (self.database, variable) {
            (Some(url), _) => (url.to_owned(), "--database"),
            (None, Some(url)) => (url, DATABASE_URL),
            (None, None) => return,
        };
        let named_by = Some(named_by.to_owned());
        // A file that names the same one, such as by ${DATABASE_URL}, says more about it.
        if database.url == url && database.named_by.is_some() {
            database.named_by = named_by;
            return;
        }
        if let Err(error) = postroom_store::migrations(&url) {
            faults.push(Fault {
                place: Place::Outside,
                problem: match self.database {
                    Some(_) => format!("--database: {error}"),
                    None => format!("the environment variable {DATABASE_URL}: {error}"),
                },
                hint: self.database.is_none().then(|| {
                    format!("correct it, `unset {DATABASE_URL}`, or name the outbox by --database")
                }),
            });
        }
        // The file's pooler and its way round it belong to the file's database.
        *database = Database {
            url,
            named_by,
            direct_url: None,
            transaction_pooler: false,
            notify: database.notify,
            remember_events: database.remember_events,
        };
    }
}
