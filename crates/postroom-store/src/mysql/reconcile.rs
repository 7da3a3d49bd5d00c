//! Finding and mending what no trigger saw.

use super::deliveries::{self, Delivery, IfThere, Life, Recorded, Wait, lock_messages};
use super::key::Key;
use super::literal::{self, filled};
use super::locked::{lock_deliveries, look_at_deliveries};
use super::parcel::{Parcel, ParcelKey};
use super::parcels::{InFlight, end_parcels, held_parcels, in_flight, move_marks};
use super::session::Session;
use super::version::Locking;
use super::{LIST, MySqlStore, fetch};
use postroom_core::Reconciled;
use sqlx::mysql::MySqlRow;
use sqlx::{Error, Row as _};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// Open messages that neither a parcel of their lane nor a delivery names.
const MAKE: &str = include_str!("sql/reconcile_missing.sql");
/// Which messages are in parcels all the same, of other lanes.
const NAMED: &str = include_str!("sql/reconcile_named.sql");
/// Deliveries that nobody holds, without an open message.
const CLOSED: &str = include_str!("sql/reconcile_closed.sql");
/// Deliveries under a claim that does not exist.
const STRAY: &str = include_str!("sql/reconcile_stray.sql");
/// Deliveries that nobody holds and that say something else than their open message.
const UNLIKE: &str = include_str!("sql/reconcile_unlike.sql");
/// Parcels without an open message, or that a delivery outranks.
const EMPTIED: &str = include_str!("sql/reconcile_emptied.sql");
/// Messages that several parcels name.
const DOUBLED: &str = include_str!("sql/reconcile_doubled.sql");
const PARCELS_OF: &str = include_str!("sql/reconcile_parcels_of.sql");

/// Mends everything, and counts it.
pub(super) async fn reconcile(store: &MySqlStore) -> Result<Reconciled, Error> {
    // What no trigger saw of somebody else's table leaves notes here, which are followed next.
    let of_rows = match &store.rows {
        Some(rows) => {
            let clause = store.locking().await?.clause();
            let foreign = rows.foreign(&store.pool).await?;
            let mut connection = store.pool.acquire().await?;
            let mended = foreign.sync(&mut connection, clause, false).await?;
            connection.answered();
            mended
        }
        None => Reconciled::default(),
    };
    let edits = store.follow_all_edits().await?;
    // Freed before the others: what turns out to have no message goes with them.
    let freed = store.mend(STRAY, Mend::Free).await?;
    let removed = store.remove_parcels(Which::Doubled).await?;
    let made = store.mend(MAKE, Mend::Make).await?;
    let followed = store.mend(UNLIKE, Mend::Follow).await? + edits as u64;
    let removed = removed
        + store.mend(CLOSED, Mend::Remove).await?
        + store.remove_parcels(Which::Emptied).await?;
    // The server keeps its numbers ahead of those in use by itself, and apart by their key.
    Ok(Reconciled {
        made: made + of_rows.made,
        removed: removed + of_rows.removed,
        // Each of the others left a note.
        freed,
        followed,
        ..Reconciled::default()
    })
}

/// Counts what [`reconcile`] would mend, in its words, as of one moment.
pub(super) async fn count(store: &MySqlStore) -> Result<Reconciled, Error> {
    let mut tx = store.pool.snapshot().await?;
    let in_flight = in_flight(&mut tx).await?;
    let mut found = match &store.rows {
        Some(rows) => rows.foreign(&store.pool).await?.count(&mut tx).await?,
        None => Reconciled::default(),
    };
    for (sql, counted) in [
        (MAKE, &mut found.made),
        (CLOSED, &mut found.removed),
        (STRAY, &mut found.freed),
        (UNLIKE, &mut found.followed),
    ] {
        let mut after = None;
        loop {
            let keys = page(&mut tx, sql, after).await?;
            let Some(last) = keys.last() else { break };
            after = Some(last.id);
            let meant = if sql == MAKE { unnamed(&mut tx, &keys).await? } else { keys };
            *counted += meant.len() as u64;
        }
    }
    for which in [Which::Doubled, Which::Emptied] {
        let parcels = parcels(&mut tx, which).await?;
        found.removed += surplus(&parcels, which, &in_flight).len() as u64;
    }
    tx.commit().await?;
    Ok(found)
}

