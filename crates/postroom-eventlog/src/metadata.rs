//! What the metadata of a stream says about which of its events may be read.

use crate::event::TOMBSTONE_REVISION;
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The beginning of the name of a stream's metadata stream.
pub(crate) const METADATA_PREFIX: &str = "$$";
const TRUNCATE_BEFORE: &str = "$tb";
const MAX_COUNT: &str = "$maxCount";
const MAX_AGE: &str = "$maxAge";

/// Limits of what may be read of a stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Limits {
    pub(crate) max_count: Option<u64>,
    pub(crate) max_age: Option<Duration>,
    pub(crate) truncate_before: u64,
}

impl Limits {
    /// Those of a metadata stream: only its last event counts.
    pub(crate) const OF_METADATA: Self =
        Self { max_count: Some(1), max_age: None, truncate_before: 0 };

    /// Reads them from the data of a metadata event. What is no JSON object, or of another type than
    /// it should be, limits nothing.
    pub(crate) fn parse(data: &[u8]) -> Self {
        let metadata: Map<String, Value> = serde_json::from_slice(data).unwrap_or_default();
        let number = |name| metadata.get(name).and_then(Value::as_u64);
        Self {
            max_count: number(MAX_COUNT).filter(|count| *count > 0),
            max_age: number(MAX_AGE).filter(|age| *age > 0).map(Duration::from_secs),
            truncate_before: number(TRUNCATE_BEFORE).unwrap_or(0),
        }
    }

    /// Whether the stream was deleted, and nothing was appended to it since.
    pub(crate) fn is_deleted(&self) -> bool {
        self.truncate_before >= TOMBSTONE_REVISION
    }

    /// The first revision that count and truncation leave of a stream whose next one is `next`.
    pub(crate) fn first(&self, next: u64) -> u64 {
        let by_count = self.max_count.map_or(0, |count| next.saturating_sub(count));
        by_count.max(self.truncate_before)
    }

    /// Events that were created before this, in ticks, may not be read.
    pub(crate) fn oldest(&self, now: u64) -> Option<u64> {
        self.max_age.map(|age| now.saturating_sub(ticks(age)))
    }
}

/// The metadata of a stream, given what it was, once its events before `revision` are gone.
pub(crate) fn truncated(before: Option<&[u8]>, revision: u64) -> Vec<u8> {
    let mut metadata: Map<String, Value> =
        before.and_then(|data| serde_json::from_slice(data).ok()).unwrap_or_default();
    metadata.insert(TRUNCATE_BEFORE.to_owned(), json!(revision));
    Value::Object(metadata).to_string().into_bytes()
}

/// The name of the stream with a stream's metadata.
pub(crate) fn metadata_stream(stream: &str) -> String {
    format!("{METADATA_PREFIX}{stream}")
}

/// Now, in units of 100 ns since 1970.
pub(crate) fn now_ticks() -> u64 {
    ticks(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos() / 100).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_any_shape_is_read() {
        let limits = Limits::parse(br#"{"$maxCount": 3, "$tb": 5, "$maxAge": 60, "mine": 1}"#);
        assert_eq!((limits.first(6), limits.first(20)), (5, 17));
        assert_eq!(limits.oldest(700_000_000), Some(100_000_000));
        for odd in ["", "[]", "{\"$maxCount\": \"3\"}", "{\"$maxCount\": -1, \"$tb\": 1.5}", "{"] {
            assert_eq!(Limits::parse(odd.as_bytes()), Limits::default(), "{odd}");
        }
    }

    #[test]
    fn truncation_keeps_what_else_the_metadata_says() {
        let metadata = truncated(Some(br#"{"$maxCount":3,"mine":[1]}"#), TOMBSTONE_REVISION);
        let text = String::from_utf8(metadata.clone()).unwrap();
        assert_eq!(text, r#"{"$maxCount":3,"$tb":9223372036854775807,"mine":[1]}"#);
        assert!(Limits::parse(&metadata).is_deleted());
    }
}
