//! What a log does when it is opened: it reads every record, cuts an end that is no whole append, and
//! refuses to go on where something that was acknowledged is damaged.

use super::scan::{Scan, Scanned};
use super::segment::{self, Form, HEADER, Segment, SegmentError};
use super::{Log, new_salt, record};
use crate::disk::Disk;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The disk answered with an error.
    #[error("reading the log")]
    Io(#[from] io::Error),
    /// Something that had been acknowledged is not there as it was written.
    #[error(
        "the log is damaged at offset {offset} of {segment}: {what}. Nothing was changed. `postroom \
         eventlog check` shows all of it, `postroom eventlog repair` keeps what is whole; a backup \
         may have what is not"
    )]
    Damaged {
        /// The segment's file.
        segment: String,
        /// Where in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A newer or older version wrote it.
    #[error("{segment} was written by another version of Postroom (format {version})")]
    OtherVersion {
        /// The segment's file.
        segment: String,
        /// Its format.
        version: u32,
    },
}

/// A place that is not as it was written.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Damage {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) what: &'static str,
}

/// What reading every record of a log has shown.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    /// Where the last whole append ends, unless something is damaged.
    pub(crate) end: u64,
    /// How many bytes there are behind that, none of which is known to have been acknowledged.
    pub(crate) unacknowledged: u64,
    pub(crate) damage: Vec<Damage>,
}

const NO_RECORD: &str = "there is no whole record here";
const MISSING_END: &str = "acknowledged events are missing at the end";
const BROKEN_TABLE: &str = "its table is damaged";
const ORDER: &str = "the record here belongs elsewhere";
const MISSING_SEGMENT: &str =
    "the segment before this one is missing, or this one belongs elsewhere";
const SHORT: &str = "it is shorter than it was";
const BAD_HEADER: &str = "its header is damaged";
/// How often a start that takes long says how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

/// Reads everything. `acknowledged` is a position up to which the log is known to have been synced.
pub(crate) fn survey(disk: &dyn Disk, acknowledged: u64) -> Result<Survey, RecoveryError> {
    let mut numbers: Vec<u64> = disk.list()?.iter().filter_map(|n| segment::number_of(n)).collect();
    numbers.sort_unstable();
    let mut survey = Survey::default();
    let mut told = Instant::now();
    let count = numbers.len();
    for (index, number) in numbers.into_iter().enumerate() {
        let opened = match Segment::open(disk, number) {
            Ok(opened) => Arc::new(opened),
            Err(SegmentError::Io(error)) => return Err(error.into()),
            Err(SegmentError::OtherVersion(version)) => {
                return Err(RecoveryError::OtherVersion {
                    segment: segment::name(number),
                    version,
                });
            }
            Err(SegmentError::NoSegment) => {
                survey.damage.push(Damage { segment: number, offset: 0, what: BAD_HEADER });
                continue;
            }
        };
        let follows = survey.segments.last().map_or(number == 0, |last| last.number + 1 == number);
        if !follows || (survey.damage.is_empty() && opened.base < survey.end) {
            survey.damage.push(Damage { segment: number, offset: 0, what: MISSING_SEGMENT });
        } else if let (true, Some(short)) = (survey.damage.is_empty(), survey.segments.last())
            && opened.base > survey.end
        {
            let (segment, offset) = (short.number, survey.end - short.base);
            survey.damage.push(Damage { segment, offset, what: SHORT });
        }
        let is_last = index + 1 == count;
        survey.read_segment(&opened, is_last, acknowledged)?;
        survey.segments.push(opened);
        if told.elapsed() > PROGRESS {
            tracing::info!(segment = index + 1, of = count, "checking the event log");
            told = Instant::now();
        }
    }
    if survey.damage.is_empty() && survey.end < acknowledged {
        let (segment, offset) =
            survey.segments.last().map_or((0, 0), |last| (last.number, survey.end - last.base));
        survey.damage.push(Damage { segment, offset, what: MISSING_END });
    }
    Ok(survey)
}

impl Survey {
    /// What stops a start.
    pub(crate) fn first_damage(&self) -> Option<RecoveryError> {
        self.damage.first().map(|damage| RecoveryError::Damaged {
            segment: segment::name(damage.segment),
            offset: damage.offset,
            what: damage.what.to_owned(),
        })
    }