/// What is done about a fault.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Mend {
    /// Deliveries for messages without one.
    Make,
    /// Deliveries are freed, and say what their messages say.
    Free,
    /// Deliveries say what their messages say.
    Follow,
    /// Deliveries are removed.
    Remove,
}

impl MySqlStore {
    /// Looks for messages by their ids, without a lock, and mends them in bounded steps. What somebody is
    /// changing at this moment is left for the next time, where the server can tell.
    async fn mend(&self, find: &str, mend: Mend) -> Result<u64, Error> {
        let locking = self.locking().await?;
        let (mut after, mut mended) = (None, 0);
        loop {
            let mut tx = self.begin().await?;
            let found = page(&mut tx, find, after).await?;
            let Some(last) = found.last() else { return tx.commit().await.map(|()| mended) };
            after = Some(last.id);
            mended += match mend {
                Mend::Make => make(&mut tx, &found, locking).await?,
                Mend::Free => {
                    let stray = "claim IS NOT NULL AND NOT EXISTS (SELECT 1 FROM outbox_claim AS c \
                                 WHERE c.token = outbox_delivery.claim)";
                    correct(&mut tx, &found, stray, Corrected::All, locking).await?
                }
                Mend::Follow => {
                    correct(&mut tx, &found, "claim IS NULL", Corrected::Waiting, locking).await?
                }
                Mend::Remove => {
                    correct(&mut tx, &found, "claim IS NULL", Corrected::Over, locking).await?
                }
            };
            tx.commit().await?;
        }
    }

    /// Removes parcels that nobody holds and that are wrong; how many. Whoever takes there waits.
    async fn remove_parcels(&self, which: Which) -> Result<u64, Error> {
        let mut connection = self.pool.acquire().await?;
        let found = parcels(&mut connection, which).await?;
        connection.answered();
        let lanes: HashSet<&str> = found.iter().map(|parcel| &*parcel.key.integration).collect();
        let lanes: Vec<&str> = lanes.into_iter().collect();
        if lanes.is_empty() {
            return Ok(0);
        }
        self.know_lanes(&lanes).await?;
        let mut tx = self.begin().await?;
        let locked = self.lock_lanes(&mut tx, &lanes).await?;
        // Locked, then looked: somebody may have taken them meanwhile.
        let in_flight = in_flight(&mut tx).await?;
        let mut gone = surplus(&parcels(&mut tx, which).await?, which, &in_flight);
        gone.retain(|parcel| locked.contains_key(&*parcel.integration));
        let there = held_parcels(&mut tx, &gone).await?.len() as u64;
        end_parcels(&mut tx, &gone).await?;
        move_marks(&mut tx, &lanes.into_iter().map(|lane| (lane, i64::MIN)).collect()).await?;
        tx.commit().await?;
        Ok(there)
    }
}

/// Makes deliveries of open messages that have none. They are locked, so that a change made by hand is
/// either seen here or noted. How many dispatches there were is not known any more.
async fn make(tx: &mut Session, found: &[Key], locking: Locking) -> Result<u64, Error> {
    let unnamed = unnamed(tx, found).await?;
    let free = lock_messages(tx, &unnamed, locking).await?.recorded;
    let ids: Vec<Uuid> = free.keys().copied().collect();
    // With the size of their content.
    let recorded = deliveries::recorded(tx, &ids).await?;
    // Looked at again, now that nobody can change them: another may have been faster.
    let there = look_at_deliveries(tx, &ids, "TRUE").await?;
    let there: HashSet<Uuid> = there.iter().map(|delivery| delivery.key.id).collect();
    let made: Vec<Delivery> = recorded
        .values()
        .filter(|recorded| !there.contains(&recorded.key.id))
        .filter_map(|recorded| Delivery::of(recorded, recorded.bytes, Life::Another))
        .collect();
    let count = made.len() as u64;
    deliveries::write(tx, made, IfThere::Keep).await?;
    Ok(count)
}

