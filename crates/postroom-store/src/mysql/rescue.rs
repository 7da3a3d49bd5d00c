//! Freeing what expired claims hold. Lock order: relay, claim, delivery, message.

use super::attempts::{self, Failure};
use super::deliveries::{self, Delivery, IfThere, Life, Wait, lock_messages};
use super::key::Key;
use super::literal::{self, filled};
use super::locked::lock_deliveries;
use super::parcel::{ParcelKey, read_list};
use super::parcels::{end_parcels, held_parcels};
use super::session::Session;
use super::settle::{FORGET_CLAIM, end_claim};
use super::version::Locking;
use super::{MySqlStore, fetch, fetch_each, now, row};
use postroom_core::{AttemptOutcome, RelayId, Token};
use sqlx::{AssertSqlSafe, Error, Row as _};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

pub(super) const EXPIRED: &str = include_str!("sql/expired.sql");
const LOCK_RELAYS: &str = include_str!("sql/lock_relays.sql");
const RESCUE: &str = include_str!("sql/rescue.sql");
const CLAIMED_BY: &str = include_str!("sql/claimed_by.sql");
const COUNT_LOST: &str = include_str!("sql/count_lost.sql");

/// A claim that has expired.
struct Expired {
    token: Token,
    worker: String,
    alone: bool,
    dispatched: bool,
    held: Duration,
    /// `None` when it holds deliveries.
    parcels: Option<Vec<ParcelKey>>,
}

/// Waits for nobody where the server can: a delivery that is locked is being settled, a message
/// that is locked is being changed, and both are left for the next time, with their claim. Rows are found
/// first and locked by their key then: to lock them by another index is to lock that first, and a settlement
/// comes the other way.
pub(super) async fn rescue(
    store: &MySqlStore,
    asking: RelayId,
    limit: usize,
) -> Result<u64, Error> {
    loop {
        let (freed, ended) = rescue_some(store, asking, limit).await?;
        // Behind claims that held nothing there may be one that does.
        if freed > 0 || ended == 0 {
            return Ok(freed);
        }
    }
}

/// How many messages were freed, and how many claims ended.
async fn rescue_some(
    store: &MySqlStore,
    asking: RelayId,
    limit: usize,
) -> Result<(u64, u64), Error> {
    let expired = filled(EXPIRED, &[("limit", &limit.to_string())]);
    let expired = sqlx::query(AssertSqlSafe(expired)).bind(asking.0);
    let (mut tokens, mut relays) = (Vec::new(), BTreeSet::new());
    for row in expired.fetch_all(&store.pool).await? {
        tokens.push(Token(row.try_get::<Uuid, _>(0)?));
        relays.insert(Token(row.try_get::<Uuid, _>(1)?));
    }
    if tokens.is_empty() {
        return Ok((0, 0));
    }
    tokens.sort_unstable();
    let locking = store.locking().await?;
    let mut tx = store.begin().await?;
    let alive = lock_relays(&mut tx, relays).await?;
    let (mut freed, mut ended) = (0, 0);
    for part in tokens.chunks(locking.keys()) {
        let sql = filled(RESCUE, &[("tokens", &literal::tokens(part)), ("alive", &alive)]);
        // Locked in one statement, and looked into by others after it: what a settlement did that was
        // waited for is seen.
        for row in fetch(&mut tx, format!("{sql} {}", locking.clause())).await? {
            let list: Option<String> = row.try_get(5)?;
            let claim = Expired {
                token: Token(row.try_get::<Uuid, _>(0)?),
                worker: row.try_get(1)?,
                alone: row.try_get(2)?,
                dispatched: row.try_get(4)?,
                held: Duration::from_micros(row::count(&row, 3)?),
                parcels: list.as_deref().map(read_list).transpose()?,
            };
            let (messages, has_ended) = match &claim.parcels {
                Some(parcels) => free_parcels(&mut tx, &claim, parcels, locking).await?,
                None => free_deliveries(&mut tx, &claim, locking).await?,
            };
            freed += messages;
            ended += u64::from(has_ended);
        }
    }
    tx.commit().await?;
    Ok((freed, ended))
}

/// Locks the rows of these relays, and says which of them live after all. A relay that comes back
/// waits for this to end, and then sees what it has lost. Others that rescue do not wait.
async fn lock_relays(tx: &mut Session, relays: BTreeSet<Token>) -> Result<String, Error> {
    let mut alive = Vec::new();
    let lock = |relay: Token| filled(LOCK_RELAYS, &[("relay", &literal::token(relay))]);
    for row in fetch_each(tx, relays.into_iter().map(lock)).await? {
        if row.try_get(1)? {
            alive.push(Token(row.try_get::<Uuid, _>(0)?));
        }
    }
    Ok(if alive.is_empty() { "''".to_owned() } else { literal::tokens(&alive) })
}

