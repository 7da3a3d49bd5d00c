//! What a store answers when it cannot.

/// What a store's methods return.
pub type StoreResult<T> = Result<T, StoreError>;

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{context}")]
pub struct StoreError {
    /// What to do about it.
    pub kind: StoreErrorKind,
    /// What was being done, and what the operator can do.
    pub context: String,
    /// The driver's error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// How a store's error is to be met.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreErrorKind {
    /// Cannot be reached, or went away: back off and try again.
    Unavailable,
    /// Lost to a concurrent transaction (deadlock, serialization, busy): try again at once.
    Conflict,
    /// The schema is missing, older or newer: `postroom migrate`, or another version.
    Schema,
    /// The database refused it: trying again does not help.
    Refused,
}

impl StoreError {
    /// An error with its cause.
    pub fn new(
        kind: StoreErrorKind,
        context: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { kind, context: context.into(), source: Some(source.into()) }
    }

    /// An error that is its own cause.
    pub fn plain(kind: StoreErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }
}
