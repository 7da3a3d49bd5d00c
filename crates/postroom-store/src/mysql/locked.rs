//! What a settlement may change, around rows that somebody else has locked.

use super::deliveries::{Recorded, lock_messages};
use super::key::Key;
use super::literal::{self, filled};
use super::parcel::{Parcel, ParcelKey};
use super::parcels::held_parcels;
use super::session::Session;
use super::version::Locking;
use super::{LIST, fetch_each};
use crate::parcel_token::holds_parcels;
use chrono::NaiveDateTime;
use postroom_core::{Fence, Settlement, Verdict};
use sqlx::{Error, Row as _};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const LOCK_DELIVERIES: &str = include_str!("sql/lock_deliveries.sql");

/// A delivery that was locked.
#[derive(Clone)]
pub(super) struct DeliveryRow {
    pub(super) key: Key,
    pub(super) due_at: NaiveDateTime,
    pub(super) integration: String,
    pub(super) state: char,
    pub(super) is_claimed: bool,
}

/// Where a message was held.
pub(super) enum Origin {
    Delivery(DeliveryRow),
    Parcel(Parcel),
}

/// A verdict that counts. Whatever its message is held by is locked by this transaction, and so is the
/// message.
pub(super) struct Counted<'a> {
    pub(super) verdict: &'a Verdict,
    pub(super) recorded: Recorded,
    pub(super) origin: Origin,
}

/// What the fence of a settlement lets through. A verdict that is in neither was lost to another relay, is
/// another dispatch's, or its message was deleted.
#[derive(Default)]
pub(super) struct LetThrough<'a> {
    pub(super) counted: Vec<Counted<'a>>,
    /// Locked by somebody else, or their messages are: by number.
    pub(super) locked: Vec<i64>,
    /// Held under the fence, of messages that are gone, or that a delivery names too.
    pub(super) void_deliveries: Vec<Uuid>,
    pub(super) void_parcels: Vec<ParcelKey>,
}

/// Locks what a settlement may change. Where the server can, it passes over what somebody else has locked, so
/// that nothing that follows has to wait. `named` are the parcels of its claim, which is locked.
pub(super) async fn let_through<'a>(
    tx: &mut Session,
    settlement: &'a Settlement,
    named: &[ParcelKey],
    locking: Locking,
) -> Result<LetThrough<'a>, Error> {
    match settlement.fence {
        Fence::Claim(token) if holds_parcels(token) => {
            of_parcels(tx, settlement, named, locking).await
        }
        Fence::Claim(token) => {
            let fence = format!("claim = {}", literal::token(token));
            of_deliveries(tx, settlement, &fence, locking).await
        }
        Fence::Dispatch { number, .. } => {
            let fence = format!("dispatch = {} AND state <> 'd'", i64::from(number) - 1);
            of_deliveries(tx, settlement, &fence, locking).await
        }
    }
}

/// The parcels are not locked: nobody but the holder of their claim's row settles or frees them.
async fn of_parcels<'a>(
    tx: &mut Session,
    settlement: &'a Settlement,
    named: &[ParcelKey],
    locking: Locking,
) -> Result<LetThrough<'a>, Error> {
    let verdicts: HashSet<Key> = settlement.verdicts.iter().map(Key::judged).collect();
    let wanted: Vec<ParcelKey> =
        named.iter().filter(|parcel| verdicts.contains(&parcel.message)).cloned().collect();
    let mut let_through = LetThrough::default();
    let mut origins = HashMap::with_capacity(wanted.len());
    for held in held_parcels(tx, &wanted).await? {
        if held.is_outranked {
            let_through.void_parcels.push(held.parcel.key);
        } else {
            let key = held.parcel.key.message;
            origins.insert(key.id, (key, Origin::Parcel(held.parcel)));
        }
    }
    sort_out(tx, settlement, origins, let_through, locking).await
}

