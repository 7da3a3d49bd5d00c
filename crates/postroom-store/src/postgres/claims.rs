//! Taking, extending, and handing settlements on.

use super::connection::Connection;
use super::content::{Claiming, clamp_i32};
use super::error::store_error;
use super::marks::{Place, is_from_start};
use super::row::TakenRow;
use super::transaction::{BEGIN, JOIN_BY_HASH, transact};
use super::{PgStore, statements};
use crate::leased::Known;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{
    Batch, Claims, Quota, Rescued, Settled, Settlement, StoreResult, Take, Taken, Token, Wake,
};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use uuid::Uuid;

const TAKE: Claiming = Claiming {
    reading: statements::TAKE,
    unread: concat!(include_str!("sql/take.sql"), include_str!("sql/claimed.sql")),
};
const TAKE_RESCUED: Claiming = Claiming {
    reading: statements::TAKE_RESCUED,
    unread: concat!(include_str!("sql/take_rescued.sql"), include_str!("sql/claimed.sql")),
};
const EXTEND: &str = include_str!("sql/extend.sql");
const KEEP: &str = include_str!("sql/keep.sql");
const LET_GO: &str = include_str!("sql/let_go.sql");
const FORGET_LEASE: &str = "DELETE FROM core_outbox.claim WHERE token = $1";
const FORGET_ORPHANS: &str = include_str!("sql/forget_orphans.sql");

#[async_trait]
impl Claims for PgStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        // Deliveries without a message are removed and do not count, and below the low-water
        // mark there may be more: go on until something deliverable or nothing at all is found.
        loop {
            match self.take_once(take).await? {
                Found::Nothing => return Ok(Vec::new()),
                Found::NothingAboveMark | Found::OnlyOrphans => {}
                Found::Batch(batch) => return Ok(vec![batch]),
            }
        }
    }

    async fn take_rescued(&self, take: &Take<'_>, which: Rescued) -> StoreResult<Vec<Batch>> {
        let doing = "taking rescued messages";
        let mut client = self.connection().await?;
        let tokens: Vec<Uuid> = take.quotas.iter().map(|_| Token::random().0).collect();
        let params: [&(dyn ToSql + Sync); 10] = [
            &clamp_i32(take.payload_limit),
            &integrations(take.quotas),
            &tokens,
            &rows_per_lane(take.quotas),
            &take.worker,
            &take.claim_time.as_secs_f64(),
            &clamp_i64(take.rows),
            &clamp_i64(take.bytes),
            &(which == Rescued::Alone),
            &lease(take),
        ];
        let read = self.claim_and_read(&mut client, take, doing, &TAKE_RESCUED, &params).await?;
        let mut claims: BTreeMap<Token, Vec<(DateTime<Utc>, Taken)>> = BTreeMap::new();
        let mut orphans = Vec::new();
        for (row, token) in read.rows {
            match row {
                TakenRow::Orphan(seq) => orphans.push(seq),
                TakenRow::Message(message, due) => {
                    claims.entry(token).or_default().push((due, *message));
                }
            }
        }
        forget(&client, &orphans).await?;
        let batch = |(token, messages)| Batch { token, messages: by_due(messages) };
        Ok(claims.into_iter().map(batch).collect())
    }

    async fn settle(&self, settlements: &[Settlement]) -> StoreResult<Settled> {
        let mut client = self.connection().await?;
        super::settle::settle(&mut client, settlements, self.keep_sent).await
    }

    async fn extend(&self, tokens: &[Token], claim_time: Duration) -> StoreResult<Vec<Token>> {
        let doing = "extending claims";
        let client = self.connection().await?;
        let statement = client.prepare_cached(EXTEND).await.map_err(|e| store_error(doing, e))?;
        let wanted: Vec<Uuid> = tokens.iter().map(|token| token.0).collect();
        let params: [&(dyn ToSql + Sync); 2] = [&wanted, &claim_time.as_secs_f64()];
        let held = transact(&client, BEGIN, &statement, &params)
            .await
            .map_err(|e| store_error(doing, e))?;
        let held: Vec<Uuid> = held
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()
            .map_err(|e| store_error(doing, e))?;
        Ok(tokens.iter().filter(|token| !held.contains(&token.0)).copied().collect())
    }

    async fn keep(
        &self,
        lease: Token,
        worker: &str,
        claims: &[Token],
        claim_time: Duration,
    ) -> StoreResult<Vec<Token>> {
        let doing = "keeping a lease";
        let client = self.connection().await?;
        if claims.is_empty() {
            // What was taken under it goes by its own time then.
            client.query(FORGET_LEASE, &[&lease.0]).await.map_err(|e| store_error(doing, e))?;
            return Ok(Vec::new());
        }
        let params: [&(dyn ToSql + Sync); 3] = [&lease.0, &worker, &claim_time.as_secs_f64()];
        let statement = client.prepare_cached(KEEP).await.map_err(|e| store_error(doing, e))?;
        let rows = transact(&client, BEGIN, &statement, &params)
            .await
            .map_err(|e| store_error(doing, e))?;
        let found = rows
            .iter()
            .map(|row| Ok((Token(row.try_get(0)?), row.try_get(1)?)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| store_error(doing, e))?;
        let known = Known::among(&found, claims);
        if !known.strange.is_empty() {
            let strange: Vec<Uuid> = known.strange.iter().map(|token| token.0).collect();
            client.query(LET_GO, &[&strange]).await.map_err(|e| store_error(doing, e))?;
        }
        Ok(known.lost)
    }

    async fn keep_responses(&self, responses: &[(Uuid, String)]) -> StoreResult<()> {
        super::attempts::keep_responses(self, responses).await
    }

    async fn wake(&self) -> Option<Box<dyn Wake>> {
        self.listens_on.clone().map(super::wake::listen)
    }
}

