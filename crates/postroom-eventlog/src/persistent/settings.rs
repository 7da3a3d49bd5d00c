//! How a group works, and what it may be told.

use serde::{Deserialize, Serialize};

/// The largest buffer of a group, and the largest batch that it reads at once.
pub(super) const BUFFER_MAX: u32 = 100_000;
/// The largest count of anything else in the settings.
pub(super) const COUNT_MAX: u32 = i32::MAX as u32;

/// The settings of a group, as clients give them.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct GroupSettings {
    /// Whether links are followed.
    pub(super) resolve_links: bool,
    /// Whether the time between delivery and acknowledgement is measured.
    pub(super) extra_statistics: bool,
    /// After how long an unacknowledged message is delivered again; 0 is never.
    pub(super) message_timeout_ms: u32,
    /// How often a message is delivered again before it is parked.
    pub(super) max_retry_count: u32,
    /// How long after the first acknowledgement a checkpoint is written.
    pub(super) checkpoint_after_ms: u32,
    /// How many messages must be finished for that.
    pub(super) min_checkpoint_count: u32,
    /// After how many finished messages a checkpoint is written without waiting.
    pub(super) max_checkpoint_count: u32,
    /// How many consumers may subscribe; 0 is any number.
    pub(super) max_subscriber_count: u32,
    /// How many messages are read ahead while the group keeps up with the log.
    pub(super) live_buffer_size: u32,
    /// How many events are read at once.
    pub(super) read_batch_size: u32,
    /// How many messages are read ahead while the group is behind.
    pub(super) history_buffer_size: u32,
    /// Which consumer gets a message.
    pub(super) strategy: Strategy,
}

impl GroupSettings {
    /// Refuses what no group can work with, and says why.
    pub(super) fn check(&self) -> Result<(), String> {
        between("live_buffer_size", self.live_buffer_size, 1, BUFFER_MAX)?;
        between("history_buffer_size", self.history_buffer_size, 1, BUFFER_MAX)?;
        between("read_batch_size", self.read_batch_size, 1, BUFFER_MAX)?;
        between("message_timeout", self.message_timeout_ms, 0, COUNT_MAX)?;
        between("checkpoint_after", self.checkpoint_after_ms, 0, COUNT_MAX)?;
        between("max_retry_count", self.max_retry_count, 0, COUNT_MAX)?;
        between("min_checkpoint_count", self.min_checkpoint_count, 0, COUNT_MAX)?;
        between("max_checkpoint_count", self.max_checkpoint_count, 0, COUNT_MAX)?;
        between("max_subscriber_count", self.max_subscriber_count, 0, COUNT_MAX)
    }
}

fn between(name: &str, value: u32, least: u32, most: u32) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} must be between {least} and {most}, not {value}"))
}

/// Which consumer gets a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) enum Strategy {
    /// The oldest consumer, until it has no room.
    DispatchToSingle,
    /// Each one in turn.
    RoundRobin,
    /// Always the same one for the events of one stream.
    Pinned,
    /// Always the same one for the events with one `$correlationId`.
    PinnedByCorrelation,
}

impl Strategy {
    /// The strategy of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::DispatchToSingle, Self::RoundRobin, Self::Pinned, Self::PinnedByCorrelation]
            .into_iter()
            .find(|strategy| strategy.name() == name)
    }

    /// The name that clients know it by.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DispatchToSingle => "DispatchToSingle",
            Self::RoundRobin => "RoundRobin",
            Self::Pinned => "Pinned",
            Self::PinnedByCorrelation => "PinnedByCorrelation",
        }
    }
}
