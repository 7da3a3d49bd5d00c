//! What Slack's answers mean.

use crate::api::Answer;
use postroom_core::Outcome;
use reqwest::StatusCode;
use serde_json::Value;
use std::time::Duration;

/// The word by which Slack names an error: the `error` of an object, or all of an incoming
/// webhook's text. `None` when all is well.
pub(super) fn error_of(answer: &Answer) -> Option<String> {
    let text = String::from_utf8_lossy(&answer.body);
    let word = match serde_json::from_str::<Value>(&text) {
        Ok(Value::Object(object)) => match (object.get("ok"), object.get("error")) {
            (Some(Value::Bool(true)), _) => return None,
            (_, Some(Value::String(word))) => word.clone(),
            _ => "no error's name".to_owned(),
        },
        _ if text.trim() == "ok" && answer.status.is_success() => return None,
        _ => text.trim().to_owned(),
    };
    // An error has a short name; anything else is not Slack speaking.
    let is_name = !word.is_empty()
        && word.len() <= 60
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    Some(if is_name { word } else { "unknown_answer".to_owned() })
}

/// Decides by the error's name where it is known, and by the status otherwise.
pub(super) fn classify(
    place: &str,
    status: StatusCode,
    error: Option<&str>,
    after: Option<Duration>,
) -> Outcome {
    let Some(error) = error.filter(|_| status.as_u16() != 429) else {
        return match status.as_u16() {
            200..=299 => Outcome::Delivered,
            _ => by_status(place, status, "no error", after),
        };
    };
    let text = format!("{place} answered {} {error}", status.as_u16());
    match error {
        "ratelimited"
        | "rate_limited"
        | "message_limit_exceeded"
        | "internal_error"
        | "fatal_error"
        | "service_unavailable"
        | "request_timeout"
        | "rollup_error"
        | "team_added_to_org"
        | "external_channel_migrating" => Outcome::Retry { error: text, after },
        "invalid_auth" | "not_authed" | "token_expired" | "token_revoked" | "invalid_token" => {
            Outcome::refuse(format!("{text}: set a token of this workspace that is valid"))
        }
        "account_inactive"
        | "no_team"
        | "no_service"
        | "no_active_hooks"
        | "team_disabled"
        | "org_login_required"
        | "team_access_not_granted"
        | "ekm_access_denied" => Outcome::refuse(format!(
            "{text}: the app, its user or the webhook was removed or switched off; install it \
                 again and set the new `token` or `url`"
        )),
        "missing_scope"
        | "no_permission"
        | "not_allowed_token_type"
        | "two_factor_setup_required"
        | "accesslimited"
        | "access_denied"
        | "enterprise_is_restricted" => Outcome::refuse(format!(
            "{text}: give the app the scope `chat:write`, and install it again"
        )),
        "channel_not_found" | "is_archived" | "channel_is_archived" | "user_not_found" => {
            Outcome::refuse(format!(
                "{text}: check `channel` (its id is safest), and that it is not archived"
            ))
        }
        "not_in_channel" => {
            Outcome::refuse(format!("{text}: invite the app to the channel (/invite)"))
        }
        "restricted_action"
        | "action_prohibited"
        | "posting_to_general_channel_denied"
        | "restricted_action_read_only_channel"
        | "restricted_action_thread_only_channel"
        | "restricted_action_non_threadable_channel"
        | "cannot_reply_to_message" => Outcome::refuse(format!(
            "{text}: an administrator does not let the app post there; ask them, or choose \
                 another channel"
        )),
        "msg_too_long" | "msg_blocks_too_long" | "metadata_too_large" => {
            Outcome::reject(format!("{text}: the message is too long; shorten the template"))
        }
        "no_text" => Outcome::reject(format!("{text}: the templates make no text of this message")),
        "invalid_blocks"
        | "invalid_blocks_format"
        | "too_many_attachments"
        | "invalid_metadata_format"
        | "invalid_metadata_schema"
        | "invalid_payload"
        | "invalid_arguments"
        | "invalid_arg_name"
        | "invalid_array_arg"
        | "invalid_charset"
        | "invalid_form_data"
        | "invalid_json"
        | "json_not_object" => Outcome::reject(format!(
            "{text}: look at what `text` and `blocks` make of this message (Slack's Block Kit \
             Builder shows what is wrong)"
        )),
        "duplicate_message_not_found" | "duplicate_channel_not_found" => {
            Outcome::Retry { error: text, after }
        }
        _ => by_status(place, status, error, after),
    }
}

