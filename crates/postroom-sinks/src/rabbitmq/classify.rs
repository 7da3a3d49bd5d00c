//! What a failure at RabbitMQ means for a message.

use crate::tls;
use lapin::ErrorKind;
use postroom_core::Outcome;

/// Which names are the same for every message of an integration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Fixed {
    pub(super) exchange: bool,
    pub(super) routing_key: bool,
}

impl Fixed {
    /// For what concerns no name.
    const ALL: Self = Self { exchange: true, routing_key: true };

    /// Whether every message takes the same way, as far as names go.
    fn is_way(self) -> bool {
        self.exchange && self.routing_key
    }
}

/// How publishing one message failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// The broker gave it back. `others_arrived`: some of its batch have found a queue.
    Returned { code: u16, others_arrived: bool },
    /// The broker could not take it.
    Nacked,
    /// The broker ended the channel or the connection.
    Closed { code: u16, text: String },
    /// No confirm in time.
    TimedOut,
    /// The client's own word: the connection is lost, or the like.
    Client(String),
}

impl Failure {
    pub(super) fn of(error: &lapin::Error) -> Self {
        match error.kind() {
            ErrorKind::ProtocolError(error) => {
                Self::Closed { code: error.get_id(), text: error.get_message().to_string() }
            }
            _ => Self::Client(error.to_string()),
        }
    }

