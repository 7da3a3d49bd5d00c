//! What the drivers on sqlx have the same: the order in which their statements take the values of
//! a message. Macros, since the types that sqlx binds differ from database to database.

/// Binds a whole message to an INSERT, with the id and the times as the database holds them.
macro_rules! bind_message {
    ($insert:expr, $id:expr, $message:expr, $time:expr) => {
        sqlx::query($insert)
            .bind($id)
            .bind($message.stream_id())
            .bind(&$message.event_id)
            .bind(&$message.integration)
            .bind(&$message.event_type)
            .bind($message.payload().map(postroom_core::RawJson::as_str))
            .bind($message.headers_json().map(postroom_core::RawJson::as_str))
            .bind(&$message.tenant_id)
            .bind(&$message.user_id)
            .bind(&$message.correlation_id)
            .bind(&$message.causation_id)
            .bind(&$message.source)
            .bind(&$message.ordering_key)
            .bind($message.schema_version)
            .bind($message.copy)
            .bind($message.occurred_at.map($time))
            .bind($message.due_at.map($time))
            .bind($message.max_attempts)
    };
}

/// Binds a message to a call of a ledger's `enqueue`.
macro_rules! bind_row {
    ($query:expr, $message:expr, $time:expr) => {
        $query
            .bind(&$message.integration)
            .bind(&$message.event_type)
            .bind($message.payload().map(postroom_core::RawJson::as_str))
            .bind($message.stream_id())
            .bind(&$message.event_id)
            .bind($message.headers_json().map(postroom_core::RawJson::as_str))
            .bind(&$message.tenant_id)
            .bind(&$message.user_id)
            .bind(&$message.correlation_id)
            .bind($message.due_at.map($time))
            .bind($message.max_attempts)
            .bind(&$message.ordering_key)
            .bind(&$message.causation_id)
            .bind(&$message.source)
            .bind($message.schema_version)
            .bind($message.occurred_at.map($time))
            .bind($message.copy)
    };
}

/// Binds what the fence knows of a message to the search for the first one.
macro_rules! bind_fence {
    ($query:expr, $message:expr) => {
        $query
            .bind(&$message.event_id)
            .bind($message.stream_id())
            .bind(&$message.integration)
            .bind($message.copy)
    };
}

/// A transaction inserts through its connection.
macro_rules! insert_through_connection {
    ($database:ty, $connection:ty) => {
        impl sealed::Sealed for sqlx::Transaction<'_, $database> {}
        impl sealed::Sealed for $connection {}

        #[async_trait]
        impl OutboxTransaction for sqlx::Transaction<'_, $database> {
            async fn insert(&mut self, message: &NewMessage) -> Result<Enqueued, EnqueueError> {
                (**self).insert(message).await
            }

            async fn insert_row(
                &mut self,
                table: &str,
                message: &NewMessage,
            ) -> Result<Enqueued, EnqueueError> {
                (**self).insert_row(table, message).await
            }
        }
    };
}
