//! Making messages and ledger agree, in bounded steps beside producers and relays.

use super::SqliteStore;
use super::claims::FORGET_CLOSED;
use super::json_lists::{ids, json_ids};
use super::parcels::{self, FOLLOW, InFlight, Parcel};
use super::row::text;
use super::session::Readers;
use super::time::now_ms;
use postroom_core::{MessageId, Reconciled};
use sqlx::{Error, Row as _};

const PARCELS: &str = include_str!("sql/reconcile_parcels.sql");
const MISSING: &str = concat!(
    include_str!("sql/reconcile_missing.sql"),
    include_str!("sql/in_neither.sql"),
    "ORDER BY m.seq LIMIT ?2"
);
const STRAY: &str = include_str!("sql/reconcile_stray.sql");
const FREE: &str = include_str!("sql/reconcile_free.sql");
const UNLIKE: &str = concat!(
    "SELECT d.message_id\n",
    include_str!("sql/reconcile_unlike.sql"),
    "  AND d.message_id > ?1 ORDER BY d.message_id LIMIT ?2"
);
const CLOSED: &str = include_str!("sql/reconcile_closed.sql");

/// How many rows are looked at, or mended, under one lock.
const ROWS: i64 = 5_000;

/// The second that numbers of dispatches count from.
pub(super) const SECONDS_UNTIL_2020: i64 = 1_577_836_800;

/// Everything is looked for without a lock, and mended under it if it is still so.
pub(super) async fn reconcile(store: &SqliteStore) -> Result<Reconciled, Error> {
    let unpacked = unpack(store).await?;
    // Freed before the others: what turns out to have no message goes with them.
    let freed = mend(store, STRAY, FREE).await?;
    let made = make(store).await?;
    let followed = mend(store, UNLIKE, FOLLOW).await?;
    let removed = mend(store, CLOSED, FORGET_CLOSED).await?;
    Ok(Reconciled {
        made,
        removed: removed + unpacked.removed,
        freed,
        followed: followed + unpacked.followed,
        // SQLite keeps its numbers ahead of those in use by itself, and apart by their key.
        advanced: 0,
        numbered: 0,
    })
}

/// Goes through the parcels that do not say what their messages say.
pub(super) struct Unlike {
    last: Parcel,
}

impl Unlike {
    pub(super) fn from_the_beginning() -> Self {
        Self { last: Parcel { integration: String::new(), seq: i64::MIN, id: String::new() } }
    }

    /// The next of them; none at the end.
    pub(super) async fn next(&mut self, readers: &Readers) -> Result<Vec<Parcel>, Error> {
        let rows = sqlx::query(PARCELS)
            .bind(&self.last.integration)
            .bind(self.last.seq)
            .bind(&self.last.id)
            .bind(ROWS)
            .fetch_all(readers)
            .await?;
        let found = rows.iter().map(Parcel::of).collect::<Result<Vec<_>, _>>()?;
        if let Some(last) = found.last() {
            self.last = last.clone();
        }
        Ok(found)
    }
}

/// What became of parcels that nobody holds and that did not say what their message says.
#[derive(Default)]
struct Unpacked {
    /// Their message has a delivery now.
    followed: u64,
    /// Their message is not open, or has a delivery or another parcel.
    removed: u64,
}

async fn unpack(store: &SqliteStore) -> Result<Unpacked, Error> {
    let mut unlike = Unlike::from_the_beginning();
    let mut unpacked = Unpacked::default();
    loop {
        let found = unlike.next(&store.readers).await?;
        if found.is_empty() {
            return Ok(unpacked);
        }
        // Mostly they are all in flight: that needs no write lock.
        let in_flight = InFlight::read(&mut store.readers.session().await?).await?;
        if found.iter().all(|parcel| in_flight.has(parcel)) {
            continue;
        }
        let mut tx = store.transaction().await?;
        let in_flight = InFlight::read(&mut tx).await?;
        let free: Vec<Parcel> = found.into_iter().filter(|parcel| !in_flight.has(parcel)).collect();
        let ended: Vec<String> =
            parcels::end(&mut tx, &free).await?.into_iter().map(|one| one.id).collect();
        let made = parcels::make(&mut tx, &ended, 0, 0).await?;
        tx.commit().await?;
        unpacked.followed += made;
        unpacked.removed += (ended.len() as u64).saturating_sub(made);
    }
}

/// Open messages that neither a parcel nor a delivery names get a delivery. How many dispatches there were
/// is not known any more: they count on as in the trigger `outbox_follow`.
async fn make(store: &SqliteStore) -> Result<u64, Error> {
    let mut after = i64::MIN;
    let mut made = 0;
    loop {
        let found = sqlx::query(MISSING).bind(after).bind(ROWS).fetch_all(&store.readers).await?;
        let Some(last) = found.last() else { return Ok(made) };
        after = last.try_get(0)?;
        let ids = found.iter().map(|row| text(row, 1)).collect::<Result<Vec<_>, _>>()?;
        let mut tx = store.transaction().await?;
        let dispatches = now_ms() / 1_000 - SECONDS_UNTIL_2020;
        made += parcels::make(&mut tx, &ids, 0, dispatches).await?;
        tx.commit().await?;
    }
}

/// Looks for deliveries by their message, and mends what was found.
async fn mend(store: &SqliteStore, find: &'static str, mend: &'static str) -> Result<u64, Error> {
    let mut after = String::new();
    let mut mended = 0;
    loop {
        let found = sqlx::query(find).bind(&after).bind(ROWS).fetch_all(&store.readers).await?;
        let found: Vec<MessageId> = ids(&found)?;
        let Some(last) = found.last() else { return Ok(mended) };
        after = last.to_string();
        let found = json_ids(&found);
        let mut tx = store.transaction().await?;
        mended += sqlx::query(mend).bind(&found).execute(&mut tx).await?.rows_affected();
        // What was changed by hand while it was claimed counts now.
        sqlx::query(FOLLOW).bind(&found).execute(&mut tx).await?;
        tx.commit().await?;
    }
}
