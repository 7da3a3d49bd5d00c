//! Taking.

use super::content;
use super::error::store_error;
use super::json_lists::json;
use super::parcels::{self, FOLLOW, Found, Looking, Parcel, is_any_free};
use super::row::{id, number, text};
use super::session::Session;
use super::time::now_ms;
use super::{SqliteStore, settle, wake};
use crate::lost_group::{self, Lost};
use crate::own_claims::NoLivingRelay;
use crate::vanished::Untold;
use async_trait::async_trait;
use postroom_core::{
    Batch, Claims, MessageId, Quota, Rescued, Settled, Settlement, StoreResult, Take, Token,
    Vanished, Wake,
};
use sqlx::{Error, Row as _};
use std::collections::HashSet;

pub(super) const IS_DUE: &str = include_str!("sql/is_due.sql");
pub(super) const IS_RESCUED_DUE: &str = include_str!("sql/is_rescued_due.sql");
pub(super) const TAKE: &str = include_str!("sql/take.sql");
pub(super) const TAKE_RESCUED: &str = include_str!("sql/take_rescued.sql");
const INSERT_CLAIM: &str = include_str!("sql/insert_claim.sql");
pub(super) const CLAIM_DELIVERIES: &str = include_str!("sql/claim_deliveries.sql");
pub(super) const FORGET_CLOSED: &str = include_str!("sql/forget_closed.sql");

/// How many parcels and deliveries whose message is gone, closed or elsewhere are put right under one
/// write lock.
const PUT_RIGHT_ROWS: usize = 5_000;

/// A message that may be taken.
pub(super) struct Candidate {
    /// As [`id`] has it.
    id: String,
    pub(super) seq: i64,
    due_at: i64,
    pub(super) rescues: u32,
    pub(super) dispatch: u32,
    weight: usize,
    /// The parcel that it is in, if it is fresh.
    parcel: Option<Parcel>,
}

/// Which of the two queues of deliveries of a lane is looked at.
#[derive(Clone, Copy)]
enum Queue {
    Ready,
    Rescued,
}

#[async_trait]
impl Claims for SqliteStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        let doing = "taking due messages";
        loop {
            if !self.is_any_due(take).await.map_err(|e| store_error(doing, e))? {
                return Ok(Vec::new());
            }
            let mut tx = self.begin(doing).await?;
            let mut taking = Taking::new(self, take);
            let batches = if take.for_queue {
                taking.take_for_queue(&mut tx).await
            } else {
                taking.take_both(&mut tx).await
            };
            let batches = batches.map_err(|e| store_error(doing, e))?;
            tx.commit().await.map_err(|e| store_error(doing, e))?;
            // Behind what was put right there may be something to deliver.
            if !batches.is_empty() || taking.put_right == 0 {
                return Ok(batches);
            }
        }
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        let doing = "taking rescued messages";
        if !self.is_due(take, Queue::Rescued).await.map_err(|e| store_error(doing, e))? {
            return Ok(Vec::new());
        }
        let mut tx = self.begin(doing).await?;
        let batches = Taking::new(self, take).take_lost(&mut tx, which).await;
        let batches = batches.map_err(|e| store_error(doing, e))?;
        tx.commit().await.map_err(|e| store_error(doing, e))?;
        Ok(batches)
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        settle::settle(self, settlements).await
    }

    async fn keep_responses(&self, responses: &[(MessageId, String)]) -> StoreResult<()> {
        super::attempts::keep_responses(self, responses).await
    }

    fn vanished(&self) -> Vec<Vanished> {
        self.vanished.tell(self.readers.lookup.layout().and_then(|layout| layout.vanished))
    }

    async fn wake(&self) -> Option<Box<dyn Wake>> {
        self.notify.then(|| wake::watch(&self.path))
    }
}

impl SqliteStore {
    /// Looks before the write lock is taken: an idle relay leaves the producers alone.
    async fn is_any_due(&self, take: &Take<'_>) -> Result<bool, Error> {
        if self.is_due(take, Queue::Ready).await? {
            return Ok(true);
        }
        let lanes = lanes(take);
        if lanes.is_empty() {
            return Ok(false);
        }
        is_any_free(&mut self.readers.session().await?, &lanes).await
    }

