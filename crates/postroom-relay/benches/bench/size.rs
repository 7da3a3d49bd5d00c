//! How much is measured.

/// The size of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Size {
    /// Figures.
    Full,
    /// A few seconds, which show that the benchmark still works. What it prints are no figures.
    Smoke,
}

impl Size {
    /// As the command line asks for it.
    pub(crate) fn asked_for() -> Self {
        if std::env::args().any(|arg| arg == Self::ARGUMENT) { Self::Smoke } else { Self::Full }
    }

    /// What asks for the small size.
    pub(crate) const ARGUMENT: &str = "--smoke";

    /// One of two numbers.
    pub(crate) fn pick(self, full: usize, smoke: usize) -> usize {
        match self {
            Self::Full => full,
            Self::Smoke => smoke,
        }
    }
}
