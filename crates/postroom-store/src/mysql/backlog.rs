//! Counting what waits. All of it as of one moment: a message that moves from a parcel to a delivery meanwhile
//! is counted once.

use super::literal::{self, filled};
use super::parcel::{Parcel, ParcelKey};
use super::parcels::{held_parcels, in_flight};
use super::row::count;
use super::session::Session;
use super::{MySqlStore, fetch, now};
use chrono::NaiveDateTime;
use postroom_core::{Backlog, LaneBacklog};
use sqlx::{Error, Row as _};
use std::collections::{BTreeMap, HashMap, HashSet};

const BACKLOG: &str = include_str!("sql/backlog.sql");
const BACKLOG_PARCELS: &str = include_str!("sql/backlog_parcels.sql");
const OLDEST_PARCELS: &str = include_str!("sql/oldest_parcels.sql");

/// One lane, while it is counted.
#[derive(Default)]
struct Counted {
    pending: u64,
    claimed: u64,
    failed: u64,
    dead: u64,
    due_at: Option<NaiveDateTime>,
}

impl Counted {
    fn was_due(&mut self, at: Option<NaiveDateTime>) {
        self.due_at = self.due_at.into_iter().chain(at).min();
    }
}

impl MySqlStore {
    pub(super) async fn count_backlog(&self) -> Result<Backlog, Error> {
        self.follow_any_edits().await?;
        let mut tx = self.pool.snapshot().await?;
        let at = now(&mut tx).await?;
        let mut lanes: BTreeMap<String, Counted> = BTreeMap::new();
        for row in fetch(&mut tx, filled(BACKLOG, &[])).await? {
            let counted = Counted {
                pending: count(&row, 1)?,
                claimed: count(&row, 2)?,
                failed: count(&row, 3)?,
                dead: count(&row, 4)?,
                due_at: row.try_get(5)?,
            };
            lanes.insert(row.try_get(0)?, counted);
        }
        let held = held(&mut tx).await?;
        for row in fetch(&mut tx, filled(BACKLOG_PARCELS, &[])).await? {
            let name: String = row.try_get(0)?;
            let all = count(&row, 1)?;
            let nothing = HashSet::new();
            let held = held.get(&name).unwrap_or(&nothing);
            let due_at = if held.is_empty() {
                row.try_get(2)?
            } else {
                oldest(&mut tx, &name, held).await?
            };
            let lane = lanes.entry(name).or_default();
            lane.claimed += held.len() as u64;
            lane.pending += all.saturating_sub(held.len() as u64);
            lane.was_due(due_at);
        }
        tx.commit().await?;
        let lanes = lanes.into_iter().map(|(integration, lane)| LaneBacklog {
            integration,
            pending: lane.pending,
            claimed: lane.claimed,
            failed: lane.failed,
            dead: lane.dead,
            lag_ms: lane
                .due_at
                .map_or(0, |due_at| u64::try_from((at - due_at).num_milliseconds()).unwrap_or(0)),
        });
        Ok(Backlog { lanes: lanes.collect() })
    }
}

/// The parcels that claims hold, by lane.
async fn held(tx: &mut Session) -> Result<HashMap<String, HashSet<ParcelKey>>, Error> {
    let named: Vec<ParcelKey> = in_flight(tx).await?.keys().cloned().collect();
    let mut lanes: HashMap<String, HashSet<ParcelKey>> = HashMap::new();
    for held in held_parcels(tx, &named).await? {
        let key = held.parcel.key;
        lanes.entry(key.integration.to_string()).or_default().insert(key);
    }
    Ok(lanes)
}

/// When the first parcel of a lane was due that nobody holds: among one more than those that are held there
/// is one, if there is any.
async fn oldest(
    tx: &mut Session,
    lane: &str,
    held: &HashSet<ParcelKey>,
) -> Result<Option<NaiveDateTime>, Error> {
    let (lane, rows) = (literal::text(lane), (held.len() + 1).to_string());
    let rows = fetch(tx, filled(OLDEST_PARCELS, &[("lane", &lane), ("rows", &rows)])).await?;
    for row in &rows {
        let parcel = Parcel::of(row)?;
        if !held.contains(&parcel.key) {
            return Ok(Some(parcel.due_at));
        }
    }
    Ok(None)
}
