//! Enqueue outbox messages inside your own transaction; Postroom delivers what you commit.
