//! Events that are not delivered again, though their messages are deleted.

use super::claims::micros;
use super::literal::{self, filled};
use super::session::Session;
use super::{LIST, MySqlStore, execute, fetch};
use crate::remembered::DELIVERED_BEFORE;
use postroom_core::Token;
use sqlx::{Error, Row as _};
use std::time::Duration;

const EVENT: &str = include_str!("sql/event.sql");
const REMEMBER: &str = include_str!("sql/remember.sql");
const REMEMBERED: &str = include_str!("sql/remembered.sql");
const CLOSE: &str = include_str!("sql/close_remembered.sql");
const FORGET: &str = include_str!("sql/forget_events.sql");

/// Remembers the events of messages for so long after their delivery. The messages are about to be deleted.
pub(super) async fn remember(
    tx: &mut Session,
    seqs: &[i64],
    remembered: Duration,
) -> Result<(), Error> {
    if remembered.is_zero() {
        return Ok(());
    }
    let (event, remembered) = (filled(EVENT, &[]), micros(remembered).to_string());
    for part in seqs.chunks(LIST) {
        let seqs = literal::numbers(part.iter().copied());
        let places = [
            ("event", event.as_str()),
            ("remembered", &remembered),
            ("seqs", &seqs),
            ("why", DELIVERED_BEFORE),
        ];
        execute(tx, filled(REMEMBER, &places)).await?;
    }
    Ok(())
}

/// Forgets some events whose time is over.
pub(super) async fn forget(tx: &mut Session, limit: usize) -> Result<(), Error> {
    execute(tx, filled(FORGET, &[("limit", &limit.to_string())])).await?;
    Ok(())
}

impl MySqlStore {
    /// Closes those of these messages, which are claimed, whose events were delivered before. Reading them
    /// then finds that they are not to be delivered.
    pub(super) async fn close_remembered(&self, seqs: &[i64]) -> Result<(), Error> {
        if self.remember_events.is_zero() {
            return Ok(());
        }
        let event = filled(EVENT, &[]);
        let mut tx = self.begin().await?;
        for part in seqs.chunks(LIST) {
            let seqs = literal::numbers(part.iter().copied());
            let sql = filled(REMEMBERED, &[("event", &event), ("seqs", &seqs)]);
            let rows = fetch(&mut tx, sql).await?;
            let closed = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
            if closed.is_empty() {
                continue;
            }
            let (seqs, token) = (literal::numbers(closed), literal::token(Token::random()));
            let places = [("why", DELIVERED_BEFORE), ("token", token.as_str()), ("seqs", &seqs)];
            execute(&mut tx, filled(CLOSE, &places)).await?;
        }
        tx.commit().await
    }
}
