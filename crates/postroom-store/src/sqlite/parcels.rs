//! Parcels: finding those that nobody holds, and making deliveries of what they name.
//!
//! A claim names parcels and writes to none of them. Each lane has a mark: nothing above it was ever
//! taken. So a take reads upwards from there, and need not know what is in flight. What lies at or below
//! the mark is in flight, or was missed (`sql/sweep.sql` says how); a sweep tells the two apart.
//!
//! All of this happens under the write lock. Nobody takes, settles or changes anything meanwhile, so
//! nothing has to be locked before it is looked at.

use super::json_lists::json;
use super::row::{id, text};
use super::session::Session;
use serde_json::Value;
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(super) const IS_FRESH: &str = include_str!("sql/is_fresh.sql");
const MARK: &str = include_str!("sql/mark.sql");
const MOVE_MARK: &str = include_str!("sql/move_mark.sql");
pub(super) const SWEEP: &str = include_str!("sql/sweep.sql");
pub(super) const CLAIMED: &str = include_str!("sql/in_flight.sql");
pub(super) const TAKE_PARCELS: &str = concat!(
    "SELECT ",
    include_str!("sql/parcel_columns.sql"),
    include_str!("sql/take_parcels.sql")
);
pub(super) const SWEPT_PARCELS: &str = concat!(
    "SELECT ",
    include_str!("sql/parcel_columns.sql"),
    include_str!("sql/swept_parcels.sql")
);
pub(super) const END_PARCELS: &str = include_str!("sql/end_parcels.sql");
pub(super) const MADE_OF_PARCELS: &str =
    concat!(include_str!("sql/made_of_parcels.sql"), include_str!("sql/in_neither.sql"));
pub(super) const FOLLOW: &str = include_str!("sql/follow.sql");
pub(super) const UNPACK_OF: &str = include_str!("sql/unpack_of.sql");

/// How long a busy lane may go without a sweep. A take that has room left sweeps at once.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A parcel, by its key.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Parcel {
    pub(super) integration: String,
    pub(super) seq: i64,
    /// The message's id, as [`id`] has it.
    pub(super) id: String,
}

impl Parcel {
    /// Reads the first three columns.
    pub(super) fn of(row: &SqliteRow) -> Result<Self, Error> {
        let id = id(text(row, 2)?);
        Ok(Self { integration: text(row, 0)?, seq: row.try_get(1)?, id })
    }

    fn to_json(&self) -> Value {
        Value::from(vec![
            Value::from(self.integration.as_str()),
            Value::from(self.seq),
            Value::from(self.id.as_str()),
        ])
    }
}

/// Parcels as a claim names them, and as statements take them.
pub(super) fn to_json(parcels: &[Parcel]) -> String {
    Value::from(parcels.iter().map(Parcel::to_json).collect::<Vec<_>>()).to_string()
}

/// What a claim names.
pub(super) fn named(parcels: &str) -> Result<Vec<Parcel>, Error> {
    let named: Vec<(String, i64, String)> =
        serde_json::from_str(parcels).map_err(|error| Error::Decode(error.into()))?;
    let parcel = |(integration, seq, id)| Parcel { integration, seq, id };
    Ok(named.into_iter().map(parcel).collect())
}

/// What all claims name.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    parcels: HashSet<Parcel>,
    lanes: HashMap<String, (usize, i64)>,
}

impl InFlight {
    pub(super) async fn read(connection: &mut Session) -> Result<Self, Error> {
        let mut held = Self::default();
        for row in sqlx::query(CLAIMED).fetch_all(connection).await? {
            for parcel in named(&text(&row, 0)?)? {
                let lane = held.lanes.entry(parcel.integration.clone()).or_insert((0, i64::MIN));
                *lane = (lane.0 + 1, lane.1.max(parcel.seq));
                held.parcels.insert(parcel);
            }
        }
        Ok(held)
    }

    pub(super) fn has(&self, parcel: &Parcel) -> bool {
        self.parcels.contains(parcel)
    }

    pub(super) fn parcels(&self) -> impl Iterator<Item = &Parcel> {
        self.parcels.iter()
    }

    /// How many of a lane are named.
    fn count(&self, lane: &str) -> usize {
        self.lanes.get(lane).map_or(0, |(count, _)| *count)
    }

    fn highest(&self, lane: &str) -> Option<i64> {
        self.lanes.get(lane).map(|(_, highest)| *highest)
    }
}

