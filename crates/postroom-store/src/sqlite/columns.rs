//! What statements select of a message, so that `row.rs` can read it.

/// What `row::record` reads, in its order, of the view `outbox_messages`.
macro_rules! record_columns {
    () => {
        concat!(
            include_str!("sql/message_columns.sql"),
            ", m.payload, m.headers\n",
            include_str!("sql/state_columns.sql")
        )
    };
}

/// The same without content.
macro_rules! state_columns {
    () => {
        concat!(
            include_str!("sql/message_columns.sql"),
            ", NULL, NULL\n",
            include_str!("sql/state_columns.sql")
        )
    };
}