    async fn is_due(&self, take: &Take<'_>, queue: Queue) -> Result<bool, Error> {
        let lanes = lanes(take);
        if lanes.is_empty() {
            return Ok(false);
        }
        let statement = match queue {
            Queue::Ready => IS_DUE,
            Queue::Rescued => IS_RESCUED_DUE,
        };
        sqlx::query_scalar(statement)
            .bind(json(&lanes))
            .bind(now_ms())
            .fetch_one(&self.readers)
            .await
    }
}

fn open_lanes<'a>(take: &Take<'a>) -> impl Iterator<Item = &'a Quota> {
    take.quotas.iter().filter(|quota| quota.rows > 0)
}

/// The lanes that there is room for.
fn lanes<'a>(take: &Take<'a>) -> Vec<&'a str> {
    if take.rows == 0 {
        return Vec::new();
    }
    open_lanes(take).map(|quota| quota.integration.as_str()).collect()
}

/// One take, in one transaction.
struct Taking<'a> {
    take: &'a Take<'a>,
    now: i64,
    deliveries_lead: bool,
    looking: Looking<'a>,
    /// Counts what is gone, where somebody else made the table.
    vanished: Option<&'a Untold>,
    /// How many parcels and deliveries were put right on the way.
    put_right: usize,
}

impl<'a> Taking<'a> {
    fn new(store: &'a SqliteStore, take: &'a Take<'_>) -> Self {
        Self {
            take,
            now: now_ms(),
            deliveries_lead: store.lanes.deliveries_lead(),
            looking: Looking::new(&store.lanes),
            vanished: store.readers.lookup.layout().map(|_| &store.vanished),
            put_right: 0,
        }
    }

    /// Takes due deliveries and fresh messages, each under a claim of its own. Neither keeps the other
    /// waiting: they come in turn, as long as there are both. So each has half of the room, in rows and
    /// in bytes, and what the other leaves.
    async fn take_both(&mut self, tx: &mut Session) -> Result<Vec<Batch>, Error> {
        let mut picked = Picked::new(self.take);
        for quota in open_lanes(self.take) {
            let rows = quota.rows.min(picked.rows_left());
            if rows == 0 {
                break;
            }
            let due = self.candidates(tx, quota, Queue::Ready, rows).await?;
            let fresh = self.fresh(tx, quota, rows).await?;
            let (first, second) = if self.deliveries_lead { (due, fresh) } else { (fresh, due) };
            if !picked.add(in_turn(first, second).take(rows)) {
                break;
            }
        }
        let (fresh, due): (Vec<_>, Vec<_>) =
            picked.candidates.into_iter().partition(|one| one.parcel.is_some());
        let mut batches = Vec::new();
        for candidates in [due, fresh] {
            if !candidates.is_empty() {
                batches.push(self.hold(tx, candidates, false).await?);
            }
        }
        Ok(batches)
    }

    /// What is in a queue is settled one by one, by whoever delivered it: fresh messages get their
    /// deliveries first.
    async fn take_for_queue(&mut self, tx: &mut Session) -> Result<Vec<Batch>, Error> {
        let mut picked = Picked::new(self.take);
        for quota in open_lanes(self.take) {
            let rows = quota.rows.min(picked.rows_left());
            if rows == 0 {
                break;
            }
            let found = self.looking.find(tx, &quota.integration, rows).await?;
            self.put_right += found.len();
            self.note_gone(tx, quota, &found).await?;
            parcels::unpack(tx, &parcels_of(found)).await?;
            let due = self.candidates(tx, quota, Queue::Ready, rows).await?;
            if !picked.add(due) {
                break;
            }
        }
        if picked.candidates.is_empty() {
            return Ok(Vec::new());
        }
        Ok(vec![self.hold(tx, picked.candidates, false).await?])
    }

    async fn take_lost(&mut self, tx: &mut Session, which: Rescued) -> Result<Vec<Batch>, Error> {
        let mut batches = Vec::new();
        let mut left = self.take.rows;
        for quota in open_lanes(self.take) {
            let mut due = self.candidates(tx, quota, Queue::Rescued, quota.rows).await?;
            let lost = |one: &Candidate| Lost { rescues: one.rescues, bytes: one.weight };
            lost_group::keep(&mut due, self.take, quota, which, &mut left, lost);
            if !due.is_empty() {
                batches.push(self.hold(tx, due, which == Rescued::Alone).await?);
            }
        }
        Ok(batches)
    }

