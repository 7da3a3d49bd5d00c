//! Taking: deliveries that are due and fresh messages, under a claim each.

use super::content::{Claimed, Source};
use super::error::store_error;
use super::key::Key;
use super::literal::{self, filled};
use super::parcel::{Parcel, write_list};
use super::parcels::move_marks;
use super::session::Session;
use super::version::Locking;
use super::{LIST, MySqlStore, execute, fetch, row, settle};
use crate::lost_group::{self, Lost};
use crate::own_claims::NoLivingRelay;
use crate::parcel_token::parcel_token;
use async_trait::async_trait;
use postroom_core::{
    Batch, Claims, MessageId, Quota, Rescued, Settled, Settlement, StoreResult, Take, Token,
    Vanished, Wake,
};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Error, Row as _};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

const LOOK: &str = include_str!("sql/look.sql");
pub(super) const TAKE: &str = include_str!("sql/take.sql");
pub(super) const HOLD: &str = include_str!("sql/hold.sql");
const CLAIMED: &str = include_str!("sql/still_claimed.sql");
const READABLE: &str = include_str!("sql/readable.sql");
const INSERT_CLAIM: &str = include_str!("sql/insert_claim.sql");

/// Longer than any claim or delay that makes sense, and short of what the database can add.
const LONGEST: Duration = Duration::from_secs(1_000 * 366 * 86_400);

/// How many messages of a lane one claim has at most: it names each of its parcels, and what it is written
/// with must fit into the server's max_allowed_packet.
const CLAIM_ROWS: usize = 10_000;

/// Which of the two queues of a lane is looked at; its number in the column `queue`.
#[derive(Clone, Copy)]
pub(super) enum Queue {
    Ready = 0,
    Rescued = 1,
}

/// A delivery that may be taken.
struct Candidate {
    key: Key,
    rescues: u32,
    bytes: usize,
    dispatch: u32,
}

/// What there is in a lane that something is wanted of.
struct Lane {
    quota: Quota,
    is_due: bool,
    has_parcels: bool,
    has_edits: bool,
}

/// What may be taken of a lane: a delivery or a parcel.
enum Found {
    Delivery(Candidate),
    Parcel(Parcel),
}

#[async_trait]
impl Claims for MySqlStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        self.take_due(take).await.map_err(|e| store_error("taking due messages", e))
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        let doing = "taking rescued messages";
        self.take_lost(take, which).await.map_err(|e| store_error(doing, e))
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        settle::settle(self, settlements).await
    }

    async fn keep_responses(&self, responses: &[(MessageId, String)]) -> StoreResult<()> {
        super::attempts::keep_responses(self, responses).await
    }

    fn vanished(&self) -> Vec<Vanished> {
        self.vanished.tell(self.rows.as_ref().and_then(|rows| rows.layout().vanished))
    }

    /// There is no such signal on these servers: relays poll.
    async fn wake(&self) -> Option<Box<dyn Wake>> {
        None
    }
}

impl MySqlStore {
    async fn take_due(&self, take: &Take<'_>) -> Result<Vec<Batch>, Error> {
        let wanted = wanted(take);
        let mut has_followed = false;
        loop {
            let mut lanes = self.look(&wanted, Queue::Ready).await?;
            let edited: Vec<&str> = names(lanes.iter().filter(|lane| lane.has_edits));
            // Once: whoever changes more meanwhile does not keep this from taking.
            if !edited.is_empty() && !has_followed {
                has_followed = true;
                if self.follow_edits(Some(&edited)).await? > 0 {
                    continue;
                }
            }
            lanes.retain(|lane| lane.is_due || lane.has_parcels);
            if take.for_queue && lanes.iter().any(|lane| lane.has_parcels) {
                // What is in a queue is settled one by one, by whoever delivered it.
                let fresh = lanes.iter().filter(|lane| lane.has_parcels);
                let fresh: Vec<(&str, usize)> =
                    fresh.map(|lane| (&*lane.quota.integration, lane.quota.rows)).collect();
                self.unpack(&fresh).await?;
                for lane in &mut lanes {
                    (lane.is_due, lane.has_parcels) = (true, false);
                }
            }
            if lanes.is_empty() {
                return Ok(Vec::new());
            }
            self.expect_readable().await?;
            let claimed = self.claim(take, &lanes).await?;
            if claimed.is_empty() {
                return Ok(Vec::new());
            }
            let batches = self.read(take, claimed).await?;
            // All of it may have been closed by hand, and others due all the same.
            if !batches.is_empty() {
                return Ok(batches);
            }
        }
    }

