//! The configuration: one TOML file, then the environment, then the command line.
//!
//! Nothing here does I/O but reading that file. Every fault is found before any is reported.

mod databases;
mod environment;
mod fault;
mod integrations;
mod interpolate;
mod known;
mod layout;
mod model;
mod queued;
mod reader;
mod sections;
#[cfg(test)]
mod tests;
pub(crate) mod units;

pub(crate) use fault::Faults;
pub(crate) use known::KnownIntegrations;
pub(crate) use model::{Config, Database, Integration, Listen, Queued, QueuedWorkers, Retention};

use databases::{picked, with_own_outboxes};
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
    /// `--database`, a URL or a name in `[databases]`. It overrides the environment, which overrides
    /// the file.
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
                "databases",
                "relay",
                "integrations",
                "retention",
                "server",
                "redis",
                "tenants",
            ]);
            let databases =
                databases::read(&root, file.as_deref(), None, self.named_url().as_deref());
            let databases = self.choose(databases, &mut outside);
            let relay = sections::relay(&root, &overrides);
            let dead_letter = relay.settings.dead_letter.as_deref();
            let databases = with_own_outboxes(
                databases,
                dead_letter,
                sections::retention(root.section("retention").as_ref(), Retention::default()),
                &mut outside,
            );
            let databases = picked(databases, self.name(), &mut outside);
            let (mut integrations, queued) = integrations::read(&root, &relay, &overrides);
            if file.is_none() {
                integrations = integrations::built_in(&relay, &overrides);
            }
            Config {
                databases,
                relay: relay.settings,
                integrations,
                queued,
                redis: queued::redis(&root, &overrides),
                tenants: queued::tenants(&root),
                listen: sections::listen(&root),
                file,
            }
        };
        outside.extend(config.contradictions());
        let mut faults = document.into_faults();
        faults.append(&mut outside);
        if faults.is_empty() { Ok(config) } else { Err(Faults { file: shown, faults }) }
    }

    /// The outboxes alone, for tools that only look at them: they need no secrets of sinks.
    ///
    /// # Errors
    /// Every fault of the sections `[database]`, `[databases]` and `[retention]`, and of the file's syntax.
    pub(crate) fn databases(&self) -> Result<Vec<Database>, Faults> {
        // A URL on the command line says all there is to know, unless the file has another table for it.
        let is_url = self.database.is_some() && self.name().is_none();
        let file = match self.find() {
            Some(file) if is_url && !describes_table(&file) => None,
            file => file,
        };
        let text = self.read(file.as_deref())?;
        let document = Document::new(&text, self.environment);
        let table = document.parse();
        let mut outside = Vec::new();
        let root = Section::root(&document, &table);
        let databases =
            databases::read(&root, file.as_deref(), self.name(), self.named_url().as_deref());
        let databases = self.choose(databases, &mut outside);
        let overrides = Overrides::read(self.environment, &mut Vec::new());
        let dead_letter = sections::dead_letter(&root, &overrides);
        let databases = with_own_outboxes(
            databases,
            dead_letter.as_deref(),
            sections::retention(root.section("retention").as_ref(), Retention::default()),
            &mut outside,
        );
        let databases = picked(databases, self.name(), &mut outside);
        let mut faults = document.into_faults();
        faults.append(&mut outside);
        if faults.is_empty() {
            return Ok(databases);
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
}

/// Whether a file describes the table of its one database by a layout.
fn describes_table(file: &Path) -> bool {
    let read = || {
        let text = std::fs::read_to_string(file).ok()?;
        let table: toml::Table = text.parse().ok()?;
        Some(table.get("database")?.get("layout").is_some())
    };
    read().unwrap_or(false)
}

impl Config {
    /// What does not go together.
    fn contradictions(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let direct =
            |database: &&Database| !postroom_store::has_background_recording(&database.url);
        if let Some(database) = self.databases.iter().find(direct) {
            let which = match &database.name {
                Some(name) => format!(", and databases.{name} is none"),
                None => String::new(),
            };
            let later = self.integrations.iter().filter(|one| one.is_recorded_later);
            faults.extend(later.map(|one| Fault {
                place: Place::Outside,
                problem: format!(
                    "integrations.\"{}\".record_sent = \"background\" is for an outbox on \
                     PostgreSQL{which}",
                    one.name
                ),
                hint: Some("remove it: elsewhere SENT is recorded at once".to_owned()),
            }));
        }
        // A worker drops a job whose message is not in its outbox.
        if self.databases.iter().any(|database| database.name.is_some()) {
            faults.extend(self.queued.iter().map(|one| Fault {
                place: Place::Outside,
                problem: format!(
                    "integrations.\"{}\".transport = \"bullmq\" is for one outbox: jobs do not \
                     say which of [databases] their message is in",
                    one.name
                ),
                hint: Some(
                    "run a relay with a file of its own for each of these databases, with [database] \
                     and a [redis] prefix of its own"
                        .to_owned(),
                ),
            }));
        }
        faults
    }
}
