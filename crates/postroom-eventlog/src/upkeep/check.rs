//! Reading every record of a log that no server has open, and saying what is wrong.

use crate::disk::{Disk, Folder};
use crate::eventlog::OpenError;
use crate::index::Index;
use crate::log::acknowledged;
use crate::log::recovery::{Survey, survey};
use crate::log::segment;
use std::path::Path;

/// What a check has found.
#[derive(Debug)]
pub struct Checked {
    /// How many segments there are.
    pub segments: usize,
    /// How many whole events there are, those behind damage included.
    pub events: u64,
    /// How many bytes the segments have.
    pub bytes: u64,
    /// How many bytes at the end are no whole append, and are not known to have been acknowledged.
    /// The next start cuts them.
    pub unacknowledged: u64,
    /// Each place that is not as it was written. A log with one does not start.
    pub damage: Vec<DamageFound>,
}

/// A place that is not as it was written.
#[derive(Debug)]
pub struct DamageFound {
    /// The segment's file.
    pub segment: String,
    /// Where in it.
    pub offset: u64,
    /// What is wrong there.
    pub what: &'static str,
}

/// Checks the log in a folder, and changes nothing of it.
///
/// # Errors
/// When a server has it open, it is not there, or cannot be read.
pub fn check(folder: &Path) -> Result<Checked, OpenError> {
    let disk = Folder::lock_existing(folder)?;
    Ok(Checked::of(&survey_all(&disk)?))
}

/// Reads everything, with what the index knows to have been acknowledged.
pub(super) fn survey_all(disk: &dyn Disk) -> Result<Survey, OpenError> {
    let indexed = Index::known_checkpoint(disk).unwrap_or(0);
    Ok(survey(disk, indexed.max(acknowledged::known(disk)))?)
}

impl Checked {
    pub(super) fn of(survey: &Survey) -> Self {
        let damage = survey.damage.iter().map(|damage| DamageFound {
            segment: segment::name(damage.segment),
            offset: damage.offset,
            what: damage.what,
        });
        Self {
            segments: survey.segments.len(),
            events: survey.events,
            bytes: survey.bytes,
            unacknowledged: survey.unacknowledged,
            damage: damage.collect(),
        }
    }
}
