//! `Retry-After`: when an HTTP receiver wants to be asked again.

use chrono::{DateTime, NaiveDateTime, Utc};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use std::time::Duration;

/// The longest wait that a receiver can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);

/// What the receiver asks for by `Retry-After`, in seconds or as a date, at most an hour. What
/// is in the past, zero or no such thing leaves the delay to the retry policy.
pub(crate) fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wish = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits without end still mean "very long".
        Duration::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        // The receiver's own clock tells how far off its date is, whatever ours shows.
        let date = headers.get(DATE).and_then(|date| http_date(date.to_str().ok()?));
        (http_date(text)? - date.unwrap_or(now)).to_std().ok()?
    };
    Some(wish.min(RETRY_AFTER_MAX)).filter(|wish| !wish.is_zero())
}

/// A date in one of the three forms that HTTP has had.
fn http_date(text: &str) -> Option<DateTime<Utc>> {
    ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(text.trim(), form).ok())
        .map(|date| date.and_utc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    fn after(value: &str) -> Option<Duration> {
        let now = http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_str(value).unwrap());
        retry_after(&headers, now)
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_a_date_and_kept_within_an_hour() {
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(after("7"), seconds(7));
        assert_eq!(after("1000000000000"), Some(RETRY_AFTER_MAX));
        assert_eq!(after("99999999999999999999999999"), Some(RETRY_AFTER_MAX));
        assert_eq!(after("Sun, 06 Nov 1994 08:50:37 GMT"), seconds(60));
        assert_eq!(after("Sunday, 06-Nov-94 08:50:37 GMT"), seconds(60));
        assert_eq!(after("Sun Nov  6 08:50:37 1994"), seconds(60));
        assert_eq!(after("Sun, 06 Nov 2094 08:50:37 GMT"), None, "the weekday is wrong");
        assert_eq!(after("Sat, 06 Nov 2094 08:50:37 GMT"), Some(RETRY_AFTER_MAX));
    }

    #[test]
    fn fault_28_rubbish_in_retry_after_is_ignored() {
        for rubbish in ["", "0", "-5", "1e12", "soon", "NaN", "Sun, 06 Nov 1994 08:49:00 GMT"] {
            assert_eq!(after(rubbish), None, "{rubbish}");
        }
    }

    #[test]
    fn a_date_is_measured_by_the_receivers_own_clock() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static("Sun, 06 Nov 1994 08:50:07 GMT"));
        headers.insert(RETRY_AFTER, HeaderValue::from_static("Sun, 06 Nov 1994 08:50:37 GMT"));
        assert_eq!(retry_after(&headers, Utc::now()), Some(Duration::from_secs(30)));
    }
}