    /// The due deliveries of one lane. Those whose message was deleted, or closed by hand while it was
    /// claimed, are put right on the way and do not count.
    async fn candidates(
        &mut self,
        tx: &mut Session,
        quota: &Quota,
        queue: Queue,
        rows: usize,
    ) -> Result<Vec<Candidate>, Error> {
        let statement = match queue {
            Queue::Ready => TAKE,
            Queue::Rescued => TAKE_RESCUED,
        };
        loop {
            let rows = sqlx::query(statement)
                .bind(&quota.integration)
                .bind(self.now)
                .bind(i64::try_from(rows).unwrap_or(i64::MAX))
                .fetch_all(&mut *tx)
                .await?;
            let mut due = Vec::with_capacity(rows.len());
            let mut closed: Vec<String> = Vec::new();
            let mut gone = 0;
            for row in &rows {
                let id = id(text(row, 0)?);
                let status: Option<String> = row.try_get(5)?;
                if !matches!(status.as_deref(), Some("PENDING" | "FAILED")) {
                    gone += usize::from(status.is_none());
                    closed.push(id);
                    continue;
                }
                let size =
                    |index| row.try_get::<i64, _>(index).map(|n| usize::try_from(n).unwrap_or(0));
                due.push(Candidate {
                    id,
                    seq: row.try_get(1)?,
                    due_at: row.try_get(2)?,
                    rescues: row.try_get(3)?,
                    dispatch: number(row, 4)?,
                    weight: weight(self.take, size(6)?, size(7)?),
                    parcel: None,
                });
            }
            if closed.is_empty() {
                return Ok(due);
            }
            self.note_vanished(quota, gone);
            sqlx::query(FORGET_CLOSED).bind(json(&closed)).execute(&mut *tx).await?;
            sqlx::query(FOLLOW).bind(json(&closed)).execute(&mut *tx).await?;
            if self.is_enough_put_right(quota, closed.len()) {
                return Ok(due);
            }
        }
    }

    /// The fresh messages of one lane. A parcel whose message is not to be delivered out of it is
    /// unpacked on the way, and does not count.
    async fn fresh(
        &mut self,
        tx: &mut Session,
        quota: &Quota,
        rows: usize,
    ) -> Result<Vec<Candidate>, Error> {
        loop {
            let found = self.looking.find(tx, &quota.integration, rows).await?;
            let (due, odd): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|one| one.is_due(self.now));
            self.note_gone(tx, quota, &odd).await?;
            let odd = parcels_of(odd);
            parcels::unpack(tx, &odd).await?;
            if odd.is_empty() || self.is_enough_put_right(quota, odd.len()) {
                return Ok(due.into_iter().map(|one| Candidate::fresh(one, self.take)).collect());
            }
        }
    }

    /// Counts the parcels whose message is gone, and not only under another number: VACUUM gives new ones.
    async fn note_gone(
        &self,
        tx: &mut Session,
        quota: &Quota,
        found: &[Found],
    ) -> Result<(), Error> {
        let gone = found.iter().filter(|one| one.is_gone);
        let gone: Vec<&str> = gone.map(|one| one.parcel.id.as_str()).collect();
        if self.vanished.is_some() && !gone.is_empty() {
            let there = settle::there(tx, &json(&gone)).await?;
            self.note_vanished(quota, gone.len().saturating_sub(there.len()));
        }
        Ok(())
    }

    fn note_vanished(&self, quota: &Quota, messages: usize) {
        if let Some(vanished) = self.vanished {
            vanished.note(&quota.integration, messages as u64);
        }
    }

    fn is_enough_put_right(&mut self, quota: &Quota, rows: usize) -> bool {
        tracing::info!(
            integration = quota.integration,
            messages = rows,
            "put right the ledger of messages that were deleted or changed by hand"
        );
        self.put_right += rows;
        self.put_right >= PUT_RIGHT_ROWS
    }

    /// Claims messages under one fresh token, and reads them. They are all fresh, or none is.
    async fn hold(
        &self,
        tx: &mut Session,
        mut candidates: Vec<Candidate>,
        alone: bool,
    ) -> Result<Batch, Error> {
        candidates.sort_unstable_by_key(|candidate| (candidate.due_at, candidate.seq));
        let token = Token::random();
        let fresh: Vec<Parcel> =
            candidates.iter_mut().filter_map(|candidate| candidate.parcel.take()).collect();
        let (lowest, highest) = (
            fresh.iter().map(|parcel| parcel.seq).min(),
            fresh.iter().map(|parcel| parcel.seq).max(),
        );
        let inserted = sqlx::query(INSERT_CLAIM)
            .bind(token.0.to_string())
            .bind(self.take.worker)
            .bind(self.now)
            .bind(alone)
            .bind(self.take.for_queue)
            .bind(self.take.relay.0.to_string())
            .bind((!fresh.is_empty()).then(|| parcels::to_json(&fresh)))
            .bind(lowest)
            .bind(highest)
            .execute(&mut *tx)
            .await?;
        if inserted.rows_affected() == 0 {
            // The transaction is rolled back with it.
            return Err(Error::Configuration(NoLivingRelay.into()));
        }
        if fresh.is_empty() {
            let ids: Vec<&str> = candidates.iter().map(|one| one.id.as_str()).collect();
            sqlx::query(CLAIM_DELIVERIES)
                .bind(token.0.to_string())
                .bind(json(&ids))
                .execute(&mut *tx)
                .await?;
        } else {
            self.looking.move_marks(tx, &fresh).await?;
        }
        let messages = content::read(tx, self.take, &candidates).await?;
        Ok(Batch { token, messages })
    }
}