enum Found {
    Nothing,
    NothingAboveMark,
    OnlyOrphans,
    Batch(Batch),
}

impl PgStore {
    async fn take_once(&self, take: &Take<'_>) -> StoreResult<Found> {
        let mut client = self.connection().await?;
        let token = Token::random();
        let began_at = Instant::now();
        let began = self.marks.begin(take.quotas);
        let limited = Take { rows: take.rows.min(self.caution.rows_max()), ..*take };
        let params = TakeParams::of(&limited, token, &began);
        let read = self
            .claim_and_read(&mut client, take, "taking due messages", &TAKE, &params.list())
            .await?;
        let is_empty = read.rows.is_empty();
        let mut messages: Vec<(DateTime<Utc>, Taken)> = Vec::with_capacity(read.rows.len());
        let mut orphans = Vec::new();
        for (row, _) in read.rows {
            match row {
                TakenRow::Orphan(seq) => orphans.push(seq),
                TakenRow::Message(message, due) => messages.push((due, *message)),
            }
        }
        let mut found: HashMap<&str, (Place, usize)> = HashMap::new();
        for (due, taken) in &messages {
            let place = (*due, taken.message.seq);
            let (last, rows) = found.entry(&taken.message.integration).or_insert((place, 0));
            *last = place.max(*last);
            *rows += 1;
        }
        self.marks.note(take.quotas, &began, began_at, &found);
        forget(&client, &orphans).await?;
        if is_empty {
            let from_start = is_from_start(&began);
            return Ok(if from_start { Found::Nothing } else { Found::NothingAboveMark });
        }
        if messages.is_empty() {
            return Ok(Found::OnlyOrphans);
        }
        Ok(Found::Batch(Batch { token, messages: by_due(messages) }))
    }
}

/// What `take.sql` takes.
pub(super) struct TakeParams<'a> {
    payload_limit: i32,
    token: Uuid,
    worker: &'a str,
    claim_seconds: f64,
    integrations: Vec<&'a str>,
    quotas: Vec<i32>,
    due_marks: Vec<DateTime<Utc>>,
    seq_marks: Vec<i64>,
    rows: i64,
    bytes: i64,
    lease: Option<Uuid>,
}

impl<'a> TakeParams<'a> {
    /// For a take after `places`, one for each quota.
    pub(super) fn of(take: &'a Take<'_>, token: Token, places: &[Place]) -> Self {
        let (due_marks, seq_marks) = places.iter().copied().unzip();
        Self {
            payload_limit: clamp_i32(take.payload_limit),
            token: token.0,
            worker: take.worker,
            claim_seconds: take.claim_time.as_secs_f64(),
            integrations: integrations(take.quotas),
            quotas: rows_per_lane(take.quotas),
            due_marks,
            seq_marks,
            rows: clamp_i64(take.rows),
            bytes: clamp_i64(take.bytes),
            lease: lease(take),
        }
    }

    /// In the statement's order.
    pub(super) fn list(&self) -> [&(dyn ToSql + Sync); 11] {
        [
            &self.payload_limit,
            &self.token,
            &self.worker,
            &self.claim_seconds,
            &self.integrations,
            &self.quotas,
            &self.due_marks,
            &self.seq_marks,
            &self.rows,
            &self.bytes,
            &self.lease,
        ]
    }
}

/// Takes due deliveries, and reads their messages as rows.
pub(super) async fn take_rows(
    client: &Connection,
    params: &TakeParams<'_>,
) -> Result<Vec<Row>, Error> {
    let statement = client.prepare_cached(statements::TAKE).await?;
    transact(client, BEGIN, &statement, &params.list()).await
}

pub(super) async fn forget(client: &Connection, orphans: &[i64]) -> StoreResult<()> {
    if orphans.is_empty() {
        return Ok(());
    }
    let doing = "removing deliveries whose message is gone";
    let statement =
        client.prepare_cached(FORGET_ORPHANS).await.map_err(|e| store_error(doing, e))?;
    let removed = transact(client, &format!("{BEGIN}; {JOIN_BY_HASH}"), &statement, &[&orphans])
        .await
        .map_err(|e| store_error(doing, e))?
        .len();
    tracing::info!(removed, "removed deliveries whose message was deleted or closed by hand");
    Ok(())
}

fn integrations(quotas: &[Quota]) -> Vec<&str> {
    quotas.iter().map(|quota| quota.integration.as_str()).collect()
}

fn rows_per_lane(quotas: &[Quota]) -> Vec<i32> {
    quotas.iter().map(|quota| clamp_i32(quota.rows)).collect()
}

/// Messages in the order in which they were due.
fn by_due(mut messages: Vec<(DateTime<Utc>, Taken)>) -> Vec<Taken> {
    messages.sort_unstable_by_key(|(due, taken)| (*due, taken.message.seq));
    messages.into_iter().map(|(_, taken)| taken).collect()
}

fn lease(take: &Take<'_>) -> Option<Uuid> {
    take.lease.map(|lease| lease.0)
}

fn clamp_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
