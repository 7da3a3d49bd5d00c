//! Parcels of fresh messages: taking them, reading what they name, making deliveries of it.
//!
//! A take locks the cursors of its lanes and reads the parcels above their marks; what committed late lies
//! below, and is swept up whenever a take found less than it was asked for. A claim names its parcels and
//! writes to none of them. Whatever is not delivered out of a parcel gets a delivery, so a parcel is
//! inserted once and deleted once, and never goes back to its lane.

use super::connection::{Connection, Prepared};
use super::content::{Answer, READ_PARCELS, Read, Reading, clamp_i32, read_parcels, reading};
use super::error::store_error;
use super::transaction::{BEGIN, BEGIN_CLAIMING, COMMIT, in_order, transact};
use super::{PgStore, statements};
use crate::parcel_token::parcel_token;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use postroom_core::{Quota, StoreResult, Take, Token};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

pub(super) const TAKE_PARCELS: &str = include_str!("sql/take_parcels.sql");
pub(super) const SWEEP: &str = include_str!("sql/sweep.sql");
pub(super) const UNPACK: &str = concat!(
    include_str!("sql/unpack.sql"),
    include_str!("sql/made_of_parcels.sql"),
    "SELECT count(*), EXISTS (
         SELECT FROM unnest($1::text[]) AS wanted (integration)
         WHERE core_outbox.lane_of(integration)
               <> ALL (ARRAY(SELECT lane FROM core_outbox.lane_cursor))
     ) FROM gone"
);
pub(super) const RESCUE_PARCELS: &str = concat!(
    include_str!("sql/rescue_parcels.sql"),
    include_str!("sql/made_of_parcels.sql"),
    "SELECT count(*) FROM named"
);
pub(super) const LOCK_LANES: &str = include_str!("sql/lock_lanes.sql");
const RISE: &str = include_str!("sql/rise.sql");
const MAKE_CURSORS: &str = "INSERT INTO core_outbox.lane_cursor (lane) \
    SELECT DISTINCT core_outbox.lane_of(unnest($1::text[])) ON CONFLICT DO NOTHING";
/// $1 integrations.
const ANY_EDIT: &str = concat!(
    "SELECT EXISTS (SELECT FROM core_outbox.pending_edit e ",
    "WHERE e.lane = ANY (ARRAY(SELECT core_outbox.lane_of(unnest($1::text[])))) AND ",
    include_str!("sql/undecided.sql"),
    ")"
);
const ANY_EDIT_AT_ALL: &str = "SELECT EXISTS (SELECT FROM core_outbox.pending_edit)";
/// $1 integrations, or null for all lanes, $2 edits at most.
const EDITED: &str = concat!(
    include_str!("sql/edits.sql"),
    include_str!("sql/undecided.sql"),
    "AND e.id > $3 ORDER BY e.id LIMIT $2"
);
/// $1 lanes.
const LOCK_LANE_NUMBERS: &str =
    "SELECT lane FROM core_outbox.lane_cursor WHERE lane = ANY ($1) ORDER BY lane FOR UPDATE";
pub(super) const UNPACK_NAMED: &str = concat!(
    include_str!("sql/unpack_named.sql"),
    include_str!("sql/made_of_parcels.sql"),
    "SELECT count(*) FROM gone"
);
const FOLLOW: &str = include_str!("sql/follow.sql");
const CLOSE_LEFT_OUT: &str = include_str!("sql/close_left_out.sql");

/// How many edits are followed in one transaction.
const EDITS: i64 = 1_000;
/// How often the low-water marks are raised.
const RISE_EVERY: Duration = Duration::from_secs(1);
/// How many parcels a take looks at in each lane at the least.
const LOOK_AT_LEAST: i32 = 16;

/// What a store remembers of the lanes it takes from.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Those whose cursor is there.
    known: Mutex<HashSet<String>>,
    /// How many messages a parcel named on average, the last time.
    per_parcel: AtomicI32,
    risen_at: Mutex<Option<Instant>>,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { known: Mutex::default(), per_parcel: AtomicI32::new(1), risen_at: Mutex::default() }
    }
}