    async fn take_lost(&self, take: &Take<'_>, which: Rescued) -> Result<Vec<Batch>, Error> {
        let mut lanes = self.look(&wanted(take), Queue::Rescued).await?;
        lanes.retain(|lane| lane.is_due);
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        self.expect_readable().await?;
        let locking = self.locking().await?;
        let mut tx = self.begin().await?;
        let (mut left, mut claimed) = (take.rows, Vec::new());
        for Lane { quota, .. } in &lanes {
            let mut due = pick(&mut tx, locking, quota, Queue::Rescued).await?;
            let lost =
                |one: &Candidate| Lost { rescues: one.rescues, bytes: weight(one.bytes, take) };
            lost_group::keep(&mut due, take, quota, which, &mut left, lost);
            let due = due.into_iter().map(|one| (quota.integration.clone(), one)).collect();
            let alone = which == Rescued::Alone;
            claimed.extend(hold(&mut tx, take, due, Queue::Rescued, alone).await?);
        }
        tx.commit().await?;
        self.read(take, claimed).await
    }

    /// Fails where somebody has locked the whole table. What is claimed then could not be read, and to whoever
    /// watches the relay would seem to have nothing to do.
    async fn expect_readable(&self) -> Result<(), Error> {
        let sql = AssertSqlSafe(self.worded(READABLE).into_owned());
        sqlx::raw_sql(sql).fetch_optional(&self.pool).await.map(drop)
    }

    /// What there is in lanes. Looks without locking anything: an idle relay leaves everybody alone.
    async fn look(&self, wanted: &[Quota], queue: Queue) -> Result<Vec<Lane>, Error> {
        let mut lanes = Vec::with_capacity(wanted.len());
        let queue = (queue as i8).to_string();
        for part in wanted.chunks(LIST) {
            let looks = part.iter().enumerate().map(|(place, quota)| {
                let (place, lane) = (place.to_string(), literal::text(&quota.integration));
                filled(LOOK, &[("place", &place), ("queue", &queue), ("lane", &lane)])
            });
            let sql = looks.collect::<Vec<_>>().join(" UNION ALL ");
            let mut found = HashMap::with_capacity(part.len());
            for row in sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&self.pool).await? {
                found.insert(row.try_get::<i64, _>(0)?, row);
            }
            // Lanes are served in the order asked for.
            for (place, quota) in (0_i64..).zip(part) {
                let Some(row) = found.get(&place) else { continue };
                lanes.push(Lane {
                    quota: quota.clone(),
                    is_due: row.try_get(1)?,
                    has_parcels: row.try_get(2)?,
                    has_edits: row.try_get(3)?,
                });
            }
        }
        Ok(lanes)
    }

    /// Claims due deliveries and fresh messages, in one transaction. Neither keeps the other waiting: of each
    /// lane, deliveries have half of the room first, parcels what is left, and deliveries the rest. Reads
    /// nothing large: the lanes are locked meanwhile.
    async fn claim(&self, take: &Take<'_>, lanes: &[Lane]) -> Result<Vec<Claimed>, Error> {
        let fresh = lanes.iter().filter(|lane| lane.has_parcels);
        let fresh: Vec<(&str, usize)> =
            fresh.map(|lane| (&*lane.quota.integration, lane.quota.rows)).collect();
        let fresh_lanes: Vec<&str> = fresh.iter().map(|(lane, _)| *lane).collect();
        self.know_lanes(&fresh_lanes).await?;
        let locking = self.locking().await?;
        let odd = self.takes.fetch_add(1, Ordering::Relaxed) % 2;
        let mut tx = self.begin().await?;
        let mut parcels = HashMap::new();
        if !fresh.is_empty() {
            let marks = self.lock_lanes(&mut tx, &fresh_lanes).await?;
            parcels = self.find_parcels(&mut tx, &marks, &fresh).await?;
        }
        let mut room = Room::of(take);
        let mut due: Vec<(String, Candidate)> = Vec::new();
        let mut picked: Vec<Parcel> = Vec::new();
        for Lane { quota, is_due, .. } in lanes {
            let candidates = if *is_due {
                pick(&mut tx, locking, quota, Queue::Ready).await?
            } else {
                Vec::new()
            };
            let parcels = parcels.remove(&quota.integration).unwrap_or_default();
            for found in shared_out(quota.rows, odd, candidates, parcels) {
                if !room.has(&found, take) {
                    break;
                }
                match found {
                    Found::Delivery(one) => due.push((quota.integration.clone(), one)),
                    Found::Parcel(parcel) => picked.push(parcel),
                }
            }
        }
        let mut claimed = hold(&mut tx, take, due, Queue::Ready, false).await?;
        claimed.extend(hold_parcels(&mut tx, take, picked).await?);
        tx.commit().await?;
        Ok(claimed)
    }
}

