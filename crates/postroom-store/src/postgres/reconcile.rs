//! Making messages and deliveries agree, in bounded steps beside producers and relays.

use super::connection::Connection;
use super::error::store_error;
use super::ids::{After, Id, ids};
use super::parcels::{Step, UNPACK_NAMED, one_by_one};
use super::transaction::{BEGIN, JOIN_BY_HASH, transact};
use postroom_core::{Reconciled, StoreResult};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

const ADVANCE: &str = "SELECT core_outbox.advance_numbers()";
const LOCK_ALL: &str = "SELECT lane FROM core_outbox.lane_cursor ORDER BY lane FOR UPDATE";
/// A lane that no relay has served has none, and cannot be locked.
const MAKE_ALL_CURSORS: &str = "INSERT INTO core_outbox.lane_cursor (lane) \
    SELECT DISTINCT lane FROM core_outbox.parcel ORDER BY lane ON CONFLICT DO NOTHING";
const SHARED: &str = include_str!("sql/reconcile_shared.sql");
const OF_NUMBERS: &str = "SELECT id FROM core_outbox.integration_outbox WHERE seq = ANY ($1)";
const NUMBER: &str = include_str!("sql/reconcile_number.sql");
const DOUBLED: &str = include_str!("sql/reconcile_doubled.sql");
const EMPTIED: &str = include_str!("sql/reconcile_emptied.sql");
pub(super) const MAKE: &str = include_str!("sql/reconcile_make.sql");
const CLOSED: &str = include_str!("sql/reconcile_closed.sql");
const REMOVE: &str = include_str!("sql/reconcile_remove.sql");
const STRAY: &str = include_str!("sql/reconcile_stray.sql");
const FREE: &str = include_str!("sql/reconcile_free.sql");
const UNLIKE: &str = include_str!("sql/reconcile_unlike.sql");
const FOLLOW: &str = include_str!("sql/reconcile_follow.sql");

/// How many rows are looked at, or mended, in one transaction.
const ROWS: i64 = 5_000;

const DOING: &str = "reconciling";

/// Reads whole tables where that is what it takes.
const BY_ANY_PLAN: &str = "SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on; \
     SET LOCAL enable_hashjoin = on; SET LOCAL enable_nestloop = on; SET LOCAL jit = off";

pub(super) async fn reconcile(client: &Connection) -> StoreResult<Reconciled> {
    let advanced = advance(client).await.map_err(|e| store_error(DOING, e))?;
    let begin = format!("{BEGIN}; {BY_ANY_PLAN}");
    // Numbers of foreign rows are made up, and may meet.
    let shared = match client.foreign() {
        Some(_) => 0,
        None => number(client, &begin).await.map_err(|e| store_error(DOING, e))?,
    };
    let numbered =
        shared + unpack_doubled(client, &begin).await.map_err(|e| store_error(DOING, e))?;
    // Freed before the others: what turns out to have no message goes with them.
    let freed = free(client).await.map_err(|e| store_error(DOING, e))?;
    let made = make(client, &begin).await.map_err(|e| store_error(DOING, e))?;
    let followed = mend(client, UNLIKE, FOLLOW).await.map_err(|e| store_error(DOING, e))?;
    let removed = mend(client, CLOSED, REMOVE).await.map_err(|e| store_error(DOING, e))?
        + remove_emptied(client, &begin).await.map_err(|e| store_error(DOING, e))?;
    Ok(Reconciled { made, removed, freed, followed, advanced, numbered })
}

/// How many sequences were behind the numbers in use.
async fn advance(client: &Connection) -> Result<u64, Error> {
    let answer = run(client, ADVANCE, &[]).await?;
    let is_behind = answer.first().map(|row| row.try_get::<_, bool>(0)).transpose()?;
    Ok(u64::from(is_behind.unwrap_or(false)))
}

