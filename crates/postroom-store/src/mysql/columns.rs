//! The columns that several statements select.

/// What `row::message` reads, in its order; `$payload` and `$headers` may leave content out.
macro_rules! message_columns {
    () => {
        message_columns!("m.payload", "m.headers")
    };
    ($payload:literal, $headers:literal) => {
        concat!(
            "m.seq, m.id, m.source_event_id, m.source_stream_id, m.integration_type, \
             m.event_type, ",
            $payload,
            ", ",
            $headers,
            ", m.tenant_id, m.user_id, m.correlation_id, m.causation_id, m.source, \
             m.ordering_key, m.schema_version, m.copy, m.occurred_at, m.due_at, m.attempts, \
             m.max_attempts, m.created_at"
        )
    };
}

/// What `row::dispatched` reads of `integration_outbox AS m` first.
pub(super) const MESSAGE: &str = message_columns!();

/// What `row::taken` reads of `integration_outbox AS m`. `{limit}` is the payload limit,
/// `{headers_limit}` that of headers.
pub(super) const TAKEN: &str = concat!(
    message_columns!(
        "IF(OCTET_LENGTH(m.payload) <= {limit}, m.payload, NULL)",
        "IF(OCTET_LENGTH(m.headers) <= {headers_limit}, m.headers, NULL)"
    ),
    ", m.headers IS NOT NULL"
);

/// What `row::record` reads of `outbox_messages AS m`.
pub(super) const RECORD: &str = concat!(
    message_columns!(),
    ", m.status, m.locked_at, m.locked_by, m.updated_at, m.sent_at, m.last_error"
);
