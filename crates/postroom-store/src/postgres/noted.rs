//! Whole batches whose SENT is recorded in the background: noted in one row each, before anything else
//! is tried. Where an integration asks for that, nearly all of its batches are; the checks that other
//! settlements need would double the cost. Those of other integrations pay a round trip.

use super::columns::Columns;
use super::connection::Connection;
use super::settle::LOCK_CLAIM;
use super::transaction::{BEGIN_SETTLING, COMMIT, in_order};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_postgres::Error;

pub(super) const NOTE_WHOLE: &str = concat!(
    include_str!("sql/held_parcels.sql"),
    include_str!("sql/settle_parcels_noted_whole.sql"),
    include_str!("sql/end_parcels.sql"),
    "SELECT FROM whole"
);

/// Notes the settlements that it can and removes them from the list, in a transaction of its own.
/// Settlements do not depend on each other, and one that is said again is recognised.
pub(super) async fn note_whole(
    client: &Connection,
    columns: &mut Vec<Columns>,
) -> Result<(), Error> {
    if !columns.iter().any(Columns::may_be_noted_whole) {
        return Ok(());
    }
    let lock = client.prepare_cached(LOCK_CLAIM).await?;
    let note = client.prepare_cached(NOTE_WHOLE).await?;
    let mut steps: Vec<BoxFuture<'_, Result<bool, Error>>> =
        vec![async { client.batch_execute(BEGIN_SETTLING).await.map(|()| false) }.boxed()];
    for c in columns.iter().filter(|c| c.may_be_noted_whole()) {
        steps.push(async { client.run(&lock, &[&c.token]).await.map(|_| false) }.boxed());
        steps.push(async { Ok(!client.run(&note, &c.sent()).await?.is_empty()) }.boxed());
    }
    steps.push(async { client.batch_execute(COMMIT).await.map(|()| false) }.boxed());
    let answers: Vec<bool> = in_order(steps).await.into_iter().collect::<Result<_, _>>()?;
    // After the beginning, a lock and a note for each.
    let mut noted = answers.into_iter().skip(2).step_by(2);
    columns.retain(|c| !(c.may_be_noted_whole() && noted.next().unwrap_or(false)));
    Ok(())
}