    pub(super) fn is_from_the_broker(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Whether the broker ended the channel because of a message on this way, or of this size. It
    /// does not say which one it was.
    pub(super) fn is_about(&self, exchange: &str, routing_key: &str, bytes: usize) -> bool {
        let Self::Closed { text, .. } = self else { return false };
        if let Some(limit) = size_limit(text) {
            return bytes > limit;
        }
        if is_about_topic(text) {
            return tells(text, "topic '", &format!("{routing_key}' in exchange '{exchange}'"));
        }
        tells(text, "exchange '", &format!("{exchange}'"))
    }
}

/// Whether `name` stands behind `label`, as far as the text goes: the broker cuts it after 255
/// bytes, and ends it by dots then.
fn tells(text: &str, label: &str, name: &str) -> bool {
    let Some((_, told)) = text.split_once(label) else { return false };
    told.starts_with(name) || told.strip_suffix("...").is_some_and(|told| name.starts_with(told))
}

/// Whether the user may write to the exchange, but not with this routing key.
fn is_about_topic(text: &str) -> bool {
    text.contains("access to topic '")
}

/// The limit in `message size 2000 is larger than configured max size 1000`.
fn size_limit(text: &str) -> Option<usize> {
    let (_, limit) = text.split_once("message size ")?.1.split_once("max size ")?;
    limit.trim().parse().ok()
}

/// `place` is the broker's host and port.
pub(super) fn classify(place: &str, fixed: Fixed, failure: &Failure) -> Outcome {
    match failure {
        Failure::Returned { code, others_arrived: false } if fixed.is_way() => {
            Outcome::refuse(format!(
                "{place} returned the message ({code}), no queue is bound for it: bind one to the \
                 exchange, or correct `exchange` and `routing_key`"
            ))
        }
        // One kind of message without a queue must not keep the others from theirs. With a headers
        // exchange the kind is not in the names.
        Failure::Returned { code, .. } => Outcome::retry(format!(
            "{place} returned the message ({code}), no queue is bound for its routing key or its \
             headers: bind one to the exchange"
        )),
        Failure::Nacked => {
            Outcome::retry(format!("{place} could not take the message: a queue may be full"))
        }
        Failure::Closed { code, text } => closed(place, fixed, *code, text),
        Failure::TimedOut => Outcome::retry(format!("no confirm from {place} in time")),
        Failure::Client(error) => Outcome::retry(format!("no confirm from {place}: {error}")),
    }
}

/// The reply codes of AMQP 0.9.1 with which a channel or a connection ends.
fn closed(place: &str, fixed: Fixed, code: u16, text: &str) -> Outcome {
    let said = format!("{place} answered {code} ({text})");
    let concerns_some = if is_about_topic(text) {
        !fixed.is_way()
    } else {
        !fixed.exchange && text.contains("exchange '")
    };
    match code {
        // Content too large; RabbitMQ itself says 406 for it.
        311 => too_large(&said),
        406 if size_limit(text).is_some() => too_large(&said),
        // The way of one message must not keep the others from theirs.
        403 | 404 if concerns_some => Outcome::retry(format!(
            "{said}: declare the exchange, let this user write there, or correct the row's fields"
        )),
        403 => Outcome::refuse(format!(
            "{said}: check the user and password in the integration's `url`, and what it may write"
        )),
        404 => Outcome::refuse(format!(
            "{said}: declare the exchange, or correct the integration's `exchange`"
        )),
        // An internal exchange, or a virtual host that is not there.
        402 | 530 => Outcome::refuse(format!("{said}: correct the integration's `url`")),
        540 => Outcome::refuse(format!("{said}: this broker cannot do what is asked of it")),
        // A broker that stops or is out of resources, a queue that is locked, a client out of step.
        _ => Outcome::retry(said),
    }
}

fn too_large(said: &str) -> Outcome {
    Outcome::reject(format!(
        "{said}: send a reference instead, or raise `max_message_size` there and redrive it"
    ))
}

/// How connecting failed.
pub(super) fn classify_connect(place: &str, error: &lapin::Error) -> Outcome {
    if tls::is_behind(error) {
        return Outcome::refuse(format!(
            "no TLS with {place}: {error}: check the broker's certificate and the integration's \
             `ca_file`"
        ));
    }
    match Failure::of(error) {
        Failure::Client(error) => Outcome::retry(format!("cannot connect to {place}: {error}")),
        failure => classify(place, Fixed::ALL, &failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome_class::Class::{self, Refuse, Reject, Retry};

    #[test]
    fn every_failure_has_its_class_and_what_is_final_has_a_remedy() {
        let closed = |code, text: &str| Failure::Closed { code, text: text.to_owned() };
        let large = "PRECONDITION_FAILED - message size 2000 is larger than configured max size 9";
        for (failure, expected) in [
            (Failure::Returned { code: 312, others_arrived: false }, Refuse),
            (Failure::Returned { code: 312, others_arrived: true }, Retry),
            (Failure::Nacked, Retry),
            (Failure::TimedOut, Retry),
            (Failure::Client("reset".to_owned()), Retry),
            (closed(311, "CONTENT_TOO_LARGE"), Reject),
            (closed(313, "NO_CONSUMERS"), Retry),
            (closed(320, "CONNECTION_FORCED - shutdown"), Retry),
            (closed(402, "INVALID_PATH"), Refuse),
            (closed(403, "ACCESS_REFUSED"), Refuse),
            (closed(404, "NOT_FOUND - no exchange 'x' in vhost '/'"), Refuse),
            (closed(405, "RESOURCE_LOCKED"), Retry),
            (closed(406, large), Reject),
            (closed(406, "PRECONDITION_FAILED"), Retry),
            (closed(501, "FRAME_ERROR"), Retry),
            (closed(502, "SYNTAX_ERROR"), Retry),
            (closed(503, "COMMAND_INVALID"), Retry),
            (closed(504, "CHANNEL_ERROR"), Retry),
            (closed(505, "UNEXPECTED_FRAME"), Retry),
            (closed(506, "RESOURCE_ERROR"), Retry),
            (closed(530, "NOT_ALLOWED - vhost x not found"), Refuse),
            (closed(540, "NOT_IMPLEMENTED"), Refuse),
            (closed(541, "INTERNAL_ERROR"), Retry),
        ] {
            let outcome = classify("host:5672", Fixed::ALL, &failure);
            assert_eq!(Class::of(&outcome), expected, "{failure:?}");
        }
    }

    #[test]
    fn what_concerns_the_way_of_one_message_does_not_concern_the_lane() {
        let closed = |code, text: &str| Failure::Closed { code, text: text.to_owned() };
        let missing = closed(404, "NOT_FOUND - no exchange 'x' in vhost '/'");
        let exchange = "ACCESS_REFUSED - write access to exchange 'x' in vhost '/' refused";
        let exchange = closed(403, exchange);
        let topic = "ACCESS_REFUSED - write access to topic 'k' in exchange 'x' in vhost '/'";
        let topic = closed(403, topic);
        let login = closed(403, "ACCESS_REFUSED - Login was refused");
        let returned = Failure::Returned { code: 312, others_arrived: false };
        let by_exchange = Fixed { exchange: false, routing_key: true };
        let by_key = Fixed { exchange: true, routing_key: false };
        for (fixed, failure, expected) in [
            (by_exchange, &missing, Retry),
            (by_exchange, &exchange, Retry),
            (by_exchange, &topic, Retry),
            (by_exchange, &login, Refuse),
            (by_exchange, &returned, Retry),
            (by_key, &missing, Refuse),
            (by_key, &exchange, Refuse),
            (by_key, &topic, Retry),
            (by_key, &login, Refuse),
            (by_key, &returned, Retry),
            (Fixed::ALL, &topic, Refuse),
        ] {
            let outcome = classify("host:5672", fixed, failure);
            assert_eq!(Class::of(&outcome), expected, "{fixed:?} {failure:?}");
        }
    }

    #[test]
    fn the_culprit_is_told_by_its_exchange_or_its_size() {
        let large = Failure::Closed {
            code: 406,
            text: "PRECONDITION_FAILED - message size 20 is larger than configured max size 9"
                .to_owned(),
        };
        assert!(large.is_about("any", "k", 20) && !large.is_about("any", "k", 9));
        let missing = Failure::Closed {
            code: 404,
            text: "NOT_FOUND - no exchange 'gone' in vhost '/'".to_owned(),
        };
        assert!(missing.is_about("gone", "k", 1) && !missing.is_about("here", "k", 1));
        let topic = Failure::Closed {
            code: 403,
            text: "ACCESS_REFUSED - write access to topic 'k' in exchange 'x' in vhost '/' refused"
                .to_owned(),
        };
        assert!(topic.is_about("x", "k", 1) && !topic.is_about("x", "other", 1));
        assert!(!Failure::Nacked.is_about("", "", 0));
    }

    /// The broker's reply text has 255 bytes.
    #[test]
    fn the_culprit_is_told_by_what_is_left_of_a_long_name() {
        let cut = |text: String| {
            assert!(text.len() > 255, "{text}");
            Failure::Closed { code: 403, text: format!("{}...", &text[..252]) }
        };
        let (long, other) = ("x".repeat(230), "y".repeat(230));
        let missing = cut(format!("NOT_FOUND - no exchange '{long}' in vhost '/'"));
        assert!(missing.is_about(&long, "k", 1) && !missing.is_about(&other, "k", 1));
        assert!(!missing.is_about("x", "k", 1) && !missing.is_about("", "k", 1));
        let topic = |key: &str, exchange: &str| {
            cut(format!(
                "ACCESS_REFUSED - write access to topic '{key}' in exchange '{exchange}' in vhost \
                 '/' refused for user 'relay'"
            ))
        };
        let by_key = topic(&long, "x");
        assert!(by_key.is_about("x", &long, 1) && !by_key.is_about("x", &other, 1));
        assert!(!by_key.is_about("x", "x", 1));
        let by_exchange = topic("k", &long);
        assert!(by_exchange.is_about(&long, "k", 1) && !by_exchange.is_about(&other, "k", 1));
        // Cut behind the name.
        let vhost = cut(format!("NOT_FOUND - no exchange 'x' in vhost '{long}'"));
        assert!(vhost.is_about("x", "k", 1) && !vhost.is_about("y", "k", 1));
    }
}