impl Candidate {
    /// One out of a parcel.
    fn fresh(found: Found, take: &Take<'_>) -> Self {
        Self {
            id: found.parcel.id.clone(),
            seq: found.parcel.seq,
            due_at: found.due_at,
            rescues: 0,
            dispatch: 1,
            weight: weight(take, found.payload_bytes, found.headers_bytes),
            parcel: Some(found.parcel),
        }
    }
}

fn parcels_of(found: Vec<Found>) -> Vec<Parcel> {
    found.into_iter().map(|one| one.parcel).collect()
}

/// What content weighs. What is over its limit is not read.
fn weight(take: &Take<'_>, payload: usize, headers: usize) -> usize {
    let within = |bytes, limit| if bytes > limit { 0 } else { bytes };
    within(payload, take.payload_limit) + within(headers, take.headers_limit())
}

/// One of each, as long as there are both.
fn in_turn(first: Vec<Candidate>, second: Vec<Candidate>) -> impl Iterator<Item = Candidate> {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut is_first = false;
    std::iter::from_fn(move || {
        is_first = !is_first;
        if is_first {
            first.next().or_else(|| second.next())
        } else {
            second.next().or_else(|| first.next())
        }
    })
}

/// What a take has picked, within its limits. Lane by lane: a backlog of large, older messages takes what
/// the others leave.
struct Picked<'a> {
    take: &'a Take<'a>,
    candidates: Vec<Candidate>,
    ids: HashSet<String>,
    bytes: usize,
}

impl<'a> Picked<'a> {
    fn new(take: &'a Take<'_>) -> Self {
        Self { take, candidates: Vec::new(), ids: HashSet::new(), bytes: 0 }
    }

    fn rows_left(&self) -> usize {
        self.take.rows - self.candidates.len()
    }

    /// Adds what fits; whether there may be room for more.
    fn add(&mut self, candidates: impl IntoIterator<Item = Candidate>) -> bool {
        for candidate in candidates {
            // A lane may be asked for twice.
            if self.ids.contains(&candidate.id) {
                continue;
            }
            let bytes = self.bytes.saturating_add(candidate.weight);
            // A single message may exceed the limit.
            if bytes > self.take.bytes && !self.candidates.is_empty() {
                return false;
            }
            self.bytes = bytes;
            self.ids.insert(candidate.id.clone());
            self.candidates.push(candidate);
        }
        true
    }
}