/// What is known of lanes from one take to the next.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    swept: Mutex<HashMap<String, Instant>>,
    takes: AtomicUsize,
}

impl Lanes {
    /// Whether deliveries come before parcels this time; every other time they do.
    pub(super) fn deliveries_lead(&self) -> bool {
        !self.takes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
    }

    fn is_sweep_due(&self, lane: &str) -> bool {
        let swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        swept.get(lane).is_none_or(|at| at.elapsed() >= SWEEP_EVERY)
    }

    fn note_sweep(&self, lane: &str) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        swept.insert(lane.to_owned(), Instant::now());
    }
}

/// A parcel that nobody holds, and what its message says by now.
pub(super) struct Found {
    pub(super) parcel: Parcel,
    pub(super) due_at: i64,
    pub(super) payload_bytes: usize,
    pub(super) headers_bytes: usize,
    /// Whether it may be delivered out of its parcel, once it is due. If not, its message is gone, closed
    /// or sent elsewhere, or has a delivery, which outranks the parcel.
    is_whole: bool,
    /// Whether there is no such message any more.
    pub(super) is_gone: bool,
}

impl Found {
    fn of(row: &SqliteRow) -> Result<Self, Error> {
        let status: Option<String> = row.try_get(3)?;
        let is_open = matches!(status.as_deref(), Some("PENDING" | "FAILED"));
        let is_here = row.try_get::<Option<bool>, _>(4)?.unwrap_or(false);
        let is_outranked: bool = row.try_get(6)?;
        let size = |index| row.try_get::<i64, _>(index).map(|n| usize::try_from(n).unwrap_or(0));
        Ok(Self {
            parcel: Parcel::of(row)?,
            due_at: row.try_get::<Option<i64>, _>(5)?.unwrap_or(0),
            payload_bytes: size(7)?,
            headers_bytes: size(8)?,
            is_whole: is_open && is_here && !is_outranked,
            is_gone: status.is_none() && !is_outranked,
        })
    }

    pub(super) fn is_due(&self, now: i64) -> bool {
        self.is_whole && self.due_at <= now
    }
}

/// Looks for parcels, under the write lock.
pub(super) struct Looking<'a> {
    lanes: &'a Lanes,
    in_flight: Option<InFlight>,
}

impl<'a> Looking<'a> {
    pub(super) fn new(lanes: &'a Lanes) -> Self {
        Self { lanes, in_flight: None }
    }

    /// Parcels of a lane that nobody holds: so many of them. A sweep that is due comes first, so that a
    /// lane that is never empty is swept too.
    pub(super) async fn find(
        &mut self,
        tx: &mut Session,
        lane: &str,
        rows: usize,
    ) -> Result<Vec<Found>, Error> {
        let mark: Option<i64> =
            sqlx::query_scalar(MARK).bind(lane).fetch_optional(&mut *tx).await?;
        // Without a cursor nothing is known: all of the lane is swept.
        let (sweep_first, below) =
            (mark.is_none() || self.lanes.is_sweep_due(lane), mark.unwrap_or(i64::MAX));
        let mut found = Vec::new();
        if sweep_first {
            found = self.sweep(tx, lane, below, rows).await?;
        }
        if let Some(mark) = mark
            && found.len() < rows
        {
            let above = sqlx::query(TAKE_PARCELS)
                .bind(lane)
                .bind(mark)
                .bind(limit(rows - found.len()))
                .fetch_all(&mut *tx)
                .await?;
            for row in &above {
                found.push(Found::of(row)?);
            }
        }
        if !sweep_first && found.len() < rows {
            found.extend(self.sweep(tx, lane, below, rows - found.len()).await?);
        }
        Ok(found)
    }

    async fn sweep(
        &mut self,
        tx: &mut Session,
        lane: &str,
        mark: i64,
        rows: usize,
    ) -> Result<Vec<Found>, Error> {
        self.lanes.note_sweep(lane);
        let in_flight = match self.in_flight.take() {
            Some(known) => known,
            None => InFlight::read(tx).await?,
        };
        let free = free_below(tx, &in_flight, lane, mark, rows).await;
        self.in_flight = Some(in_flight);
        let free = free?;
        if free.is_empty() {
            return Ok(Vec::new());
        }
        let rows = sqlx::query(SWEPT_PARCELS).bind(to_json(&free)).fetch_all(&mut *tx).await?;
        rows.iter().map(Found::of).collect()
    }

