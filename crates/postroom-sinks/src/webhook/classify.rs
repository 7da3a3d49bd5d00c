//! What an answer, or its absence, means for the message and for the lane.

use super::addresses::AddressRefused;
use crate::retry_after::retry_after;
use chrono::Utc;
use postroom_core::Outcome;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use rustls::AlertDescription;
use std::error::Error;
use std::io;
use std::time::Duration;

/// The receiver's word. `place` is all of the URL that an error text may show.
pub(super) fn answered(place: &str, status: StatusCode, headers: &HeaderMap) -> Outcome {
    let text = format!("{place} answered {status}");
    match status.as_u16() {
        200..=299 => Outcome::Delivered,
        300..=399 => Outcome::refuse(format!(
            "{text}: redirects are never followed; set `url` to where the receiver has moved"
        )),
        401 | 403 | 407 => Outcome::refuse(format!(
            "{text}: check the credentials in the integration's `auth`, `headers`, `secrets` or \
             `tls`"
        )),
        404 => Outcome::refuse(format!("{text}: check the path of the integration's `url`")),
        405 => Outcome::refuse(format!(
            "{text}: the receiver takes no POST there; check the path of the integration's `url`"
        )),
        410 => Outcome::gone(format!(
            "{text}: the receiver wants no more of these; remove the integration, or restart the \
             relay once it is back"
        )),
        413 => Outcome::reject(format!("{text}: it is too large; send a reference instead")),
        415 => Outcome::reject(format!(
            "{text}: it takes another content type; check the integration's `format`"
        )),
        421 => Outcome::refuse(format!("{text}: check the host of the integration's `url`")),
        431 => Outcome::reject(format!("{text}: its headers are too large; store fewer of them")),
        // 409 is also the answer while an earlier attempt with this idempotency key is under way.
        408 | 409 | 423 | 425 | 429 | 500..=599 => {
            Outcome::Retry { error: text, after: retry_after(headers, Utc::now()) }
        }
        400..=499 => Outcome::reject(format!(
            "{text}: the receiver finds fault with this message; ask it why, correct the row and \
             set it back to PENDING"
        )),
        _ => Outcome::retry(text),
    }
}

/// What it means that no answer came.
pub(super) fn unanswered(place: &str, timeout: Duration, error: reqwest::Error) -> Outcome {
    if let Some(refused) = cause::<AddressRefused>(&error) {
        return Outcome::refuse(refused.to_string());
    }
    match cause::<rustls::Error>(&error) {
        Some(rustls::Error::InvalidCertificate(problem)) => {
            return Outcome::refuse(format!(
                "cannot trust {place}: its certificate is not valid here ({problem}); renew it, \
                 or name its authority in the integration's `tls.ca`"
            ));
        }
        Some(rustls::Error::AlertReceived(alert)) if concerns_our_certificate(*alert) => {
            return Outcome::refuse(format!(
                "{place} does not accept this side's certificate ({alert:?}): check the \
                 integration's `tls.certificate` and `tls.key`"
            ));
        }
        _ => {}
    }
    if error.is_timeout() {
        return Outcome::retry(format!("no answer from {place} within {timeout:?}"));
    }
    let what = if error.is_connect() { "cannot connect to" } else { "no answer from" };
    let error = error.without_url();
    let mut root: &dyn Error = &error;
    while let Some(source) = root.source() {
        root = source;
    }
    Outcome::retry(format!("{what} {place}: {root}"))
}

fn concerns_our_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::NoCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
    )
}

/// The first error of this type behind `error`.
fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An I/O error passes over what it wraps when it is asked for its source.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderValue, RETRY_AFTER};

    /// What a row of the table expects.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    enum Class {
        Delivered,
        Retry,
        Reject,
        Gone,
        Refuse,
    }

    fn class(outcome: &Outcome) -> Class {
        match outcome {
            Outcome::Delivered => Class::Delivered,
            Outcome::Retry { .. } => Class::Retry,
            Outcome::Reject { .. } => Class::Reject,
            Outcome::Gone { .. } => Class::Gone,
            Outcome::Refuse { .. } => Class::Refuse,
        }
    }

    #[test]
    fn fault_29_every_status_has_its_class_and_what_is_final_a_remedy() {
        use Class::{Delivered, Gone, Refuse, Reject, Retry};
        let table: &[(u16, Class)] = &[
            (100, Retry),
            (200, Delivered),
            (201, Delivered),
            (202, Delivered),
            (204, Delivered),
            (299, Delivered),
            (300, Refuse),
            (301, Refuse),
            (302, Refuse),
            (303, Refuse),
            (304, Refuse),
            (307, Refuse),
            (308, Refuse),
            (400, Reject),
            (401, Refuse),
            (402, Reject),
            (403, Refuse),
            (404, Refuse),
            (405, Refuse),
            (406, Reject),
            (407, Refuse),
            (408, Retry),
            (409, Retry),
            (410, Gone),
            (411, Reject),
            (412, Reject),
            (413, Reject),
            (414, Reject),
            (415, Reject),
            (416, Reject),
            (417, Reject),
            (418, Reject),
            (421, Refuse),
            (422, Reject),
            (423, Retry),
            (424, Reject),
            (425, Retry),
            (426, Reject),
            (428, Reject),
            (429, Retry),
            (431, Reject),
            (451, Reject),
            (499, Reject),
            (500, Retry),
            (501, Retry),
            (502, Retry),
            (503, Retry),
            (504, Retry),
            (507, Retry),
            (511, Retry),
            (599, Retry),
            (600, Retry),
            (999, Retry),
        ];
        for (code, expected) in table {
            let status = StatusCode::from_u16(*code).unwrap();
            let outcome = answered("host:443", status, &HeaderMap::new());
            assert_eq!(class(&outcome), *expected, "{code}");
            match outcome {
                Outcome::Reject { error } | Outcome::Gone { error } | Outcome::Refuse { error } => {
                    let (_, remedy) = error.split_once(": ").unwrap();
                    assert!(remedy.len() > 20, "{code}: {error}");
                }
                Outcome::Delivered | Outcome::Retry { .. } => {}
            }
        }
    }

    #[test]
    fn fault_28_a_receivers_own_delay_is_taken_where_it_may_be_busy() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1000000000000"));
        for code in [408, 409, 423, 425, 429, 503] {
            let status = StatusCode::from_u16(code).unwrap();
            let Outcome::Retry { after, .. } = answered("host:443", status, &headers) else {
                panic!("{code}")
            };
            assert_eq!(after, Some(Duration::from_secs(3_600)), "{code}");
        }
    }
}