impl Lanes {
    fn unknown(&self, quotas: &[Quota]) -> Vec<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let names = quotas.iter().map(|quota| &quota.integration);
        names.filter(|name| !known.contains(*name)).cloned().collect()
    }

    fn learn(&self, names: Vec<String>) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
    }

    /// Some lane has no cursor after all: a standby that did not have it has taken over, or a dump was
    /// restored. The next take makes it again.
    fn forget(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How many parcels to look at in each lane for so many messages. Those of full parcels are few; to
    /// read as many as there may be of small ones would cost more than the take.
    fn look_at(&self, rows: i32) -> i32 {
        let enough = rows / self.per_parcel.load(Ordering::Relaxed).max(1);
        enough.saturating_mul(2).saturating_add(LOOK_AT_LEAST)
    }

    fn took(&self, parcels: i64, messages: i64) {
        let average = i32::try_from(messages / parcels.max(1)).unwrap_or(1);
        self.per_parcel.store(average, Ordering::Relaxed);
    }

    /// What the steps of a take answered.
    fn found(&self, answers: &[Vec<Row>], wish: &Wish<'_>) -> Result<FoundParcels, Error> {
        let mut found = FoundParcels::default();
        if let Some(row) = answers.get(1).and_then(|rows| rows.first()) {
            let (parcels, messages): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
            if parcels > 0 {
                self.took(parcels, messages);
                found.claims.push(HeldParcels::of(wish.above, messages));
            }
            found.is_one_too_large |= row.try_get::<_, bool>(0)?;
            if row.try_get(3)? {
                self.forget();
            }
        }
        if let Some(row) = answers.get(2).and_then(|rows| rows.first()) {
            found.is_one_too_large |= row.try_get::<_, bool>(0)?;
            let (parcels, messages): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
            found.claims.extend((parcels > 0).then(|| HeldParcels::of(wish.below, messages)));
        }
        if let Some(row) = answers.get(3).and_then(|rows| rows.first()) {
            found.has_edits = row.try_get(0)?;
        }
        Ok(found)
    }

    /// Whether it is time to raise the low-water marks; once per time.
    fn is_to_rise(&self) -> bool {
        let mut risen_at = self.risen_at.lock().unwrap_or_else(PoisonError::into_inner);
        if risen_at.is_some_and(|at| at.elapsed() < RISE_EVERY) {
            return false;
        }
        *risen_at = Some(Instant::now());
        true
    }
}

/// The statements of a take, prepared.
struct Taking {
    take: Prepared,
    sweep: Prepared,
    edits: Prepared,
}

impl Taking {
    async fn prepare(client: &Connection) -> Result<Self, Error> {
        Ok(Self {
            take: client.prepare_cached(TAKE_PARCELS).await?,
            sweep: client.prepare_cached(SWEEP).await?,
            edits: client.prepare_cached(ANY_EDIT).await?,
        })
    }

    /// The statements of one transaction; what each answers.
    fn steps<'a>(
        &'a self,
        client: &'a Connection,
        wish: &'a Wish<'_>,
    ) -> Vec<BoxFuture<'a, Result<Vec<Row>, Error>>> {
        let nothing = |()| Vec::new();
        vec![
            async move { client.batch_execute(BEGIN_CLAIMING).await.map(nothing) }.boxed(),
            async move {
                let mut params = wish.params(&wish.above.0);
                params.extend::<[&(dyn ToSql + Sync); 2]>([&wish.beside, &wish.look_at]);
                client.run(&self.take, &params).await
            }
            .boxed(),
            async move {
                let mut params = wish.params(&wish.below.0);
                params.push(&wish.before);
                client.run(&self.sweep, &params).await
            }
            .boxed(),
            async move { client.run(&self.edits, &[&wish.integrations]).await }.boxed(),
            async move { client.batch_execute(COMMIT).await.map(nothing) }.boxed(),
        ]
    }
}