    fn read_segment(
        &mut self,
        segment: &Arc<Segment>,
        is_last: bool,
        acknowledged: u64,
    ) -> io::Result<()> {
        let length = segment.file.len()?;
        let records_end = match segment.form {
            Form::Whole => length,
            Form::Compacted { records_end, .. } => records_end.min(length),
        };
        if !segment::table_is_whole(segment)? {
            self.damaged(segment, records_end, BROKEN_TABLE);
        }
        self.bytes += length;
        let mut scan = Scan::new(Arc::clone(segment), HEADER as u64, records_end);
        // Up to where whole appends follow each other.
        let mut whole = HEADER as u64;
        let mut position = segment.base + HEADER as u64;
        // Of the append that is being read.
        let mut open = 0;
        loop {
            match scan.next()? {
                Scanned::Record(offset, event) => {
                    let head = event.head();
                    let is_here = match segment.form {
                        Form::Whole => head.position == segment.base + offset,
                        Form::Compacted { end, .. } => {
                            head.position >= position && head.position < end
                        }
                    };
                    if !is_here || (open == 0) != head.is_first() {
                        self.damaged(segment, offset, ORDER);
                        return self.skip_damage(segment, offset, records_end);
                    }
                    position = head.end();
                    open += 1;
                    if head.is_last() {
                        self.events += open;
                        open = 0;
                        whole = scan.offset();
                    }
                }
                Scanned::End if open == 0 => break,
                Scanned::End | Scanned::Damage(_) => {
                    let is_tail = is_last && matches!(segment.form, Form::Whole);
                    if is_tail && !is_acknowledged(segment, whole, records_end, acknowledged)? {
                        self.unacknowledged = records_end - whole;
                        break;
                    }
                    let at = scan.offset().min(records_end);
                    self.damaged(segment, at, NO_RECORD);
                    return self.skip_damage(segment, at, records_end);
                }
            }
        }
        self.end = match segment.form {
            Form::Whole => segment.base + whole,
            Form::Compacted { end, .. } => end,
        };
        Ok(())
    }

    fn damaged(&mut self, segment: &Segment, offset: u64, what: &'static str) {
        self.damage.push(Damage { segment: segment.number, offset, what });
    }

    /// Looks for what is whole behind some damage, to name what else there is.
    fn skip_damage(&mut self, segment: &Arc<Segment>, from: u64, end: u64) -> io::Result<()> {
        let mut from = from + 1;
        while let Some((_, after)) = next_whole(segment, from, end)? {
            self.events += 1;
            from = after;
        }
        self.end = match segment.form {
            Form::Whole => segment.base + end,
            Form::Compacted { end, .. } => end,
        };
        Ok(())
    }
}

/// Whether something behind the last whole append of the last segment had been acknowledged: it is
/// known to, or a whole record behind it says so, which was written after a sync of that place.
fn is_acknowledged(
    segment: &Arc<Segment>,
    whole: u64,
    end: u64,
    acknowledged: u64,
) -> io::Result<bool> {
    let whole_position = segment.base + whole;
    if acknowledged > whole_position {
        return Ok(true);
    }
    let mut from = whole;
    while let Some((offset, after)) = next_whole(segment, from, end)? {
        let event = segment.record_at(offset).map_err(io::Error::other)?;
        if event.head().durable > whole_position {
            return Ok(true);
        }
        from = after;
    }
    Ok(false)
}

/// How much is looked at for whole records at once.
const SEARCH: usize = 1 << 20;

/// The first whole record that begins at `from` or behind it, and where it ends. A record says where
/// it stands, so a copy of one in the data of an event is not taken for one.
pub(crate) fn next_whole(segment: &Segment, from: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
    let mut from = from.max(HEADER as u64);
    while from + record::SMALLEST as u64 <= end {
        let window = segment.read(from, SEARCH.min((end - from) as usize))?;
        if window.len() < record::SMALLEST {
            return Ok(None);
        }
        let last = window.len() - record::SMALLEST;
        for at in 0..=last {
            let offset = from + at as u64;
            let length = record::u32_at(&window, at) as usize;
            // Cheap looks first: most places are no beginning.
            if !(record::SMALLEST..=record::LARGEST).contains(&length)
                || offset + length as u64 > end
            {
                continue;
            }
            let position = record::u64_at(&window, at + 16);
            let is_here = match segment.form {
                Form::Whole => position == segment.base + offset,
                Form::Compacted { end, .. } => position >= segment.base && position < end,
            };
            if is_here && segment.record_at(offset).is_ok() {
                return Ok(Some((offset, offset + length as u64)));
            }
        }
        from += last as u64 + 1;
    }
    Ok(None)
}

/// Opens a log: makes it if there is none, and cuts an end that is no whole append.
pub(crate) fn recover(disk: Arc<dyn Disk>, acknowledged: u64) -> Result<Log, RecoveryError> {
    for name in disk.list()? {
        if segment::is_unfinished(&name) {
            disk.remove(&name)?;
        }
    }
    let mut survey = survey(&*disk, acknowledged)?;
    if let Some(error) = survey.first_damage() {
        return Err(error);
    }
    if survey.segments.is_empty() {
        let first = Segment::prepare(&*disk, 0, 0, new_salt())?;
        first.reveal(&*disk)?;
        survey.segments.push(Arc::new(first));
        survey.end = HEADER as u64;
    }
    if let Some(last) = survey.segments.last() {
        if survey.unacknowledged > 0 {
            last.file.set_len(survey.end - last.base)?;
            tracing::warn!(
                bytes = survey.unacknowledged,
                segment = last.name(),
                "cut the end of the event log: no whole append, and not known to have been acknowledged"
            );
        }
        // A process that was killed may have left whole appends that no disk has yet.
        last.file.sync()?;
    }
    Ok(Log::new(disk, survey.segments, survey.end))
}
