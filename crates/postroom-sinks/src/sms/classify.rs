//! What the answers mean, by Twilio's codes.

use postroom_core::Outcome;
use reqwest::StatusCode;
use serde_json::Value;
use std::time::Duration;

/// The `code` of an error's object.
pub(super) fn code_of(body: &[u8]) -> Option<u32> {
    let body: Value = serde_json::from_slice(body).ok()?;
    body.get("code")?.as_u64()?.try_into().ok()
}

/// Decides by the code where it is known, and by the status otherwise. The words beside a code
/// repeat numbers, and are left out.
pub(super) fn classify(
    place: &str,
    status: StatusCode,
    code: Option<u32>,
    after: Option<Duration>,
) -> Outcome {
    let text = match code {
        Some(code) => format!("{place} answered {} with code {code}", status.as_u16()),
        None => format!("{place} answered {}", status.as_u16()),
    };
    if status == StatusCode::CREATED {
        return Outcome::Delivered;
    }
    let see = code.map_or_else(String::new, |code| {
        format!(" (https://www.twilio.com/docs/api/errors/{code})")
    });
    match code {
        // Too many requests, rate exceeded, queue full, or the service's own trouble.
        Some(14107 | 20429 | 20500 | 20503 | 20504 | 21611 | 30001 | 30008) => {
            Outcome::Retry { error: text, after }
        }
        Some(20003 | 20006 | 20008 | 20101..=20107 | 20403) => {
            Outcome::refuse(format!("{text}: check `account_sid` and `auth_token`{see}"))
        }
        Some(20005 | 30002 | 90010) => {
            Outcome::refuse(format!("{text}: the account is suspended or closed; settle that{see}"))
        }
        Some(20404) => Outcome::refuse(format!("{text}: check `url` and `account_sid`{see}")),
        // A sender may do for one recipient and not for another: no SMS is to be lost for it, and
        // the others need not wait.
        Some(21606 | 21659) => Outcome::Retry {
            error: format!(
                "{text}: `from` cannot send to this recipient, or to any; check it{see}"
            ),
            after,
        },
        Some(21212 | 21603 | 21660 | 21661) => Outcome::refuse(format!(
            "{text}: check `from`; it must be a number or name of this account that can send{see}"
        )),
        Some(21701 | 21703 | 21704 | 21705) => Outcome::refuse(format!(
            "{text}: check `messaging_service_sid`, and that the service has a sender{see}"
        )),
        Some(21211 | 21214 | 21217 | 21265 | 21601 | 21604 | 21612 | 21614) => {
            Outcome::reject(format!(
                "{text}: this number cannot get an SMS; correct what the message gives to `to`{see}"
            ))
        }
        Some(21408 | 21608) => Outcome::reject(format!(
            "{text}: this account may not send to that number or region; allow it there, then \
             redrive{see}"
        )),
        Some(21610) => {
            Outcome::reject(format!("{text}: the recipient has opted out; ask them{see}"))
        }
        Some(21602 | 21619) => {
            Outcome::reject(format!("{text}: the template makes no text of this message{see}"))
        }
        Some(21605 | 21617) => {
            Outcome::reject(format!("{text}: the text is too long; shorten the template{see}"))
        }
        _ => by_status(status, text, &see, after),
    }
}

fn by_status(status: StatusCode, text: String, see: &str, after: Option<Duration>) -> Outcome {
    match status.as_u16() {
        300..=399 | 401 | 403 | 404 | 405 | 410 => {
            Outcome::refuse(format!("{text}: check `url`, `account_sid` and `auth_token`{see}"))
        }
        408 | 425 | 429 => Outcome::Retry { error: text, after },
        400..=499 => {
            Outcome::reject(format!("{text}: look at what the templates make of this message{see}"))
        }
        // Another 2xx is not the word that an SMS was made.
        _ => Outcome::Retry { error: text, after },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_class_and_what_is_final_a_remedy() {
        let table: &[(u16, Option<u32>, &str)] = &[
            (201, None, "delivered"),
            (200, None, "retry"),
            (202, None, "retry"),
            (429, Some(20429), "retry"),
            (429, Some(14107), "retry"),
            (400, Some(14107), "retry"),
            (400, Some(30001), "retry"),
            (429, Some(30001), "retry"),
            (400, Some(21611), "retry"),
            (429, None, "retry"),
            (408, None, "retry"),
            (500, Some(20500), "retry"),
            (503, Some(20503), "retry"),
            (500, None, "retry"),
            (503, None, "retry"),
            (400, Some(30008), "retry"),
            (400, Some(21606), "retry"),
            (400, Some(21659), "retry"),
            (401, Some(20003), "refuse"),
            (401, None, "refuse"),
            (403, Some(20005), "refuse"),
            (403, Some(20403), "refuse"),
            (401, Some(20101), "refuse"),
            (403, Some(30002), "refuse"),
            (404, Some(20404), "refuse"),
            (404, None, "refuse"),
            (301, None, "refuse"),
            (400, Some(21212), "refuse"),
            (400, Some(21603), "refuse"),
            (400, Some(21660), "refuse"),
            (404, Some(21701), "refuse"),
            (400, Some(21703), "refuse"),
            (400, Some(21704), "refuse"),
            (400, Some(21705), "refuse"),
            (400, Some(21211), "reject"),
            (400, Some(21214), "reject"),
            (400, Some(21217), "reject"),
            (400, Some(21265), "reject"),
            (400, Some(21408), "reject"),
            (400, Some(21602), "reject"),
            (400, Some(21604), "reject"),
            (400, Some(21605), "reject"),
            (400, Some(21608), "reject"),
            (400, Some(21610), "reject"),
            (400, Some(21612), "reject"),
            (400, Some(21614), "reject"),
            (400, Some(21617), "reject"),
            (400, Some(99999), "reject"),
            (400, None, "reject"),
        ];
        for (status, code, expected) in table {
            let status = StatusCode::from_u16(*status).unwrap();
            let after = Some(Duration::from_secs(7));
            let outcome = classify("api.example:443", status, *code, after);
            let found = match &outcome {
                Outcome::Delivered => "delivered",
                Outcome::Retry { after, .. } => {
                    assert_eq!(*after, Some(Duration::from_secs(7)));
                    "retry"
                }
                Outcome::Reject { .. } => "reject",
                Outcome::Refuse { .. } => "refuse",
                Outcome::Gone { .. } => "gone",
            };
            assert_eq!(found, *expected, "{status} {code:?}");
            if let Outcome::Reject { error } | Outcome::Refuse { error } = &outcome {
                assert!(error.split_once(": ").unwrap().1.len() > 15, "{error}");
            }
        }
    }

    #[test]
    fn a_body_that_is_no_error_has_no_code() {
        assert_eq!(code_of(b"{\"code\": 21211, \"message\": \"+1 555\"}"), Some(21211));
        for body in
            ["", "<html>", "[]", "{}", "{\"code\":\"x\"}", "{\"code\":1e400}", "{\"code\":-1}"]
        {
            assert_eq!(code_of(body.as_bytes()), None, "{body}");
        }
    }
}
