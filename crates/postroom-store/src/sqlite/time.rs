//! Time as SQLite's tables hold it: text in messages, milliseconds in deliveries and claims.
//!
//! The clock is the machine's, read by this process: SQLite's own `now` is read by whatever
//! process runs the statement, from the same clock.

use chrono::{DateTime, SecondsFormat, Utc};
use std::time::Duration;

/// The end of the year 9999: SQLite's dates go no further.
const LAST_MS: i64 = 253_402_300_799_999;

/// The time now, in milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    Utc::now().timestamp_millis()
}

/// A moment later, at most the last one there is.
pub(super) fn later(ms: i64, wait: Duration) -> i64 {
    let wait = i64::try_from(wait.as_millis()).unwrap_or(LAST_MS);
    ms.saturating_add(wait).min(LAST_MS)
}

/// A moment earlier, at most 1970.
pub(super) fn earlier(ms: i64, by: Duration) -> i64 {
    let by = i64::try_from(by.as_millis()).unwrap_or(LAST_MS);
    ms.saturating_sub(by).max(0)
}

/// As the library writes it, and the columns' defaults do.
pub(super) fn text(ms: i64) -> String {
    moment(ms).to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// As a value. Every moment that SQLite can name is within range.
pub(super) fn moment(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap_or_default()
}
