//! Whether a pooler in transaction mode stands between a client and the server.
//!
//! Behind one, two statements of a connection may run in two sessions of the server, where a
//! statement prepared by name can be missing, or another program's of the same name. So this is
//! found out before anything is prepared.

use super::connect::Target;
use super::error::store_error;
use postroom_core::StoreResult;
use std::time::Duration;
use tokio_postgres::Client;

/// How often to look: somebody else's transaction can hide what one look would show.
const LOOKS: usize = 3;
/// A pool with a single session answers nobody while a transaction is open.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const DOING: &str = "looking for a pooler";

/// Two connections to one server stay what they are, whatever each does. Behind a pooler in
/// transaction mode, one that opens a transaction takes the session that the other used last.
///
/// # Errors
/// When the database cannot be reached.
pub(super) async fn is_between(target: &Target) -> StoreResult<bool> {
    let (idle, busy) = (target.session().await?, target.session().await?);
    for _ in 0..LOOKS {
        let before = session(&idle).await?;
        busy.batch_execute("BEGIN").await.map_err(|e| store_error(DOING, e))?;
        session(&busy).await?;
        let after = tokio::time::timeout(ANSWER_WITHIN, session(&idle)).await;
        busy.batch_execute("ROLLBACK").await.map_err(|e| store_error(DOING, e))?;
        let Ok(after) = after else { return Ok(true) };
        if after? != before {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The server's session that answers; asked in a way that prepares nothing.
async fn session(client: &Client) -> StoreResult<String> {
    let failed = |error| store_error(DOING, error);
    let answer = client.simple_query("SELECT pg_backend_pid()").await.map_err(failed)?;
    let row = answer.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(row.unwrap_or_default().to_owned())
}