/// What the statements of a take are given.
struct Wish<'a> {
    /// The claim on parcels above the marks, and the one on those below.
    above: Token,
    below: Token,
    beside: Uuid,
    before: Vec<Uuid>,
    worker: &'a str,
    relay: Uuid,
    integrations: Vec<&'a str>,
    rows: Vec<i32>,
    rows_max: i64,
    bytes_max: i64,
    look_at: i32,
}

impl<'a> Wish<'a> {
    fn of(take: &'a Take<'_>, beside: Token, lanes: &Lanes) -> Self {
        let (above, below) = (parcel_token(), parcel_token());
        let rows: Vec<i32> = take.quotas.iter().map(|quota| clamp_i32(quota.rows)).collect();
        Self {
            above,
            below,
            beside: beside.0,
            before: vec![above.0, beside.0],
            worker: take.worker,
            relay: take.relay.0,
            integrations: take.quotas.iter().map(|quota| quota.integration.as_str()).collect(),
            look_at: lanes.look_at(rows.iter().copied().max().unwrap_or(0)),
            rows,
            rows_max: clamp_i64(take.rows),
            bytes_max: clamp_i64(take.bytes),
        }
    }

    /// What both statements take first.
    fn params<'b>(&'b self, token: &'b Uuid) -> Vec<&'b (dyn ToSql + Sync)> {
        vec![
            token,
            &self.worker,
            &self.relay,
            &self.integrations,
            &self.rows,
            &self.rows_max,
            &self.bytes_max,
        ]
    }
}

/// What deliveries and parcels gave.
pub(super) struct AtOnce {
    pub(super) due: Read,
    pub(super) parcels: FoundParcels,
    /// What parcels name; `None` where it must be read with caution.
    pub(super) fresh: Option<Read>,
}

/// A claim on parcels, and how many messages they name.
#[derive(Clone, Copy)]
pub(super) struct HeldParcels {
    pub(super) token: Token,
    pub(super) messages: usize,
}

impl HeldParcels {
    fn of(token: Token, messages: i64) -> Self {
        Self { token, messages: usize::try_from(messages).unwrap_or(0) }
    }
}

/// What a take found in parcels.
#[derive(Default)]
pub(super) struct FoundParcels {
    /// The claims that were made.
    pub(super) claims: Vec<HeldParcels>,
    /// Some parcel has more messages than there is room for: it is to be unpacked.
    pub(super) is_one_too_large: bool,
    /// Somebody has changed messages of these lanes by hand.
    pub(super) has_edits: bool,
}

impl PgStore {
    /// Makes sure that every lane has its cursor.
    pub(super) async fn know_lanes(
        &self,
        client: &Connection,
        quotas: &[Quota],
    ) -> StoreResult<()> {
        let unknown = self.lanes.unknown(quotas);
        if unknown.is_empty() {
            return Ok(());
        }
        let doing = "preparing to take from a lane";
        let statement =
            client.prepare_cached(MAKE_CURSORS).await.map_err(|e| store_error(doing, e))?;
        transact(client, BEGIN, &statement, &[&unknown])
            .await
            .map_err(|e| store_error(doing, e))?;
        self.lanes.learn(unknown);
        Ok(())
    }

    /// Takes parcels, in one transaction and one round trip. `beside` is the claim on deliveries that was
    /// made just before: the quotas bound both.
    pub(super) async fn take_parcels(
        &self,
        client: &Connection,
        take: &Take<'_>,
        beside: Token,
    ) -> Result<FoundParcels, Error> {
        let taking = Taking::prepare(client).await?;
        let wish = Wish::of(take, beside, &self.lanes);
        let answers = in_order(taking.steps(client, &wish)).await;
        let answers: Vec<Vec<Row>> = answers.into_iter().collect::<Result<_, _>>()?;
        self.lanes.found(&answers, &wish)
    }