/// Messages that share their number with another get one of their own: lists go by it in pages. Parcels are
/// found by the numbers of their messages, so those that nobody holds are unpacked before that. What somebody holds
/// is found by its claim.
async fn number(client: &Connection, begin: &str) -> Result<u64, Error> {
    let mut after = i64::MIN;
    let mut numbered = 0;
    loop {
        let found = run(client, SHARED, &[&after, &ROWS]).await?;
        let seqs = found.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
        let Some(last) = seqs.last() else { return Ok(numbered) };
        after = *last;
        unpack(client, begin, &ids(&run(client, OF_NUMBERS, &[&seqs]).await?)?).await?;
        numbered += change(client, NUMBER, &[&seqs]).await?.len() as u64;
    }
}

/// Of messages that two parcels name, the parcels that nobody holds are unpacked: both name the one
/// delivery then.
async fn unpack_doubled(client: &Connection, begin: &str) -> Result<u64, Error> {
    let find = client.prepare_cached(DOUBLED).await?;
    let mut mended = 0;
    loop {
        let doubled = ids(&transact(client, begin, &find, &[&ROWS]).await?)?;
        if doubled.is_empty() || unpack(client, begin, &doubled).await? == 0 {
            return Ok(mended);
        }
        mended += doubled.len() as u64;
    }
}

/// Unpacks the parcels that name these messages and that nobody holds; how many.
async fn unpack(client: &Connection, begin: &str, ids: &Vec<Id>) -> Result<i64, Error> {
    run(client, MAKE_ALL_CURSORS, &[]).await?;
    let lanes = one_by_one(client, begin, &[(LOCK_ALL, &[])]).await?;
    let lanes = lanes.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>()?;
    let steps: [Step<'_>; 2] = [(LOCK_ALL, &[]), (UNPACK_NAMED, &[ids, &lanes])];
    let unpacked = one_by_one(client, begin, &steps).await?;
    unpacked.first().map_or(Ok(0), |row| row.try_get(0))
}

/// Parcels none of whose messages is there.
async fn remove_emptied(client: &Connection, begin: &str) -> Result<u64, Error> {
    let steps: [Step<'_>; 2] = [(LOCK_ALL, &[]), (EMPTIED, &[])];
    Ok(one_by_one(client, begin, &steps).await?.len() as u64)
}

async fn make(client: &Connection, begin: &str) -> Result<u64, Error> {
    let statement = client.prepare_cached(MAKE).await?;
    Ok(transact(client, begin, &statement, &[]).await?.len() as u64)
}

/// Looks for deliveries by their message, without a lock, and mends what was found.
async fn mend(client: &Connection, find: &str, mend: &str) -> Result<u64, Error> {
    let mut after = After::default();
    let mut mended = 0;
    loop {
        let found = run(client, find, &[&after, &ROWS]).await?;
        let ids = ids(&found)?;
        let Some(Id(last)) = ids.last() else { return Ok(mended) };
        after = After(Some(last.clone()));
        mended += change(client, mend, &[&ids]).await?.len() as u64;
    }
}

async fn free(client: &Connection) -> Result<u64, Error> {
    let mut after = After::default();
    let mut freed = 0;
    loop {
        let found = run(client, STRAY, &[&after, &ROWS]).await?;
        let ids = ids(&found)?;
        let claims = found.iter().map(|row| row.try_get(1)).collect::<Result<Vec<Uuid>, _>>()?;
        let Some(Id(last)) = ids.last() else { return Ok(freed) };
        after = After(Some(last.clone()));
        freed += change(client, FREE, &[&ids, &claims]).await?.len() as u64;
    }
}

async fn run(
    client: &Connection,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let statement = client.prepare_cached(sql).await?;
    transact(client, BEGIN, &statement, params).await
}

/// The same for statements that join what they were given with what they found.
async fn change(
    client: &Connection,
    sql: &str,
    params: &[&(dyn ToSql + Sync)],
) -> Result<Vec<Row>, Error> {
    let statement = client.prepare_cached(sql).await?;
    transact(client, &format!("{BEGIN}; {JOIN_BY_HASH}"), &statement, params).await
}
