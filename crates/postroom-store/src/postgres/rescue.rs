//! Freeing what expired claims hold.

use super::connection::Connection;
use super::error::store_error;
use super::parcels::RESCUE_PARCELS;
use super::settle::attempts_kept;
use super::transaction::{JOIN_BY_HASH, SETTLE_LOCKED};
use super::upkeep::count;
use postroom_core::{RelayId, StoreErrorKind, StoreResult, Token, with_causes};
use tokio_postgres::Error;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

/// Claims of others without a living relay, as in `expired.sql`. $1 the relay that asks.
pub(super) const ANY_EXPIRED: &str = "SELECT EXISTS (
    SELECT FROM core_outbox.claim
    WHERE relay <> $1 AND relay <> ALL (ARRAY(SELECT id FROM core_outbox.relay WHERE until >= now()))
)";
pub(super) const EXPIRED: &str = include_str!("sql/expired.sql");
pub(super) const RESCUE: &str = concat!(
    include_str!("sql/rescue.sql"),
    include_str!("sql/note_attempts.sql"),
    "SELECT (SELECT count(*) FROM freed), (SELECT count(*) FROM ended)"
);

/// $1 tokens of claims whose loss counts as no attempt.
const COUNT_NOTHING: &str =
    "UPDATE core_outbox.claim SET alone = false WHERE token = ANY ($1) AND alone";

const DOING: &str = "rescuing expired claims";

/// What a claim holds.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Holds {
    Parcels,
    Deliveries,
}

/// Frees what at most `limit` expired claims of either kind hold, but for those of `relay`; how many
/// messages that were.
pub(super) async fn rescue(
    client: &mut Connection,
    relay: RelayId,
    limit: i64,
) -> StoreResult<u64> {
    let failed = |error| store_error(DOING, error);
    loop {
        // Nearly always there is nothing to do, and that must cost nearly nothing.
        let any = client.query_one(ANY_EXPIRED, &[&relay.0]).await.map_err(failed)?;
        if !any.try_get::<_, bool>(0).map_err(failed)? {
            return Ok(0);
        }
        let mut freed = 0;
        let mut ended = 0;
        for holds in [Holds::Parcels, Holds::Deliveries] {
            let (messages, claims) = match rescue_from(client, relay, limit, holds, true).await {
                // A constraint or a trigger of the owner's refuses that an attempt is counted in the message. That
                // must keep nothing from being rescued.
                Err(error)
                    if error.kind == StoreErrorKind::Refused && holds == Holds::Deliveries =>
                {
                    let error = with_causes(&error);
                    tracing::warn!(
                        error,
                        "the database refuses to count lost attempts; rescuing without"
                    );
                    rescue_from(client, relay, limit, holds, false).await?
                }
                answer => answer?,
            };
            freed += messages;
            ended += claims;
        }
        // Behind claims that held nothing there may be one that does.
        if freed > 0 || ended == 0 {
            return Ok(freed);
        }
    }
}

/// Locks claims of one kind and then frees what they hold, in two statements. How many messages that
/// were, and how many claims ended. Whether the loss of a message that was alone counts as an attempt.
async fn rescue_from(
    client: &mut Connection,
    relay: RelayId,
    limit: i64,
    holds: Holds,
    counts: bool,
) -> StoreResult<(u64, u64)> {
    let failed = |error| store_error(DOING, error);
    let expired = client.prepare_cached(EXPIRED).await.map_err(failed)?;
    let free = match holds {
        Holds::Parcels => client.prepare_cached(RESCUE_PARCELS).await,
        Holds::Deliveries => client.prepare_cached(RESCUE).await,
    };
    let free = free.map_err(failed)?;
    let tx = client.transaction().await.map_err(failed)?;
    let rescued = async {
        tx.batch_execute(SETTLE_LOCKED).await?;
        let is_parcels = holds == Holds::Parcels;
        let rows = expired.run_in(&tx, &[&limit, &relay.0, &is_parcels]).await?;
        let tokens: Vec<Uuid> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if tokens.is_empty() {
            return Ok((0, 0));
        }
        if !counts {
            tx.query_typed(COUNT_NOTHING, &[(&tokens, Type::UUID_ARRAY)]).await?;
        }
        let token = Token::random().0;
        let kept = attempts_kept();
        let params: Vec<&(dyn ToSql + Sync)> = match holds {
            Holds::Parcels => vec![&tokens],
            Holds::Deliveries => {
                tx.batch_execute(JOIN_BY_HASH).await?;
                vec![&kept, &tokens, &token]
            }
        };
        let answer = free.run_in(&tx, &params).await?;
        let Some(row) = answer.first() else { return Ok((0, 0)) };
        let ended = match holds {
            Holds::Parcels => u64::try_from(tokens.len()).unwrap_or(u64::MAX),
            Holds::Deliveries => count(row, 1)?,
        };
        Ok::<_, Error>((count(row, 0)?, ended))
    };
    let rescued = rescued.await.map_err(failed);
    tx.end(DOING, rescued).await
}
