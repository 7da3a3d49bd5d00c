//! Taking, extending, and handing settlements on.

use super::connection::Connection;
use super::error::store_error;
use super::marks::{Place, is_from_start};
use super::row::{TakenRow, taken};
use super::transaction::{BEGIN, JOIN_BY_HASH, transact};
use super::{PgStore, statements};
use crate::leased::Known;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use postroom_core::{
    Batch, Claims, Quota, Settled, Settlement, StoreResult, Take, Taken, Token, Wake,
};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

const TAKE_RESCUED: &str =
    concat!(include_str!("sql/take_rescued.sql"), include_str!("sql/content.sql"));
const EXTEND: &str = include_str!("sql/extend.sql");
const KEEP: &str = include_str!("sql/keep.sql");
const LET_GO: &str = include_str!("sql/let_go.sql");
const FORGET_LEASE: &str = "DELETE FROM core_outbox.claim WHERE token = $1";
const FORGET_ORPHANS: &str = include_str!("sql/forget_orphans.sql");

#[async_trait]
impl Claims for PgStore {
    async fn take(&self, take: &Take<'_>) -> StoreResult<Option<Batch>> {
        // Deliveries without a message are removed and do not count, and below the low-water
        // mark there may be more: go on until something deliverable or nothing at all is found.
        loop {
            match self.take_once(take).await? {
                Found::Nothing => return Ok(None),
                Found::NothingAboveMark | Found::OnlyOrphans => {}
                Found::Batch(batch) => return Ok(Some(batch)),
            }
        }
    }

    async fn take_rescued(&self, take: &Take<'_>) -> StoreResult<Vec<Batch>> {
        let doing = "taking rescued messages";
        let client = self.connection().await?;
        let statement =
            client.prepare_cached(TAKE_RESCUED).await.map_err(|e| store_error(doing, e))?;
        let integrations = integrations(take.quotas);
        let claim_seconds = take.claim_time.as_secs_f64();
        let payload_limit = clamp_i32(take.payload_limit);
        let rows = transact(
            &client,
            BEGIN,
            &statement,
            &[&payload_limit, &integrations, &take.worker, &claim_seconds, &lease(take)],
        )
        .await
        .map_err(|e| store_error(doing, e))?;
        let mut batches = Vec::with_capacity(rows.len());
        let mut orphans = Vec::new();
        for row in &rows {
            match taken(row, take.payload_limit).map_err(|e| store_error(doing, e))? {
                TakenRow::Orphan(seq) => orphans.push(seq),
                TakenRow::Message(message, _) => {
                    let token = row.try_get("token").map_err(|e| store_error(doing, e))?;
                    batches.push(Batch { token: Token(token), messages: vec![*message] });
                }
            }
        }
        forget(&client, &orphans).await?;
        Ok(batches)
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
        let held = client
            .run(&statement, &[&wanted, &claim_time.as_secs_f64()])
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
        let rows = client.run(&statement, &params).await.map_err(|e| store_error(doing, e))?;
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
        let doing = "taking due messages";
        let client = self.connection().await?;
        let statement =
            client.prepare_cached(statements::TAKE).await.map_err(|e| store_error(doing, e))?;
        let token = Token::random();
        let began_at = Instant::now();
        let began = self.marks.begin(take.quotas);
        let integrations = integrations(take.quotas);
        let (due_marks, seq_marks): (Vec<_>, Vec<_>) = began.iter().copied().unzip();
        let quotas: Vec<i32> = take.quotas.iter().map(|quota| clamp_i32(quota.rows)).collect();
        let rows = transact(
            &client,
            BEGIN,
            &statement,
            &[
                &clamp_i32(take.payload_limit),
                &token.0,
                &take.worker,
                &take.claim_time.as_secs_f64(),
                &integrations,
                &quotas,
                &due_marks,
                &seq_marks,
                &clamp_i64(take.rows),
                &clamp_i64(take.bytes),
                &lease(take),
            ],
        )
        .await
        .map_err(|e| store_error(doing, e))?;
        let mut messages: Vec<(DateTime<Utc>, Taken)> = Vec::with_capacity(rows.len());
        let mut orphans = Vec::new();
        for row in &rows {
            match taken(row, take.payload_limit).map_err(|e| store_error(doing, e))? {
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
        if rows.is_empty() {
            let from_start = is_from_start(&began);
            return Ok(if from_start { Found::Nothing } else { Found::NothingAboveMark });
        }
        if messages.is_empty() {
            return Ok(Found::OnlyOrphans);
        }
        messages.sort_unstable_by_key(|(due, taken)| (*due, taken.message.seq));
        let messages = messages.into_iter().map(|(_, taken)| taken).collect();
        Ok(Found::Batch(Batch { token, messages }))
    }
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

fn lease(take: &Take<'_>) -> Option<Uuid> {
    take.lease.map(|lease| lease.0)
}

fn clamp_i32(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn clamp_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
