//! The relays' rows.

use super::PgStore;
use super::connection::Connection;
use super::content::clamp_i32;
use super::error::store_error;
use super::transaction::{BEGIN, COMMIT, in_order, transact};
use super::upkeep::count;
use crate::own_claims::{OwnClaims, VERSION};
use async_trait::async_trait;
use futures_util::FutureExt;
use postroom_core::{Heartbeat, RELAY_KEPT, RelayId, RelayRow, Relays, StoreResult, Token};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

const BEAT: &str = include_str!("sql/beat.sql");
const CLAIMS_OF_RELAY: &str = include_str!("sql/claims_of_relay.sql");
const GIVE_UP: &str = include_str!("sql/give_up.sql");
const LEAVE: &str = "DELETE FROM core_outbox.relay WHERE id = $1";
const RELAYS: &str = include_str!("sql/relays.sql");

#[async_trait]
impl Relays for PgStore {
    async fn beat(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<Token>> {
        let failed = |error| store_error("sending a heartbeat", error);
        let found = self.beat_once(beat).await?;
        let own = OwnClaims::compare(&found, beat.held);
        if !own.unrecognised.is_empty() {
            let tokens: Vec<Uuid> = own.unrecognised.iter().map(|token| token.0).collect();
            let client = self.connection().await?;
            give_up(&client, beat.relay, &tokens).await.map_err(failed)?;
        }
        Ok(own.lost)
    }

    async fn leave(&self, relay: RelayId) -> StoreResult<()> {
        let failed = |error| store_error("ending a relay's row", error);
        let client = self.connection().await?;
        let statement = client.prepare_cached(LEAVE).await.map_err(failed)?;
        transact(&client, BEGIN, &statement, &[&relay.0]).await.map_err(failed)?;
        Ok(())
    }

    async fn relays(&self) -> StoreResult<Vec<RelayRow>> {
        let failed = |error| store_error("listing relays", error);
        let client = self.connection().await?;
        let rows = client.query(RELAYS, &[&RELAY_KEPT.as_secs_f64()]).await.map_err(failed)?;
        rows.iter().map(relay).collect::<Result<_, _>>().map_err(failed)
    }
}

/// Leaves claims of a relay of which it has nothing in hand to whoever rescues next.
pub(super) async fn give_up(
    client: &Connection,
    relay: RelayId,
    tokens: &[Uuid],
) -> Result<(), Error> {
    let statement = client.prepare_cached(GIVE_UP).await?;
    let params: [&(dyn ToSql + Sync); 2] = [&tokens, &relay.0];
    transact(client, BEGIN, &statement, &params).await?;
    Ok(())
}

impl PgStore {
    /// Writes the row, and reads the relay's claims: two statements in one round trip. The second has
    /// a snapshot of its own, so that it sees what a rescue did for which the first had to wait.
    async fn beat_once(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<(Token, bool)>> {
        let failed = |error| store_error("sending a heartbeat", error);
        let client = self.connection().await?;
        let write = client.prepare_cached(BEAT).await.map_err(failed)?;
        let read = client.prepare_cached(CLAIMS_OF_RELAY).await.map_err(failed)?;
        let (claim_time, kept) = (beat.claim_time.as_secs_f64(), RELAY_KEPT.as_secs_f64());
        let lanes = clamp_i32(beat.lanes);
        let written: [&(dyn ToSql + Sync); 6] =
            [&beat.relay.0, &beat.name, &claim_time, &VERSION, &lanes, &kept];
        let asked: [&(dyn ToSql + Sync); 2] = [&beat.relay.0, &claim_time];
        let nothing = |()| Vec::new();
        let answers = in_order(vec![
            async { client.batch_execute(BEGIN).await.map(nothing) }.boxed(),
            async { client.run(&write, &written).await }.boxed(),
            async { client.run(&read, &asked).await }.boxed(),
            async { client.batch_execute(COMMIT).await.map(nothing) }.boxed(),
        ])
        .await;
        let answers = answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let claims = answers.iter().flatten();
        claims
            .map(|row| Ok((Token(row.try_get(0)?), row.try_get(1)?)))
            .collect::<Result<_, _>>()
            .map_err(failed)
    }
}

fn relay(row: &Row) -> Result<RelayRow, Error> {
    Ok(RelayRow {
        id: RelayId(row.try_get(0)?),
        name: row.try_get(1)?,
        version: row.try_get(2)?,
        lanes: row.try_get::<_, i32>(3)?.unsigned_abs(),
        started_at: row.try_get(4)?,
        until: row.try_get(5)?,
        claims: count(row, 6)?,
    })
}
