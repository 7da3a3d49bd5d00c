//! Why the content of a message that was taken cannot be delivered, by the same rules on every
//! database.

use postroom_core::{ContentFault, Message, Take};

/// What a take left out, or found.
pub(crate) struct Found {
    /// Whether there was a payload within its limit.
    pub(crate) has_payload: bool,
    /// Whether the row has headers, of whatever size.
    pub(crate) has_headers: bool,
}

/// The fault of a message that was read, if it has one. Headers that the row has and the message
/// has not were over their limit.
pub(crate) fn fault(message: &Message, found: &Found, take: &Take<'_>) -> Option<ContentFault> {
    match &message.headers {
        _ if !found.has_payload => Some(ContentFault::TooLarge { limit: take.payload_limit }),
        None if found.has_headers => {
            Some(ContentFault::HeadersTooLarge { limit: take.headers_limit() })
        }
        Some(headers) if !headers.is_object() && !headers.is_null() => {
            Some(ContentFault::HeadersNoObject)
        }
        Some(_) | None => None,
    }
}

/// Headers that are null are none: some ORMs write JSON's null where SQL's is meant.
pub(crate) fn drop_null_headers(message: &mut Message) {
    message.headers.take_if(|headers| headers.is_null());
}

/// The fault of a row with a value that no message holds. It needs the table's checks to be turned
/// off. The driver's own words may repeat the value.
pub(crate) fn impossible_value() -> ContentFault {
    let reason = "a column holds what its type does not allow".to_owned();
    ContentFault::Unreadable { reason }
}