/// What is wanted of each lane, once.
fn wanted(take: &Take<'_>) -> Vec<Quota> {
    let mut seen = HashSet::new();
    let quotas = take
        .quotas
        .iter()
        .map(|quota| Quota { rows: quota.rows.min(take.rows).min(CLAIM_ROWS), ..quota.clone() });
    quotas.filter(|quota| quota.rows > 0 && seen.insert(quota.integration.clone())).collect()
}

fn names<'a>(lanes: impl Iterator<Item = &'a Lane>) -> Vec<&'a str> {
    lanes.map(|lane| lane.quota.integration.as_str()).collect()
}

/// A lane's deliveries and parcels within its quota, by turns: a limit in bytes starves neither. Of an odd
/// quota deliveries have the larger half every other time.
fn shared_out(
    rows: usize,
    odd: usize,
    mut due: Vec<Candidate>,
    mut parcels: Vec<Parcel>,
) -> Vec<Found> {
    let half = (rows + odd) / 2;
    due.truncate(half.max(rows.saturating_sub(parcels.len())));
    parcels.truncate(rows - due.len());
    let mut shared = Vec::with_capacity(due.len() + parcels.len());
    let (mut due, mut parcels) = (due.into_iter(), parcels.into_iter());
    let mut turn = odd;
    loop {
        let next = if turn.is_multiple_of(2) {
            parcels.next().map(Found::Parcel).or_else(|| due.next().map(Found::Delivery))
        } else {
            due.next().map(Found::Delivery).or_else(|| parcels.next().map(Found::Parcel))
        };
        let Some(next) = next else { return shared };
        shared.push(next);
        turn += 1;
    }
}

/// What is left of the limits over all lanes.
struct Room {
    rows: usize,
    bytes: usize,
    is_first: bool,
}

impl Room {
    fn of(take: &Take<'_>) -> Self {
        Self { rows: take.rows, bytes: take.bytes, is_first: true }
    }

    /// Whether one more fits. A single message may exceed the limit in bytes; after one that does not fit,
    /// none does.
    fn has(&mut self, found: &Found, take: &Take<'_>) -> bool {
        let bytes = match found {
            Found::Delivery(one) => one.bytes,
            Found::Parcel(parcel) => usize::try_from(parcel.bytes).unwrap_or(0),
        };
        let bytes = weight(bytes, take);
        let fits = self.rows > 0 && (bytes <= self.bytes || self.is_first);
        self.is_first = false;
        self.rows = if fits { self.rows - 1 } else { 0 };
        self.bytes = self.bytes.saturating_sub(bytes);
        fits
    }
}

/// Content over both limits is not read, and weighs nothing.
fn weight(bytes: usize, take: &Take<'_>) -> usize {
    let most = take.payload_limit.saturating_add(take.headers_limit());
    if bytes > most { 0 } else { bytes }
}

/// What is due in one lane, locked where the server can pass over what others have locked. Where
/// it cannot, nothing is locked yet: a scan that locks would wait for every producer whose
/// transaction is still open.
async fn pick(
    tx: &mut Session,
    locking: Locking,
    quota: &Quota,
    queue: Queue,
) -> Result<Vec<Candidate>, Error> {
    let clause = match locking {
        Locking::SkipLocked => locking.clause(),
        Locking::Wait => "",
    };
    let found = sqlx::query(AssertSqlSafe(format!("{TAKE} {clause}")))
        .bind(queue as i8)
        .bind(&quota.integration)
        .bind(i64::try_from(quota.rows).unwrap_or(i64::MAX))
        .fetch_all(&mut *tx)
        .await?;
    found.iter().map(candidate).collect()
}

