//! The relays' rows.

use super::claims::{literal, literals, micros};
use super::error::store_error;
use super::{LIST, MySqlStore, execute, row, statements};
use crate::own_claims::{OwnClaims, VERSION};
use async_trait::async_trait;
use postroom_core::{Heartbeat, RELAY_KEPT, RelayId, RelayRow, Relays, StoreResult, Token};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Error, Row as _};

/// What marks a row of `beat` as that of a relay that is to be forgotten. Claims are marked 0 or 1:
/// whether they are older than a claim time.
const FORGETTABLE: i64 = 2;

#[async_trait]
impl Relays for MySqlStore {
    async fn beat(&self, beat: &Heartbeat<'_>) -> StoreResult<Vec<Token>> {
        self.write_beat(beat).await.map_err(|e| store_error("sending a heartbeat", e))
    }

    async fn leave(&self, relay: RelayId) -> StoreResult<()> {
        let left = sqlx::query(statements::LEAVE).bind(relay.0).execute(&self.pool).await;
        left.map(drop).map_err(|e| store_error("ending a relay's row", e))
    }

    async fn relays(&self) -> StoreResult<Vec<RelayRow>> {
        let rows =
            sqlx::query(statements::RELAYS).bind(micros(RELAY_KEPT)).fetch_all(&self.pool).await;
        let relays = rows.and_then(|rows| rows.iter().map(relay).collect());
        relays.map_err(|e| store_error("listing relays", e))
    }
}

impl MySqlStore {
    /// The claims that are lost. One round trip, and no transaction around it: the row is written
    /// before the claims are read, so that what a rescue did for which it had to wait is seen. No
    /// claim is locked: others come and go meanwhile.
    async fn write_beat(&self, beat: &Heartbeat<'_>) -> Result<Vec<Token>, Error> {
        let relay = literal(Token(beat.relay.0));
        let claim_time = micros(beat.claim_time);
        let sql = format!(
            "INSERT INTO outbox_relay (id, name, started_at, until, version, lanes) \
             VALUES ({relay}, CONVERT(x'{name}' USING utf8mb4), UTC_TIMESTAMP(6), \
                     UTC_TIMESTAMP(6) + INTERVAL {claim_time} MICROSECOND, '{VERSION}', {lanes}) \
             ON DUPLICATE KEY UPDATE name = VALUES(name), until = VALUES(until), \
                 version = VALUES(version), lanes = VALUES(lanes); \
             SELECT token, since < UTC_TIMESTAMP(6) - INTERVAL {claim_time} MICROSECOND \
             FROM outbox_claim FORCE INDEX (outbox_claim_relay) WHERE relay = {relay}; \
             SELECT r.id, {FORGETTABLE} FROM outbox_relay AS r \
             WHERE r.until < UTC_TIMESTAMP(6) - INTERVAL IF(r.lanes > 0, {kept}, 0) MICROSECOND \
               AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c WHERE c.relay = r.id)",
            // As bytes: nothing in a name can end the text.
            name = hex(beat.name),
            lanes = i32::try_from(beat.lanes).unwrap_or(i32::MAX),
            kept = micros(RELAY_KEPT),
        );
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
        for part in own.unrecognised.chunks(LIST) {
            let mut tx = self.begin().await?;
            let sql = format!(
                "UPDATE outbox_claim FORCE INDEX (PRIMARY) \
                 SET relay = {}, alone = FALSE, dispatched = TRUE \
                 WHERE token IN ({}) AND relay = {relay}",
                literal(Token(RelayId::NOBODY.0)),
                literals(part)
            );
            execute(&mut tx, sql).await?;
            tx.commit().await?;
        }
        Ok(own.lost)
    }

    /// By key: a DELETE that looks for them would wait for every row that a rescue has locked.
    async fn forget_relays(&self, relays: &[Token]) -> Result<(), Error> {
        for part in relays.chunks(LIST) {
            let mut tx = self.begin().await?;
            let sql = format!(
                "DELETE FROM outbox_relay WHERE id IN ({}) AND until < UTC_TIMESTAMP(6)",
                literals(part)
            );
            execute(&mut tx, sql).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
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
