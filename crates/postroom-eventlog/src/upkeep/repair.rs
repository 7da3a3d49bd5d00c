//! Keeping what is whole of a damaged log.

use super::check::survey_all;
use crate::disk::{Disk, Folder};
use crate::event::RecordedEvent;
use crate::eventlog::OpenError;
use crate::index::Index;
use crate::log::recovery::{RecoveryError, Survey, next_whole};
use crate::log::segment::{self, Compactor, Form, HEADER, Segment};
use crate::log::{acknowledged, new_salt};
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
    acknowledged::forget(disk).map_err(failed)?;
    let names = disk.list().map_err(failed)?;
    let last = names.iter().filter_map(|name| segment::number_of(name)).max().unwrap_or(0);
    let mut begin = 0;
    for number in 0..=last {
        let damaged = Damaged::find(disk, &survey, number, begin).map_err(failed)?;
        begin = damaged.end;
        if damaged.must_be_made {
            damaged.make_again(disk, &names).map_err(failed)?;
            repaired.segments.push(segment::name(number));
        }
    }
    let survey = survey_all(disk)?;
    repaired.events = survey.events;
    match survey.first_damage() {
        Some(error) => Err(error.into()),
        None => Ok(repaired),
    }
}

/// A segment, and what there is of it.
struct Damaged {
    number: u64,
    /// None where there is no file.
    source: Option<Arc<Segment>>,
    begin: u64,
    end: u64,
    must_be_made: bool,
}

impl Damaged {
    /// Looks at a segment; `begin` is where the one before it ends.
    fn find(disk: &dyn Disk, survey: &Survey, number: u64, begin: u64) -> io::Result<Self> {
        let readable = |number: u64| survey.segments.iter().find(|one| one.number == number);
        let next = readable(number + 1).map(|next| next.base);
        let is_damaged = survey.damage.iter().any(|damage| damage.segment == number);
        if let Some(source) = readable(number) {
            let end = match source.form {
                Form::Whole => source.base + source.file.len()?.max(HEADER as u64),
                Form::Compacted { end, .. } => end,
            };
            // One that is shorter than it was ends where the next one begins all the same.
            let must_be_made = is_damaged || next.is_some_and(|next| next != end);
            let (begin, end) = (source.base, next.unwrap_or(end));
            let source = Some(Arc::clone(source));
            return Ok(Self { number, source, begin, end, must_be_made });
        }
        let end = next.unwrap_or(u64::MAX);
        let source = Self::without_header(disk, survey, number, begin, end)?;
        let end = match next {
            Some(next) => next,
            None => Self::records(source.as_ref())?
                .last()
                .map_or(begin + HEADER as u64, |last| last.head().end()),
        };
        Ok(Self { number, source: source.map(Arc::new), begin, end, must_be_made: true })
    }

    /// A file whose header cannot be read, as far as its records tell what it is.
    fn without_header(
        disk: &dyn Disk,
        survey: &Survey,
        number: u64,
        base: u64,
        end: u64,
    ) -> io::Result<Option<Segment>> {
        let Ok(file) = disk.open(&segment::name(number)) else { return Ok(None) };
        let records_end = file.len()?;
        // Records stand anywhere in it, as long as their positions rise.
        let form = Form::Compacted { end, records_end, entries: 0 };
        let mut salts: Vec<u32> = survey.segments.iter().map(|segment| segment.salt).collect();
        salts.extend(segment::salts(&*file)?);
        for salt in salts {
            let segment = Segment { number, base, salt, file: Arc::clone(&file), form };
            if next_whole(&segment, HEADER as u64, records_end)?.is_some() {
                return Ok(Some(segment));
            }
        }
        Ok(None)
    }

    /// The records that are whole.
    fn records(source: Option<&Segment>) -> io::Result<Vec<RecordedEvent>> {
        let Some(source) = source else { return Ok(Vec::new()) };
        let length = source.file.len()?;
        let records_end = match source.form {
            Form::Whole => length,
            Form::Compacted { records_end, .. } => records_end.min(length),
        };
        let (mut from, mut behind) = (HEADER as u64, 0);
        let mut records = Vec::new();
        while let Some((offset, after)) = next_whole(source, from, records_end)? {
            let event = source.record_at(offset).map_err(io::Error::other)?;
            from = after;
            if event.position() >= behind {
                behind = event.head().end();
                records.push(event);
            }
        }
        Ok(records)
    }

    fn make_again(&self, disk: &dyn Disk, names: &[String]) -> io::Result<()> {
        let name = segment::name(self.number);
        let salt = self.source.as_ref().map_or_else(new_salt, |source| source.salt);
        let mut compactor = Compactor::begin(disk, self.number, self.begin, self.end, salt)?;
        for event in Self::records(self.source.as_deref())? {
            compactor.keep(&event)?;
        }
        if names.contains(&name) {
            copy(disk, &name, &free_name(names, &name))?;
        }
        compactor.finish(disk)?;
        Ok(())
    }
}

/// A name for a file as it was before a repair.
fn free_name(names: &[String], name: &str) -> String {
    let mut numbered = (2_u64..).map(|number| format!("{name}.{number}.damaged"));
    let first = format!("{name}.damaged");
    if !names.contains(&first) {
        return first;
    }
    numbered.find(|one| !names.contains(one)).unwrap_or(first)
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
