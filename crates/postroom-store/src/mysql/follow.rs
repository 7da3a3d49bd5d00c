//! Following what people change by hand.
//!
//! The trigger leaves a note of every change, and touches nothing else. Whoever holds the lane follows it:
//! a message in a parcel that nobody holds gets a delivery, and a delivery that nobody holds says what its
//! message says. While an attempt is under way the attempt decides, and its end reads the message: the note
//! on a delivery that is held is over, and that on a parcel stays, since its end does not always lock the
//! message.

use super::deliveries::{self, Delivery, IfThere, Life, Wait, recorded};
use super::key::Key;
use super::literal::{self, filled};
use super::locked::{DeliveryRow, lock_deliveries, look_at_deliveries};
use super::parcel::{Parcel, ParcelKey};
use super::parcels::{end_parcels, held_parcels, in_flight, make_deliveries};
use super::session::Session;
use super::{MySqlStore, execute_each, fetch};
use sqlx::{AssertSqlSafe, Error, Row as _};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const EDITS: &str = include_str!("sql/edits.sql");
const FORGET_EDITS: &str = include_str!("sql/forget_edits.sql");
const UNDECIDED: &str = include_str!("sql/undecided.sql");
const ANY_EDIT: &str = "SELECT EXISTS (SELECT 1 FROM outbox_pending_edit)";

/// How many changes are followed in one transaction, and in how many of them at a time: who takes meanwhile
/// has to answer in time.
const ROWS: usize = 500;
const ROUNDS: usize = 10;

/// A change by hand.
struct Edit {
    number: i64,
    /// Where its message was before.
    lane: String,
    message: Uuid,
}

impl MySqlStore {
    /// Follows changes by hand in these lanes, or in all of them; how many. Bounded: what is left is followed
    /// the next time.
    pub(super) async fn follow_edits(&self, lanes: Option<&[&str]>) -> Result<usize, Error> {
        let (mut after, mut followed) = (i64::MIN, 0);
        for _ in 0..ROUNDS {
            let edits = self.edits(lanes, after).await?;
            let Some(last) = edits.last() else { break };
            after = last.number;
            followed += self.follow(&edits).await?;
        }
        Ok(followed)
    }

    /// Follows changes by hand in all lanes, if there are any.
    pub(super) async fn follow_any_edits(&self) -> Result<(), Error> {
        if sqlx::query_scalar(ANY_EDIT).fetch_one(&self.pool).await? {
            self.follow_edits(None).await?;
        }
        Ok(())
    }

    /// Follows all changes by hand that are not under way, however many; how many there were. Nobody waits for an answer in time.
    pub(super) async fn follow_all_edits(&self) -> Result<usize, Error> {
        let mut all = 0;
        loop {
            match self.follow_edits(None).await? {
                0 => return Ok(all),
                followed => all += followed,
            }
        }
    }

