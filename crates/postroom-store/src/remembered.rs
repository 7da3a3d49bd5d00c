//! Events that are not delivered again, though their messages are deleted.

/// What a message of such an event says as its last error: it is SENT at once, and was not delivered.
pub(crate) const DELIVERED_BEFORE: &str = "not delivered: the same event was delivered before";
