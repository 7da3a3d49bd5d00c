//! Lanes of fresh messages: finding their parcels, and making deliveries of what they name.
//!
//! Whoever takes parcels of a lane, or unpacks them, locks its cursor first and looks then: every statement
//! sees what was committed before it began. A claim names its parcels and writes to none of them. Whatever is
//! not delivered out of a parcel gets a delivery, so a parcel is inserted once and deleted once, and never
//! goes back to its lane.

use super::deliveries::{self, Delivery, IfThere, Life, recorded};
use super::literal::{self, filled};
use super::parcel::{Parcel, ParcelKey, places, read_list};
use super::session::Session;
use super::{LIST, MySqlStore, execute, execute_each, fetch, fetch_each};
use postroom_core::Token;
use sqlx::{Error, Row as _};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

const KNOWN_LANES: &str = include_str!("sql/known_lanes.sql");
const MAKE_CURSORS: &str = include_str!("sql/make_cursors.sql");
const LOCK_LANES: &str = include_str!("sql/lock_lanes.sql");
const MOVE_MARK: &str = include_str!("sql/move_mark.sql");
const TAKE_PARCELS: &str = include_str!("sql/take_parcels.sql");
const SWEEP: &str = include_str!("sql/sweep.sql");
const IN_FLIGHT: &str = include_str!("sql/in_flight.sql");
const HELD_PARCELS: &str = include_str!("sql/held_parcels.sql");
const END_PARCELS: &str = include_str!("sql/end_parcels.sql");

/// How long parcels below the mark of a busy lane may wait to be looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What a store remembers of the lanes it takes from.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Those whose cursor is there, and when each was last swept.
    known: Mutex<HashMap<String, Option<Instant>>>,
}

impl Lanes {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<String, Option<Instant>>) -> T) -> T {
        work(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn unknown<'a>(&self, lanes: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        self.with(|known| lanes.into_iter().filter(|lane| !known.contains_key(*lane)).collect())
    }

    /// Whether it is time to look below the mark of a lane though there is enough above it.
    fn is_to_be_swept(&self, lane: &str) -> bool {
        let swept = self.with(|known| known.get(lane).copied().flatten());
        swept.is_none_or(|at| at.elapsed() >= SWEEP_EVERY)
    }

    fn swept(&self, lane: &str) {
        self.with(|known| known.insert(lane.to_owned(), Some(Instant::now())));
    }
}

/// What claims on parcels name. Some of it is over: its parcel is gone.
#[derive(Default)]
pub(super) struct InFlight(HashMap<ParcelKey, Token>);

impl InFlight {
    pub(super) fn names(&self, parcel: &ParcelKey) -> bool {
        self.0.contains_key(parcel)
    }

    fn count_in(&self, lane: &str) -> usize {
        self.0.keys().filter(|parcel| &*parcel.integration == lane).count()
    }

    /// The parcels of these messages.
    pub(super) fn of<'a>(
        &'a self,
        ids: &'a HashSet<Uuid>,
    ) -> impl Iterator<Item = (&'a ParcelKey, Token)> {
        let named = self.0.iter().filter(|(parcel, _)| ids.contains(&parcel.message.id));
        named.map(|(parcel, token)| (parcel, *token))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ParcelKey> {
        self.0.keys()
    }
}

impl MySqlStore {
    /// Makes sure that every lane has its cursor. In a transaction of its own: who finds that another has
    /// just made one holds no lock on it.
    pub(super) async fn know_lanes(&self, lanes: &[&str]) -> Result<(), Error> {
        let unknown = self.lanes.unknown(lanes.iter().copied());
        for part in unknown.chunks(LIST) {
            let mut connection = self.pool.acquire().await?;
            let names = literal::texts(part.iter().copied());
            let found = fetch(&mut connection, filled(KNOWN_LANES, &[("lanes", &names)])).await?;
            let found =
                found.iter().map(|row| row.try_get(0)).collect::<Result<HashSet<String>, _>>()?;
            let mut missing: Vec<&str> =
                part.iter().copied().filter(|lane| !found.contains(*lane)).collect();
            missing.sort_unstable();
            missing.dedup();
            if !missing.is_empty() {
                let rows: Vec<String> =
                    missing.iter().map(|lane| format!("({})", literal::text(lane))).collect();
                let made = filled(MAKE_CURSORS, &[("rows", &rows.join(", "))]);
                execute(&mut connection, made).await?;
            }
            connection.answered();
            self.lanes.with(|known| {
                for lane in part {
                    known.entry((*lane).to_owned()).or_default();
                }
            });
        }
        Ok(())
    }

