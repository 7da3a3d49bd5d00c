//! A message: an event on its way to a consumer.

use super::held::Hold;
use super::settings::Strategy;
use crate::event::{RecordedEvent, ResolvedEvent};
use serde::Deserialize;
use std::sync::Arc;
use uuid::Uuid;

/// Into how many parts streams are divided that are pinned to consumers.
const BUCKETS: u64 = 1_024;

/// Which consumer. Ids are never used again.
pub(super) type ConsumerId = u64;

/// An event on its way to a consumer.
#[derive(Debug)]
pub(super) struct Message {
    /// The event as it is delivered.
    pub(super) event: ResolvedEvent,
    /// Where it comes from.
    pub(super) origin: Origin,
    /// How often it has been delivered again.
    pub(super) retries: u32,
    /// Which messages must go to the same consumer; `None` where any may have it.
    pub(super) bucket: Option<u16>,
    /// Who had it last.
    pub(super) last_consumer: Option<ConsumerId>,
    /// What it takes of the memory of all groups.
    pub(super) hold: Option<Arc<Hold>>,
}

/// Where a message comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    /// The group's stream or the whole log, at this revision or position.
    Source(u64),
    /// The stream of parked messages, at this revision.
    Parked(u64),
}

impl Message {
    /// A message that has not been delivered yet.
    pub(super) fn new(event: ResolvedEvent, origin: Origin, strategy: Strategy) -> Self {
        let bucket = bucket(&event, strategy);
        Self { event, origin, retries: 0, bucket, last_consumer: None, hold: None }
    }

    /// By which consumers acknowledge it.
    pub(super) fn id(&self) -> Option<Uuid> {
        self.event.original().map(RecordedEvent::id)
    }

    /// How much memory it takes: its records, and what a group keeps of it.
    pub(super) fn size(&self) -> usize {
        let size = |event: &RecordedEvent| event.record().len();
        size_of::<Self>()
            + self.event.event.as_ref().map_or(0, size)
            + self.event.link.as_ref().map_or(0, size)
    }

    /// Where the event itself stands, its link aside: its revision and stream.
    pub(super) fn target(&self) -> Option<(u64, &str)> {
        let event = self.event.event.as_ref().or(self.event.link.as_ref())?;
        Some((event.revision(), event.stream()))
    }
}

#[derive(Deserialize)]
struct Correlation<'a> {
    #[serde(rename = "$correlationId", borrow)]
    id: std::borrow::Cow<'a, str>,
}

fn bucket(event: &ResolvedEvent, strategy: Strategy) -> Option<u16> {
    let event = event.event.as_ref().or(event.link.as_ref())?;
    let hash = match strategy {
        Strategy::DispatchToSingle | Strategy::RoundRobin => return None,
        Strategy::Pinned => hash(event.stream().as_bytes()),
        Strategy::PinnedByCorrelation => {
            match serde_json::from_slice::<Correlation<'_>>(&event.metadata()) {
                Ok(correlation) => hash(correlation.id.as_bytes()),
                // Without a correlation, events of one stream stay together.
                Err(_) => hash(event.stream().as_bytes()),
            }
        }
    };
    Some((hash % BUCKETS) as u16)
}

/// FNV-1a: the same on every machine and in every version.
fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(hash)
}

/// Spreads a number over all bits.
pub(super) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
