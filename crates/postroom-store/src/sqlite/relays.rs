//! The relays' rows.

use super::SqliteStore;
use super::error::store_error;
use super::json_lists::json;
use super::row::{text, token};
use super::session::Session;
use super::time::{earlier, later, moment, now_ms};
use super::upkeep::count;
use crate::own_claims::{OwnClaims, VERSION};
use async_trait::async_trait;
use postroom_core::{Heartbeat, RELAY_KEPT, RelayId, RelayRow, Relays, StoreResult, Token};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};

const BEAT: &str = include_str!("sql/beat.sql");
pub(super) const CLAIMS_OF_RELAY: &str = include_str!("sql/claims_of_relay.sql");
const GIVE_UP: &str = include_str!("sql/give_up.sql");
const FORGET_RELAYS: &str = include_str!("sql/forget_relays.sql");
const RELAYS: &str = include_str!("sql/relays.sql");
/// Claims that still name it have expired then. `?1` relay.
const LEAVE: &str = "DELETE FROM outbox_relay WHERE id = ?1";

#[async_trait]
impl Relays for SqliteStore {
    async fn beat(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<Token>> {
        let doing = "sending a heartbeat";
        let mut tx = self.begin(doing).await?;
        let lost = write(&mut tx, beat).await.map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        Ok(lost)
    }

    async fn leave(&self, relay: RelayId) -> StoreResult<()> {
        let doing = "ending a relay's row";
        let mut tx = self.begin(doing).await?;
        sqlx::query(LEAVE)
            .bind(relay.0.to_string())
            .execute(&mut tx)
            .await
            .map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))
    }

    async fn relays(&self) -> StoreResult<Vec<RelayRow>> {
        let failed = |error| store_error("listing relays", error);
        let rows = sqlx::query(RELAYS)
            .bind(earlier(now_ms(), RELAY_KEPT))
            .fetch_all(&self.readers)
            .await
            .map_err(failed)?;
        rows.iter().map(relay).collect::<Result<_, _>>().map_err(failed)
    }
}

/// The claims that are lost.
async fn write(tx: &mut Session, beat: &Heartbeat<'_>) -> Result<Vec<Token>, Error> {
    let (now, id) = (now_ms(), beat.relay.0.to_string());
    sqlx::query(BEAT)
        .bind(&id)
        .bind(beat.name)
        .bind(now)
        .bind(later(now, beat.claim_time))
        .bind(VERSION)
        .bind(i64::try_from(beat.lanes).unwrap_or(i64::MAX))
        .execute(&mut *tx)
        .await?;
    let rows = sqlx::query(CLAIMS_OF_RELAY)
        .bind(&id)
        .bind(earlier(now, beat.claim_time))
        .fetch_all(&mut *tx)
        .await?;
    let found = rows
        .iter()
        .map(|row| Ok((token(row, 0)?, row.try_get(1)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    let own = OwnClaims::compare(&found, beat.held);
    if !own.unrecognised.is_empty() {
        let tokens: Vec<String> = own.unrecognised.iter().map(|one| one.0.to_string()).collect();
        sqlx::query(GIVE_UP)
            .bind(json(&tokens))
            .bind(RelayId::NOBODY.0.to_string())
            .execute(&mut *tx)
            .await?;
    }
    sqlx::query(FORGET_RELAYS).bind(now).bind(earlier(now, RELAY_KEPT)).execute(&mut *tx).await?;
    Ok(own.lost)
}

fn relay(row: &SqliteRow) -> Result<RelayRow, Error> {
    Ok(RelayRow {
        id: RelayId(token(row, 0)?.0),
        name: text(row, 1)?,
        version: text(row, 2)?,
        lanes: u32::try_from(count(row, 3)?).unwrap_or(u32::MAX),
        started_at: moment(row.try_get(4)?),
        until: moment(row.try_get(5)?),
        claims: count(row, 6)?,
    })
}