    /// Locks lanes, which have their cursor, and says how far each was taken. One whose cursor is missing
    /// after all, since a dump was restored or another server has taken over, is left out, and has one the
    /// next time.
    pub(super) async fn lock_lanes(
        &self,
        tx: &mut Session,
        lanes: &[&str],
    ) -> Result<HashMap<String, i64>, Error> {
        let mut marks = HashMap::with_capacity(lanes.len());
        let mut lanes = lanes.to_vec();
        lanes.sort_unstable();
        lanes.dedup();
        let lock = |lane: &&str| filled(LOCK_LANES, &[("lane", &literal::text(lane))]);
        for row in fetch_each(tx, lanes.iter().map(lock)).await? {
            marks.insert(row.try_get(0)?, row.try_get(1)?);
        }
        if marks.len() < lanes.len() {
            self.lanes.with(HashMap::clear);
        }
        Ok(marks)
    }

    /// The first parcels of lanes that are locked, as many as are wanted of each: those above the mark, and
    /// those below that no claim names. Below is looked whenever there is not enough above, and once in a
    /// while in any case.
    pub(super) async fn find_parcels(
        &self,
        tx: &mut Session,
        marks: &HashMap<String, i64>,
        wanted: &[(&str, usize)],
    ) -> Result<HashMap<String, Vec<Parcel>>, Error> {
        let mut found: HashMap<String, Vec<Parcel>> = HashMap::new();
        let branch = |sql: &str, lane: &str, rows: usize| {
            let (name, mark, rows) =
                (literal::text(lane), marks.get(lane)?.to_string(), rows.to_string());
            Some(filled(sql, &[("lane", &name), ("mark", &mark), ("rows", &rows)]))
        };
        let above =
            wanted.iter().filter_map(|(lane, rows)| branch(TAKE_PARCELS, lane, *rows)).collect();
        for parcel in read(tx, above).await? {
            found.entry(parcel.key.integration.to_string()).or_default().push(parcel);
        }
        let is_to_be_swept = |lane: &str, rows: usize| {
            found.get(lane).map_or(0, Vec::len) < rows || self.lanes.is_to_be_swept(lane)
        };
        let swept: Vec<(&str, usize)> = wanted
            .iter()
            .copied()
            .filter(|(lane, rows)| marks.contains_key(*lane) && is_to_be_swept(lane, *rows))
            .collect();
        if !swept.is_empty() {
            let in_flight = in_flight(tx).await?;
            let below = swept.iter().filter_map(|(lane, rows)| {
                branch(SWEEP, lane, rows.saturating_add(in_flight.count_in(lane)))
            });
            for parcel in read(tx, below.collect()).await? {
                if !in_flight.names(&parcel.key) {
                    found.entry(parcel.key.integration.to_string()).or_default().push(parcel);
                }
            }
            for (lane, _) in &swept {
                self.lanes.swept(lane);
            }
        }
        for (lane, rows) in wanted {
            if let Some(parcels) = found.get_mut(*lane) {
                parcels.sort_unstable_by_key(|parcel| parcel.key.message.seq);
                parcels.truncate(*rows);
            }
        }
        Ok(found)
    }

    /// Makes deliveries of fresh messages, for lanes that are claimed row by row.
    pub(super) async fn unpack(&self, wanted: &[(&str, usize)]) -> Result<(), Error> {
        let lanes: Vec<&str> = wanted.iter().map(|(lane, _)| *lane).collect();
        self.know_lanes(&lanes).await?;
        let mut tx = self.begin().await?;
        let marks = self.lock_lanes(&mut tx, &lanes).await?;
        let found = self.find_parcels(&mut tx, &marks, wanted).await?;
        let parcels: Vec<Parcel> = found.into_values().flatten().collect();
        make_deliveries(&mut tx, &parcels).await?;
        tx.commit().await
    }
}

