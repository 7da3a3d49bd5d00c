//! The configuration of all groups, one event that holds them all.

use super::group_id::GroupId;
use super::settings::GroupSettings;
use super::source::{CONFIG_STREAM, FilterSpec, Source, StartFrom};
use super::stream_metadata::{self, StateError};
use crate::event::NewEvent;
use crate::eventlog::{Direction, EventLog, StreamState};
use crate::expected::ExpectedRevision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const CONFIG_TYPE: &str = "$PersistentConfig";
/// A stored configuration of another version is refused.
const VERSION: u32 = 1;
const KEPT_VERSIONS: u64 = 2;

/// What is configured of one group.
#[derive(Clone, Debug)]
pub(super) struct GroupConfig {
    /// Of a group of the whole log: which events it wants.
    pub(super) filter: Option<FilterSpec>,
    /// Where it begins, as its client said it.
    pub(super) start: StartFrom,
    /// Which revision or position its first event follows.
    pub(super) after: Option<u64>,
    /// How it works.
    pub(super) settings: GroupSettings,
}

impl GroupConfig {
    /// Where its events come from.
    ///
    /// # Errors
    /// When its filter is none.
    pub(super) fn source(&self, id: &GroupId) -> Result<Source, String> {
        if !id.is_all() {
            return Ok(Source::Stream(id.stream().to_owned()));
        }
        Ok(Source::All(self.filter.as_ref().map(FilterSpec::filter).transpose()?))
    }
}

/// All groups.
pub(super) type Groups = BTreeMap<GroupId, GroupConfig>;

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    groups: Vec<StoredGroup>,
}

#[derive(Serialize, Deserialize)]
struct StoredGroup {
    stream: String,
    group: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    filter: Option<FilterSpec>,
    start: StartFrom,
    after: Option<u64>,
    settings: GroupSettings,
}

/// Reads what was stored last.
pub(super) async fn load(log: &EventLog) -> Result<Groups, StateError> {
    let page = log.read_stream(CONFIG_STREAM, u64::MAX, Direction::Backwards, 1, false).await?;
    let Some(event) = page.events.into_iter().next().and_then(|event| event.event) else {
        return Ok(Groups::new());
    };
    let malformed = || StateError::Malformed(CONFIG_STREAM.to_owned());
    let stored: Stored = serde_json::from_slice(&event.data()).map_err(|_| malformed())?;
    if stored.version != VERSION {
        return Err(malformed());
    }
    let mut groups = Groups::new();
    for group in stored.groups {
        let StoredGroup { stream, group, filter, start, after, settings } = group;
        let id = GroupId::new(stream, group).map_err(|_| malformed())?;
        groups.insert(id, GroupConfig { filter, start, after, settings });
    }
    Ok(groups)
}

/// Stores all groups.
pub(super) async fn store(log: &EventLog, groups: &Groups) -> Result<(), StateError> {
    if log.stream_state(CONFIG_STREAM).await? == StreamState::Missing {
        stream_metadata::keep(log, CONFIG_STREAM, KEPT_VERSIONS).await?;
    }
    let groups = groups.iter().map(|(id, group)| StoredGroup {
        stream: id.stream().to_owned(),
        group: id.group().to_owned(),
        filter: group.filter.clone(),
        start: group.start,
        after: group.after,
        settings: group.settings.clone(),
    });
    let stored = Stored { version: VERSION, groups: groups.collect() };
    let Ok(data) = serde_json::to_vec(&stored) else {
        return Err(StateError::Malformed(CONFIG_STREAM.to_owned()));
    };
    let event = NewEvent::json(CONFIG_TYPE, data);
    log.append(CONFIG_STREAM, ExpectedRevision::Any, vec![event]).await?;
    Ok(())
}