    /// Takes deliveries, then parcels, and reads both: three transactions in one round trip. `due` is what
    /// the take of deliveries takes.
    pub(super) async fn at_once(
        &self,
        client: &Connection,
        take: &Take<'_>,
        due: &[&(dyn ToSql + Sync)],
        beside: Token,
    ) -> Result<AtOnce, Error> {
        let take_due = client.prepare_cached(statements::TAKE).await?;
        let taking = Taking::prepare(client).await?;
        let read = client.prepare_cached(READ_PARCELS).await?;
        let wish = Wish::of(take, beside, &self.lanes);
        let limit = clamp_i32(take.payload_limit);
        let above: [&(dyn ToSql + Sync); 2] = [&limit, &wish.above.0];
        let below: [&(dyn ToSql + Sync); 2] = [&limit, &wish.below.0];
        let due = [Reading { statement: &take_due, params: due, parcels_of: None }];
        let fresh = [
            Reading { statement: &read, params: &above, parcels_of: Some(wish.above) },
            Reading { statement: &read, params: &below, parcels_of: Some(wish.below) },
        ];
        let began = Instant::now();
        let mut steps = reading(client, &due, take);
        let due_steps = steps.len();
        let parcels = taking.steps(client, &wish).into_iter();
        steps.extend(parcels.map(|step| step.map(|rows| rows.map(Answer::Rows)).boxed()));
        let parcel_steps = steps.len() - due_steps;
        steps.extend(reading(client, &fresh, take));
        let mut answers = in_order(steps).await.into_iter();
        let due = self.caution.unless_content(answers.by_ref().take(due_steps), began)?;
        let rows: Vec<Vec<Row>> = answers
            .by_ref()
            .take(parcel_steps)
            .map(|answer| answer.map(Answer::rows))
            .collect::<Result<_, _>>()?;
        let parcels = self.lanes.found(&rows, &wish)?;
        let mut fresh = self.caution.unless_content(answers, began)?;
        if let Some(fresh) = &mut fresh {
            fresh.add_missing(client, &parcels.claims).await?;
        }
        Ok(AtOnce { due: due.unwrap_or_default(), parcels, fresh })
    }

    /// Reads what claims on parcels hold, carefully.
    pub(super) async fn read_parcels(
        &self,
        client: &mut Connection,
        take: &Take<'_>,
        claims: &[HeldParcels],
    ) -> StoreResult<Read> {
        let doing = "reading fresh messages";
        let read = read_parcels(client, take, &self.caution, claims).await;
        let read = read.map_err(|e| store_error(doing, e))?;
        self.set_aside(client, read).await
    }

    /// Gives back what was read beyond the limit, and gives what is not to be delivered out of its parcel
    /// its delivery.
    pub(super) async fn set_aside(
        &self,
        client: &mut Connection,
        mut read: Read,
    ) -> StoreResult<Read> {
        self.give_back_excess(client, &mut read).await?;
        let mut left_out: HashMap<Token, Vec<Uuid>> = HashMap::new();
        for (id, token) in read.take_left_out() {
            left_out.entry(token).or_default().push(id);
        }
        for (token, ids) in left_out {
            let no_edits: Vec<i64> = Vec::new();
            let steps: [Said<'_>; 2] = [
                (FOLLOW, &[&ids, &false, &no_edits, &no_edits]),
                (CLOSE_LEFT_OUT, &[&token.0, &ids]),
            ];
            one_by_one(client, BEGIN, &steps)
                .await
                .map_err(|e| store_error("setting messages aside", e))?;
        }
        Ok(read)
    }

