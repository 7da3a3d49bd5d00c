//! The words in which a store speaks to its database.

use super::Foreign;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

/// How statements are worded: as they are for Postroom's own table, made again for another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wording(Option<Arc<Worded>>);

#[derive(Debug)]
struct Worded {
    foreign: Foreign,
    /// What was worded before, by the text it came from.
    known: Mutex<HashMap<String, Arc<str>>>,
}

impl Wording {
    pub(crate) fn of(foreign: Foreign) -> Self {
        Self(Some(Arc::new(Worded { foreign, known: Mutex::default() })))
    }

    /// The table, unless it is Postroom's own.
    pub(crate) fn foreign(&self) -> Option<&Foreign> {
        self.0.as_ref().map(|worded| &worded.foreign)
    }

    /// A statement, in the words of this store.
    pub(crate) fn put<'a>(&self, sql: &'a str) -> Text<'a> {
        let Some(worded) = &self.0 else { return Text::AsItIs(sql) };
        let mut known = worded.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = known.get(sql) {
            return Text::Put(Arc::clone(text));
        }
        let text: Arc<str> = Arc::from(worded.foreign.rendered(sql));
        known.insert(sql.to_owned(), Arc::clone(&text));
        Text::Put(text)
    }
}

/// A statement's text.
pub(crate) enum Text<'a> {
    AsItIs(&'a str),
    Put(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::AsItIs(text) => text,
            Self::Put(text) => text,
        }
    }
}
