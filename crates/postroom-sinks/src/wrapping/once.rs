//! What a destination that drops repetitions itself knows a message by.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use postroom_core::Message;

/// What would blur where a part ends, or end a line.
const BLURRING: &AsciiSet = &CONTROLS.add(b'%').add(b'/');

/// `INTEGRATION/STREAM/EVENT_ID`, and `/COPY` for a second message on purpose or a replay: as wide
/// as the outbox's own fence. By the event id alone, a destination would drop the messages of
/// another stream or integration, and they would count as delivered. So would a replay, although
/// the receiver may have lost the first: that it is one, the receiver tells by the event id.
pub(crate) fn once(message: &Message) -> String {
    let Message { integration, stream_id, event_id, .. } = message;
    let parts = [integration, stream_id, event_id];
    let mut once = String::with_capacity(parts.iter().map(|part| part.len() + 1).sum());
    for (place, part) in parts.into_iter().enumerate() {
        if place > 0 {
            once.push('/');
        }
        // Nearly every one stands as it is, and this is done for every message.
        let is_clear =
            |byte: &u8| byte.is_ascii() && !byte.is_ascii_control() && !b"%/".contains(byte);
        if part.as_bytes().iter().all(is_clear) {
            once.push_str(part);
        } else {
            once.extend(utf8_percent_encode(part, BLURRING));
        }
    }
    if message.copy != 0 {
        once.push_str(&format!("/{}", message.copy));
    }
    once
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroom_testkit::sink_contract::message;

    #[test]
    fn messages_that_the_outbox_tells_apart_are_told_apart() {
        let of = |integration: &str, stream: &str, event_id: &str, copy| {
            once(&Message {
                integration: integration.to_owned(),
                stream_id: stream.to_owned(),
                copy,
                ..message(event_id)
            })
        };
        assert_eq!(of("nats:orders", "order-1", "e-1", 0), "nats:orders/order-1/e-1");
        assert_eq!(of("nats:orders", "order-1", "e-1", 2), "nats:orders/order-1/e-1/2");
        let mut all = vec![
            of("n:a", "s", "e", 0),
            of("n:b", "s", "e", 0),
            of("n:a", "t", "e", 0),
            of("n:a", "s", "f", 0),
            of("n:a", "s", "e", 1),
            of("n:a", "s", "e", -1),
            of("n:a", "s", "e/1", 0),
            of("n:a", "s/e", "1", 0),
            of("n:a/s", "e", "1", 0),
            of("n:a", "s%2Fe", "1", 0),
            of("n:a", "", "s", 0),
        ];
        let n = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), n, "{all:?}");
    }

    #[test]
    fn an_attempt_is_a_repetition_whichever_row_it_is() {
        let first = message("e-1");
        let again = Message { attempts: 7, ..message("e-1") };
        assert_eq!(once(&again), once(&first));
    }
}