async fn of_deliveries<'a>(
    tx: &mut Session,
    settlement: &'a Settlement,
    fence: &str,
    locking: Locking,
) -> Result<LetThrough<'a>, Error> {
    let mut ids: Vec<Uuid> =
        settlement.verdicts.iter().map(Key::judged).map(|key| key.id).collect();
    ids.sort_unstable();
    let mut let_through = LetThrough::default();
    let mut origins = HashMap::with_capacity(ids.len());
    for held in lock_deliveries(tx, &ids, fence, locking).await? {
        origins.insert(held.key.id, (held.key, Origin::Delivery(held)));
    }
    if locking == Locking::SkipLocked {
        ids.retain(|id| !origins.contains_key(id));
        let passed_over = look_at_deliveries(tx, &ids, fence).await?;
        let passed_over: HashSet<Uuid> = passed_over.iter().map(|held| held.key.id).collect();
        let judged = settlement.verdicts.iter().map(Key::judged);
        let locked = judged.filter(|key| passed_over.contains(&key.id));
        let_through.locked.extend(locked.map(|key| key.seq));
    }
    sort_out(tx, settlement, origins, let_through, locking).await
}

/// Locks the messages of what is held.
async fn sort_out<'a>(
    tx: &mut Session,
    settlement: &'a Settlement,
    mut origins: HashMap<Uuid, (Key, Origin)>,
    mut let_through: LetThrough<'a>,
    locking: Locking,
) -> Result<LetThrough<'a>, Error> {
    let keys: Vec<Key> = origins.values().map(|(key, _)| *key).collect();
    let mut messages = lock_messages(tx, &keys, locking).await?;
    for verdict in &settlement.verdicts {
        let Key { seq, id } = Key::judged(verdict);
        let Some((_, origin)) = origins.remove(&id) else { continue };
        if messages.by_others.contains(&id) {
            let_through.locked.push(seq);
        } else if let Some(recorded) = messages.recorded.remove(&id) {
            let_through.counted.push(Counted { verdict, recorded, origin });
        } else {
            match origin {
                Origin::Delivery(held) => let_through.void_deliveries.push(held.key.id),
                Origin::Parcel(parcel) => let_through.void_parcels.push(parcel.key),
            }
        }
    }
    Ok(let_through)
}

/// Locks deliveries by their key, as far as `fence` holds. Everybody locks deliveries before messages.
pub(super) async fn lock_deliveries(
    tx: &mut Session,
    ids: &[Uuid],
    fence: &str,
    locking: Locking,
) -> Result<Vec<DeliveryRow>, Error> {
    read_deliveries(tx, ids.chunks(locking.keys()), fence, locking.clause()).await
}

/// Looks at deliveries without locking them.
pub(super) async fn look_at_deliveries(
    tx: &mut Session,
    ids: &[Uuid],
    fence: &str,
) -> Result<Vec<DeliveryRow>, Error> {
    read_deliveries(tx, ids.chunks(LIST), fence, "").await
}

async fn read_deliveries(
    tx: &mut Session,
    parts: std::slice::Chunks<'_, Uuid>,
    fence: &str,
    clause: &str,
) -> Result<Vec<DeliveryRow>, Error> {
    let lock = |part: &[Uuid]| {
        let sql = filled(LOCK_DELIVERIES, &[("ids", &literal::ids(part)), ("fence", fence)]);
        format!("{sql} {clause}")
    };
    let statements: Vec<String> = parts.map(lock).collect();
    let mut deliveries = Vec::new();
    for row in fetch_each(tx, statements).await? {
        let id = row.try_get::<Hyphenated, _>(0)?.into();
        let state: String = row.try_get(4)?;
        deliveries.push(DeliveryRow {
            key: Key { seq: row.try_get(1)?, id },
            due_at: row.try_get(2)?,
            integration: row.try_get(3)?,
            // The table lets no other be than these: w, f, d.
            state: state.chars().next().unwrap_or('w'),
            is_claimed: row.try_get(5)?,
        });
    }
    Ok(deliveries)
}