/// Makes deliveries of what is open in the parcels of a claim, and deletes them. How many messages that
/// were, and whether the claim has ended with it.
async fn free_parcels(
    tx: &mut Session,
    claim: &Expired,
    parcels: &[ParcelKey],
    locking: Locking,
) -> Result<(u64, bool), Error> {
    let held = held_parcels(tx, parcels).await?;
    let keys: Vec<Key> = held.iter().map(|held| held.parcel.key.message).collect();
    let locked = lock_messages(tx, &keys, locking).await?;
    let (mut made, mut over) = (Vec::new(), Vec::new());
    for held in &held {
        let id = held.parcel.key.message.id;
        if locked.by_others.contains(&id) {
            continue;
        }
        over.push(held.parcel.key.clone());
        let recorded = locked.recorded.get(&id).filter(|_| !held.is_outranked);
        let delivery =
            recorded.and_then(|recorded| Delivery::of(recorded, held.parcel.bytes, Life::First));
        let rescues = i32::from(!claim.dispatched);
        made.extend(delivery.map(|delivery| Delivery { rescues, ..delivery }));
    }
    deliveries::write(tx, made, IfThere::Keep).await?;
    end_parcels(tx, &over).await?;
    let is_over = over.len() == held.len();
    if is_over {
        end_claim(tx, claim.token, &[]).await?;
    }
    Ok((over.len() as u64, is_over))
}

/// Frees the deliveries of a claim, as their messages say by now.
async fn free_deliveries(
    tx: &mut Session,
    claim: &Expired,
    locking: Locking,
) -> Result<(u64, bool), Error> {
    let token = literal::token(claim.token);
    let mut ids: Vec<Uuid> = Vec::new();
    for row in fetch(tx, filled(CLAIMED_BY, &[("token", &token)])).await? {
        ids.push(row.try_get::<Hyphenated, _>(0)?.into());
    }
    ids.sort_unstable();
    let held = lock_deliveries(tx, &ids, &format!("claim = {token}"), locking).await?;
    let keys: Vec<Key> = held.iter().map(|held| held.key).collect();
    let mut locked = lock_messages(tx, &keys, locking).await?;
    let free: Vec<Key> =
        keys.into_iter().filter(|key| !locked.by_others.contains(&key.id)).collect();
    if claim.alone {
        let open = locked
            .recorded
            .values()
            .filter(|recorded| recorded.is_open())
            .map(|recorded| recorded.key);
        let counted = count_lost(tx, claim, &open.collect::<Vec<_>>()).await?;
        for recorded in
            locked.recorded.values_mut().filter(|recorded| counted.contains(&recorded.key))
        {
            recorded.status = "FAILED".to_owned();
        }
    }
    let (mut freed, mut over) = (Vec::new(), Vec::new());
    for key in &free {
        let recorded = locked.recorded.get(&key.id);
        match recorded.and_then(|recorded| Delivery::of(recorded, 0, Life::First)) {
            Some(delivery) => freed.push(delivery),
            // Deleted, or closed by hand.
            None => over.push(key.id),
        }
    }
    let rescues =
        if claim.dispatched { "outbox_delivery.rescues" } else { "outbox_delivery.rescues + 1" };
    deliveries::write(tx, freed, IfThere::Follow { wait: Wait::AsItSays, rescues, dispatches: 0 })
        .await?;
    deliveries::remove(tx, &over).await?;
    let forgotten =
        sqlx::query(FORGET_CLAIM).bind(claim.token.0).bind(claim.token.0).execute(&mut *tx).await?;
    Ok((free.len() as u64, forgotten.rows_affected() > 0))
}

/// Lost alone, it was this message: that counts as an attempt. Which ones were counted.
async fn count_lost(
    tx: &mut Session,
    claim: &Expired,
    keys: &[Key],
) -> Result<HashSet<Key>, Error> {
    let at = now(tx).await?;
    let error = format!(
        "lost with its relay: the claim of {} expired while it handled this message alone",
        claim.worker
    );
    let mut lost = Vec::new();
    for key in keys {
        let counted = sqlx::query(COUNT_LOST)
            .bind(&error)
            .bind(at)
            .bind(Token::random().0)
            .bind(key.seq)
            .execute(&mut *tx)
            .await?;
        if counted.rows_affected() == 1 {
            let outcome = AttemptOutcome::Lost;
            lost.push(Failure { key: *key, took: claim.held, outcome, error: &error });
        }
    }
    attempts::record(tx, &lost, at).await?;
    Ok(lost.iter().map(|failure| failure.key).collect())
}