    /// Makes deliveries of fresh messages: for lanes that are claimed row by row, and of parcels that are
    /// larger than the room there is. Whether there was a parcel.
    pub(super) async fn unpack(
        &self,
        client: &Connection,
        quotas: &[Quota],
    ) -> Result<bool, Error> {
        let integrations: Vec<&str> =
            quotas.iter().map(|quota| quota.integration.as_str()).collect();
        let rows: Vec<i32> = quotas.iter().map(|quota| clamp_i32(quota.rows)).collect();
        let steps: [Said<'_>; 2] =
            [(LOCK_LANES, &[&integrations]), (UNPACK, &[&integrations, &rows])];
        let unpacked = one_by_one(client, BEGIN, &steps).await?;
        let Some(row) = unpacked.first() else { return Ok(false) };
        if row.try_get(1)? {
            self.lanes.forget();
        }
        Ok(row.try_get::<_, i64>(0)? > 0)
    }

    /// Follows changes by hand in these lanes, or in all of them. Whether there were any that could be
    /// followed.
    pub(super) async fn follow_edits(
        &self,
        client: &Connection,
        quotas: Option<&[Quota]>,
    ) -> Result<bool, Error> {
        let integrations: Option<Vec<&str>> =
            quotas.map(|quotas| quotas.iter().map(|one| one.integration.as_str()).collect());
        let find = client.prepare_cached(EDITED).await?;
        let mut after = 0_i64;
        let mut is_any_over = false;
        loop {
            let edits = transact(client, BEGIN, &find, &[&integrations, &EDITS, &after]).await?;
            let column = |index| edits.iter().map(move |row| row.try_get::<_, i64>(index));
            let numbers: Vec<i64> = column(0).collect::<Result<_, _>>()?;
            let lanes: Vec<i64> = column(1).collect::<Result<_, _>>()?;
            let ids: Vec<Uuid> =
                edits.iter().map(|row| row.try_get(2)).collect::<Result<_, _>>()?;
            let Some(last) = numbers.last() else { return Ok(is_any_over) };
            after = *last;
            let steps: [Said<'_>; 3] = [
                (LOCK_LANE_NUMBERS, &[&lanes]),
                (UNPACK_NAMED, &[&ids, &lanes]),
                (FOLLOW, &[&ids, &true, &lanes, &numbers]),
            ];
            let over = one_by_one(client, BEGIN, &steps).await?;
            is_any_over |= over.first().map_or(Ok(0), |row| row.try_get::<_, i64>(0))? > 0;
        }
    }

    /// Follows changes by hand in all lanes, if there are any.
    pub(super) async fn follow_any_edits(&self, client: &Connection) -> Result<(), Error> {
        let row = client.query_one(ANY_EDIT_AT_ALL, &[]).await?;
        if row.try_get(0)? {
            self.follow_edits(client, None).await?;
        }
        Ok(())
    }

    /// Raises the low-water marks, once in a while.
    pub(super) async fn rise(&self, client: &Connection, quotas: &[Quota]) -> Result<(), Error> {
        if !self.lanes.is_to_rise() {
            return Ok(());
        }
        let integrations: Vec<&str> =
            quotas.iter().map(|quota| quota.integration.as_str()).collect();
        let steps: [Said<'_>; 2] = [(LOCK_LANES, &[&integrations]), (RISE, &[&integrations])];
        one_by_one(client, BEGIN, &steps).await?;
        Ok(())
    }
}

/// A statement and its parameters.
pub(super) type Said<'a> = (&'a str, &'a [&'a (dyn ToSql + Sync)]);

/// Runs statements in one transaction and one round trip; what the last of them answers. Locks
/// come first, as statements of their own: one that waited for a lock still reads its old snapshot.
pub(super) async fn one_by_one(
    client: &Connection,
    begin: &str,
    statements: &[Said<'_>],
) -> Result<Vec<Row>, Error> {
    let mut prepared = Vec::with_capacity(statements.len());
    for (sql, params) in statements {
        prepared.push((client.prepare_cached(sql).await?, *params));
    }
    let nothing = |()| Vec::new();
    let mut steps = vec![async { client.batch_execute(begin).await.map(nothing) }.boxed()];
    for (statement, params) in &prepared {
        steps.push(async { client.run(statement, params).await }.boxed());
    }
    steps.push(async { client.batch_execute(COMMIT).await.map(nothing) }.boxed());
    let mut answers: Vec<Vec<Row>> = in_order(steps).await.into_iter().collect::<Result<_, _>>()?;
    answers.pop();
    Ok(answers.pop().unwrap_or_default())
}

fn clamp_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