    /// Moves the marks of lanes past what is taken of them. A lane that had no cursor may have parcels in
    /// flight already, whose cursor was deleted: they are not above its mark either.
    pub(super) async fn move_marks(&self, tx: &mut Session, taken: &[Parcel]) -> Result<(), Error> {
        let mut marks: HashMap<&str, i64> = HashMap::new();
        for parcel in taken {
            let highest =
                self.in_flight.as_ref().and_then(|held| held.highest(&parcel.integration));
            let mark = marks.entry(&parcel.integration).or_insert(highest.unwrap_or(i64::MIN));
            *mark = parcel.seq.max(*mark);
        }
        for (lane, mark) in marks {
            sqlx::query(MOVE_MARK).bind(lane).bind(mark).execute(&mut *tx).await?;
        }
        Ok(())
    }
}

/// Parcels at or below a mark that no claim names: so many of them. The claims name no more of the lane
/// than is skipped here, so that much more is enough to read.
async fn free_below(
    connection: &mut Session,
    in_flight: &InFlight,
    lane: &str,
    mark: i64,
    rows: usize,
) -> Result<Vec<Parcel>, Error> {
    let below = sqlx::query(SWEEP)
        .bind(lane)
        .bind(mark)
        .bind(limit(in_flight.count(lane).saturating_add(rows)))
        .fetch_all(connection)
        .await?;
    let mut free = below.iter().map(Parcel::of).collect::<Result<Vec<_>, _>>()?;
    free.retain(|parcel| !in_flight.has(parcel));
    free.truncate(rows);
    Ok(free)
}

/// Whether some of these lanes have a parcel that nobody holds. Needs no lock: an idle relay only looks.
pub(super) async fn is_any_free(connection: &mut Session, lanes: &[&str]) -> Result<bool, Error> {
    let row = sqlx::query(IS_FRESH).bind(json(lanes)).fetch_one(&mut *connection).await?;
    let (is_fresh, is_any): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    if is_fresh || !is_any {
        return Ok(is_fresh);
    }
    let in_flight = InFlight::read(connection).await?;
    for lane in lanes {
        if !free_below(connection, &in_flight, lane, i64::MAX, 1).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A parcel that was deleted.
pub(super) struct Ended {
    /// The message's id, as [`id`] has it.
    pub(super) id: String,
    pub(super) integration: String,
    pub(super) due_at: i64,
}

/// Deletes parcels; those that were there.
pub(super) async fn end(tx: &mut Session, parcels: &[Parcel]) -> Result<Vec<Ended>, Error> {
    if parcels.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(END_PARCELS).bind(to_json(parcels)).fetch_all(tx).await?;
    let ended = |row: &SqliteRow| {
        let id = id(text(row, 0)?);
        Ok(Ended { id, integration: text(row, 1)?, due_at: row.try_get(2)? })
    };
    rows.iter().map(ended).collect()
}

/// Makes deliveries of open messages whose parcels are gone; how many.
pub(super) async fn make(
    tx: &mut Session,
    ids: &[String],
    rescues: i64,
    dispatches: i64,
) -> Result<u64, Error> {
    let made = sqlx::query(MADE_OF_PARCELS)
        .bind(json(ids))
        .bind(rescues)
        .bind(dispatches)
        .execute(tx)
        .await?;
    Ok(made.rows_affected())
}

/// Makes deliveries of what is open in parcels, and deletes them. A delivery that was there says what its
/// message says then.
pub(super) async fn unpack(tx: &mut Session, parcels: &[Parcel]) -> Result<u64, Error> {
    let ended: Vec<String> = end(tx, parcels).await?.into_iter().map(|one| one.id).collect();
    if ended.is_empty() {
        return Ok(0);
    }
    let made = make(tx, &ended, 0, 0).await?;
    sqlx::query(FOLLOW).bind(json(&ended)).execute(tx).await?;
    Ok(made)
}

/// Unpacks the parcels of these messages, as far as nobody holds them.
pub(super) async fn unpack_of(tx: &mut Session, ids: &str) -> Result<(), Error> {
    let rows = sqlx::query(UNPACK_OF).bind(ids).fetch_all(&mut *tx).await?;
    let mut parcels = rows.iter().map(Parcel::of).collect::<Result<Vec<_>, _>>()?;
    if !parcels.is_empty() {
        let in_flight = InFlight::read(tx).await?;
        parcels.retain(|parcel| !in_flight.has(parcel));
        unpack(tx, &parcels).await?;
    }
    Ok(())
}

fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
