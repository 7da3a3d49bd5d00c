//! What a configuration says about integrations, for tools that need no more of it.
//!
//! They run where secrets are missing, and beside files that are being edited: what cannot be read
//! is not known, and no fault.

use super::Origin;
use super::environment::Overrides;
use super::integrations::BUILT_IN;
use super::model::RetryKeys;
use super::reader::{Document, Section};
use super::sections::retry_keys;
use postroom_core::{AttemptLimit, RetryPolicy};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The integrations of the configuration at hand.
#[derive(Debug)]
pub(crate) struct KnownIntegrations {
    /// The file; `None` when there is none.
    pub(crate) file: Option<PathBuf>,
    /// How many attempts each allows.
    limits: BTreeMap<String, AttemptLimit>,
}

impl KnownIntegrations {
    /// Whether a relay with this configuration delivers to `integration`.
    pub(crate) fn contains(&self, integration: &str) -> bool {
        self.limits.contains_key(integration)
    }

    /// How many attempts a message to `integration` has, where the configuration says so.
    pub(crate) fn attempts(&self, integration: &str) -> Option<AttemptLimit> {
        self.limits.get(integration).copied().filter(|limit| *limit != AttemptLimit::Message)
    }
}

impl Origin<'_> {
    /// The integrations of the configuration, as far as they can be read. `None` when the file
    /// cannot be.
    pub(crate) fn known_integrations(&self) -> Option<KnownIntegrations> {
        let file = self.find();
        let text = self.read(file.as_deref()).ok()?;
        let document = Document::new(&text, self.environment);
        let table = document.parse();
        let root = Section::root(&document, &table);
        let overrides = Overrides::read(self.environment, &mut Vec::new());
        let inherited = match root.section("relay") {
            Some(relay) => retry_keys(&relay).over(RetryPolicy::default()),
            None => RetryPolicy::default(),
        };
        let limit = |keys: RetryKeys| match overrides.max_attempts {
            Some(attempts) => AttemptLimit::AtMost(attempts),
            None => keys.over(inherited).max_attempts,
        };
        let limits = match (&file, root.section("integrations")) {
            (None, _) => BUILT_IN.map(|name| (name.to_owned(), limit(RetryKeys::default()))).into(),
            (Some(_), None) => BTreeMap::new(),
            (Some(_), Some(section)) => section
                .sections()
                .into_iter()
                .map(|(name, section)| (name, limit(retry_keys(&section))))
                .collect(),
        };
        Some(KnownIntegrations { file, limits })
    }
}