/// Those that no parcel names: one may be in a lane that its message has left while no trigger fired.
async fn unnamed(tx: &mut Session, keys: &[Key]) -> Result<Vec<Key>, Error> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let ids = literal::ids(keys.iter().map(|key| &key.id));
    let mut named: HashSet<Uuid> = HashSet::new();
    for row in fetch(tx, filled(NAMED, &[("ids", &ids)])).await? {
        named.insert(row.try_get::<Hyphenated, _>(0)?.into());
    }
    Ok(keys.iter().filter(|key| !named.contains(&key.id)).copied().collect())
}

/// Which deliveries are corrected.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Corrected {
    All,
    /// Those whose message waits or is dead.
    Waiting,
    /// Those whose message is closed or gone.
    Over,
}

/// Makes deliveries free and say what their messages say, or removes them; how many.
async fn correct(
    tx: &mut Session,
    found: &[Key],
    fence: &str,
    which: Corrected,
    locking: Locking,
) -> Result<u64, Error> {
    let ids: Vec<Uuid> = found.iter().map(|key| key.id).collect();
    let held = lock_deliveries(tx, &ids, fence, locking).await?;
    let keys: Vec<Key> = held.iter().map(|held| held.key).collect();
    let messages = lock_messages(tx, &keys, locking).await?;
    let (mut followed, mut over) = (Vec::new(), Vec::new());
    for key in keys.iter().filter(|key| !messages.by_others.contains(&key.id)) {
        let recorded: Option<&Recorded> = messages.recorded.get(&key.id);
        match recorded.and_then(|recorded| Delivery::of(recorded, 0, Life::First)) {
            Some(delivery) if which != Corrected::Over => followed.push(delivery),
            None if which != Corrected::Waiting => over.push(key.id),
            Some(_) | None => {}
        }
    }
    let count = followed.len() + over.len();
    let free =
        IfThere::Follow { wait: Wait::AsItSays, rescues: "outbox_delivery.rescues", dispatches: 0 };
    deliveries::write(tx, followed, free).await?;
    deliveries::remove(tx, &over).await?;
    Ok(count as u64)
}

/// A page of messages that a statement finds, by id.
async fn page(tx: &mut Session, find: &str, after: Option<Uuid>) -> Result<Vec<Key>, Error> {
    let after = after.map_or_else(|| "''".to_owned(), literal::id);
    let sql = filled(find, &[("after", &after), ("rows", &LIST.to_string())]);
    let key = |row: &MySqlRow| {
        Ok(Key { seq: row.try_get(1)?, id: row.try_get::<Hyphenated, _>(0)?.into() })
    };
    fetch(tx, sql).await?.iter().map(key).collect()
}

/// Which parcels are wrong.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Which {
    /// Several name the same message.
    Doubled,
    /// No open message is named, or one that has a delivery.
    Emptied,
}

async fn parcels(tx: &mut Session, which: Which) -> Result<Vec<Parcel>, Error> {
    let mut found = Vec::new();
    match which {
        Which::Emptied => {
            for row in fetch(tx, filled(EMPTIED, &[])).await? {
                found.push(Parcel::of(&row)?);
            }
        }
        Which::Doubled => {
            let mut ids: Vec<Uuid> = Vec::new();
            for row in fetch(tx, filled(DOUBLED, &[])).await? {
                ids.push(row.try_get::<Hyphenated, _>(0)?.into());
            }
            for part in ids.chunks(LIST) {
                let sql = filled(PARCELS_OF, &[("ids", &literal::ids(part))]);
                for row in fetch(tx, sql).await? {
                    found.push(Parcel::of(&row)?);
                }
            }
        }
    }
    Ok(found)
}

/// The parcels that are to go, of those that nobody holds. Of several that name the same message one stays:
/// one that is held, or the first.
fn surplus(parcels: &[Parcel], which: Which, in_flight: &InFlight) -> Vec<ParcelKey> {
    let mut kept: HashMap<Uuid, &ParcelKey> = HashMap::new();
    if which == Which::Doubled {
        let held = parcels.iter().filter(|parcel| in_flight.names(&parcel.key));
        for parcel in held.chain(parcels) {
            kept.entry(parcel.key.message.id).or_insert(&parcel.key);
        }
    }
    let keys = parcels.iter().map(|parcel| &parcel.key);
    keys.filter(|key| !in_flight.names(key) && kept.get(&key.message.id) != Some(key))
        .cloned()
        .collect()
}