fn candidate(row: &MySqlRow) -> Result<Candidate, Error> {
    let id = row.try_get::<Hyphenated, _>(0)?.into();
    Ok(Candidate {
        key: Key { seq: row.try_get(1)?, id },
        rescues: row.try_get::<i32, _>(3)?.unsigned_abs(),
        bytes: usize::try_from(row.try_get::<i64, _>(4)?).unwrap_or(0),
        dispatch: row::number(row, 5)?,
    })
}

/// Makes deliveries carry a fresh token, as far as they are still in their queue: all of them, where they
/// were locked.
async fn hold(
    tx: &mut Session,
    take: &Take<'_>,
    due: Vec<(String, Candidate)>,
    queue: Queue,
    alone: bool,
) -> Result<Vec<Claimed>, Error> {
    let token = Token::random();
    let mut ids: Vec<Uuid> = due.iter().map(|(_, one)| one.key.id).collect();
    ids.sort_unstable();
    let mut held = HashSet::with_capacity(ids.len());
    for part in ids.chunks(LIST) {
        let (token, list, queue) =
            (literal::token(token), literal::ids(part), (queue as i8).to_string());
        let places = [("token", token.as_str()), ("ids", &list), ("queue", &queue)];
        if execute(tx, filled(HOLD, &places)).await? == part.len() as u64 {
            held.extend(part.iter().copied());
            continue;
        }
        for row in fetch(tx, filled(CLAIMED, &places)).await? {
            held.insert(row.try_get::<Hyphenated, _>(0)?.into());
        }
    }
    let claimed: Vec<Claimed> = due
        .into_iter()
        .filter(|(_, one)| held.contains(&one.key.id))
        .map(|(lane, one)| Claimed {
            token,
            lane: lane.into(),
            message: one.key,
            rescues: one.rescues,
            dispatch: one.dispatch,
            source: Source::Delivery,
        })
        .collect();
    if !claimed.is_empty() {
        put_on_record(tx, take, token, alone, None).await?;
    }
    Ok(claimed)
}

/// Claims parcels, whose lanes are locked.
async fn hold_parcels(
    tx: &mut Session,
    take: &Take<'_>,
    parcels: Vec<Parcel>,
) -> Result<Vec<Claimed>, Error> {
    if parcels.is_empty() {
        return Ok(Vec::new());
    }
    let token = parcel_token();
    put_on_record(tx, take, token, false, Some(&parcels)).await?;
    let mut marks: HashMap<&str, i64> = HashMap::new();
    for Parcel { key, .. } in &parcels {
        let mark = marks.entry(&key.integration).or_insert(i64::MIN);
        *mark = key.message.seq.max(*mark);
    }
    move_marks(tx, &marks).await?;
    let claimed = |parcel: Parcel| Claimed {
        token,
        lane: parcel.key.integration,
        message: parcel.key.message,
        rescues: 0,
        dispatch: 1,
        source: Source::Parcel,
    };
    Ok(parcels.into_iter().map(claimed).collect())
}

/// Writes the row of a claim.
async fn put_on_record(
    tx: &mut Session,
    take: &Take<'_>,
    token: Token,
    alone: bool,
    parcels: Option<&[Parcel]>,
) -> Result<(), Error> {
    let seqs = || parcels.into_iter().flatten().map(|parcel| parcel.key.message.seq);
    let list = parcels.map(|parcels| write_list(parcels.iter().map(|parcel| &parcel.key)));
    let inserted = sqlx::query(INSERT_CLAIM)
        .bind(token.0)
        .bind(take.worker)
        .bind(alone)
        .bind(take.for_queue)
        .bind(list)
        .bind(seqs().min())
        .bind(seqs().max())
        .bind(take.relay.0)
        .execute(&mut *tx)
        .await?;
    if inserted.rows_affected() == 0 {
        // The transaction is rolled back with it.
        return Err(Error::Configuration(NoLivingRelay.into()));
    }
    Ok(())
}

/// A time span as the database adds it.
pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}
