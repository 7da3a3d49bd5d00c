//! The events of an append as they come in.
//!
//! The log refuses appends that are too large. What is sure to be refused is not collected to its
//! end: the checks here are the log's own, made with each event.

use super::wire;
use crate::log::record::SMALLEST;
use crate::proto::shared::ProposedMessage;
use crate::{AppendError, NewEvent};
use tonic::Status;

/// How many events the log takes in one append.
const EVENTS_MAX: usize = 65_536;
/// How many times its limit an append may take with all that is around its events.
const COST_FACTOR: usize = 8;
const COST_MIN: usize = 1 << 20;

/// What an append may take in memory and on disk, where events may have this many bytes.
pub(crate) fn cost_max(append_max: usize) -> usize {
    append_max.saturating_mul(COST_FACTOR).max(COST_MIN)
}

/// The events of an append, as far as they have come in.
#[derive(Debug)]
pub(crate) struct Collected {
    append_max: usize,
    /// What each event takes beside its own bytes.
    overhead: usize,
    events: Vec<NewEvent>,
    size: usize,
}

/// Why an event cannot be taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// The event is malformed.
    Malformed(Status),
    /// The append would be one that the log refuses.
    Refused(AppendError),
}

impl Collected {
    /// Begins with no event.
    pub(crate) fn new(stream: &str, append_max: usize) -> Self {
        Self { append_max, overhead: SMALLEST + stream.len(), events: Vec::new(), size: 0 }
    }

    /// Takes an event.
    pub(crate) fn take(&mut self, proposed: ProposedMessage) -> Result<(), NotTaken> {
        let event = wire::new_event(proposed).map_err(NotTaken::Malformed)?;
        self.size += event.event_type.len() + event.data.len() + event.metadata.len();
        self.events.push(event);
        let max = self.append_max;
        if self.size > max || self.cost() > cost_max(max) {
            return Err(NotTaken::Refused(AppendError::TooLarge { max }));
        }
        if self.events.len() > EVENTS_MAX {
            let text = format!("an append has at most {EVENTS_MAX} events");
            return Err(NotTaken::Refused(AppendError::Invalid(text)));
        }
        Ok(())
    }

    /// How many bytes they take, with all that is around them.
    pub(crate) fn cost(&self) -> usize {
        self.size + self.events.len() * self.overhead
    }

    /// All of them.
    pub(crate) fn into_events(self) -> Vec<NewEvent> {
        self.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventLog, ExpectedRevision, Settings};
    use bytes::Bytes;
    use std::collections::BTreeMap;
    use uuid::Uuid;

    fn proposed(bytes: usize) -> ProposedMessage {
        let metadata = BTreeMap::from([
            ("type".to_owned(), "t".to_owned()),
            ("content-type".to_owned(), wire::JSON.to_owned()),
        ]);
        ProposedMessage {
            id: Some(wire::structured(Uuid::new_v4())),
            metadata,
            custom_metadata: Bytes::new(),
            data: Bytes::from(vec![b'x'; bytes]),
        }
    }

    /// Takes events until one is too many. Gives those that were taken, that one included, and why.
    fn refusal(stream: &str, append_max: usize, bytes: usize) -> (Vec<NewEvent>, AppendError) {
        let mut collected = Collected::new(stream, append_max);
        loop {
            match collected.take(proposed(bytes)) {
                Ok(()) => {}
                Err(NotTaken::Refused(error)) => return (collected.into_events(), error),
                Err(NotTaken::Malformed(status)) => panic!("{status}"),
            }
        }
    }

    #[tokio::test]
    async fn collecting_ends_with_the_event_for_which_the_log_refuses_the_append() {
        let folder = tempfile::tempdir().unwrap();
        let long = "s".repeat(4_096);
        for (append_max, stream, bytes) in [
            // Too many bytes, too much around them, and too many events.
            (10_000, "s", 999),
            (10_000, long.as_str(), 0),
            (64 << 20, "s", 0),
        ] {
            let path = folder.path().join(format!("{append_max}-{}", stream.len()));
            let log = EventLog::open(&path, Settings { append_max, ..Default::default() }).unwrap();
            let (mut events, error) = refusal(stream, append_max, bytes);
            let refused = log.append(stream, ExpectedRevision::Any, events.clone()).await;
            assert_eq!(refused.unwrap_err().to_string(), error.to_string());
            events.pop();
            log.append(stream, ExpectedRevision::Any, events).await.unwrap();
            log.close().await;
        }
    }
}