fn by_status(place: &str, status: StatusCode, error: &str, after: Option<Duration>) -> Outcome {
    let text = format!("{place} answered {} {error}", status.as_u16());
    match status.as_u16() {
        // Slack says no in words that this version does not know: nobody can tell whether it
        // means this message or all, so none is lost.
        200..=299 => Outcome::Retry { error: text, after },
        300..=399 | 401 | 403 | 404 | 405 | 410 => {
            Outcome::refuse(format!("{text}: check `url`, or `token` and `api_url`"))
        }
        413 => Outcome::reject(format!("{text}: the message is too long; shorten the template")),
        408 | 425 | 429 => Outcome::Retry { error: text, after },
        400..=499 => Outcome::reject(format!(
            "{text}: look at what `text` and `blocks` make of this message"
        )),
        _ => Outcome::Retry { error: text, after },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderMap;

    fn outcome(status: u16, body: &str) -> Outcome {
        let status = StatusCode::from_u16(status).unwrap();
        let body = body.as_bytes().to_vec();
        let answer = Answer { status, headers: HeaderMap::new(), body };
        let after = Some(Duration::from_secs(7));
        classify("slack.com:443", status, error_of(&answer).as_deref(), after)
    }

    #[test]
    fn every_answer_has_its_class_and_what_is_final_a_remedy() {
        let table = [
            (200, "ok", "delivered"),
            (200, "{\"ok\":true}", "delivered"),
            (200, "{\"ok\":false,\"error\":\"ratelimited\"}", "retry"),
            (429, "{\"ok\":false,\"error\":\"ratelimited\"}", "retry"),
            (429, "", "retry"),
            (200, "message_limit_exceeded", "retry"),
            (200, "internal_error", "retry"),
            (200, "fatal_error", "retry"),
            (503, "service_unavailable", "retry"),
            (500, "rollup_error", "retry"),
            (500, "", "retry"),
            (502, "<html>", "retry"),
            (200, "<html>", "retry"),
            (200, "{}", "retry"),
            (200, "an_error_of_next_year", "retry"),
            (200, "invalid_auth", "refuse"),
            (200, "not_authed", "refuse"),
            (200, "token_expired", "refuse"),
            (200, "token_revoked", "refuse"),
            (403, "invalid_token", "refuse"),
            (200, "account_inactive", "refuse"),
            (404, "no_service", "refuse"),
            (404, "no_team", "refuse"),
            (200, "missing_scope", "refuse"),
            (200, "channel_not_found", "refuse"),
            (404, "channel_not_found", "refuse"),
            (200, "is_archived", "refuse"),
            (410, "channel_is_archived", "refuse"),
            (200, "not_in_channel", "refuse"),
            (200, "restricted_action", "refuse"),
            (403, "action_prohibited", "refuse"),
            (403, "", "refuse"),
            (404, "", "refuse"),
            (302, "", "refuse"),
            (200, "msg_too_long", "reject"),
            (200, "metadata_too_large", "reject"),
            (200, "no_text", "reject"),
            (400, "no_text", "reject"),
            (200, "invalid_blocks", "reject"),
            (400, "invalid_payload", "reject"),
            (400, "too_many_attachments", "reject"),
            (400, "", "reject"),
            (413, "", "reject"),
        ];
        for (status, body, expected) in table {
            let is_word = body.contains('_') && !body.contains('{') && status == 200;
            let body = if is_word {
                format!("{{\"ok\":false,\"error\":\"{body}\"}}")
            } else {
                body.into()
            };
            let outcome = outcome(status, &body);
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
            assert_eq!(found, expected, "{status} {body}");
            if let Outcome::Reject { error } | Outcome::Refuse { error } = &outcome {
                assert!(error.split_once(": ").unwrap().1.len() > 15, "{error}");
            }
        }
    }

    #[test]
    fn an_error_text_repeats_nothing_but_names() {
        let Outcome::Retry { error, .. } = outcome(200, "{\"ok\":false,\"error\":\"s3 cret\"}")
        else {
            panic!()
        };
        assert_eq!(error, "slack.com:443 answered 200 unknown_answer");
    }
}
