//! Where a group's events come from, and where it begins.

use crate::event::ResolvedEvent;
use crate::eventlog::{Direction, EventLog, StreamState};
use crate::expected::ReadError;
use crate::filter::{Filter, FilterOn};
use crate::subscription::{Start, Subscription};
use serde::{Deserialize, Serialize};

/// What the whole log is called where the name of a stream is expected.
pub(super) const ALL: &str = "$all";
/// How the names of all streams begin in which groups keep their state.
pub(super) const STATE_PREFIX: &str = "$persistentsubscription-";
/// The stream with the configuration of all groups.
pub(super) const CONFIG_STREAM: &str = crate::eventlog::GROUPS_STREAM;
/// After how many events that a filter passed over the group hears of it.
pub(super) const FILTER_INTERVAL: u64 = 1_000;
const FILTER_PREFIXES_MAX: usize = 1_000;
const FILTER_BYTES_MAX: usize = 16_384;

/// Where a group's events come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A stream, which may be computed.
    Stream(String),
    /// The whole log.
    All(Option<Filter>),
}

/// Where a group begins that has no checkpoint, as its client said it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) enum StartFrom {
    /// With the first event.
    Beginning,
    /// With what is appended after the group was made.
    End,
    /// With this revision or position.
    At(u64),
}

/// A filter as it is stored.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct FilterSpec {
    /// Whether the name of the stream is looked at instead of the type.
    pub(super) by_stream: bool,
    /// Stands above the prefixes where it is not empty.
    pub(super) pattern: String,
    /// How names begin that are wanted.
    pub(super) prefixes: Vec<String>,
}

impl FilterSpec {
    /// The filter itself.
    ///
    /// # Errors
    /// When it is too large, or its regular expression is none.
    pub(super) fn filter(&self) -> Result<Filter, String> {
        let bytes = self.pattern.len() + self.prefixes.iter().map(String::len).sum::<usize>();
        if self.prefixes.len() > FILTER_PREFIXES_MAX || bytes > FILTER_BYTES_MAX {
            return Err(format!(
                "a filter may have {FILTER_PREFIXES_MAX} prefixes and {FILTER_BYTES_MAX} bytes"
            ));
        }
        let on = if self.by_stream { FilterOn::Stream } else { FilterOn::EventType };
        if !self.pattern.is_empty() {
            return Filter::pattern(on, &self.pattern);
        }
        if self.prefixes.is_empty() {
            return Err("a filter needs a regular expression or a prefix".to_owned());
        }
        Ok(Filter::prefixes(on, self.prefixes.clone()))
    }
}

impl Source {
    /// Follows it after the event at this revision or position.
    pub(super) fn follow(
        &self,
        log: &EventLog,
        after: Option<u64>,
        resolve_links: bool,
    ) -> Subscription {
        let start = after.map_or(Start::Beginning, Start::After);
        match self {
            Self::Stream(stream) => log.subscribe_to_stream(stream, start, resolve_links),
            Self::All(filter) => {
                let filter = filter.clone().map(|filter| (filter, FILTER_INTERVAL));
                log.subscribe_to_all(start, filter, resolve_links)
            }
        }
    }

    /// Which revision or position the first event follows. `None` is the very first event.
    pub(super) async fn before(
        &self,
        log: &EventLog,
        start: StartFrom,
    ) -> Result<Option<u64>, ReadError> {
        match (start, self) {
            (StartFrom::Beginning | StartFrom::At(0), _) => Ok(None),
            (StartFrom::End, _) => self.last(log).await,
            (StartFrom::At(revision), Self::Stream(_)) => Ok(Some(revision - 1)),
            (StartFrom::At(position), Self::All(_)) => {
                // The event at the position is wanted too, so the group goes on after the one before.
                last_before(log, position).await
            }
        }
    }

    /// The revision or position of the last event that is there.
    pub(super) async fn last(&self, log: &EventLog) -> Result<Option<u64>, ReadError> {
        match self {
            Self::Stream(stream) => match log.stream_state(stream).await? {
                StreamState::There { last, .. } => Ok(Some(last)),
                StreamState::Missing | StreamState::Tombstoned => Ok(None),
            },
            Self::All(_) => last_before(log, u64::MAX).await,
        }
    }

    /// An event's revision or position; `None` where there is no event at all.
    pub(super) fn place(&self, event: &ResolvedEvent) -> Option<u64> {
        let original = event.original()?;
        Some(match self {
            Self::Stream(_) => original.revision(),
            Self::All(_) => original.position(),
        })
    }

    /// Whether the event belongs to the state of groups. A group of the whole log does not deliver
    /// these: each acknowledgement would bring forth another event, for ever.
    pub(super) fn is_state(&self, event: &ResolvedEvent) -> bool {
        match self {
            Self::Stream(_) => false,
            Self::All(_) => event.original().is_some_and(|event| {
                let stream = event.stream();
                let stream = stream.strip_prefix("$$").unwrap_or(stream);
                stream.starts_with(STATE_PREFIX) || stream == CONFIG_STREAM
            }),
        }
    }

    /// A revision or position as clients read it.
    pub(super) fn print(&self, place: u64) -> String {
        match self {
            Self::Stream(_) => place.to_string(),
            Self::All(_) => format!("C:{place}/P:{place}"),
        }
    }

    /// The reverse of [`Source::print`].
    pub(super) fn parse(&self, text: &str) -> Option<u64> {
        match self {
            Self::Stream(_) => text.parse().ok(),
            Self::All(_) => text.strip_prefix("C:")?.split_once("/P:")?.0.parse().ok(),
        }
    }

    /// Where the group began, as clients read it.
    pub(super) fn print_start(&self, start: StartFrom) -> String {
        match (start, self) {
            (StartFrom::Beginning, _) => self.print(0),
            (StartFrom::At(place), _) => self.print(place),
            (StartFrom::End, Self::Stream(_)) => "-1".to_owned(),
            (StartFrom::End, Self::All(_)) => "C:-1/P:-1".to_owned(),
        }
    }
}

async fn last_before(log: &EventLog, position: u64) -> Result<Option<u64>, ReadError> {
    let page = log.read_all(position, Direction::Backwards, 1, None, false).await?;
    Ok(page.events.first().and_then(ResolvedEvent::original).map(|event| event.position()))
}