/// Makes deliveries of what parcels name, as their messages say, and deletes them. Their lanes are locked and
/// no claim names them. The messages are not locked: whoever is changing one by hand leaves a note of it,
/// which is followed after this.
pub(super) async fn make_deliveries(tx: &mut Session, parcels: &[Parcel]) -> Result<(), Error> {
    if parcels.is_empty() {
        return Ok(());
    }
    let lanes = parcels.iter().map(|parcel| (&*parcel.key.integration, i64::MIN));
    move_marks(tx, &lanes.collect()).await?;
    let keys: Vec<ParcelKey> = parcels.iter().map(|parcel| parcel.key.clone()).collect();
    end_parcels(tx, &keys).await?;
    let ids: Vec<Uuid> = keys.iter().map(|parcel| parcel.message.id).collect();
    let recorded = recorded(tx, &ids).await?;
    let deliveries = recorded
        .values()
        .filter_map(|recorded| Delivery::of(recorded, recorded.bytes, Life::First));
    deliveries::write(tx, deliveries.collect(), IfThere::Keep).await
}

/// Writes to the cursors of lanes whose parcels were taken up to a number, or unpacked.
pub(super) async fn move_marks(tx: &mut Session, marks: &HashMap<&str, i64>) -> Result<(), Error> {
    let moved = |(lane, mark): (&&str, &i64)| {
        let (lane, mark) = (literal::text(lane), mark.to_string());
        filled(MOVE_MARK, &[("lane", &lane), ("mark", &mark)])
    };
    let statements: Vec<String> = marks.iter().map(moved).collect();
    execute_each(tx, statements).await
}

/// What claims on parcels name.
pub(super) async fn in_flight(tx: &mut Session) -> Result<InFlight, Error> {
    let mut named = HashMap::new();
    for row in fetch(tx, filled(IN_FLIGHT, &[])).await? {
        let token = Token(row.try_get(0)?);
        for parcel in read_list(row.try_get(1)?)? {
            named.insert(parcel, token);
        }
    }
    Ok(InFlight(named))
}

/// A parcel that a claim names, and that is there.
pub(super) struct HeldParcel {
    pub(super) parcel: Parcel,
    /// A delivery names the same message.
    pub(super) is_outranked: bool,
}

/// Which of these parcels are there.
pub(super) async fn held_parcels(
    tx: &mut Session,
    parcels: &[ParcelKey],
) -> Result<Vec<HeldParcel>, Error> {
    let mut held = Vec::with_capacity(parcels.len());
    let wanted: HashSet<&ParcelKey> = parcels.iter().collect();
    for part in parcels.chunks(LIST) {
        let sql = filled(HELD_PARCELS, &[("parcels", &places(part))]);
        for row in fetch(tx, sql).await? {
            let parcel = Parcel::of(&row)?;
            if wanted.contains(&parcel.key) {
                held.push(HeldParcel { parcel, is_outranked: row.try_get(5)? });
            }
        }
    }
    Ok(held)
}

/// Deletes parcels.
pub(super) async fn end_parcels(tx: &mut Session, parcels: &[ParcelKey]) -> Result<(), Error> {
    let mut parcels: Vec<&ParcelKey> = parcels.iter().collect();
    // Everybody locks in the same order.
    parcels.sort_unstable_by_key(|parcel| (&parcel.integration, parcel.message.seq));
    let end = |parcel: &ParcelKey| {
        let places = [
            ("lane", literal::text(&parcel.integration)),
            ("seq", parcel.message.seq.to_string()),
            ("id", literal::id(parcel.message.id)),
        ];
        filled(END_PARCELS, &places.each_ref().map(|(name, value)| (*name, value.as_str())))
    };
    execute_each(tx, parcels.into_iter().map(end)).await
}

async fn read(tx: &mut Session, branches: Vec<String>) -> Result<Vec<Parcel>, Error> {
    let mut parcels = Vec::new();
    for part in branches.chunks(LIST) {
        for row in fetch(tx, part.join(" UNION ALL ")).await? {
            parcels.push(Parcel::of(&row)?);
        }
    }
    Ok(parcels)
}
