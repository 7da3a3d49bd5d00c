//! The relays' rows.

use super::claims::micros;
use super::error::store_error;
use super::literal::{self, filled};
use super::{LIST, MySqlStore, execute, execute_each, row};
use crate::own_claims::{OwnClaims, VERSION};
use async_trait::async_trait;
use postroom_core::{Heartbeat, RELAY_KEPT, RelayId, RelayRow, Relays, StoreResult, Token};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Error, Row as _};

const BEAT: &str = include_str!("sql/beat.sql");
const FORGET_RELAY: &str = include_str!("sql/forget_relay.sql");
const GIVE_UP: &str = include_str!("sql/give_up.sql");
const LEAVE: &str = include_str!("sql/leave.sql");
const RELAYS: &str = include_str!("sql/relays.sql");

/// What marks a row of `beat` as that of a relay that is to be forgotten. Claims are marked 0 or 1:
/// whether they are older than a claim time.
const FORGETTABLE: i64 = 2;

#[async_trait]
impl Relays for MySqlStore {
    async fn beat(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<Token>> {
        self.write_beat(beat).await.map_err(|e| store_error("sending a heartbeat", e))
    }

    async fn leave(&self, relay: RelayId) -> StoreResult<()> {
        let left = sqlx::query(LEAVE).bind(relay.0).execute(&self.pool).await;
        left.map(drop).map_err(|e| store_error("ending a relay's row", e))
    }

    async fn relays(&self) -> StoreResult<Vec<RelayRow>> {
        let rows = sqlx::query(RELAYS).bind(micros(RELAY_KEPT)).fetch_all(&self.pool).await;
        let relays = rows.and_then(|rows| rows.iter().map(relay).collect());
        relays.map_err(|e| store_error("listing relays", e))
    }
}

impl MySqlStore {
    /// The claims that are lost. One round trip, and no transaction around it: the row is written
    /// before the claims are read, so that what a rescue did for which it had to wait is seen. No
    /// claim is locked: others come and go meanwhile.
    async fn write_beat(&self, beat: &Heartbeat<'_>) -> Result<Vec<Token>, Error> {
        let places = [
            ("relay", literal::token(Token(beat.relay.0))),
            ("name", literal::text(beat.name)),
            ("claim_time", micros(beat.claim_time).to_string()),
            ("version", VERSION.to_owned()),
            ("lanes", i32::try_from(beat.lanes).unwrap_or(i32::MAX).to_string()),
            ("kept", micros(RELAY_KEPT).to_string()),
            ("forgettable", FORGETTABLE.to_string()),
        ];
        let sql = filled(BEAT, &places.each_ref().map(|(name, value)| (*name, value.as_str())));
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        let (mut found, mut forgettable) = (Vec::new(), Vec::new());
        for row in &rows {
            let (id, what) = (Token(row.try_get(0)?), row.try_get::<i64, _>(1)?);
            if what == FORGETTABLE {
                forgettable.push(id);
            } else {
                found.push((id, what != 0));
            }
        }
        self.forget_relays(&forgettable).await?;
        let own = OwnClaims::compare(&found, beat.held);
        self.give_up(beat.relay, &own.unrecognised).await?;
        Ok(own.lost)
    }

    /// Leaves claims of a relay of which it has nothing in hand to whoever rescues next.
    pub(super) async fn give_up(&self, relay: RelayId, tokens: &[Token]) -> Result<(), Error> {
        for part in tokens.chunks(LIST) {
            let mut tx = self.begin().await?;
            let places = [
                ("nobody", literal::token(Token(RelayId::NOBODY.0))),
                ("tokens", literal::tokens(part)),
                ("relay", literal::token(Token(relay.0))),
            ];
            let sql =
                filled(GIVE_UP, &places.each_ref().map(|(name, value)| (*name, value.as_str())));
            execute(&mut tx, sql).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    async fn forget_relays(&self, relays: &[Token]) -> Result<(), Error> {
        if relays.is_empty() {
            return Ok(());
        }
        let mut relays = relays.to_vec();
        relays.sort_unstable();
        let forget = |relay: Token| filled(FORGET_RELAY, &[("relay", &literal::token(relay))]);
        let mut tx = self.begin().await?;
        execute_each(&mut tx, relays.into_iter().map(forget)).await?;
        tx.commit().await
    }
}

fn relay(row: &MySqlRow) -> Result<RelayRow, Error> {
    Ok(RelayRow {
        id: RelayId(row.try_get(0)?),
        name: row.try_get(1)?,
        version: row.try_get(2)?,
        lanes: u32::try_from(row::count(row, 3)?).unwrap_or(u32::MAX),
        started_at: row::time(row, 4)?,
        until: row::time(row, 5)?,
        claims: row::count(row, 6)?,
    })
}
