//! Keeping what is whole of a damaged log.

use super::check::survey_all;
use crate::disk::{Disk, Folder};
use crate::eventlog::OpenError;
use crate::index::Index;
use crate::log::record::make_whole_append;
use crate::log::recovery::{RecoveryError, Survey, next_whole};
use crate::log::segment::{self, Compactor, Form, HEADER, Segment};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What a repair has done.
#[derive(Debug, Default, Eq, PartialEq)]
pub struct Repaired {
    /// The segments that were made again. What each was before stands beside it, in a file whose
    /// name ends in `.damaged`.
    pub segments: Vec<String>,
    /// How many events the log has now.
    pub events: u64,
}

/// Makes a damaged log startable: every whole record stays at its position, what is damaged goes.
/// Streams have gaps then where events were lost. A log that is whole is left as it is.
///
/// # Errors
/// When a server has it open, it is not there, or the disk answers with an error. It can be run
/// again then.
pub fn repair(folder: &Path) -> Result<Repaired, OpenError> {
    repair_on(&Folder::lock_existing(folder)?)
}

pub(crate) fn repair_on(disk: &dyn Disk) -> Result<Repaired, OpenError> {
    let survey = survey_all(disk)?;
    let mut repaired = Repaired { segments: Vec::new(), events: survey.events };
    if survey.damage.is_empty() {
        return Ok(repaired);
    }
    let failed = |error: io::Error| OpenError::Recovery(RecoveryError::Io(error));
    // First, so that an index that knows of lost events is not there whatever happens next.
    Index::remove(disk).map_err(failed)?;
    for number in damaged_segments(&survey) {
        rebuild(disk, &survey, number).map_err(failed)?;
        repaired.segments.push(segment::name(number));
    }
    repaired.events = survey_all(disk)?.events;
    Ok(repaired)
}

/// The numbers of segments to make again: damaged ones, and missing ones between others.
fn damaged_segments(survey: &Survey) -> Vec<u64> {
    let mut numbers: Vec<u64> = survey.damage.iter().map(|damage| damage.segment).collect();
    let known = |number: &u64| survey.segments.iter().any(|segment| segment.number == *number);
    if let Some(last) = survey.segments.last() {
        numbers.extend((0..last.number).filter(|number| !known(number)));
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn rebuild(disk: &dyn Disk, survey: &Survey, number: u64) -> io::Result<()> {
    let at = |number: u64| survey.segments.iter().find(|segment| segment.number == number);
    let next = at(number + 1).map(|next| next.base);
    let opened = at(number).cloned();
    // One without a readable header, or missing, begins where the one before it ends.
    let before = number.checked_sub(1).and_then(|before| Segment::open(disk, before).ok());
    let base = match (&opened, before.map(|before| (before.form, before.base, before.file.len()))) {
        (Some(opened), _) => opened.base,
        (None, Some((Form::Compacted { end, .. }, ..))) => end,
        (None, Some((Form::Whole, base, length))) => base + length?,
        (None, None) => 0,
    };
    let name = segment::name(number);
    let is_there = disk.list()?.contains(&name);
    let source = match opened {
        Some(opened) => Some(opened),
        None if is_there => {
            let file = disk.open(&name)?;
            Some(Arc::new(Segment { number, base, file, form: Form::Whole }))
        }
        None => None,
    };
    let mut kept = Vec::new();
    let mut end = base + HEADER as u64;
    if let Some(source) = &source {
        let length = source.file.len()?;
        let records_end = match source.form {
            Form::Whole => length,
            Form::Compacted { records_end, .. } => records_end.min(length),
        };
        let mut from = HEADER as u64;
        while let Some((offset, after)) = next_whole(source, from, records_end)? {
            kept.push(offset);
            from = after;
        }
        end = match source.form {
            Form::Whole => base + length.max(HEADER as u64),
            Form::Compacted { end, .. } => end,
        };
    }
    let mut compactor = Compactor::begin(disk, number, base, next.unwrap_or(end))?;
    if let Some(source) = &source {
        for offset in kept {
            let event = source.record_at(offset).map_err(io::Error::other)?;
            let mut record = event.record().to_vec();
            make_whole_append(&mut record);
            compactor.keep(event.position(), &record)?;
        }
    }
    if is_there {
        let mut aside = format!("{name}.damaged");
        let taken = disk.list()?;
        for try_number in 2.. {
            if !taken.contains(&aside) {
                break;
            }
            aside = format!("{name}.{try_number}.damaged");
        }
        copy(disk, &name, &aside)?;
    }
    compactor.finish(disk)?;
    Ok(())
}

/// Keeps a file as it is under another name, so that a repair that is cut off leaves the log as it
/// was.
fn copy(disk: &dyn Disk, from: &str, to: &str) -> io::Result<()> {
    let (from, to) = (disk.open(from)?, disk.create(to)?);
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let read = from.read_at(offset, &mut buffer)?;
        if read == 0 {
            break;
        }
        to.write_at(offset, &buffer[..read])?;
        offset += read as u64;
    }
    to.sync()?;
    disk.sync()
}