    async fn edits(&self, lanes: Option<&[&str]>, after: i64) -> Result<Vec<Edit>, Error> {
        let lanes = lanes.map_or_else(
            || "TRUE".to_owned(),
            |lanes| format!("integration IN ({})", literal::texts(lanes.iter().copied())),
        );
        let (after, rows) = (after.to_string(), ROWS.to_string());
        let sql = filled(EDITS, &[("lanes", &lanes), ("after", &after), ("rows", &rows)]);
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&self.pool).await?;
        let edit = |row: &sqlx::mysql::MySqlRow| {
            let message = row.try_get::<Hyphenated, _>(2)?.into();
            Ok(Edit { number: row.try_get(0)?, lane: row.try_get(1)?, message })
        };
        rows.iter().map(edit).collect()
    }

    /// Follows these changes; how many of their notes are over with it.
    async fn follow(&self, edits: &[Edit]) -> Result<usize, Error> {
        let lanes: HashSet<&str> = edits.iter().map(|edit| edit.lane.as_str()).collect();
        let lanes: Vec<&str> = lanes.into_iter().collect();
        self.know_lanes(&lanes).await?;
        let locking = self.locking().await?;
        let mut tx = self.begin().await?;
        let marks = self.lock_lanes(&mut tx, &lanes).await?;
        if marks.is_empty() {
            return Ok(0);
        }
        let mut ids: Vec<Uuid> = edits.iter().map(|edit| edit.message).collect();
        ids.sort_unstable();
        ids.dedup();
        // Deliveries before messages: who reads the message after another has followed it sees at least
        // what that one saw.
        let locked = lock_deliveries(&mut tx, &ids, "TRUE", locking).await?;
        let there = look_at_deliveries(&mut tx, &ids, "TRUE").await?;
        let deliveries: HashMap<Uuid, &DeliveryRow> =
            locked.iter().map(|row| (row.key.id, row)).collect();
        // Somebody else is at it: the next one follows.
        let mut undecided: HashSet<Uuid> =
            there.iter().map(|row| row.key.id).filter(|id| !deliveries.contains_key(id)).collect();
        let places = [
            ("ids", literal::ids(&ids)),
            ("lanes", literal::texts(marks.keys().map(String::as_str))),
        ];
        let places = places.each_ref().map(|(name, value)| (*name, value.as_str()));
        for row in fetch(&mut tx, filled(UNDECIDED, &places)).await? {
            undecided.insert(row.try_get::<Hyphenated, _>(0)?.into());
        }
        let recorded = recorded(&mut tx, &ids).await?;
        let fresh: Vec<Uuid> =
            ids.iter().copied().filter(|id| !deliveries.contains_key(id)).collect();
        let parcels = parcels_of(&mut tx, edits, &fresh, &recorded).await?;
        let in_flight = in_flight(&mut tx).await?;
        let mut unpacked = Vec::new();
        for parcel in parcels {
            if in_flight.names(&parcel.key) {
                undecided.insert(parcel.key.message.id);
            } else if !undecided.contains(&parcel.key.message.id) {
                unpacked.push(parcel);
            }
        }
        let from_parcels: HashSet<Uuid> =
            unpacked.iter().map(|parcel| parcel.key.message.id).collect();
        make_deliveries(&mut tx, &unpacked).await?;
        let (mut followed, mut reopened, mut over) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids.iter().filter(|id| !undecided.contains(id)) {
            let of = |life| {
                recorded.get(id).and_then(|recorded| Delivery::of(recorded, recorded.bytes, life))
            };
            match deliveries.get(id) {
                Some(row) if row.is_claimed => {}
                Some(_) => match of(Life::First) {
                    Some(delivery) => followed.push(delivery),
                    None => over.push(*id),
                },
                None if from_parcels.contains(id) => {}
                None => reopened.extend(of(Life::Another)),
            }
        }
        let free = IfThere::Follow { wait: Wait::BeginsAnew, rescues: "0", dispatches: 0 };
        deliveries::write(&mut tx, followed, free).await?;
        deliveries::write(&mut tx, reopened, IfThere::Conflict).await?;
        deliveries::remove(&mut tx, &over).await?;
        let is_over =
            |edit: &&Edit| marks.contains_key(&edit.lane) && !undecided.contains(&edit.message);
        let done: Vec<&Edit> = edits.iter().filter(is_over).collect();
        forget(&mut tx, &done).await?;
        tx.commit().await?;
        Ok(done.len())
    }
}

/// The parcels of these messages: in the lanes that they were in before their changes.
async fn parcels_of(
    tx: &mut Session,
    edits: &[Edit],
    ids: &[Uuid],
    recorded: &HashMap<Uuid, deliveries::Recorded>,
) -> Result<Vec<Parcel>, Error> {
    let ids: HashSet<&Uuid> = ids.iter().collect();
    let mut keys = HashSet::new();
    for edit in edits.iter().filter(|edit| ids.contains(&edit.message)) {
        // Of a message that was deleted the number is not known: the take finds its parcel.
        let Some(recorded) = recorded.get(&edit.message) else { continue };
        let message = Key { seq: recorded.key.seq, id: edit.message };
        keys.insert(ParcelKey { integration: Arc::from(edit.lane.as_str()), message });
    }
    let keys: Vec<ParcelKey> = keys.into_iter().collect();
    let held = held_parcels(tx, &keys).await?;
    // One that a delivery outranks is nobody's.
    let (outranked, parcels): (Vec<_>, Vec<_>) =
        held.into_iter().partition(|held| held.is_outranked);
    let outranked: Vec<ParcelKey> = outranked.into_iter().map(|held| held.parcel.key).collect();
    end_parcels(tx, &outranked).await?;
    Ok(parcels.into_iter().map(|held| held.parcel).collect())
}

async fn forget(tx: &mut Session, edits: &[&Edit]) -> Result<(), Error> {
    let forget = |edit: &&Edit| {
        let (lane, number) = (literal::text(&edit.lane), edit.number.to_string());
        filled(FORGET_EDITS, &[("lane", &lane), ("id", &number)])
    };
    execute_each(tx, edits.iter().map(forget)).await
}
